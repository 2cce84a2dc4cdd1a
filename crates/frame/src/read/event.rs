//! Events of the reading side.

use crate::end_frame::EndRecord;
use crate::{FrameHeader, StreamHeader, Trailer};

/// Event returned by [`StreamReader::next`](crate::StreamReader::next).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The stream header; always the first event.
    Header(StreamHeader),
    /// Start of a data or index frame. (The end frame only produces [`Event::End`].)
    Frame(FrameHeader),
    /// The next piece of the frame's payload as stored, never empty.
    Payload(&'a [u8]),
    /// End of the frame. The caller must now check a data payload with
    /// [`FrameHeader::check_payload`]; an index payload has already been checked.
    FrameEnd(FrameHeader),
    /// The end frame, checked against the reader's counts.
    End(EndRecord),
    /// The trailer, checked; always the last event.
    Trailer(Trailer),
}
