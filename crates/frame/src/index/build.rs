//! Collects records until there are enough for an index frame.

use super::frame_runs::OpenRun;
use super::{
    BAD_KIND, CHUNK_KINDS, ChunkRecord, FramePlace, INDEX_HEAD_LEN, MAX_INDEX_PLAIN, MAX_PATH,
    Record, TAG_CHUNK, TAG_END, TAG_FILE, TAG_FRAMES, TAG_REMOVE, TAG_RENAME, varint,
};
use crate::fields::within;
use crate::limits::MAX_POSITION;
use crate::{ErrorLocation, FRAME_HEADER_LEN, FrameError, MAX_SOURCES, Part};

/// Space for the frame header and the head of the payload, filled in when the frame is taken.
const AHEAD: usize = FRAME_HEADER_LEN + INDEX_HEAD_LEN;

/// Pending records of one index frame. All its bases are reset for each frame, so that every frame
/// can be parsed alone.
#[derive(Debug)]
pub(crate) struct IndexBuilder {
    /// The frame as it will be written, with the first [`AHEAD`] bytes left free.
    frame: Vec<u8>,
    records: u32,
    run: Option<OpenRun>,
    /// End position of the last run written.
    run_base: u64,
    bases: ChunkBases,
}

/// Bases for the relative numbers of chunk records: the end of the previous chunk in its source and
/// its file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ChunkBases {
    position: u64,
    file: Option<u64>,
    offset: u64,
}

impl ChunkBases {
    /// Base for the next chunk's position.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Base for the next chunk's file offset.
    pub(super) fn offset(&self, file: u64) -> u64 {
        if self.file == Some(file) { self.offset } else { 0 }
    }

    /// Moves the bases to the end of `chunk`; `None` if an end exceeds the highest position.
    pub(super) fn advance(&mut self, chunk: &ChunkRecord) -> Option<()> {
        let end = chunk.position.checked_add(chunk.head_len)?.checked_add(chunk.payload_len)?;
        let offset = chunk.offset.checked_add(chunk.logical_len)?;
        if end > MAX_POSITION || offset > MAX_POSITION || chunk.logical_len < chunk.payload_len {
            return None;
        }
        *self = Self { position: end, file: Some(chunk.file), offset };
        Some(())
    }
}

impl IndexBuilder {
    pub(crate) fn new() -> Self {
        Self {
            frame: vec![0; AHEAD],
            records: 0,
            run: None,
            run_base: 0,
            bases: ChunkBases::default(),
        }
    }

    /// Upper bound of the payload length of the records so far, in bytes.
    pub(crate) fn pending(&self) -> usize {
        self.frame.len() - FRAME_HEADER_LEN + self.run.as_ref().map_or(0, OpenRun::len)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records == 0 && self.run.is_none()
    }

    /// Adds a record from the caller.
    pub(crate) fn push(&mut self, record: &Record<'_>) -> Result<(), FrameError> {
        let bad = |reason| FrameError::BadRecord { place: self.here(), reason };
        let mut body = Vec::with_capacity(64);
        let mut bases = self.bases;
        let tag = match record {
            Record::File { file, source, path } => {
                within(
                    self.here(),
                    "source number",
                    0,
                    u64::from(MAX_SOURCES) - 1,
                    (*source).into(),
                )?;
                varint::put(&mut body, *file);
                varint::put(&mut body, (*source).into());
                body.extend(self.checked(path)?);
                TAG_FILE
            }
            Record::Chunk(chunk) => {
                if !CHUNK_KINDS.contains(&chunk.kind) {
                    return Err(bad(BAD_KIND));
                }
                varint::put(&mut body, chunk.file);
                body.push(chunk.kind);
                let (position, offset) = (bases.position(), bases.offset(chunk.file));
                bases.advance(chunk).ok_or_else(|| bad("the lengths of the chunk do not match"))?;
                varint::put_step(&mut body, position, chunk.position);
                varint::put(&mut body, chunk.head_len);
                varint::put(&mut body, chunk.payload_len);
                varint::put_step(&mut body, offset, chunk.offset);
                varint::put(&mut body, chunk.logical_len - chunk.payload_len);
                TAG_CHUNK
            }
            Record::End { file, size } => {
                within(self.here(), "file size", 0, MAX_POSITION, *size)?;
                varint::put(&mut body, *file);
                varint::put(&mut body, *size);
                TAG_END
            }
            Record::Rename { file, path } => {
                varint::put(&mut body, *file);
                body.extend(self.checked(path)?);
                TAG_RENAME
            }
            Record::Remove { file } => {
                varint::put(&mut body, *file);
                TAG_REMOVE
            }
            Record::Frames(_) => return Err(bad("frame runs are made by the writer itself")),
        };
        self.check_room(1 + varint::MAX_LEN + body.len())?;
        self.bases = bases;
        self.put(tag, &body);
        Ok(())
    }

    /// Checks that one more data frame fits. Call this before [`IndexBuilder::push_frame`].
    pub(crate) fn check_room_for_frame(&self) -> Result<(), FrameError> {
        self.check_room(OpenRun::HEAD_MAX + OpenRun::ENTRY_MAX)
    }

    /// Adds a data frame to the open run, or starts a new run.
    pub(crate) fn push_frame(&mut self, frame: FramePlace) {
        match &mut self.run {
            Some(run) if run.continues(&frame) => run.push(frame),
            _ => {
                self.close_run();
                self.run = Some(OpenRun::new(frame));
            }
        }
    }

    /// Returns the frame with a complete payload and an empty header, and resets the builder.
    /// `None` if no record is pending.
    pub(crate) fn take(&mut self, number: u64, previous_len: u32) -> Option<Vec<u8>> {
        self.close_run();
        if self.is_empty() {
            return None;
        }
        let full = std::mem::replace(self, Self::new());
        let mut head = Vec::with_capacity(INDEX_HEAD_LEN);
        head.extend(number.to_le_bytes());
        head.extend(previous_len.to_le_bytes());
        head.extend(full.records.to_le_bytes());
        let mut frame = full.frame;
        if let Some(place) = frame.get_mut(FRAME_HEADER_LEN..AHEAD) {
            place.copy_from_slice(&head);
        }
        Some(frame)
    }

    fn close_run(&mut self) {
        if let Some(run) = self.run.take() {
            let body = run.body(self.run_base);
            self.run_base = run.end_position();
            self.put(TAG_FRAMES, &body);
        }
    }

    fn put(&mut self, tag: u8, body: &[u8]) {
        self.frame.push(tag);
        varint::put(&mut self.frame, body.len() as u64);
        self.frame.extend(body);
        self.records += 1;
    }

    fn check_room(&self, more: usize) -> Result<(), FrameError> {
        let pending = self.pending();
        if pending + more > MAX_INDEX_PLAIN {
            return Err(FrameError::IndexOverdue { pending });
        }
        Ok(())
    }

    fn checked<'a>(&self, path: &'a [u8]) -> Result<&'a [u8], FrameError> {
        within(self.here(), "path length", 1, MAX_PATH as u64, path.len() as u64)?;
        Ok(path)
    }

    fn here(&self) -> ErrorLocation {
        ErrorLocation::new(Part::Record, (self.frame.len() - FRAME_HEADER_LEN) as u64)
    }
}
