//! The reading side: slices in, events out (`docs/spec/format.md`, "States of a reader").

mod body_reader;
pub(crate) mod event;
mod pieces;

use crate::end_frame::Summary;
use crate::fields::within;
use crate::read::body_reader::Body;
use crate::read::pieces::Pieces;
use crate::{
    ErrorLocation, Event, FrameError, MAX_FRAME_PLAIN, Part, STREAM_HEADER_LEN, StreamHeader,
};

/// Limits and assumptions of a reader.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum number of plain bytes in a data frame that the caller can hold. The reader rejects a
    /// stream that declares more when it sees the header. At most, and by default,
    /// [`MAX_FRAME_PLAIN`].
    pub max_plain: u32,
    /// Whether the caller opens the seal: it pushes the header, then the *opened* body, then the
    /// trailer. Otherwise the reader rejects a sealed stream when it sees the header.
    pub external_unseal: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_plain: MAX_FRAME_PLAIN, external_unseal: false }
    }
}

impl Limits {
    /// Sets [`Limits::max_plain`].
    #[must_use]
    pub fn with_max_plain(mut self, max_plain: u32) -> Self {
        self.max_plain = max_plain;
        self
    }

    /// Sets [`Limits::external_unseal`].
    #[must_use]
    pub fn with_external_unseal(mut self, yes: bool) -> Self {
        self.external_unseal = yes;
        self
    }
}

/// Reads a native stream that is pushed in slices of any size.
///
/// It checks everything except the checksums of data payloads: the checksum and limits of every
/// header, the order of frames, that the plain bytes of each source are contiguous, the chain and
/// checksums of index frames, the totals in the end frame and the trailer, and that nothing follows
/// the trailer. It copies only headers and never allocates a length that the stream states.
///
/// After an error, every call returns the same error again.
#[derive(Debug)]
pub struct StreamReader {
    limits: Limits,
    pieces: Pieces,
    state: State,
}

#[derive(Debug)]
enum State {
    Header,
    Body(Box<Body>),
    Failed(FrameError),
}

impl StreamReader {
    /// Creates a reader at the start of a stream.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, pieces: Pieces::default(), state: State::Header }
    }

    /// The stream header; `None` until it has been read.
    #[must_use]
    pub fn header(&self) -> Option<&StreamHeader> {
        match &self.state {
            State::Body(body) => Some(body.stream()),
            _ => None,
        }
    }

    /// Takes bytes from the front of `input` up to the next event. `None` means that all input was
    /// taken and the reader needs more, or that the stream is complete.
    ///
    /// # Errors
    /// Any [`FrameError`] except those of the writing side, with its location.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, FrameError> {
        let event = match &mut self.state {
            State::Header => self.stream_header(input),
            State::Body(body) => body.next(&mut self.pieces, input),
            State::Failed(error) => Err(error.clone()),
        };
        if let Err(error) = &event {
            self.state = State::Failed(error.clone());
        }
        event
    }

    /// Ends the input and checks that the stream is complete.
    ///
    /// # Errors
    /// [`FrameError::Truncated`] with the part that is cut short or missing, or the earlier error.
    pub fn finish(&self) -> Result<Summary, FrameError> {
        match &self.state {
            State::Header => Err(FrameError::Truncated { place: HEADER }),
            State::Body(body) => body.finish(),
            State::Failed(error) => Err(error.clone()),
        }
    }

    fn stream_header(&mut self, input: &mut &[u8]) -> Result<Option<Event<'static>>, FrameError> {
        let Some(bytes) = self.pieces.array::<STREAM_HEADER_LEN>(input) else {
            return Ok(None);
        };
        let stream = StreamHeader::parse(&bytes)?;
        if stream.is_sealed() && !self.limits.external_unseal {
            return Err(FrameError::Sealed);
        }
        let (max, got) = (self.limits.max_plain.into(), stream.max_plain().into());
        within(HEADER, "largest plain length of a frame", 1, max, got)?;
        self.state = State::Body(Box::new(Body::new(stream.clone())));
        Ok(Some(Event::Header(stream)))
    }
}

const HEADER: ErrorLocation = ErrorLocation { part: Part::StreamHeader, position: 0 };
