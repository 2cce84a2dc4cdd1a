//! What can be wrong with compressed bytes, and where.

use std::fmt;

/// A compressed format, as errors name it.
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
    /// Whether it is a member, of which the positions are worth telling.
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
            Format::Qpress => "qpress member",
            Format::Lz4 => "lz4 member",
            Format::Zstd => "zstd member",
        })
    }
}

/// Where something is: a format, and a place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// What is being read or written.
    pub format: Format,
    /// Bytes of the compressed member before the part that is wrong, or, where it was cut, its
    /// length. For zstd it is the frame that is named, not the part of it. Always 0 in a block,
    /// which the caller knows better.
    pub position: u64,
}

impl Place {
    pub(crate) fn new(format: Format, position: u64) -> Self {
        Self { format, position }
    }

    pub(crate) fn block(format: Format) -> Self {
        Self { format, position: 0 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.format.is_member() {
            true => write!(f, "{} at byte {}", self.format, self.position),
            false => self.format.fmt(f),
        }
    }
}

/// Why compressed bytes are refused, or why a codec cannot do what it is asked for.
///
/// `expected` is what the bytes state or what follows from the format, `got` what was found or
/// computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The input ends too early.
    #[error("{place}: the input is cut inside {part}")]
    Cut {
        /// Where the input ends.
        place: Place,
        /// What is not whole.
        part: &'static str,
    },
    /// Something does not begin as it must.
    #[error("{place}: {part} cannot begin with \"{}\"", got.escape_ascii())]
    Magic {
        /// Where.
        place: Place,
        /// What should begin there.
        part: &'static str,
        /// The bytes that stand there.
        got: Vec<u8>,
    },
    /// A checksum does not fit its bytes.
    #[error("{place}: checksum of {part} is {got:08x}, expected {expected:08x}")]
    Checksum {
        /// Where.
        place: Place,
        /// What it was made over.
        part: &'static str,
        /// As stored.
        expected: u32,
        /// As computed.
        got: u32,
    },
    /// A number is not the one that must stand there.
    #[error("{place}: {field} is {got}, expected {expected}")]
    Mismatch {
        /// Where.
        place: Place,
        /// Which number.
        field: &'static str,
        /// As it is announced, or as the format has it.
        expected: u64,
        /// As found.
        got: u64,
    },
    /// A number lies outside its range.
    #[error("{place}: {field} is {got}, allowed is {min} to {max}")]
    Range {
        /// Where.
        place: Place,
        /// Which number.
        field: &'static str,
        /// The smallest that is allowed.
        min: u64,
        /// The largest that is allowed.
        max: u64,
        /// As found.
        got: u64,
    },
    /// A part of the format that this crate does not read: it does not occur in backups.
    #[error("{place}: {field} {got} cannot be read")]
    Unsupported {
        /// Where.
        place: Place,
        /// Which field.
        field: &'static str,
        /// As found.
        got: u64,
    },
    /// The compressed bytes contradict themselves.
    #[error("{place}: damaged: {what}")]
    Damaged {
        /// Where.
        place: Place,
        /// What is wrong with them, in the codec's own words.
        what: &'static str,
    },
    /// The bytes decode to more than they may: the length announced, or the most for a block.
    #[error("{place}: decodes to more than {expected} bytes")]
    TooLong {
        /// Where.
        place: Place,
        /// The length announced or allowed.
        expected: u64,
    },
    /// The bytes decode to less than the length announced.
    #[error("{place}: decodes to {got} bytes, expected {expected}")]
    TooShort {
        /// Where.
        place: Place,
        /// The length announced.
        expected: u64,
        /// What came out.
        got: u64,
    },
    /// Something follows the end.
    #[error("{place}: more input after the end")]
    Trailing {
        /// Where the end is.
        place: Place,
    },
    /// The caller's buffer or slice does not have the size that was asked for.
    #[error("{place}: {field} is {got} bytes, allowed is {min} to {max}")]
    Caller {
        /// Which codec was called.
        place: Place,
        /// Which slice.
        field: &'static str,
        /// The least that is allowed.
        min: usize,
        /// The most that is allowed.
        max: usize,
        /// As given.
        got: usize,
    },
    /// The codec could not do its work, for want of memory as a rule.
    #[error("{place}: {what}")]
    Failed {
        /// Which codec.
        place: Place,
        /// Its own words.
        what: &'static str,
    },
}
