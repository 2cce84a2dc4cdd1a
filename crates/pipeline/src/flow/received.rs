//! Bytes that have arrived from a store, with checksums computed on arrival, while the bytes were in
//! the processor's cache. Reading them from memory again would cost more than the checksum.

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

use crate::flow::checksum::{Crc32c, crc32c, crc32c_combine};

/// Length of a block in bytes. At the ends of a frame, parts of two blocks are read again, so the
/// blocks are small compared with a frame, and large compared with the work of combining.
const BLOCK: usize = 32 << 10;

/// CRC-32C of each block of a range.
#[derive(Debug, Default)]
pub struct BlockSums {
    full: Vec<u32>,
    current: Crc32c,
    len: usize,
}

impl BlockSums {
    /// Adds the next bytes of the range.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.len));
            self.current.update(now);
            self.len += now.len();
            if self.len == BLOCK {
                self.full.push(std::mem::take(&mut self.current).finish());
                self.len = 0;
            }
            bytes = later;
        }
    }
}

/// A range of a stored stream.
#[derive(Debug, Clone)]
pub struct Received {
    bytes: Bytes,
    sums: Option<Arc<BlockSums>>,
}

impl Received {
    /// A range with the checksums of its blocks.
    #[must_use]
    pub fn with_sums(bytes: Bytes, sums: BlockSums) -> Self {
        Self { bytes, sums: Some(Arc::new(sums)) }
    }

    /// Returns whether checksums were computed on arrival.
    #[must_use]
    pub(crate) fn has_sums(&self) -> bool {
        self.sums.is_some()
    }

    /// CRC-32C of the bytes from `start` to `end`. Reads at most two blocks of them if checksums
    /// were computed on arrival.
    ///
    /// # Panics
    /// If the bytes do not lie within the range, which is a bug of the caller.
    #[must_use]
    pub fn crc32c(&self, start: usize, end: usize) -> u32 {
        let blocks = start.div_ceil(BLOCK)..end / BLOCK;
        let known = self.sums.as_ref().and_then(|sums| sums.full.get(blocks.clone()));
        let Some(known) = known.filter(|known| !known.is_empty()) else {
            return crc32c(&self.bytes[start..end]);
        };
        let head = crc32c(&self.bytes[start..blocks.start * BLOCK]);
        let tail = &self.bytes[blocks.end * BLOCK..end];
        let sum = known.iter().fold(head, |sum, block| crc32c_combine(sum, *block, BLOCK as u64));
        crc32c_combine(sum, crc32c(tail), tail.len() as u64)
    }
}

impl From<Bytes> for Received {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, sums: None }
    }
}

impl From<Received> for Bytes {
    fn from(received: Received) -> Self {
        received.bytes
    }
}

impl Deref for Received {
    type Target = Bytes;
    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_checksum_of_any_part_is_that_of_its_bytes(
            len in 0_usize..5 * BLOCK,
            seed: u8,
            cuts in proptest::collection::vec(0_usize..5 * BLOCK, 0..6),
            part: (prop::sample::Index, prop::sample::Index),
        ) {
            let content: Vec<u8> = (0..len).map(|n| u8::try_from(n * 31 % 251).unwrap() ^ seed).collect();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(len)).collect();
            cuts.extend([0, len]);
            cuts.sort_unstable();
            let mut sums = BlockSums::default();
            cuts.windows(2).for_each(|cut| sums.update(&content[cut[0]..cut[1]]));
            let (a, b) = (part.0.index(len + 1), part.1.index(len + 1));
            let (start, end) = (a.min(b), a.max(b));
            let wanted = crc32c(&content[start..end]);
            let bytes = Bytes::from(content);
            prop_assert_eq!(Received::from(bytes.clone()).crc32c(start, end), wanted);
            let summed = Received::with_sums(bytes, sums);
            for (start, end, wanted) in [(start, end, wanted), (0, len, crc32c(&summed))] {
                prop_assert_eq!(summed.crc32c(start, end), wanted);
            }
        }
    }

    #[test]
    fn bytes_changed_after_arrival_are_not_noticed_within_blocks_and_are_at_the_ends() {
        // A checksum on arrival covers the bytes as they came, not as they are now.
        let content = vec![7; 3 * BLOCK];
        let mut sums = BlockSums::default();
        sums.update(&content);
        let mut changed = content.clone();
        changed[BLOCK + 5] = 8;
        let summed = Received::with_sums(changed.into(), sums);
        assert_eq!(summed.crc32c(0, 3 * BLOCK), crc32c(&content));
        assert_ne!(summed.crc32c(1, 2 * BLOCK - 1), crc32c(&content[1..2 * BLOCK - 1]));
    }
}
