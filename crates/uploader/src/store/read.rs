//! Reads of objects, ranges and sizes.

use std::ops::Range;

use bytes::Bytes;
use object_store::{GetOptions, GetRange, ObjectStoreExt as _};

use crate::error::{StoreError, StoreErrorKind};
use crate::request::bounds::{Excess, SMALL_OBJECT};
use crate::store::{Store, path_of};

impl Store {
    /// Reads a whole object of at most [`SMALL_OBJECT`] bytes.
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] if there is no such object, [`StoreErrorKind::Damaged`] if it is
    /// larger; other kinds after all retries.
    pub async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        self.get_at_most(key, SMALL_OBJECT).await
    }

    /// Reads a whole object of at most `most` bytes.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub async fn get_at_most(&self, key: &str, most: u64) -> Result<Bytes, StoreError> {
        let path = path_of("get", key)?;
        self.reading("get", key, most, || async {
            let answer = self.objects.get(&path).await?;
            let size = answer.meta.size;
            if size > most {
                return Err(Excess::Object { size, most }.into());
            }
            answer.bytes().await
        })
        .await
    }

    /// Reads a range of an object that must have `size` bytes. The result has exactly the requested
    /// length. A response of another length is requested once more: only the same twice is taken for
    /// the object's own fault.
    ///
    /// # Errors
    /// [`StoreErrorKind::Damaged`] if the object has another size; other kinds after all retries.
    pub async fn get_range(
        &self,
        key: &str,
        range: Range<u64>,
        size: u64,
    ) -> Result<Bytes, StoreError> {
        match self.get_range_once(key, range.clone(), size).await {
            Err(error) if error.kind == StoreErrorKind::Damaged => {
                self.traffic.count_retry();
                self.get_range_once(key, range, size).await
            }
            outcome => outcome,
        }
    }

    async fn get_range_once(
        &self,
        key: &str,
        range: Range<u64>,
        size: u64,
    ) -> Result<Bytes, StoreError> {
        let path = path_of("get", key)?;
        let wanted = range.end - range.start;
        let (found, bytes) = self
            .reading("get", key, wanted, || async {
                self.keep_to_rate(usize::try_from(wanted).unwrap_or(usize::MAX)).await;
                let range = Some(GetRange::Bounded(range.clone()));
                let options = GetOptions { range, ..GetOptions::default() };
                let answer = self.objects.get_opts(&path, options).await?;
                let given = answer.range.end.saturating_sub(answer.range.start);
                if given > wanted {
                    return Err(Excess::Bytes(wanted).into());
                }
                Ok((answer.meta.size, answer.bytes().await?))
            })
            .await?;
        // The store reports the size with every range, so this check costs no request.
        if found != size {
            let message = format!("the object has {found} bytes, expected {size}");
            return Err(StoreError::new("get", key, StoreErrorKind::Damaged, message));
        }
        if bytes.len() as u64 != wanted {
            let message = format!(
                "the object is too short: requested bytes {}..{}, received {}",
                range.start,
                range.end,
                bytes.len()
            );
            return Err(StoreError::new("get", key, StoreErrorKind::Damaged, message));
        }
        Ok(bytes)
    }

    /// Returns the size of an object, or `None` if there is no such object.
    ///
    /// # Errors
    /// Any error except "not found", after all retries.
    pub async fn size(&self, key: &str) -> Result<Option<u64>, StoreError> {
        let path = path_of("head", key)?;
        match self.retrying("head", key, || async { self.objects.head(&path).await }).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
