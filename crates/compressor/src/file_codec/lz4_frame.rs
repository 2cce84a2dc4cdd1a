//! Constants of the LZ4 frame format, version 1.6.1, for reading and writing.

use twox_hash::XxHash32;

pub(super) const MAGIC: u32 = 0x184D_2204;
/// First of the 16 magics of skippable frames.
pub(super) const SKIPPABLE: u32 = 0x184D_2A50;

/// Set in the length of a block that is stored uncompressed.
pub(super) const RAW: u32 = 1 << 31;
/// The length that marks the end of the blocks.
pub(super) const END_MARK: u32 = 0;

/// FLG, the first byte of the descriptor: the version in bits 6 and 7; the other flags are single
/// bits.
pub(super) const VERSION_1: u8 = 1 << 6;
pub(super) const VERSION: u8 = 3 << 6;
pub(super) const INDEPENDENT: u8 = 1 << 5;
pub(super) const BLOCK_CHECKSUM: u8 = 1 << 4;
pub(super) const CONTENT_SIZE: u8 = 1 << 3;
pub(super) const CONTENT_CHECKSUM: u8 = 1 << 2;
pub(super) const RESERVED: u8 = 1 << 1;
pub(super) const DICTIONARY: u8 = 1;

/// Largest distance of a match.
pub(super) const WINDOW: usize = 64 << 10;

/// Maximum number of plain bytes in a block, by the code in bits 4 to 6 of BD.
pub(super) fn block_max(code: u8) -> Option<usize> {
    match code {
        4..=7 => Some(1 << (2 * code + 8)),
        _ => None,
    }
}

/// The checksum byte at the end of a descriptor.
pub(super) fn descriptor_sum(descriptor: &[u8]) -> u8 {
    XxHash32::oneshot(0, descriptor).to_le_bytes()[1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes() {
        let sizes: Vec<_> = (0..=8).map(block_max).collect();
        let known = [64 << 10, 256 << 10, 1 << 20, 4 << 20].map(Some);
        assert_eq!(sizes, [&[None; 4][..], &known, &[None]].concat());
    }
}
