//! Errors of the format, with the location of each.

use std::fmt;

use crate::StreamId;

/// A part of a stream, as named in errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// The stream header; positions count from its first byte.
    StreamHeader,
    /// A frame's header. The position is that of the frame in the body.
    FrameHeader,
    /// A data frame. The position is that of the frame in the body.
    Data,
    /// An index frame. The position is that of the frame in the body.
    Index,
    /// The end frame. The position is that of the frame in the body.
    End,
    /// The trailer; the position is the length of the body.
    Trailer,
    /// A record of an index frame. The position counts from the start of the frame's payload.
    Record,
}

/// Location of an error in a stream.
///
/// Positions in the body count from the first byte after the stream header, in unsealed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorLocation {
    /// The part of the stream.
    pub part: Part,
    /// Position in bytes. [`Part`] defines where counting starts.
    pub position: u64,
}

impl ErrorLocation {
    pub(crate) fn new(part: Part, position: u64) -> Self {
        Self { part, position }
    }
}

impl fmt::Display for ErrorLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let position = self.position;
        match self.part {
            Part::StreamHeader => f.write_str("stream header"),
            Part::FrameHeader => write!(f, "frame header at body position {position}"),
            Part::Data => write!(f, "data frame at body position {position}"),
            Part::Index => write!(f, "index frame at body position {position}"),
            Part::End => write!(f, "end frame at body position {position}"),
            Part::Trailer => f.write_str("trailer"),
            Part::Record => write!(f, "index record at byte {position} of its frame"),
        }
    }
}

/// Reason why a native stream, or a part of one, is rejected, or why the writing side rejects a
/// call.
///
/// `expected` is the value that the stream states or that follows from the bytes before; `got` is
/// the value found or computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The input does not start with the magic of a native stream.
    #[error("not a native stream: it starts with \"{}\"", got.escape_ascii())]
    NotNative {
        /// The first eight bytes.
        got: [u8; 8],
    },
    /// This crate does not read the stream's format version.
    #[error("native stream of format version {major}.{minor}; only version 1 is supported")]
    Version {
        /// The stream's major version.
        major: u8,
        /// The stream's minor version.
        minor: u8,
    },
    /// The body is sealed, and the caller has not declared that it opens the seal itself
    /// ([`Limits::external_unseal`](crate::Limits::external_unseal)).
    #[error("the stream is sealed; open its body with the key first")]
    Sealed,
    /// A frame or the trailer does not start with its magic.
    #[error("{place}: wrong magic \"{}\"", got.escape_ascii())]
    Magic {
        /// Location of the error.
        place: ErrorLocation,
        /// The bytes found instead of the magic.
        got: Vec<u8>,
    },
    /// A checksum does not match its bytes.
    #[error("{place}: checksum is {got:08x}, expected {expected:08x}")]
    Checksum {
        /// Location of the error.
        place: ErrorLocation,
        /// Checksum stored in the stream.
        expected: u32,
        /// Checksum computed from the bytes.
        got: u32,
    },
    /// A field does not have the only value allowed here.
    #[error("{place}: {field} is {got}, expected {expected}")]
    Mismatch {
        /// Location of the error.
        place: ErrorLocation,
        /// Name of the field.
        field: &'static str,
        /// Value that follows from the bytes before, or from a rule of the format.
        expected: u64,
        /// Value found.
        got: u64,
    },
    /// A field is out of range.
    #[error("{place}: {field} is {got}, allowed range {min} to {max}")]
    Range {
        /// Location of the error.
        place: ErrorLocation,
        /// Name of the field.
        field: &'static str,
        /// Smallest value allowed.
        min: u64,
        /// Largest value allowed.
        max: u64,
        /// Value found.
        got: u64,
    },
    /// An unknown kind, codec, seal, flag or record tag.
    #[error("{place}: unknown {field} {got}")]
    Unknown {
        /// Location of the error.
        place: ErrorLocation,
        /// Name of the field.
        field: &'static str,
        /// Value found.
        got: u64,
    },
    /// Reserved bytes are not zero.
    #[error("{place}: reserved bytes are not zero")]
    Reserved {
        /// Location of the error.
        place: ErrorLocation,
    },
    /// The trailer belongs to another stream.
    #[error("the trailer belongs to stream {got}, expected stream {expected}")]
    StreamId {
        /// Id in the header.
        expected: StreamId,
        /// Id in the trailer.
        got: StreamId,
    },
    /// The input ends before the stream does.
    #[error("the stream is truncated: it ends in {place}")]
    Truncated {
        /// The part that is cut or missing.
        place: ErrorLocation,
    },
    /// Bytes follow the trailer.
    #[error("extra bytes after the end of the stream at {position}")]
    TrailingBytes {
        /// Length of the stream in bytes, header and trailer included, without the seal.
        position: u64,
    },
    /// A record of an index frame is cut short, is too long, or has malformed numbers.
    #[error("{place}: {reason}")]
    BadRecord {
        /// Location of the error.
        place: ErrorLocation,
        /// Description of the defect.
        reason: &'static str,
    },
    /// Writing side: the pending records would no longer fit into one index frame, because the
    /// caller ignored [`StreamWriter::index_due`](crate::StreamWriter::index_due) and wrote no
    /// index frame.
    #[error("an index frame is overdue: {pending} bytes of records wait")]
    IndexOverdue {
        /// Length of the pending records in bytes.
        pending: usize,
    },
}

impl FrameError {
    /// Location of the error, if it has a single one.
    #[must_use]
    pub fn place(&self) -> Option<ErrorLocation> {
        match self {
            Self::Magic { place, .. }
            | Self::Checksum { place, .. }
            | Self::Mismatch { place, .. }
            | Self::Range { place, .. }
            | Self::Unknown { place, .. }
            | Self::Reserved { place }
            | Self::Truncated { place }
            | Self::BadRecord { place, .. } => Some(*place),
            Self::NotNative { .. } | Self::Version { .. } => {
                Some(ErrorLocation::new(Part::StreamHeader, 0))
            }
            _ => None,
        }
    }
}
