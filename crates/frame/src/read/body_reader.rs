//! Reader for everything after the stream header: frames, end frame and trailer, one state for
//! each.

use crate::end_frame::{EndRecord, IndexPlace, Summary, stream_len};
use crate::fields::{Crc, same};
use crate::frame::{FrameHeader, Kind};
use crate::index::{INDEX_HEAD_LEN, IndexHead};
use crate::limits::FRAME_HEADER_LEN;
use crate::read::pieces::Pieces;
use crate::{
    ErrorLocation, Event, FrameError, Part, STREAM_HEADER_LEN, StreamHeader, TRAILER_LEN, Trailer,
};

/// Reads and counts the bytes after the stream header.
#[derive(Debug)]
pub(crate) struct Body {
    stream: StreamHeader,
    state: State,
    /// Body position of the next byte.
    position: u64,
    counted: EndRecord,
}

#[derive(Debug)]
enum State {
    FrameHeader,
    Payload { frame: FrameHeader, left: u32, index: Option<Box<IndexCheck>> },
    End { frame: FrameHeader },
    Trailer { end_position: u64 },
    Done(Summary),
}

/// State for checking the payload of an index frame as it passes.
#[derive(Debug)]
struct IndexCheck {
    crc: Crc,
    head: [u8; INDEX_HEAD_LEN],
    seen: usize,
}

impl IndexCheck {
    fn new() -> Box<Self> {
        Box::new(Self { crc: Crc::new(), head: [0; INDEX_HEAD_LEN], seen: 0 })
    }

    fn update(&mut self, piece: &[u8]) {
        self.crc.update(piece);
        let room = self.head.get_mut(self.seen..).unwrap_or_default();
        for (to, from) in room.iter_mut().zip(piece) {
            *to = *from;
            self.seen += 1;
        }
    }
}

impl Body {
    pub(crate) fn new(stream: StreamHeader) -> Self {
        Self { stream, state: State::FrameHeader, position: 0, counted: EndRecord::default() }
    }

    pub(crate) fn stream(&self) -> &StreamHeader {
        &self.stream
    }

    pub(crate) fn next<'a>(
        &mut self,
        pieces: &mut Pieces,
        input: &mut &'a [u8],
    ) -> Result<Option<Event<'a>>, FrameError> {
        if let State::FrameHeader = self.state {
            let Some(bytes) = pieces.array(input) else {
                return Ok(None);
            };
            let frame = self.frame_header(&bytes)?;
            if frame.kind != Kind::End {
                return Ok(Some(Event::Frame(frame)));
            }
        }
        match &mut self.state {
            State::FrameHeader => Ok(None),
            State::Payload { frame, left: 0, index } => {
                let (frame, index) = (frame.clone(), index.take());
                self.frame_end(&frame, index)?;
                Ok(Some(Event::FrameEnd(frame)))
            }
            State::Payload { left, index, .. } => {
                let most = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                let (piece, rest) = input.split_at(most);
                *input = rest;
                if piece.is_empty() {
                    return Ok(None);
                }
                // `most` is at most `left`, which is a u32.
                *left -= u32::try_from(most).unwrap_or(*left);
                self.position += most as u64;
                if let Some(check) = index {
                    check.update(piece);
                }
                Ok(Some(Event::Payload(piece)))
            }
            State::End { frame } => {
                // At most MAX_END_PLAIN, by the check of the frame header.
                let want = usize::try_from(frame.stored_len).unwrap_or(usize::MAX);
                let Some(payload) = pieces.bytes(want, input) else {
                    return Ok(None);
                };
                let frame = frame.clone();
                self.end_frame(&frame, &payload).map(|end| Some(Event::End(end)))
            }
            State::Trailer { end_position } => {
                let Some(bytes) = pieces.array(input) else {
                    return Ok(None);
                };
                let end_position = *end_position;
                self.trailer(&bytes, end_position).map(|trailer| Some(Event::Trailer(trailer)))
            }
            State::Done(_) if input.is_empty() => Ok(None),
            State::Done(_) => {
                let ends = (STREAM_HEADER_LEN + TRAILER_LEN) as u64;
                Err(FrameError::TrailingBytes { position: self.position + ends })
            }
        }
    }

    pub(crate) fn finish(&self) -> Result<Summary, FrameError> {
        let (part, position) = match &self.state {
            State::FrameHeader => (Part::FrameHeader, self.position),
            State::Payload { frame, .. } | State::End { frame } => {
                (frame.kind.part(), frame.position)
            }
            State::Trailer { .. } => (Part::Trailer, self.position),
            State::Done(summary) => return Ok(summary.clone()),
        };
        Err(FrameError::Truncated { place: ErrorLocation::new(part, position) })
    }

    fn frame_header(&mut self, bytes: &[u8; FRAME_HEADER_LEN]) -> Result<FrameHeader, FrameError> {
        let frame = FrameHeader::parse(bytes, &self.stream, self.position)?;
        self.position += FRAME_HEADER_LEN as u64;
        let left = frame.stored_len;
        self.state = match frame.kind {
            Kind::Data => {
                let expected = self.counted.next_offset(frame.source);
                same(frame.place(), "plain offset", expected, frame.plain_offset)?;
                self.counted.count_data(&frame)?;
                State::Payload { frame: frame.clone(), left, index: None }
            }
            Kind::Index => {
                let (expected, _) = IndexPlace::fields(self.counted.last_index);
                let field = "position of the previous index frame";
                same(frame.place(), field, expected, frame.plain_offset)?;
                State::Payload { frame: frame.clone(), left, index: Some(IndexCheck::new()) }
            }
            Kind::End => State::End { frame: frame.clone() },
        };
        Ok(frame)
    }

    fn frame_end(
        &mut self,
        frame: &FrameHeader,
        index: Option<Box<IndexCheck>>,
    ) -> Result<(), FrameError> {
        self.state = State::FrameHeader;
        let Some(check) = index else {
            return Ok(());
        };
        frame.check_payload_crc(check.crc.finish())?;
        let head = IndexHead::parse(&check.head);
        let place = frame.place();
        same(place, "number of the index frame", self.counted.index_frames, head.number)?;
        let (_, before_len) = IndexPlace::fields(self.counted.last_index);
        let field = "length of the previous index frame";
        same(place, field, before_len.into(), head.previous_len.into())?;
        // Bounded by the limit on index payloads.
        let len = u32::try_from(frame.frame_len()).unwrap_or(u32::MAX);
        self.counted.index_frames += 1;
        self.counted.last_index = Some(IndexPlace { position: frame.position, len });
        Ok(())
    }

    fn end_frame(&mut self, frame: &FrameHeader, payload: &[u8]) -> Result<EndRecord, FrameError> {
        frame.check_payload(payload)?;
        let end = EndRecord::parse(payload, &self.stream, frame.position)?;
        end.check_against(&self.counted, frame.position)?;
        self.position += payload.len() as u64;
        self.counted = end.clone();
        self.state = State::Trailer { end_position: frame.position };
        Ok(end)
    }

    fn trailer(
        &mut self,
        bytes: &[u8; TRAILER_LEN],
        end_position: u64,
    ) -> Result<Trailer, FrameError> {
        let trailer = Trailer::parse(bytes)?;
        let body_len = self.position;
        let place = ErrorLocation::new(Part::Trailer, body_len);
        let len = stream_len(&self.stream, body_len).unwrap_or(u64::MAX);
        trailer.check(&self.stream, len)?;
        same(place, "body length", body_len, trailer.body_len)?;
        same(place, "position of the end frame", end_position, trailer.end_position)?;
        let (index_position, index_len) = IndexPlace::fields(trailer.last_index);
        let (position, len) = IndexPlace::fields(self.counted.last_index);
        same(place, "position of the last index frame", position, index_position)?;
        same(place, "length of the last index frame", len.into(), index_len.into())?;
        self.state = State::Done(Summary {
            id: self.stream.id(),
            end: self.counted.clone(),
            end_position,
            body_len,
            stream_len: trailer.stream_len,
        });
        Ok(trailer)
    }
}
