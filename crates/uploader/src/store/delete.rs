//! Removal of objects.

use futures::StreamExt as _;
use object_store::{Error, ObjectStoreExt as _};

use crate::error::{StoreError, StoreErrorKind};
use crate::request::raw_request::Direct;
use crate::store::{Store, path_of};

impl Store {
    /// Deletes one object. A missing object counts as success.
    ///
    /// # Errors
    /// Any error, after all retries.
    pub async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let path = path_of("delete", key)?;
        match self.retrying("delete", key, || async { self.objects.delete(&path).await }).await {
            Err(error) if error.kind == StoreErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Deletes many objects, in bulk if the store supports it.
    ///
    /// # Errors
    /// The first failure, after all retries. The other objects may or may not be deleted.
    pub async fn delete_all(&self, keys: Vec<String>) -> Result<(), StoreError> {
        // A gate is asked before each batch. So a batch is one request where the store has bulk
        // requests (S3 1,000 keys, Azure 256), and small where each object is a request.
        let at_once = match self.nature.direct {
            Direct::Folder(_) | Direct::Google { .. } => 16,
            Direct::S3 { .. } => 1000,
            Direct::Nothing => 256,
        };
        for keys in keys.chunks(at_once) {
            let paths =
                keys.iter().map(|key| path_of("delete", key)).collect::<Result<Vec<_>, _>>()?;
            let Some(first) = keys.first() else { continue };
            keys.iter().try_for_each(|key| self.refuse_link("delete", key))?;
            self.retrying("delete", first, || async {
                let locations = futures::stream::iter(paths.clone().into_iter().map(Ok)).boxed();
                let mut outcomes = self.objects.delete_stream(locations);
                while let Some(outcome) = outcomes.next().await {
                    match outcome {
                        Ok(_) | Err(Error::NotFound { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(())
            })
            .await?;
        }
        Ok(())
    }
}
