//! Errors of a sealed body, with their position.

use crate::NoRandom;

/// Reason why a body cannot be sealed or opened. Offsets count in the sealed body, from its head.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The key is not the one this stream was sealed with.
    #[error("wrong key: the stream was sealed with a different one")]
    WrongKey,
    /// The commitment in the header of the stream to seal is not that of the key.
    #[error("the commitment in the stream header belongs to a different key")]
    ForeignHeader,
    /// The beginning of the sealed body is not valid.
    #[error("the sealed body starts with {got:#04x} instead of its header length, 40")]
    Head {
        /// Its first byte.
        got: u8,
    },
    /// A segment is not authentic: it was damaged, comes from another stream, is in the wrong
    /// place, or `last` is wrong for it.
    #[error(
        "segment {index} at sealed offset {offset} fails authentication: it is damaged, moved or forged"
    )]
    Segment {
        /// Number of the segment, from 0.
        index: u64,
        /// Offset of the segment.
        offset: u64,
    },
    /// A segment has an impossible length.
    #[error("segment {index} at sealed offset {offset} has {got} plain bytes, {expected}")]
    Length {
        /// Number of the segment, from 0.
        index: u64,
        /// Offset of the segment.
        offset: u64,
        /// Its length in bytes without the tag; also 0 when it is too short for a tag.
        got: usize,
        /// The length it must have.
        expected: ExpectedLength,
    },
    /// The sealed body ends before its last segment.
    #[error(
        "the sealed body is truncated: it ends at sealed offset {offset}, before its last segment"
    )]
    Cut {
        /// Offset of the end.
        offset: u64,
    },
    /// More follows the segment that was marked as the last.
    #[error("nothing can follow the last segment")]
    AfterLast,
    /// There are no more segment numbers: the limit is 4 PiB.
    #[error("a sealed body has at most 4294967296 segments of 1 MiB")]
    TooLong,
    /// The system returned no random bytes.
    #[error(transparent)]
    Random(#[from] NoRandom),
}

impl SealError {
    /// Offset of the error in the sealed body, if known.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        match self {
            Self::Segment { offset, .. } | Self::Length { offset, .. } | Self::Cut { offset } => {
                Some(*offset)
            }
            _ => None,
        }
    }
}

/// The lengths that a segment can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExpectedLength {
    /// Exactly this length: it is not the last segment.
    Full(usize),
    /// A length in this range: it is the last segment.
    Within(usize, usize),
}

impl std::fmt::Display for ExpectedLength {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExpectedLength::Full(len) => write!(f, "expected {len}"),
            ExpectedLength::Within(min, max) => write!(f, "expected {min} to {max}"),
        }
    }
}
