//! What can be wrong with a stream, and where.

use std::fmt;

use crate::StreamId;

/// A part of a stream, as errors name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// The stream header; positions count from its first byte.
    StreamHeader,
    /// A frame's header; the position is that of the frame in the body.
    FrameHeader,
    /// A data frame; the position is that of the frame in the body.
    Data,
    /// An index frame; the position is that of the frame in the body.
    Index,
    /// The end frame; the position is its own in the body.
    End,
    /// The trailer; the position is the length of the body.
    Trailer,
    /// A record of an index frame; the position counts from the start of the frame's payload.
    Record,
}

/// Where in a stream something is.
///
/// Positions in the body count from the first byte after the stream header, and are those of the
/// unsealed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// What lies there.
    pub part: Part,
    /// Bytes, counted as [`Part`] says.
    pub position: u64,
}

impl Place {
    pub(crate) fn new(part: Part, position: u64) -> Self {
        Self { part, position }
    }
}

impl fmt::Display for Place {
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

/// Why a native stream, or a part of one, is refused; or why the writing side refuses a call.
///
/// `expected` is what the stream states or what must follow from the bytes before, `got` what was
/// found or computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The first bytes are not those of a native stream.
    #[error("not a native stream: it begins with \"{}\"", got.escape_ascii())]
    NotNative {
        /// The first eight bytes.
        got: [u8; 8],
    },
    /// A format version that this crate does not read.
    #[error("native stream of format version {major}.{minor}, only version 1 can be read")]
    Version {
        /// The stream's major version.
        major: u8,
        /// The stream's minor version.
        minor: u8,
    },
    /// The body is sealed, and the caller has not said that it opens the seal itself
    /// ([`Limits::caller_opens_seal`](crate::Limits::caller_opens_seal)).
    #[error("the stream is sealed: its body must be opened with its key first")]
    Sealed,
    /// A frame or the trailer does not begin as it must.
    #[error("{place}: wrong magic \"{}\"", got.escape_ascii())]
    Magic {
        /// Where.
        place: Place,
        /// The bytes that stand in the magic's place.
        got: Vec<u8>,
    },
    /// A checksum does not fit its bytes.
    #[error("{place}: checksum is {got:08x}, expected {expected:08x}")]
    Checksum {
        /// Where.
        place: Place,
        /// As stored in the stream.
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
        /// As it follows from the bytes before, or from the rule of the format.
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
    /// An unknown number: kind, codec, seal, flag or record tag.
    #[error("{place}: unknown {field} {got}")]
    Unknown {
        /// Where.
        place: Place,
        /// Which field.
        field: &'static str,
        /// As found.
        got: u64,
    },
    /// Bytes that must be zero are not.
    #[error("{place}: reserved bytes are not zero")]
    Reserved {
        /// Where.
        place: Place,
    },
    /// The trailer belongs to another stream.
    #[error("trailer of stream {got}, expected stream {expected}")]
    StreamId {
        /// The header's id.
        expected: StreamId,
        /// The trailer's id.
        got: StreamId,
    },
    /// The input ends before the stream does.
    #[error("the stream ends too early, in {place}")]
    Truncated {
        /// The part that is cut or missing.
        place: Place,
    },
    /// Bytes follow the trailer.
    #[error("bytes follow the end of the stream at {position}")]
    TrailingBytes {
        /// The length of the stream, header and trailer included, as counted without the seal.
        position: u64,
    },
    /// A record of an index frame is cut, too long, or its numbers are not well formed.
    #[error("{place}: {reason}")]
    BadRecord {
        /// Where.
        place: Place,
        /// What is wrong.
        reason: &'static str,
    },
    /// Writing side: the records that wait would not fit into one index frame any more; the caller
    /// has not written an index frame when [`StreamWriter::index_due`](crate::StreamWriter::index_due) said so.
    #[error("an index frame is overdue: {pending} bytes of records wait")]
    IndexOverdue {
        /// Bytes that wait.
        pending: usize,
    },
}

impl FrameError {
    /// Where in the stream the error lies, where it lies at one place.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
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
                Some(Place::new(Part::StreamHeader, 0))
            }
            _ => None,
        }
    }
}
