//! Runs of data frames: the part of the index that maps a plain offset to a body position.

use super::varint;
use crate::fields::same;
use crate::frame::FrameHeader;
use crate::limits::MAX_POSITION;
use crate::{FRAME_HEADER_LEN, FrameError, Kind, MAX_FRAME_PLAIN};

/// Maximum number of frames in one run.
pub const MAX_RUN_FRAMES: u32 = 4096;

/// Index entry of one data frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramePlace {
    /// Number of the source that the frame belongs to.
    pub source: u16,
    /// Body position of the frame's header.
    pub position: u64,
    /// Offset of the frame's first plain byte in the source.
    pub plain_offset: u64,
    /// Length of the decoded payload.
    pub plain_len: u32,
    /// Length of the payload in the body.
    pub stored_len: u32,
}

impl FramePlace {
    /// Checks that `header`, found at this position, matches the index entry.
    ///
    /// # Errors
    /// [`FrameError::Mismatch`] for the first difference.
    pub fn check(&self, header: &FrameHeader) -> Result<(), FrameError> {
        let place = header.place();
        let kind = (Kind::Data.number(), header.kind.number());
        same(place, "frame kind", kind.0.into(), kind.1.into())?;
        same(place, "body position", self.position, header.position)?;
        same(place, "source number", self.source.into(), header.source.into())?;
        same(place, "plain offset", self.plain_offset, header.plain_offset)?;
        same(place, "plain length", self.plain_len.into(), header.plain_len.into())?;
        same(place, "stored length", self.stored_len.into(), header.stored_len.into())
    }
}

/// Consecutive data frames of one source, without a gap in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRun<'a> {
    source: u16,
    position: u64,
    plain_offset: u64,
    count: u32,
    end_position: u64,
    end_offset: u64,
    /// Entries, which were checked when the run was parsed.
    entries: &'a [u8],
}

impl<'a> FrameRun<'a> {
    /// Number of the source.
    #[must_use]
    pub fn source(&self) -> u16 {
        self.source
    }

    /// Number of frames, at least one.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Plain bytes of the run, as a range of the source.
    #[must_use]
    pub fn plain_range(&self) -> std::ops::Range<u64> {
        self.plain_offset..self.end_offset
    }

    /// Bytes of the run in the body.
    #[must_use]
    pub fn body_range(&self) -> std::ops::Range<u64> {
        self.position..self.end_position
    }

    /// The frames, in order.
    pub fn frames(&self) -> impl Iterator<Item = FramePlace> + use<'a> {
        Walk::of(self.source, self.position, self.plain_offset, self.entries)
    }

    /// Takes a run from a record's body; `base` is the end position of the previous run.
    pub(super) fn take(body: &mut &'a [u8], base: u64) -> Result<Self, &'static str> {
        let source = varint::take(body).ok_or(BAD_NUMBER)?;
        let source = u16::try_from(source)
            .ok()
            .filter(|source| *source < crate::MAX_SOURCES)
            .ok_or("source number is too high")?;
        let position = varint::take_step(body, base).ok_or(BAD_NUMBER)?;
        let plain_offset =
            varint::take(body).filter(|offset| *offset <= MAX_POSITION).ok_or(BAD_NUMBER)?;
        let count = varint::take(body).ok_or(BAD_NUMBER)?;
        let count = u32::try_from(count)
            .ok()
            .filter(|count| (1..=MAX_RUN_FRAMES).contains(count))
            .ok_or("number of frames is out of range")?;
        let entries = *body;
        let mut walk = Walk::of(source, position, plain_offset, entries);
        for _ in 0..count {
            walk.step()?;
        }
        *body = walk.entries;
        Ok(Self {
            source,
            position,
            plain_offset,
            count,
            end_position: walk.position,
            end_offset: walk.plain_offset,
            entries: entries.get(..entries.len() - walk.entries.len()).unwrap_or_default(),
        })
    }

    /// End position of the run, which is the base of the next one.
    pub(super) fn end_position(&self) -> u64 {
        self.end_position
    }
}

pub(super) const BAD_NUMBER: &str = "a number is truncated, too long or out of range";

/// Iterates over the entries of a run.
#[derive(Debug)]
struct Walk<'a> {
    source: u16,
    position: u64,
    plain_offset: u64,
    plain_len: u32,
    entries: &'a [u8],
}

impl<'a> Walk<'a> {
    fn of(source: u16, position: u64, plain_offset: u64, entries: &'a [u8]) -> Self {
        Self { source, position, plain_offset, plain_len: 0, entries }
    }

    fn step(&mut self) -> Result<FramePlace, &'static str> {
        let entry = varint::take(&mut self.entries).ok_or(BAD_NUMBER)?;
        if entry & 1 != 0 {
            let plain_len = varint::take(&mut self.entries).ok_or(BAD_NUMBER)?;
            let repeated = plain_len == u64::from(self.plain_len);
            self.plain_len = u32::try_from(plain_len)
                .ok()
                .filter(|len| *len <= MAX_FRAME_PLAIN && !repeated)
                .ok_or("plain length of a frame is out of range or repeated")?;
        }
        // A stored length is at least one byte, which also rules out an empty frame.
        let stored_len = u32::try_from(entry >> 1)
            .ok()
            .and_then(|saved| self.plain_len.checked_sub(saved))
            .filter(|stored| *stored > 0)
            .ok_or("stored length of a frame is out of range")?;
        let place = FramePlace {
            source: self.source,
            position: self.position,
            plain_offset: self.plain_offset,
            plain_len: self.plain_len,
            stored_len,
        };
        let taken = FRAME_HEADER_LEN as u64 + u64::from(stored_len);
        self.position = advance(self.position, taken)?;
        self.plain_offset = advance(self.plain_offset, self.plain_len.into())?;
        Ok(place)
    }
}

impl Iterator for Walk<'_> {
    type Item = FramePlace;

    fn next(&mut self) -> Option<FramePlace> {
        if self.entries.is_empty() {
            return None;
        }
        self.step().ok()
    }
}

fn advance(position: u64, by: u64) -> Result<u64, &'static str> {
    position.checked_add(by).filter(|end| *end <= MAX_POSITION).ok_or("a position is too high")
}

/// A run that still grows, on the writing side.
#[derive(Debug)]
pub(super) struct OpenRun {
    first: FramePlace,
    next_position: u64,
    count: u32,
    plain_len: u32,
    entries: Vec<u8>,
}

impl OpenRun {
    /// Maximum length of the bytes before the entries: five numbers and the tag.
    pub(super) const HEAD_MAX: usize = 1 + 5 * varint::MAX_LEN;
    /// Maximum length of one more entry.
    pub(super) const ENTRY_MAX: usize = 2 * varint::MAX_LEN;

    pub(super) fn new(first: FramePlace) -> Self {
        let mut run = Self {
            first,
            next_position: first.position,
            count: 0,
            plain_len: 0,
            entries: Vec::new(),
        };
        run.push(first);
        run
    }

    /// Returns whether `frame` continues the run. Its plain offset always does, because the writer
    /// counts it.
    pub(super) fn continues(&self, frame: &FramePlace) -> bool {
        self.count < MAX_RUN_FRAMES
            && frame.source == self.first.source
            && frame.position == self.next_position
    }

    pub(super) fn push(&mut self, frame: FramePlace) {
        let changed = frame.plain_len != self.plain_len;
        let saved = u64::from(frame.plain_len - frame.stored_len);
        varint::put(&mut self.entries, saved << 1 | u64::from(changed));
        if changed {
            varint::put(&mut self.entries, frame.plain_len.into());
        }
        self.plain_len = frame.plain_len;
        self.count += 1;
        self.next_position = frame.position + FRAME_HEADER_LEN as u64 + u64::from(frame.stored_len);
    }

    pub(super) fn len(&self) -> usize {
        Self::HEAD_MAX + self.entries.len()
    }

    pub(super) fn end_position(&self) -> u64 {
        self.next_position
    }

    /// Encodes the record's body; `base` is the end position of the previous run.
    pub(super) fn body(&self, base: u64) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.len());
        varint::put(&mut body, self.first.source.into());
        varint::put_step(&mut body, base, self.first.position);
        varint::put(&mut body, self.first.plain_offset);
        varint::put(&mut body, self.count.into());
        body.extend(&self.entries);
        body
    }
}
