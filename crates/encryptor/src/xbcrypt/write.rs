//! Sequential encryption.

use std::fmt;

use super::{Cipher, MAX_SIZE, XbcryptError, new_iv, seal_chunk, sealed_len};

/// Number of plain bytes in a chunk: `--encrypt-chunk-size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSize {
    size: usize,
    raised: bool,
}

impl ChunkSize {
    /// The smallest size.
    pub const MIN: u64 = 1024;
    /// The largest size.
    pub const MAX: u64 = MAX_SIZE - 32;

    /// Makes a size. Values below 1024 are raised to 1024, as the stock tools do.
    ///
    /// # Errors
    /// [`XbcryptError::Plain`] for more than [`ChunkSize::MAX`].
    pub fn new(asked: u64) -> Result<Self, XbcryptError> {
        let size = usize::try_from(asked.max(Self::MIN)).unwrap_or(usize::MAX);
        if size as u64 > Self::MAX {
            return Err(XbcryptError::Plain { got: size });
        }
        Ok(Self { size, raised: asked < Self::MIN })
    }

    /// The size in bytes.
    #[must_use]
    pub fn get(self) -> usize {
        self.size
    }

    /// Returns whether a smaller size was requested, which deserves a warning.
    #[must_use]
    pub fn was_raised(self) -> bool {
        self.raised
    }
}

impl Default for ChunkSize {
    fn default() -> Self {
        Self { size: 65536, raised: false }
    }
}

/// Encrypts pieces of any size into version 3 chunks. All but the last are full, however the input
/// is cut. Empty input results in empty output, as with the stock tools.
pub struct Encrypter {
    cipher: Cipher,
    size: ChunkSize,
    plain: Vec<u8>,
}

impl Encrypter {
    /// Creates an encrypter at the start of a file.
    #[must_use]
    pub fn new(cipher: Cipher, size: ChunkSize) -> Self {
        Self { cipher, size, plain: Vec::new() }
    }

    /// Takes plain bytes and appends full chunks to `out`.
    ///
    /// # Errors
    /// [`XbcryptError::Random`]
    pub fn push(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> Result<(), XbcryptError> {
        while !input.is_empty() {
            let room = self.size.get() - self.plain.len();
            let (now, later) = input.split_at(room.min(input.len()));
            input = later;
            if now.len() == self.size.get() {
                Self::seal(&self.cipher, now, out)?;
                continue;
            }
            self.plain.extend_from_slice(now);
            if self.plain.len() == self.size.get() {
                Self::seal(&self.cipher, &self.plain, out)?;
                self.plain.clear();
            }
        }
        Ok(())
    }

    /// Writes the remaining bytes as the last chunk.
    ///
    /// # Errors
    /// [`XbcryptError::Random`]
    pub fn finish(self, out: &mut Vec<u8>) -> Result<(), XbcryptError> {
        if self.plain.is_empty() { Ok(()) } else { Self::seal(&self.cipher, &self.plain, out) }
    }

    fn seal(cipher: &Cipher, plain: &[u8], out: &mut Vec<u8>) -> Result<(), XbcryptError> {
        let iv = new_iv()?;
        let start = out.len();
        out.resize(start + sealed_len(cipher, plain.len()), 0);
        seal_chunk(cipher, &iv, plain, out.get_mut(start..).unwrap_or_default())
    }
}

impl fmt::Debug for Encrypter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encrypter").field("size", &self.size).finish_non_exhaustive()
    }
}
