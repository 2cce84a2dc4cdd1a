//! Data objects that are created only if absent, and the checks that tell which run wrote them.

use futures::TryStreamExt as _;
use object_store::{ObjectStoreExt as _, PutMode, PutPayload};

use crate::error::{StoreError, StoreErrorKind};
use crate::operation::Operation;
use crate::store::retry_loop::jitter;
use crate::store::write::CONFLICTS;
use crate::store::{Store, path_of};

/// Length and CRC-64/NVME of an object that was read back.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadBack {
    /// Length in bytes.
    pub len: u64,
    /// CRC-64/NVME of the bytes.
    pub crc64: u64,
    /// Entity tag of the content (`ETag`), if the store returns one.
    pub tag: Option<String>,
}

impl Store {
    /// Creates a data object if it is absent, and returns its entity tag. A store without
    /// conditional writes replaces an existing object.
    ///
    /// An earlier try whose response was lost may have written the object. An existing object with
    /// the same bytes therefore counts as success.
    pub(crate) async fn create_data(
        &self,
        key: &str,
        payload: PutPayload,
    ) -> Result<Option<String>, StoreError> {
        if !self.has_conditions() {
            return self.put_data(key, payload).await;
        }
        let mut conflicts = 0;
        loop {
            let options = || self.traits.data_options(PutMode::Create);
            let refused = match self.put_with(key, payload.clone(), options).await {
                Err(error) if error.kind == StoreErrorKind::AlreadyExists => error,
                outcome => return outcome,
            };
            match self.read_back(key).await {
                Ok(there) if (there.len, there.crc64) == sum_of(&payload) => return Ok(there.tag),
                Ok(_) => {
                    let message = "the name is taken by an object of another run";
                    let kind = StoreErrorKind::AlreadyExists;
                    return Err(StoreError::new(Operation::Create, key, kind, message));
                }
                // Refused because of a concurrent write that did not succeed either (S3 returns
                // 409).
                Err(gone) if gone.kind == StoreErrorKind::NotFound && conflicts < CONFLICTS => {
                    conflicts += 1;
                    tokio::time::sleep(self.policy.pause(conflicts, None, jitter())).await;
                }
                Err(gone) if gone.kind == StoreErrorKind::NotFound => {
                    return Err(self.cannot_create(key, &refused));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads an object only to compute its checksum, in little memory.
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] if there is no such object; other kinds after all retries.
    pub async fn read_back(&self, key: &str) -> Result<ReadBack, StoreError> {
        let path = path_of(Operation::Get, key)?;
        // The bytes are only counted, not kept.
        self.reading(Operation::Get, key, u64::MAX, || async {
            self.refuse_special(&path)?;
            let answer = self.objects.get(&path).await?;
            let tag = answer.meta.e_tag.clone();
            let (mut len, mut digest) = (0, digest());
            let mut pieces = answer.into_stream();
            while let Some(piece) = pieces.try_next().await? {
                self.keep_to_rate(piece.len()).await;
                len += piece.len() as u64;
                digest.update(&piece);
            }
            Ok(ReadBack { len, crc64: digest.finalize(), tag })
        })
        .await
    }
}

fn digest() -> crc_fast::Digest {
    crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme)
}

fn sum_of(payload: &PutPayload) -> (u64, u64) {
    let mut digest = digest();
    payload.iter().for_each(|bytes| digest.update(bytes));
    (payload.content_length() as u64, digest.finalize())
}
