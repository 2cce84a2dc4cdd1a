//! The writing side: it creates headers, index and tail, and tracks all positions.

use crate::end_frame::{EndRecord, IndexPlace, Summary};
use crate::fields::{crc32c, within};
use crate::frame::{FrameHeader, Kind};
use crate::index::{DEFAULT_INDEX_TARGET, FramePlace, IndexBuilder, MAX_INDEX_PLAIN, Record};
use crate::limits::FRAME_HEADER_LEN;
use crate::limits::MAX_POSITION;
use crate::limits::MAX_SOURCES;
use crate::{Codec, FrameError, StreamHeader, Trailer};

/// Creates the frames of one stream, in stream order.
///
/// The caller must send the returned bytes in the order of the calls, each data header followed by
/// its payload, because the writer counts positions. Call [`StreamWriter::finish`] at the end:
/// readers reject a stream without its tail.
#[derive(Debug)]
pub struct StreamWriter {
    stream: StreamHeader,
    position: u64,
    totals: EndRecord,
    index: IndexBuilder,
    index_target: usize,
}

impl StreamWriter {
    /// Starts the body of a stream whose header the caller has sent.
    #[must_use]
    pub fn new(header: &StreamHeader) -> Self {
        Self {
            stream: header.clone(),
            position: 0,
            // A stream always has source 0, even if it is empty.
            totals: EndRecord { sources: vec![0], ..EndRecord::default() },
            index: IndexBuilder::new(),
            index_target: DEFAULT_INDEX_TARGET,
        }
    }

    /// Sets the length of pending records, in bytes, at which an index frame is due. At most half
    /// of [`MAX_INDEX_PLAIN`], so that the caller has some room left to write it.
    #[must_use]
    pub fn with_index_target(mut self, bytes: usize) -> Self {
        self.index_target = bytes.min(MAX_INDEX_PLAIN / 2);
        self
    }

    /// Body position of the next frame.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Number of plain bytes of `source` so far.
    #[must_use]
    pub fn plain_offset(&self, source: u16) -> u64 {
        self.totals.next_offset(source)
    }

    /// Creates the header of the next data frame of `source`. Its payload of `stored_len` bytes
    /// must follow in the stream.
    ///
    /// `payload_crc32c` is the CRC-32C of the stored payload, see [`crc32c`]; it is ignored in a
    /// sealed stream. With [`Codec::None`] both lengths are the same; otherwise the stored length
    /// must be smaller, because a payload that does not shrink is stored uncompressed.
    ///
    /// # Errors
    /// [`FrameError::Range`] or [`FrameError::Mismatch`] for numbers that the format does not
    /// allow; [`FrameError::IndexOverdue`] if [`StreamWriter::index_due`] was ignored. After an
    /// error, nothing is counted.
    pub fn data_frame(
        &mut self,
        source: u16,
        codec: Codec,
        plain_len: u32,
        stored_len: u32,
        payload_crc32c: u32,
    ) -> Result<[u8; FRAME_HEADER_LEN], FrameError> {
        let header = FrameHeader {
            position: self.position,
            kind: Kind::Data,
            codec,
            source,
            plain_len,
            stored_len,
            plain_offset: self.totals.next_offset(source),
            payload_crc32c: (!self.stream.is_sealed()).then_some(payload_crc32c),
        };
        header.check_fields(&self.stream)?;
        // Leave room for the rest: index, end frame, seal and trailer.
        let end = self.position + header.frame_len();
        within(header.place(), "end of the frame", 0, MAX_POSITION / 2, end)?;
        self.index.check_room_for_frame()?;
        self.totals.count_data(&header)?;
        self.index.push_frame(FramePlace {
            source,
            position: self.position,
            plain_offset: header.plain_offset,
            plain_len,
            stored_len,
        });
        self.position = end;
        Ok(header.encode(&self.stream))
    }

    /// Adds a record about files to the index. It may come before or after the frames that hold the
    /// bytes it describes.
    ///
    /// # Errors
    /// [`FrameError::Range`] or [`FrameError::BadRecord`] for a record that the format does not
    /// allow (also for [`Record::Frames`], which the writer creates itself);
    /// [`FrameError::IndexOverdue`] if [`StreamWriter::index_due`] was ignored.
    pub fn record(&mut self, record: &Record<'_>) -> Result<(), FrameError> {
        self.index.push(record)
    }

    /// Returns whether an index frame is due. Ask after every record and every data frame; when it
    /// is due, send the result of [`StreamWriter::index_frame`] at the next frame boundary.
    #[must_use]
    pub fn index_due(&self) -> bool {
        !self.index.is_empty() && self.index.pending() >= self.index_target
    }

    /// Creates the next index frame, header and payload, from all pending records; `None` if there
    /// are none.
    pub fn index_frame(&mut self) -> Option<Vec<u8>> {
        let before = self.totals.last_index;
        let (before_position, before_len) = IndexPlace::fields(before);
        let frame = self.index.take(self.totals.index_frames, before_len)?;
        let frame = self.fill_header(frame, Kind::Index, before_position);
        // The builder holds at most MAX_INDEX_PLAIN bytes.
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        self.totals.last_index = Some(IndexPlace { position: self.position, len });
        self.totals.index_frames += 1;
        self.position += frame.len() as u64;
        Some(frame)
    }

    /// Ends the stream and returns the last index frame, the end frame and the trailer.
    #[must_use = "a stream without its tail is refused by every reader"]
    pub fn finish(mut self) -> Tail {
        let mut bytes = self.index_frame().unwrap_or_default();
        let end_position = self.position;
        let mut end = vec![0; FRAME_HEADER_LEN];
        end.extend(self.totals.encode());
        bytes.extend(self.fill_header(end, Kind::End, 0));
        let body_part = bytes.len();

        let end_len = (FRAME_HEADER_LEN + self.totals.encode().len()) as u64;
        let body_len = end_position + end_len;
        let summary = Summary {
            id: self.stream.id(),
            end: self.totals,
            end_position,
            body_len,
            // Bounded by the limit in data_frame.
            stream_len: crate::end_frame::stream_len(&self.stream, body_len).unwrap_or(u64::MAX),
        };
        bytes.extend(Trailer::of(&summary).encode());
        Tail { bytes, body_part, summary }
    }

    /// Writes the header of an index or end frame into the space reserved at the front of `frame`.
    fn fill_header(&self, mut frame: Vec<u8>, kind: Kind, plain_offset: u64) -> Vec<u8> {
        if let Some((room, payload)) = frame.split_first_chunk_mut::<FRAME_HEADER_LEN>() {
            let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
            let header = FrameHeader {
                position: self.position,
                kind,
                codec: Codec::None,
                source: 0,
                plain_len: len,
                stored_len: len,
                plain_offset,
                payload_crc32c: (!self.stream.is_sealed()).then(|| crc32c(payload)),
            };
            debug_assert_eq!(header.check_fields(&self.stream), Ok(()));
            *room = header.encode(&self.stream);
        }
        frame
    }
}

const _: () =
    assert!(crate::limits::END_FIXED_LEN + 8 * MAX_SOURCES as usize <= crate::MAX_END_PLAIN);

/// End of a stream, as returned by [`StreamWriter::finish`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a stream without its tail is refused by every reader"]
pub struct Tail {
    /// The last frames and the trailer. Send them unchanged if the stream is not sealed.
    pub bytes: Vec<u8>,
    /// Number of these bytes that belong to the body.
    body_part: usize,
    /// Totals of the whole stream.
    pub summary: Summary,
}

impl Tail {
    /// The bytes that belong to the body, and pass through the seal if there is one.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.bytes.get(..self.body_part).unwrap_or_default()
    }

    /// The trailer, which follows the body and is never sealed.
    #[must_use]
    pub fn trailer(&self) -> &[u8] {
        self.bytes.get(self.body_part..).unwrap_or_default()
    }
}
