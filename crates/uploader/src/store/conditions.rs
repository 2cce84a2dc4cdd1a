//! Create-only writes: whether the store rejects them if the object exists.

use bytes::Bytes;
use object_store::{ObjectStoreExt as _, PutMode};

use crate::error::{StoreError, StoreErrorKind};
use crate::failed_try::notice;
use crate::operation::Operation;
use crate::service::Service;
use crate::store::{Store, path_of};

impl Store {
    /// Returns whether the store itself rejects a create-only write of an existing object, as far as is
    /// known: by its profile, and by [`Store::refuses_existing`].
    #[must_use]
    pub fn has_conditions(&self) -> bool {
        self.traits.conditions && self.obeys.get() != Some(&false)
    }

    /// Finds out whether the store rejects a create-only write of `key`, which exists: some ignore
    /// the condition. Such a store counts as one without conditional writes from here on, for all
    /// clones, and a warning says so. Costs one request, and none once the result is known.
    ///
    /// `other` must differ from the object's content. If the store ignores the condition, the
    /// object has that content afterwards.
    ///
    /// # Errors
    /// Any error except that the object exists, after all retries.
    pub async fn refuses_existing(&self, key: &str, other: Bytes) -> Result<bool, StoreError> {
        if !self.traits.conditions {
            return Ok(false);
        }
        if let Some(obeys) = self.obeys.get() {
            return Ok(*obeys);
        }
        let path = path_of(Operation::Create, key)?;
        let created = self.retrying(Operation::Create, key, || async {
            let options = self.traits.put_options(PutMode::Create);
            self.objects.put_opts(&path, other.clone().into(), options).await.map(drop)
        });
        let obeys = match created.await {
            Ok(()) => false,
            Err(error) if error.kind == StoreErrorKind::AlreadyExists => true,
            Err(error) => return Err(self.with_link_hint(error)),
        };
        if self.obeys.set(obeys).is_ok() && !obeys {
            notice::warn(&ignored(self.service()));
        }
        Ok(obeys)
    }

    /// Fails if `key` exists, in a store that cannot make that a condition of the write. The write
    /// that follows may still replace an object that is created in between.
    pub(crate) async fn refuse_existing(
        &self,
        path: &object_store::path::Path,
    ) -> object_store::Result<()> {
        match self.objects.head(path).await {
            Ok(_) => Err(object_store::Error::AlreadyExists {
                path: path.to_string(),
                source: "another object already has this name".into(),
            }),
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn ignored(service: Service) -> String {
    let way = service.without_conditions().map(|way| format!("{way}, and ")).unwrap_or_default();
    format!(
        "the store ignores the condition of a create-only write, so it is used as one without conditional writes: {way}let only one host write to a name at a time"
    )
}
