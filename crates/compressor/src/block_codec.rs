//! The codecs of single blocks, and the limit of a block.

use crate::error::Format;

/// Maximum number of plain bytes in a block: 16 MiB, as in a native data frame.
pub const MAX_BLOCK_PLAIN: usize = 16 << 20;

/// The codec of one block, by its number in a native data frame.
///
/// Number 0, bytes stored as they are, is not included: it needs no codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockCodec {
    /// One LZ4 block, without a frame and without a length before it.
    Lz4,
    /// One raw Snappy block, which begins with the plain length.
    Snappy,
    /// One zlib stream (RFC 1950) with its Adler-32, without a preset dictionary.
    Zlib,
    /// One Zstandard frame (RFC 8878) without a dictionary, window at most 16 MiB.
    Zstd,
}

impl BlockCodec {
    /// The number in a frame header.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            BlockCodec::Lz4 => 1,
            BlockCodec::Snappy => 2,
            BlockCodec::Zlib => 3,
            BlockCodec::Zstd => 4,
        }
    }

    /// The codec with this number in a frame header; `None` for 0 and unknown numbers.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(BlockCodec::Lz4),
            2 => Some(BlockCodec::Snappy),
            3 => Some(BlockCodec::Zlib),
            4 => Some(BlockCodec::Zstd),
            _ => None,
        }
    }

    pub(crate) fn format(self) -> Format {
        match self {
            BlockCodec::Lz4 => Format::Lz4Block,
            BlockCodec::Snappy => Format::SnappyBlock,
            BlockCodec::Zlib => Format::ZlibStream,
            BlockCodec::Zstd => Format::ZstdFrame,
        }
    }
}
