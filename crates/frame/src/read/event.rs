//! What the reading side finds.

use crate::end_frame::EndRecord;
use crate::{FrameHeader, StreamHeader, Trailer};

/// What [`StreamReader::next`](crate::StreamReader::next) has found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The stream header; always the first event.
    Header(StreamHeader),
    /// A data or index frame begins. (The end frame comes as [`Event::End`] alone.)
    Frame(FrameHeader),
    /// The next piece of the frame's payload as stored, never empty.
    Payload(&'a [u8]),
    /// The frame has come to its end. A data payload must now be checked by
    /// [`FrameHeader::check_payload`]; an index payload has been checked.
    FrameEnd(FrameHeader),
    /// The end frame, checked against what was counted.
    End(EndRecord),
    /// The trailer, checked; always the last event.
    Trailer(Trailer),
}
