//! Parses the records of one index frame.

use super::build::ChunkBases;
use super::frame_runs::BAD_NUMBER;
use super::{
    BAD_KIND, CHUNK_KINDS, ChunkRecord, FrameRun, IGNORABLE, INDEX_HEAD_LEN, MAX_INDEX_PLAIN,
    MAX_PATH, Record, TAG_CHUNK, TAG_END, TAG_FILE, TAG_FRAMES, TAG_REMOVE, TAG_RENAME, varint,
};
use crate::fields::{Fields, within};
use crate::limits::MAX_POSITION;
use crate::{ErrorLocation, FrameError, MAX_SOURCES, Part};

/// Head of an index frame's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexHead {
    pub(crate) number: u64,
    pub(crate) previous_len: u32,
    pub(crate) records: u32,
}

impl IndexHead {
    pub(crate) fn parse(bytes: &[u8; INDEX_HEAD_LEN]) -> Self {
        let mut fields = Fields::of(bytes);
        Self { number: fields.u64(), previous_len: fields.u32(), records: fields.u32() }
    }
}

/// Parses the payload of an index frame. Its checksum must have been checked, or its seal opened.
/// The records borrow names and runs from the payload; nothing is allocated.
///
/// # Errors
/// [`FrameError::Truncated`] and [`FrameError::Range`] for a payload that is too short or too long;
/// the iterator returns all other errors.
pub fn parse(payload: &[u8]) -> Result<Records<'_>, FrameError> {
    let place = ErrorLocation::new(Part::Record, 0);
    let Some((head, rest)) = payload.split_first_chunk::<INDEX_HEAD_LEN>() else {
        return Err(FrameError::Truncated { place });
    };
    within(place, "payload length", 0, MAX_INDEX_PLAIN as u64, payload.len() as u64)?;
    let head = IndexHead::parse(head);
    Ok(Records {
        head,
        rest,
        at: INDEX_HEAD_LEN as u64,
        seen: 0,
        run_base: 0,
        bases: ChunkBases::default(),
        over: false,
    })
}

/// Iterator over the records of one index frame, in order. It skips records of unknown kinds where
/// the format allows it. After an error it returns `None`.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    head: IndexHead,
    rest: &'a [u8],
    at: u64,
    seen: u32,
    run_base: u64,
    bases: ChunkBases,
    over: bool,
}

impl<'a> Records<'a> {
    /// Number of this index frame; the first in a stream is 0.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.head.number
    }

    /// Length in bytes, header included, of the previous index frame, whose position is
    /// [`FrameHeader::previous_index`](crate::FrameHeader::previous_index). 0 in the first.
    #[must_use]
    pub fn previous_len(&self) -> u32 {
        self.head.previous_len
    }

    /// Reads the next record; `None` for a record that is skipped.
    fn record(&mut self) -> Result<Option<Record<'a>>, FrameError> {
        let place = ErrorLocation::new(Part::Record, self.at);
        let bad = |reason| FrameError::BadRecord { place, reason };
        let mut rest = self.rest;
        let Some((&tag, after)) = rest.split_first() else {
            return Err(bad(CUT));
        };
        rest = after;
        let len = varint::take(&mut rest).ok_or_else(|| bad(BAD_NUMBER))?;
        let (mut body, rest) =
            usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len)).ok_or(bad(CUT))?;
        self.at += (self.rest.len() - rest.len()) as u64;
        self.rest = rest;
        self.seen = self.seen.saturating_add(1);

        let record = match self.body(tag, &mut body) {
            Ok(Some(record)) => record,
            Ok(None) if tag >= IGNORABLE => return Ok(None),
            Ok(None) => {
                return Err(FrameError::Unknown { place, field: "record tag", got: tag.into() });
            }
            Err(reason) => return Err(bad(reason)),
        };
        if !body.is_empty() {
            return Err(bad("the record is longer than its fields"));
        }
        Ok(Some(record))
    }

    /// Parses the fields of a record with this tag; `None` for an unknown tag.
    fn body(&mut self, tag: u8, body: &mut &'a [u8]) -> Result<Option<Record<'a>>, &'static str> {
        let record = match tag {
            TAG_FILE => {
                let file = number(body)?;
                let source = u16::try_from(number(body)?)
                    .ok()
                    .filter(|source| *source < MAX_SOURCES)
                    .ok_or("source number is too high")?;
                Record::File { file, source, path: path(body)? }
            }
            TAG_CHUNK => Record::Chunk(self.chunk(body)?),
            TAG_END => Record::End { file: number(body)?, size: position(body)? },
            TAG_RENAME => Record::Rename { file: number(body)?, path: path(body)? },
            TAG_REMOVE => Record::Remove { file: number(body)? },
            TAG_FRAMES => {
                let run = FrameRun::take(body, self.run_base)?;
                self.run_base = run.end_position();
                Record::Frames(run)
            }
            _ => return Ok(None),
        };
        Ok(Some(record))
    }

    fn chunk(&mut self, body: &mut &'a [u8]) -> Result<ChunkRecord, &'static str> {
        let file = number(body)?;
        let (&kind, rest) = body.split_first().ok_or(CUT)?;
        *body = rest;
        if !CHUNK_KINDS.contains(&kind) {
            return Err(BAD_KIND);
        }
        let position = varint::take_step(body, self.bases.position()).ok_or(BAD_NUMBER)?;
        let (head_len, payload_len) = (number(body)?, number(body)?);
        let offset = varint::take_step(body, self.bases.offset(file)).ok_or(BAD_NUMBER)?;
        let logical_len = payload_len.checked_add(number(body)?).ok_or(BAD_NUMBER)?;
        let chunk =
            ChunkRecord { file, kind, position, head_len, payload_len, offset, logical_len };
        self.bases.advance(&chunk).ok_or(BAD_NUMBER)?;
        Ok(chunk)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.over {
            if self.rest.is_empty() {
                self.over = true;
                if self.seen != self.head.records {
                    return Some(Err(FrameError::Mismatch {
                        place: ErrorLocation::new(Part::Record, self.at),
                        field: "number of records",
                        expected: self.head.records.into(),
                        got: self.seen.into(),
                    }));
                }
                return None;
            }
            match self.record() {
                Ok(Some(record)) => return Some(Ok(record)),
                Ok(None) => {}
                Err(error) => {
                    self.over = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

const CUT: &str = "the record is truncated";

fn number(body: &mut &[u8]) -> Result<u64, &'static str> {
    varint::take(body).ok_or(BAD_NUMBER)
}

fn position(body: &mut &[u8]) -> Result<u64, &'static str> {
    number(body).and_then(|at| if at <= MAX_POSITION { Ok(at) } else { Err(BAD_NUMBER) })
}

/// Takes the rest of the record as a name.
fn path<'a>(body: &mut &'a [u8]) -> Result<&'a [u8], &'static str> {
    let path = std::mem::take(body);
    if (1..=MAX_PATH).contains(&path.len()) { Ok(path) } else { Err("path length is out of range") }
}
