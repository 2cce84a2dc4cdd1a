//! A key that seals one stream, once.

use zeroize::Zeroizing;

use crate::random::{self, NoRandom};
use crate::seal::{SealContext, SealError, Sealer};
use crate::{Backend, DataKey};

/// A data key that has not sealed anything yet.
///
/// Only [`FreshKey::generate`] and [`ArchiveKey::fresh_segment`](crate::ArchiveKey::fresh_segment) create
/// one, and [`FreshKey::sealer`] consumes it: a key cannot seal two streams.
///
/// ```compile_fail,E0382
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use xb_encryptor::{Backend, FreshKey, SealContext};
/// # let context = SealContext { stream_id: [0; 16], commitment: [0; 32], header: &[] };
/// let key = FreshKey::generate()?;
/// let first = key.sealer(&context, Backend::default())?;
/// let second = key.sealer(&context, Backend::default())?; // moved away above
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FreshKey(DataKey);

impl FreshKey {
    /// Generates a random key.
    ///
    /// # Errors
    /// [`NoRandom`]
    pub fn generate() -> Result<Self, NoRandom> {
        let bytes = Zeroizing::new(random::bytes()?);
        Ok(Self(DataKey::new(&bytes)))
    }

    /// The data key: for its commitment, its keys object, its manifest.
    #[must_use]
    pub fn key(&self) -> &DataKey {
        &self.0
    }

    /// Starts sealing the one stream that this key is for.
    ///
    /// # Errors
    /// [`SealError::ForeignHeader`] when the commitment in `context` is not that of this key,
    /// [`SealError::Random`].
    pub fn sealer(
        self,
        context: &SealContext<'_>,
        backend: Backend,
    ) -> Result<(Sealer, DataKey), SealError> {
        let sealer = Sealer::new(&self.0, context, backend)?;
        Ok((sealer, self.0))
    }

    /// A key that was derived for a stream that nothing has sealed.
    pub(crate) fn of(key: DataKey) -> Self {
        Self(key)
    }

    pub(crate) fn into_key(self) -> DataKey {
        self.0
    }

    #[cfg(test)]
    pub(crate) fn from_bytes(bytes: &[u8; DataKey::LEN]) -> Self {
        Self(DataKey::new(bytes))
    }
}
