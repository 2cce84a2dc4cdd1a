//! Contents of the end frame (`docs/spec/format.md`, "End frame"), and the summary of a whole stream.

use crate::fields::{Fields, same, within};
use crate::frame::NO_POSITION;
use crate::limits::{END_FIXED_LEN, MAX_END_PLAIN, MAX_POSITION, MAX_SOURCES};
use crate::{ErrorLocation, FrameError, FrameHeader, Part, StreamHeader, StreamId};
use crate::{FRAME_HEADER_LEN, STREAM_HEADER_LEN, TRAILER_LEN};

/// Location of an index frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexPlace {
    /// Body position of the frame's first byte.
    pub position: u64,
    /// Length of the whole frame in bytes, header included.
    pub len: u32,
}

impl IndexPlace {
    /// Returns the two fields that encode `place`.
    pub(crate) fn fields(place: Option<Self>) -> (u64, u32) {
        place.map_or((NO_POSITION, 0), |place| (place.position, place.len))
    }

    /// Reads the two fields. The frame must end at or before `limit`.
    pub(crate) fn from_fields(
        position: u64,
        len: u32,
        limit: u64,
        place: ErrorLocation,
    ) -> Result<Option<Self>, FrameError> {
        use crate::index::{INDEX_HEAD_LEN, MAX_INDEX_PLAIN};
        if position == NO_POSITION {
            same(place, "length of the last index frame", 0, len.into())?;
            return Ok(None);
        }
        let header = FRAME_HEADER_LEN as u64;
        let (min, max) = (header + INDEX_HEAD_LEN as u64, header + MAX_INDEX_PLAIN as u64);
        within(place, "length of the last index frame", min, max, len.into())?;
        let last = limit.saturating_sub(len.into());
        within(place, "position of the last index frame", 0, last, position)?;
        Ok(Some(Self { position, len }))
    }
}

/// The totals of a stream, as its end frame states them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EndRecord {
    /// Number of data frames.
    pub data_frames: u64,
    /// Plain bytes of all sources together.
    pub plain_bytes: u64,
    /// Stored bytes of all data payloads, without frame headers.
    pub stored_bytes: u64,
    /// Number of index frames.
    pub index_frames: u64,
    /// The last index frame; `None` when there is none.
    pub last_index: Option<IndexPlace>,
    /// Plain length of each source, indexed by source number. At least one entry, at most
    /// [`MAX_SOURCES`].
    pub sources: Vec<u64>,
}

impl EndRecord {
    /// Encodes the payload of the end frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (position, len) = IndexPlace::fields(self.last_index);
        // At most MAX_SOURCES: writer and parser both enforce it.
        let sources = u32::try_from(self.sources.len()).unwrap_or(u32::MAX);
        let mut payload = Vec::with_capacity(END_FIXED_LEN + 8 * self.sources.len());
        for total in [self.data_frames, self.plain_bytes, self.stored_bytes, self.index_frames] {
            payload.extend(total.to_le_bytes());
        }
        payload.extend(position.to_le_bytes());
        payload.extend(len.to_le_bytes());
        payload.extend(sources.to_le_bytes());
        for plain_len in &self.sources {
            payload.extend(plain_len.to_le_bytes());
        }
        payload
    }

    /// Parses the payload of the end frame at body position `position`.
    ///
    /// The totals are not checked here: [`StreamReader`](crate::StreamReader) compares them with
    /// its own counts.
    ///
    /// # Errors
    /// [`FrameError::Truncated`], [`FrameError::Range`] and [`FrameError::Mismatch`].
    pub fn parse(payload: &[u8], stream: &StreamHeader, position: u64) -> Result<Self, FrameError> {
        let place = ErrorLocation::new(Part::End, position);
        if payload.len() < END_FIXED_LEN {
            return Err(FrameError::Truncated { place });
        }
        within(place, "plain length", 0, MAX_END_PLAIN as u64, payload.len() as u64)?;
        let mut fields = Fields::of(payload);
        let (data_frames, plain_bytes) = (fields.u64(), fields.u64());
        let (stored_bytes, index_frames) = (fields.u64(), fields.u64());
        let (index_position, index_len, count) = (fields.u64(), fields.u32(), fields.u32());
        within(place, "number of sources", 1, MAX_SOURCES.into(), count.into())?;

        let (needed, got) = (END_FIXED_LEN as u64 + 8 * u64::from(count), payload.len() as u64);
        // Only a later minor version may add fields.
        if got < needed || stream.minor() == 0 {
            same(place, "plain length", needed, got)?;
        }
        let sources: Vec<u64> = (0..count).map(|_| fields.u64()).collect();
        let last_index = IndexPlace::from_fields(index_position, index_len, position, place)?;
        Ok(Self { data_frames, plain_bytes, stored_bytes, index_frames, last_index, sources })
    }

    /// Compares these totals with `counted`, which may have fewer sources (the missing ones are
    /// empty).
    pub(crate) fn check_against(
        &self,
        counted: &EndRecord,
        position: u64,
    ) -> Result<(), FrameError> {
        let place = ErrorLocation::new(Part::End, position);
        let (index_position, index_len) = IndexPlace::fields(self.last_index);
        let (counted_position, counted_len) = IndexPlace::fields(counted.last_index);
        for (field, counted, stated) in [
            ("number of data frames", counted.data_frames, self.data_frames),
            ("total of plain bytes", counted.plain_bytes, self.plain_bytes),
            ("total of stored bytes", counted.stored_bytes, self.stored_bytes),
            ("number of index frames", counted.index_frames, self.index_frames),
            ("position of the last index frame", counted_position, index_position),
            ("length of the last index frame", counted_len.into(), index_len.into()),
        ] {
            same(place, field, counted, stated)?;
        }
        let seen = counted.sources.len() as u64;
        within(place, "number of sources", seen, MAX_SOURCES.into(), self.sources.len() as u64)?;
        for (number, stated) in self.sources.iter().enumerate() {
            let counted = counted.sources.get(number).copied().unwrap_or(0);
            same(place, "plain length of a source", counted, *stated)?;
        }
        Ok(())
    }

    /// Counts one data frame. Its header must have passed its checks, and its offset must be the
    /// next one.
    pub(crate) fn count_data(&mut self, frame: &FrameHeader) -> Result<(), FrameError> {
        let plain_len = u64::from(frame.plain_len);
        let plain_bytes = self.plain_bytes.saturating_add(plain_len);
        within(frame.place(), "total of plain bytes", 0, MAX_POSITION, plain_bytes)?;
        let source = usize::from(frame.source);
        if self.sources.len() <= source {
            self.sources.resize(source + 1, 0);
        }
        if let Some(length) = self.sources.get_mut(source) {
            *length += plain_len;
        }
        self.data_frames += 1;
        self.plain_bytes = plain_bytes;
        self.stored_bytes += u64::from(frame.stored_len);
        Ok(())
    }

    /// Offset of the next plain byte of `source`.
    pub(crate) fn next_offset(&self, source: u16) -> u64 {
        self.sources.get(usize::from(source)).copied().unwrap_or(0)
    }
}

/// Totals of a whole stream, the same for its writer and its readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The stream's id.
    pub id: StreamId,
    /// Contents of the end frame.
    pub end: EndRecord,
    /// Body position of the end frame.
    pub end_position: u64,
    /// Length of the body in bytes, before sealing.
    pub body_len: u64,
    /// Length of the whole stored stream in bytes: header, (sealed) body, trailer.
    pub stream_len: u64,
}

/// Computes the length of a stream whose body has `body_len` unsealed bytes.
pub(crate) fn stream_len(header: &StreamHeader, body_len: u64) -> Option<u64> {
    let ends = (STREAM_HEADER_LEN + TRAILER_LEN) as u64;
    let len = header.seal().sealed_len(body_len)?.checked_add(ends)?;
    (len <= MAX_POSITION).then_some(len)
}
