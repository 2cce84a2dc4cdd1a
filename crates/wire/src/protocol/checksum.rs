//! CRC-32C over the parts of a message.

use crc_fast::{CrcAlgorithm, Digest};

/// A running checksum.
#[derive(Debug, Clone)]
pub(crate) struct Sum(Digest);

impl Sum {
    pub(crate) fn over(bytes: &[u8]) -> Self {
        let mut sum = Self(Digest::new(CrcAlgorithm::Crc32Iscsi));
        sum.update(bytes);
        sum
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The library returns 64 bits for every width.
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}
