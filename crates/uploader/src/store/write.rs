//! Writes of whole objects, and copies within the store.

use std::time::Instant;

use bytes::Bytes;
use object_store::{ObjectMeta, ObjectStoreExt as _, PutMode, PutOptions, PutPayload};

use crate::error::{StoreError, StoreErrorKind};
use crate::operation::Operation;
use crate::request::bounds::SMALL_OBJECT;
use crate::store::retry_loop::jitter;
use crate::store::{Store, path_of};

/// Maximum number of repetitions of a create-only write that met a concurrent write.
pub(crate) const CONFLICTS: u32 = 5;

/// Maximum number of repeated reads of what was just written, if it is missing or different.
const READ_AGAIN: u32 = 3;

impl Store {
    /// Error of a store that keeps refusing to create an object that does not exist.
    pub(crate) fn cannot_create(&self, key: &str, refused: &StoreError) -> StoreError {
        let message =
            format!("the store refuses to create the object, though it does not exist ({refused})");
        let way = self.service().without_conditions();
        let way = way.map(|way| format!("it may not support conditional writes: {way}").into());
        let hint = refused.hint().map(|hint| hint.to_owned().into()).or(way);
        StoreError::new(Operation::Create, key, StoreErrorKind::Rejected, message).with_hint(hint)
    }

    /// Writes an object, replacing an existing one. Safe to repeat.
    ///
    /// The object gets the bucket's default storage class. A configured class applies only to data
    /// objects, which a [`crate::PartSender`] sends.
    ///
    /// # Errors
    /// [`StoreError`] after all retries.
    pub async fn put(&self, key: &str, payload: PutPayload) -> Result<(), StoreError> {
        self.put_with(key, payload, || self.traits.put_options(PutMode::Overwrite)).await.map(drop)
    }

    /// Writes a data object as [`Store::put`] does, and returns the entity tag of its content.
    pub(crate) async fn put_data(
        &self,
        key: &str,
        payload: PutPayload,
    ) -> Result<Option<String>, StoreError> {
        self.put_with(key, payload, || self.traits.data_options(PutMode::Overwrite)).await
    }

    pub(crate) async fn put_with(
        &self,
        key: &str,
        payload: PutPayload,
        options: impl Fn() -> PutOptions,
    ) -> Result<Option<String>, StoreError> {
        let path = path_of(Operation::Put, key)?;
        self.retrying(Operation::Put, key, || async {
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
    /// read back: equal bytes mean that this write succeeded. (Without conditional writes, each try
    /// looks for the object first. Two writers at the same moment may both find none; then the later
    /// write wins, and the other writer gets an error if it has not read back yet.)
    ///
    /// # Errors
    /// [`StoreErrorKind::AlreadyExists`] if the object exists with other bytes; other kinds after
    /// all retries.
    pub async fn create(&self, key: &str, content: Bytes) -> Result<(), StoreError> {
        let path = path_of(Operation::Create, key)?;
        let taken = || {
            let message = "another object already has this name";
            StoreError::new(Operation::Create, key, StoreErrorKind::AlreadyExists, message)
        };
        let mut conflicts = 0;
        loop {
            let outcome = self
                .retrying(Operation::Create, key, || async {
                    let mode = match self.has_conditions() {
                        true => PutMode::Create,
                        false => PutMode::Overwrite,
                    };
                    // Before each try: another writer may have come between two of them.
                    if mode == PutMode::Overwrite {
                        self.refuse_existing(&path).await?;
                    }
                    let options = self.traits.put_options(mode);
                    let sent = Instant::now();
                    let put = self.objects.put_opts(&path, content.clone().into(), options);
                    put.await.map(|_| sent)
                })
                .await;
            match (self.written(key, &content, outcome.is_ok()).await, outcome) {
                (Ok((found, meta)), outcome) if found == content => {
                    // Otherwise an earlier try may have written it.
                    if let Ok(sent) = outcome {
                        self.traffic().wrote(meta.last_modified.timestamp(), sent);
                    }
                    return Ok(());
                }
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
                    return Err(self.cannot_create(key, &refused));
                }
                // If the object is missing after another error, that error is the cause. If it is
                // missing after success, the write did not succeed either.
                (Err(gone), Ok(_)) if gone.kind == StoreErrorKind::NotFound => {
                    return Err(StoreError::not_kept(key));
                }
                (Err(read_back), outcome) => {
                    let error = outcome.err().unwrap_or(read_back);
                    return Err(self.with_link_hint(error));
                }
            }
        }
    }

    /// Reads back what was just written. One answer may be altered in transit, or be older than the
    /// write; so other bytes count only if two answers in a row have them, and, if the store has
    /// `acknowledged` the write, a missing object only if it is missing repeatedly.
    async fn written(
        &self,
        key: &str,
        content: &Bytes,
        acknowledged: bool,
    ) -> Result<(Bytes, ObjectMeta), StoreError> {
        let most = SMALL_OBJECT.max(content.len() as u64);
        let mut last = self.get_described(key, most).await;
        for retry in 1..=READ_AGAIN {
            match &last {
                Ok((found, _)) if found == content => return last,
                Ok(_) => {}
                Err(error) if error.kind == StoreErrorKind::Damaged => {}
                Err(error) if error.kind == StoreErrorKind::NotFound && acknowledged => {
                    self.pause(retry).await;
                }
                Err(_) => return last,
            }
            let again = self.get_described(key, most).await;
            if matches!((&last, &again), (Ok((last, _)), Ok((again, _))) if last == again) {
                return again;
            }
            last = again;
        }
        last
    }

    /// Checks that the store keeps an object that it acknowledged, with this content. Asks again, as
    /// [`Store::create`] does, before it reports that the object is missing or different.
    ///
    /// # Errors
    /// [`StoreError::not_kept`]; any other error of the read, after all retries.
    pub async fn confirm_content(&self, key: &str, content: &Bytes) -> Result<(), StoreError> {
        match self.written(key, content, true).await {
            Ok((found, _)) if found == *content => Ok(()),
            Ok(_) => Err(StoreError::not_kept(key)),
            Err(error)
                if matches!(error.kind, StoreErrorKind::NotFound | StoreErrorKind::Damaged) =>
            {
                Err(StoreError::not_kept(key))
            }
            Err(error) => Err(error),
        }
    }

    /// Like [`Store::confirm_content`], but compares only the size.
    ///
    /// # Errors
    /// As [`Store::confirm_content`].
    pub async fn confirm_size(&self, key: &str, size: u64) -> Result<(), StoreError> {
        for retry in 1..=READ_AGAIN {
            if self.size(key).await? == Some(size) {
                return Ok(());
            }
            self.pause(retry).await;
        }
        match self.size(key).await? {
            Some(found) if found == size => Ok(()),
            _ => Err(StoreError::not_kept(key)),
        }
    }

    /// Returns whether the store itself can copy objects of at most [`Store::MAX_COPY`] bytes.
    #[must_use]
    pub fn copies(&self) -> bool {
        self.traits.copies
    }

    /// Maximum size of an object that one request can copy, in bytes ("CopyObject": 5 GiB).
    pub const MAX_COPY: u64 = 5 << 30;

    /// Makes the store copy an object within the bucket, replacing an existing one. Safe to repeat.
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] if there is no such object; other kinds after all retries.
    pub async fn copy(&self, from: &str, to: &str) -> Result<(), StoreError> {
        let (source, target) = (path_of(Operation::Copy, from)?, path_of(Operation::Copy, to)?);
        self.retrying(Operation::Copy, from, || async { self.objects.copy(&source, &target).await })
            .await
    }
}
