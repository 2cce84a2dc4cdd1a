//! Errors in an xbcrypt file, with their position.

use std::fmt;

use super::{MAX_SIZE, Version};
use crate::NoRandom;

/// Number and offset of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErrorLocation {
    /// Number of the chunk in the file, from 0.
    pub chunk: u64,
    /// Offset of its magic in the file.
    pub offset: u64,
}

impl fmt::Display for ErrorLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "xbcrypt chunk {} at offset {}", self.chunk, self.offset)
    }
}

/// Reason why an xbcrypt file is refused, or a chunk cannot be made.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum XbcryptError {
    /// There is no chunk where one must begin.
    #[error("{place}: not a chunk: it starts with \"{}\"", got.escape_ascii())]
    Magic {
        /// Position of the chunk.
        place: ErrorLocation,
        /// The first bytes found; fewer than eight at the end of the file.
        got: Vec<u8>,
    },
    /// The two sizes in the head differ; no cipher changes the length.
    #[error("{place}: sizes {original} and {encrypted} differ")]
    Sizes {
        /// Position of the chunk.
        place: ErrorLocation,
        /// Original size as stated.
        original: u64,
        /// Encrypted size as stated.
        encrypted: u64,
    },
    /// A size exceeds the limit of the format.
    #[error("{place}: size {size} is larger than {MAX_SIZE}")]
    TooLarge {
        /// Position of the chunk.
        place: ErrorLocation,
        /// The size as stated.
        size: u64,
    },
    /// A size exceeds the caller's limit.
    #[error("{place}: size {size} is larger than the limit of {limit} bytes")]
    Limit {
        /// Position of the chunk.
        place: ErrorLocation,
        /// The size as stated.
        size: u64,
        /// The largest size allowed.
        limit: u64,
    },
    /// The payload is too short for its content.
    #[error("{place}: size {size}, but a version {version} chunk has at least {least} bytes")]
    TooShort {
        /// Position of the chunk.
        place: ErrorLocation,
        /// The size as stated.
        size: u64,
        /// Version of the chunk.
        version: Version,
        /// Minimum size: one byte, or a hash and one byte.
        least: u64,
    },
    /// The IV has a length that no supported cipher uses.
    #[error("{place}: IV of {got} bytes, expected 16 with AES and 0 without")]
    IvLength {
        /// Position of the chunk.
        place: ErrorLocation,
        /// The length as stated.
        got: u64,
    },
    /// The chunk has an IV, but algorithm NONE was requested; or AES, and the chunk has none.
    #[error(
        "{place}: the chunk is {}, but the requested algorithm is {}",
        if *encrypted { "encrypted" } else { "not encrypted" },
        if *encrypted { "NONE" } else { "AES" },
    )]
    Algorithm {
        /// Position of the chunk.
        place: ErrorLocation,
        /// Whether the chunk is encrypted.
        encrypted: bool,
    },
    /// The payload passed in does not have the length that the head states.
    #[error("{place}: the payload has {got} bytes, expected {expected}")]
    PayloadLength {
        /// Position of the chunk.
        place: ErrorLocation,
        /// The length as stated.
        expected: u64,
        /// The length passed in.
        got: usize,
    },
    /// The checksum of the encrypted bytes does not match: the file is damaged.
    #[error("{place}: damaged: CRC {got:#010x}, expected {expected:#010x}")]
    Crc {
        /// Position of the chunk.
        place: ErrorLocation,
        /// The checksum as stored.
        expected: u32,
        /// The checksum as computed.
        got: u32,
    },
    /// The hash inside does not match although the CRC does.
    #[error("{place}: wrong key: the CRC matches, but the hash inside does not")]
    Hash {
        /// Position of the chunk.
        place: ErrorLocation,
    },
    /// A version that cannot detect a wrong key, and that the caller has not allowed.
    #[error("{place}: version {version} chunks have no hash, so a wrong key cannot be detected")]
    NoHash {
        /// Position of the chunk.
        place: ErrorLocation,
        /// Version of the chunk.
        version: Version,
    },
    /// The input ends inside a chunk.
    #[error("{place}: the file ends inside this chunk; at least {missing} bytes are missing")]
    Cut {
        /// Position of the chunk.
        place: ErrorLocation,
        /// Number of missing bytes, as far as known.
        missing: u64,
    },
    /// A chunk without plain bytes, or with too many, cannot be written.
    #[error("chunk size {got} is out of range: 1 to {} bytes", MAX_SIZE - 32)]
    Plain {
        /// Number of plain bytes passed in.
        got: usize,
    },
    /// The output slice for a chunk has the wrong length.
    #[error("a buffer of {got} bytes is too small for a chunk of {expected}")]
    Room {
        /// Length of the chunk.
        expected: usize,
        /// The length passed in.
        got: usize,
    },
    /// The cipher refused its key or the data, which it never should.
    #[error("the cipher failed; this is a bug")]
    Cipher,
    /// The system returned no random bytes for an IV.
    #[error(transparent)]
    Random(#[from] NoRandom),
}
