//! Buffers in which ranges arrive.

use bytes::Bytes;
use xb_pipeline::{BlockSums, Permit, Received, Slab, SlabPool, sums::Crc64};
use xb_uploader::RangeBuffer;

/// Buffers for ranges, used again: fresh memory for every range takes a third of the CPU time of a
/// download, and lets an allocator with a heap per thread hold several times the live memory.
#[derive(Debug, Clone)]
pub(super) struct RangeBuffers(SlabPool);

impl RangeBuffers {
    /// Creates buffers for ranges of `len` bytes, of which as many are kept as fit into `memory`.
    pub(super) fn new(len: u64, memory: u64) -> Self {
        Self(SlabPool::for_memory(usize::try_from(len.max(1)).unwrap_or(usize::MAX), memory))
    }

    /// Returns an empty buffer for a range of `len` bytes, with the checksums of its blocks if
    /// `blocks` is set.
    pub(super) fn take(&self, len: u64, blocks: bool) -> ReceivedRange {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let size = self.0.slab_size();
        // A lease pays for the range only, but a buffer that is used again may occupy all of its
        // memory. So a range that does not fill most of it gets one of its own.
        let suits = len <= size && len >= size - size / 8;
        let slab = if suits { self.0.take(None) } else { SlabPool::new(len, 0).take(None) };
        ReceivedRange {
            slab,
            left: len,
            sum: Crc64::default(),
            blocks: blocks.then(BlockSums::default),
        }
    }
}

/// A range as far as it has arrived, with its checksum.
pub(super) struct ReceivedRange {
    slab: Slab,
    /// Bytes that are missing.
    left: usize,
    sum: Crc64,
    blocks: Option<BlockSums>,
}

impl ReceivedRange {
    /// CRC-64/NVME of the bytes so far.
    pub(super) fn sum(&self) -> u64 {
        self.sum.finish()
    }

    /// Returns the bytes and their CRC-64/NVME. The bytes hold `permit` until they are dropped.
    pub(super) fn freeze(self, permit: Permit) -> (Received, u64) {
        let sum = self.sum();
        let bytes = Bytes::from_owner(LeasedBytes { bytes: self.slab, _permit: permit });
        let received = match self.blocks {
            Some(blocks) => Received::with_sums(bytes, blocks),
            None => bytes.into(),
        };
        (received, sum)
    }
}

/// Bytes that hold their memory lease until they are dropped.
struct LeasedBytes {
    bytes: Slab,
    _permit: Permit,
}

impl AsRef<[u8]> for LeasedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl RangeBuffer for ReceivedRange {
    fn room(&mut self) -> &mut [u8] {
        &mut self.slab.room()[..self.left]
    }

    fn advance(&mut self, len: usize) {
        let arrived = &self.slab.room()[..len];
        self.sum.update(arrived);
        if let Some(blocks) = &mut self.blocks {
            blocks.update(arrived);
        }
        self.slab.advance(len);
        self.left -= len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xb_pipeline::sums;

    /// Receives `content` in pieces of `piece` bytes.
    fn receive(buffers: &RangeBuffers, content: &[u8], piece: usize) -> (Received, u64) {
        let mut buffer = buffers.take(content.len() as u64, true);
        assert_eq!(buffer.room().len(), content.len());
        for piece in content.chunks(piece) {
            buffer.room()[..piece.len()].copy_from_slice(piece);
            buffer.advance(piece.len());
        }
        assert!(buffer.room().is_empty());
        buffer.freeze(Permit::default())
    }

    #[test]
    fn a_range_has_its_own_bytes_and_checksum_in_a_used_buffer_too() {
        let buffers = RangeBuffers::new(1000, 4000);
        let content: Vec<u8> = (0..1000_u32).map(|n| u8::try_from(n * 7 % 251).unwrap()).collect();
        for (len, piece) in [(1000, 1000), (1000, 1), (900, 333), (3, 2), (0, 1), (1000, 17)] {
            let wanted = &content[1000 - len..];
            let (bytes, sum) = receive(&buffers, wanted, piece);
            assert_eq!(bytes.crc32c(0, len), sums::crc32c(wanted));
            assert_eq!(
                (&bytes[..], sum),
                (wanted, sums::crc64(wanted)),
                "{len} in pieces of {piece}"
            );
        }
    }
}
