//! What can be wrong with an xbcrypt file, and where.

use std::fmt;

use super::{MAX_SIZE, Version};
use crate::NoRandom;

/// Which chunk, and where it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Number of the chunk in the file, from 0.
    pub chunk: u64,
    /// Where its magic stands in the file.
    pub offset: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "xbcrypt chunk {} at offset {}", self.chunk, self.offset)
    }
}

/// Why an xbcrypt file is refused, or a chunk cannot be made.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum XbcryptError {
    /// Something else stands where a chunk must begin.
    #[error("{place}: no chunk there, it begins with \"{}\"", got.escape_ascii())]
    Magic {
        /// Where.
        place: Place,
        /// The first bytes; fewer than eight at the end of the file.
        got: Vec<u8>,
    },
    /// The two sizes in the head differ; no cipher changes the length.
    #[error("{place}: sizes {original} and {encrypted} differ")]
    Sizes {
        /// Where.
        place: Place,
        /// Original size as stated.
        original: u64,
        /// Encrypted size as stated.
        encrypted: u64,
    },
    /// A size beyond what the format allows.
    #[error("{place}: size {size} is more than {MAX_SIZE}")]
    TooLarge {
        /// Where.
        place: Place,
        /// The size as stated.
        size: u64,
    },
    /// A size beyond the caller's limit.
    #[error("{place}: size {size} is more than the limit of {limit} bytes")]
    Limit {
        /// Where.
        place: Place,
        /// The size as stated.
        size: u64,
        /// What is allowed.
        limit: u64,
    },
    /// The payload is too short to hold what it must.
    #[error("{place}: size {size}, but a version {version} chunk has at least {least} bytes")]
    TooShort {
        /// Where.
        place: Place,
        /// The size as stated.
        size: u64,
        /// Version of the chunk.
        version: Version,
        /// A hash and one byte, or one byte.
        least: u64,
    },
    /// An IV of a length that no cipher here has.
    #[error("{place}: IV of {got} bytes, it must have 16 with AES and 0 without")]
    IvLength {
        /// Where.
        place: Place,
        /// As stated.
        got: u64,
    },
    /// A chunk with an IV, and algorithm NONE asked for; or AES, and a chunk without.
    #[error(
        "{place}: the chunk is {}, but the algorithm asked for is {}",
        if *encrypted { "encrypted" } else { "not encrypted" },
        if *encrypted { "NONE" } else { "AES" },
    )]
    Algorithm {
        /// Where.
        place: Place,
        /// Whether the chunk is encrypted.
        encrypted: bool,
    },
    /// The payload handed in is not as long as the head says.
    #[error("{place}: the payload has {got} bytes, its head says {expected}")]
    PayloadLength {
        /// Where.
        place: Place,
        /// As stated.
        expected: u64,
        /// As handed in.
        got: usize,
    },
    /// The checksum over the encrypted bytes does not fit: the file is damaged.
    #[error("{place}: CRC {got:#010x}, its head says {expected:#010x}: the file is damaged")]
    Crc {
        /// Where.
        place: Place,
        /// As stated.
        expected: u32,
        /// As computed.
        got: u32,
    },
    /// The hash inside does not fit although the CRC does.
    #[error("{place}: wrong key: the hash inside does not fit (and the CRC does)")]
    Hash {
        /// Where.
        place: Place,
    },
    /// A version that cannot show whether the key is right, and the caller has not allowed it.
    #[error("{place}: version {version} chunks have no hash: a wrong key would give noise")]
    NoHash {
        /// Where.
        place: Place,
        /// Version of the chunk.
        version: Version,
    },
    /// The input ends inside a chunk.
    #[error("{place}: the file ends inside this chunk, {missing} bytes are missing at least")]
    Cut {
        /// Where.
        place: Place,
        /// As far as is known.
        missing: u64,
    },
    /// A chunk without a byte of plain text, or one that is too long, is not written.
    #[error("a chunk has 1 to {} bytes, not {got}", MAX_SIZE - 32)]
    Plain {
        /// Plain bytes handed in.
        got: usize,
    },
    /// The room for a chunk has the wrong length.
    #[error("{got} bytes of room for a chunk of {expected}")]
    Room {
        /// Length of the chunk.
        expected: usize,
        /// As handed in.
        got: usize,
    },
    /// No random bytes for an IV.
    #[error(transparent)]
    Random(#[from] NoRandom),
}
