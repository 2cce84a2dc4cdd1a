//! Writes of whole objects, and copies within the store.

use bytes::Bytes;
use object_store::{ObjectStoreExt as _, PutMode, PutOptions, PutPayload};

use crate::error::{StoreError, StoreErrorKind};
use crate::request::bounds::SMALL_OBJECT;
use crate::request::raw_request::Direct;
use crate::store::retry_loop::jitter;
use crate::store::{Store, path_of};

/// Maximum number of repetitions of a create-only write that met a concurrent write.
pub(crate) const CONFLICTS: u32 = 5;

const NO_LINKS: &str =
    "a local store needs a file system with hard links: use a directory on another one";

/// Error of a store that keeps refusing to create an object that does not exist.
pub(crate) fn cannot_create(key: &str, refused: &StoreError) -> StoreError {
    let message =
        format!("the store refuses to create the object, which does not exist ({refused})");
    StoreError::new("create", key, StoreErrorKind::Rejected, message)
        .with_hint(Some("it may not support conditional writes: try --s3-provider=plain".into()))
}

impl Store {
    /// Writes an object, replacing an existing one. Safe to repeat.
    ///
    /// The object gets the bucket's default storage class. A configured class applies only to data
    /// objects, which a [`crate::PartSender`] sends.
    ///
    /// # Errors
    /// [`StoreError`] after all retries.
    pub async fn put(&self, key: &str, payload: PutPayload) -> Result<(), StoreError> {
        self.put_with(key, payload, || self.nature.put_options(PutMode::Overwrite)).await.map(drop)
    }

    /// Writes a data object as [`Store::put`] does, and returns the entity tag of its content.
    pub(crate) async fn put_data(
        &self,
        key: &str,
        payload: PutPayload,
    ) -> Result<Option<String>, StoreError> {
        self.put_with(key, payload, || self.nature.data_options(PutMode::Overwrite)).await
    }

    pub(crate) async fn put_with(
        &self,
        key: &str,
        payload: PutPayload,
        options: impl Fn() -> PutOptions,
    ) -> Result<Option<String>, StoreError> {
        let path = path_of("put", key)?;
        self.retrying("put", key, || async {
            self.keep_to_rate(payload.content_length()).await;
            let answer = self.objects.put_opts(&path, payload.clone(), options()).await?;
            Ok(answer.e_tag)
        })
        .await
    }

    /// Writes an object only if it does not exist.
    ///
    /// The response to such a write can be lost after the store has acted, and a store may ignore
    /// the condition or not support it. So after an error, and after success too, the object is
    /// read back: equal bytes mean that this write succeeded. (Without conditional writes, two
    /// writers at the same moment may both find no object; then the later write wins, and the other
    /// writer gets an error.)
    ///
    /// # Errors
    /// [`StoreErrorKind::AlreadyExists`] if the object exists with other bytes; other kinds after
    /// all retries.
    pub async fn create(&self, key: &str, content: Bytes) -> Result<(), StoreError> {
        let path = path_of("create", key)?;
        let taken = || {
            let message = "another object already has this name";
            StoreError::new("create", key, StoreErrorKind::AlreadyExists, message)
        };
        let mut conflicts = 0;
        loop {
            let mode = if self.nature.conditions {
                PutMode::Create
            } else if self.size(key).await?.is_some() {
                let most = SMALL_OBJECT.max(content.len() as u64);
                let there = self.get_at_most(key, most).await?;
                return if there == content { Ok(()) } else { Err(taken()) };
            } else {
                PutMode::Overwrite
            };
            let outcome = self
                .retrying("create", key, || async {
                    let options = self.nature.put_options(mode.clone());
                    self.objects.put_opts(&path, content.clone().into(), options).await.map(drop)
                })
                .await;
            let most = SMALL_OBJECT.max(content.len() as u64);
            match (self.get_at_most(key, most).await, outcome) {
                (Ok(found), _) if found == content => return Ok(()),
                (Ok(_), _) => return Err(taken()),
                // Refused because of a concurrent write that did not succeed either (S3 returns
                // 409).
                (Err(gone), Err(refused))
                    if gone.kind == StoreErrorKind::NotFound
                        && refused.kind == StoreErrorKind::AlreadyExists
                        && conflicts < CONFLICTS =>
                {
                    conflicts += 1;
                    tokio::time::sleep(self.policy.pause(conflicts, None, jitter())).await;
                }
                (Err(gone), Err(refused))
                    if gone.kind == StoreErrorKind::NotFound
                        && refused.kind == StoreErrorKind::AlreadyExists =>
                {
                    return Err(cannot_create(key, &refused));
                }
                // If the object is missing after another error, that error is the cause. If it is
                // missing after success, the write did not succeed either.
                (Err(read_back), outcome) => {
                    let error = outcome.err().unwrap_or(read_back);
                    return Err(self.with_link_hint(error));
                }
            }
        }
    }

    /// Adds the likely cause if a file cannot be created under its name.
    fn with_link_hint(&self, error: StoreError) -> StoreError {
        let folder = matches!(self.nature.direct, Direct::Folder(_));
        let refused = ["Operation not permitted", "not supported", "Function not implemented"];
        let text = error.to_string();
        match folder && refused.iter().any(|refused| text.contains(refused)) {
            true => error.with_hint(Some(NO_LINKS.into())),
            false => error,
        }
    }

    /// Whether the store itself can copy objects of at most [`Store::MAX_COPY`] bytes.
    #[must_use]
    pub fn copies(&self) -> bool {
        self.nature.copies
    }

    /// Maximum size of an object that one request can copy, in bytes ("CopyObject": 5 GiB).
    pub const MAX_COPY: u64 = 5 << 30;

    /// Makes the store copy an object within the bucket, replacing an existing one. Safe to repeat.
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] if there is no such object; other kinds after all retries.
    pub async fn copy(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let (source, target) = (path_of("copy", from)?, path_of("copy", to)?);
        self.retrying("copy", from, || async { self.objects.copy(&source, &target).await }).await
    }
}
