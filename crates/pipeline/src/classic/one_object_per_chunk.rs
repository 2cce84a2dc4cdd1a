//! One object for each chunk of each file, as the stock tools store them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use xb_reader::{ChunkHead, ChunkKind, RelPath};

use crate::classic::object::object_key_of;
use crate::flow::ordered_pool::Closed;
use crate::pack::chunk_sink::ChunkSink;
use crate::pack::encode::SlabContent;
use crate::pack::error::{CutError, PackError};
use crate::pack::packer::{Part, PartSink};
use crate::pack::result::{Cut, PackOutput};
use crate::scan::scanner::Entry;

/// Cuts a stream of unchanged chunks.
pub(crate) struct StreamCutter<S> {
    cutter: ChunkCutter,
    sink: S,
}

impl<S: PartSink> StreamCutter<S> {
    /// Creates a cutter whose parts have at most `part` bytes.
    pub(crate) fn new(part: u64, sink: S) -> Self {
        Self { cutter: ChunkCutter::new(part), sink }
    }
}

impl<S: PartSink> ChunkSink for StreamCutter<S> {
    fn head(&mut self, head: &ChunkHead) -> Result<(), PackError> {
        Ok(self.cutter.head(head)?)
    }

    fn slab_end(&mut self, content: SlabContent, _entries: &[Entry]) -> Result<(), PackError> {
        match content {
            SlabContent::Plain(bytes) => Ok(self.cutter.push(bytes, &mut self.sink)?),
            SlabContent::Frame(_) => Ok(()),
        }
    }

    fn finish(self) -> Result<PackOutput, PackError> {
        Ok(PackOutput::Classic(self.cutter.finish()))
    }

    fn cause(self) -> PackError {
        PackError::Closed(Closed)
    }
}

#[derive(Debug)]
struct Object {
    key: Arc<str>,
    left: u64,
    part_index: u32,
    part_len: u64,
    payload: Vec<Bytes>,
}

/// Cuts a stream at its chunk boundaries. Chunks longer than `part` are sent in parts of that size.
#[derive(Debug)]
pub(crate) struct ChunkCutter {
    part: u64,
    /// Bytes whose chunk is not known yet, because the head is incomplete.
    early: VecDeque<Bytes>,
    heads: VecDeque<(Arc<str>, u64)>,
    /// Number of the next object of each file that is still open.
    numbers: HashMap<RelPath, u64>,
    current: Option<Object>,
    cut: Cut,
}

impl ChunkCutter {
    /// Creates a cutter whose parts have at most `part` bytes.
    #[must_use]
    pub(crate) fn new(part: u64) -> Self {
        Self {
            part: part.max(1),
            early: VecDeque::new(),
            heads: VecDeque::new(),
            numbers: HashMap::new(),
            current: None,
            cut: Cut::default(),
        }
    }

    /// Announces the next chunk, in stream order, no later than the slab in which its head ends.
    ///
    /// # Errors
    /// [`CutError`] if the chunk cannot be stored as an object.
    pub(crate) fn head(&mut self, head: &ChunkHead) -> Result<(), CutError> {
        let plain = matches!(
            head.kind,
            ChunkKind::Payload { .. } | ChunkKind::Sparse { .. } | ChunkKind::End
        );
        if !plain || head.is_rewrite() {
            return Err(CutError::Dialect { path: head.path.clone(), position: head.position });
        }
        let number = match head.kind {
            ChunkKind::End => self.numbers.remove(&head.path).unwrap_or(0),
            _ => {
                let next = self.numbers.entry(head.path.clone()).or_insert(0);
                *next += 1;
                *next - 1
            }
        };
        let key = object_key_of(&head.path, number)?;
        self.heads.push_back((key, head.head_len + head.payload_len()));
        Ok(())
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// [`Closed`] if the sink has stopped.
    pub(crate) fn push(&mut self, bytes: Bytes, sink: &mut impl PartSink) -> Result<(), Closed> {
        self.early.push_back(bytes);
        loop {
            if self.current.is_none() {
                let Some((key, left)) = self.heads.pop_front() else { return Ok(()) };
                self.current =
                    Some(Object { key, left, part_index: 0, part_len: 0, payload: Vec::new() });
            }
            let Some(object) = &mut self.current else { return Ok(()) };
            let Some(front) = self.early.front_mut() else { return Ok(()) };
            let room = object.left.min(self.part - object.part_len);
            let take = usize::try_from(room).unwrap_or(usize::MAX).min(front.len());
            let piece = front.split_to(take);
            if front.is_empty() {
                self.early.pop_front();
            }
            if piece.is_empty() {
                continue;
            }
            let len = piece.len() as u64;
            object.payload.push(piece);
            object.left -= len;
            object.part_len += len;
            self.cut.bytes += len;
            let end = object.left == 0;
            if end || object.part_len == self.part {
                sink.part(Part {
                    object: Arc::clone(&object.key),
                    index: object.part_index,
                    payload: std::mem::take(&mut object.payload),
                    end,
                })?;
                object.part_index += 1;
                object.part_len = 0;
            }
            if end {
                self.cut.objects += 1;
                self.current = None;
            }
        }
    }

    /// Returns the totals. Call this only directly after a whole stream.
    #[must_use]
    pub(crate) fn finish(&self) -> Cut {
        self.cut
    }
}
