//! What can be wrong with a sealed body, and where.

use crate::NoRandom;

/// Why a body cannot be sealed or opened. Offsets count in the sealed body, from its head on.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The key is not the one this stream was sealed with.
    #[error("wrong key: the stream was sealed with another one")]
    WrongKey,
    /// The commitment in the header of a stream that is to be sealed is not that of the key.
    #[error("the stream header has the commitment of another key")]
    ForeignHeader,
    /// The sealed body does not begin as one does.
    #[error("the sealed body begins with {got:#04x} instead of its head's length, 40")]
    Head {
        /// Its first byte.
        got: u8,
    },
    /// A segment does not prove itself: it was damaged, comes from elsewhere, stands in the wrong
    /// place, or is taken for the last one wrongly.
    #[error("segment {index} at sealed offset {offset} is not genuine: damaged, moved or foreign")]
    Segment {
        /// Number of the segment, from 0.
        index: u64,
        /// Where it begins.
        offset: u64,
    },
    /// A segment has a length that it cannot have.
    #[error("segment {index} at sealed offset {offset} has {got} bytes of text, {expected}")]
    Length {
        /// Number of the segment, from 0.
        index: u64,
        /// Where it begins.
        offset: u64,
        /// Its length in bytes without the tag; 0 also when it is too short for one.
        got: usize,
        /// What it must be, in words.
        expected: Expected,
    },
    /// The sealed body ends before its last segment.
    #[error("the sealed body was cut: it ends at sealed offset {offset}, before its last segment")]
    Cut {
        /// Where it ends.
        offset: u64,
    },
    /// More follows the segment that was said to be the last.
    #[error("nothing can follow the last segment")]
    AfterLast,
    /// There are no more segment numbers: 4 PiB.
    #[error("a sealed body has at most 4294967296 segments of 1 MiB")]
    TooLong,
    /// No random bytes to begin with.
    #[error(transparent)]
    Random(#[from] NoRandom),
}

impl SealError {
    /// Where in the sealed body it was found, where that can be told.
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

/// Which lengths a segment can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expected {
    /// Exactly this many: it is not the last one.
    Full(usize),
    /// This range: it is the last one.
    Within(usize, usize),
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Expected::Full(len) => write!(f, "it must have {len}"),
            Expected::Within(min, max) => write!(f, "it must have {min} to {max}"),
        }
    }
}
