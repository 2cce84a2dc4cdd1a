//! Errors in compressed bytes, with their position.

use std::fmt;

use lz4_flex::block::DecompressError;

/// A compressed format, as named in errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// One LZ4 block.
    Lz4Block,
    /// One raw Snappy block.
    SnappyBlock,
    /// One zlib stream.
    ZlibStream,
    /// A single Zstandard frame.
    ZstdFrame,
    /// A `.qp` member.
    Qpress,
    /// A `.lz4` member.
    Lz4,
    /// A `.zst` member.
    Zstd,
}

impl Format {
    /// Returns whether it is a member: only then are positions useful in messages.
    fn is_member(self) -> bool {
        matches!(self, Format::Qpress | Format::Lz4 | Format::Zstd)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Lz4Block => "lz4 block",
            Format::SnappyBlock => "snappy block",
            Format::ZlibStream => "zlib stream",
            Format::ZstdFrame => "zstd frame",
            Format::Qpress => "qpress file",
            Format::Lz4 => "lz4 file",
            Format::Zstd => "zstd file",
        })
    }
}

/// A position in compressed bytes, and their format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorLocation {
    /// The format that is read or written.
    pub format: Format,
    /// Offset of the faulty part in the compressed member; if the member was cut, its length. For
    /// zstd it is the offset of the frame, not of the part. Always 0 in a block, whose position
    /// only the caller knows.
    pub position: u64,
}

impl ErrorLocation {
    pub(crate) fn new(format: Format, position: u64) -> Self {
        Self { format, position }
    }

    pub(crate) fn block(format: Format) -> Self {
        Self { format, position: 0 }
    }
}

impl fmt::Display for ErrorLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.format.is_member() {
            true => write!(f, "{} at byte {}", self.format, self.position),
            false => self.format.fmt(f),
        }
    }
}

/// Reason why compressed bytes are refused, or why a codec cannot do its work.
///
/// `expected` is what the bytes state or the format requires, `got` what was found or computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The input ends too early.
    #[error("{place}: the input ends inside {part}")]
    Cut {
        /// Offset at which the input ends.
        place: ErrorLocation,
        /// The part that is incomplete.
        part: &'static str,
    },
    /// A part does not begin with its magic.
    #[error("{place}: {part} cannot start with \"{}\"", got.escape_ascii())]
    Magic {
        /// Position of the part.
        place: ErrorLocation,
        /// The part that should begin there.
        part: &'static str,
        /// The bytes found instead.
        got: Vec<u8>,
    },
    /// A checksum does not match.
    #[error("{place}: checksum of {part} is {got:08x}, expected {expected:08x}")]
    Checksum {
        /// Position of the part.
        place: ErrorLocation,
        /// The part that the checksum covers.
        part: &'static str,
        /// The checksum as stored.
        expected: u32,
        /// The checksum as computed.
        got: u32,
    },
    /// A number does not have the required value.
    #[error("{place}: {field} is {got}, expected {expected}")]
    Mismatch {
        /// Position of the part.
        place: ErrorLocation,
        /// Name of the number.
        field: &'static str,
        /// The value as announced, or as the format requires.
        expected: u64,
        /// The value found.
        got: u64,
    },
    /// A number is out of range.
    #[error("{place}: {field} is {got}, allowed range {min} to {max}")]
    Range {
        /// Position of the part.
        place: ErrorLocation,
        /// Name of the number.
        field: &'static str,
        /// The smallest value allowed.
        min: u64,
        /// The largest value allowed.
        max: u64,
        /// The value found.
        got: u64,
    },
    /// A feature of the format that this crate does not support; it does not occur in backups.
    #[error("{place}: unsupported {field} {got}")]
    Unsupported {
        /// Position of the part.
        place: ErrorLocation,
        /// Name of the field.
        field: &'static str,
        /// The value found.
        got: u64,
    },
    /// The compressed bytes are inconsistent.
    #[error("{place}: damaged: {what}")]
    Damaged {
        /// Position of the part.
        place: ErrorLocation,
        /// Their fault, as the codec reports it.
        what: &'static str,
    },
    /// The bytes decode to more than the announced length, or than the maximum for a block.
    #[error("{place}: expands to more than {expected} bytes")]
    TooLong {
        /// Position of the part.
        place: ErrorLocation,
        /// The length announced or allowed.
        expected: u64,
    },
    /// The bytes decode to less than the length announced.
    #[error("{place}: expands to {got} bytes, expected {expected}")]
    TooShort {
        /// Position of the part.
        place: ErrorLocation,
        /// The length announced.
        expected: u64,
        /// The length decoded.
        got: u64,
    },
    /// There is data after the end.
    #[error("{place}: extra bytes after the end")]
    Trailing {
        /// Position of the end.
        place: ErrorLocation,
    },
    /// The caller's buffer or slice has the wrong size.
    #[error("{place}: {field} is {got} bytes, allowed range {min} to {max}")]
    Caller {
        /// Which codec was called.
        place: ErrorLocation,
        /// Name of the slice.
        field: &'static str,
        /// The smallest size allowed.
        min: usize,
        /// The largest size allowed.
        max: usize,
        /// The size given.
        got: usize,
    },
    /// The codec could not do its work, usually for lack of memory.
    #[error("{place}: {what}")]
    Failed {
        /// Which codec.
        place: ErrorLocation,
        /// The codec's own message.
        what: &'static str,
    },
}

/// Converts the error of an LZ4 block. `limit` is the length of the output that was allowed.
pub(crate) fn lz4_error(place: ErrorLocation, error: &DecompressError, limit: usize) -> CodecError {
    let what = match error {
        DecompressError::OutputTooSmall { .. } => {
            return CodecError::TooLong { place, expected: limit as u64 };
        }
        DecompressError::LiteralOutOfBounds => "literals extend past the end",
        DecompressError::ExpectedAnotherByte => "the block ends inside a sequence",
        DecompressError::OffsetZero => "a match with distance 0",
        DecompressError::OffsetOutOfBounds => "a match refers to data before the start",
        _ => "not an lz4 block",
    };
    CodecError::Damaged { place, what }
}
