//! The classic cut: one object for each chunk of each file, as the stock tool has it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use xb_reader::{ChunkHead, ChunkKind, RelPath};

use crate::flow::budget::PAGE;
use crate::flow::ordered_pool::Closed;
use crate::pack::PutError;
use crate::pack::packer::{Part, PartSink};

/// Most payload of a chunk that we make, in bytes: what the stock tools write, and what every
/// reader holds in memory.
pub(crate) const MAX_CHUNK: u64 = 10 << 20;

/// Makes objects of the stored bytes of files, which come file by file, mixed.
pub(crate) trait FileCutter {
    /// Takes the next bytes of a file, which hold a lease of their own length.
    fn add(&mut self, path: &RelPath, block: Bytes) -> Result<(), PutError>;

    /// The file is complete.
    fn end(&mut self, path: &RelPath) -> Result<(), PutError>;

    /// What was cut, once all files are complete.
    fn finish(self) -> Cut;
}

/// What bytes hold of a budget: leases are counted in pages.
pub(crate) fn held(len: u64) -> u64 {
    len.next_multiple_of(PAGE)
}

/// What a chunk cannot say: a file beyond the largest offset.
pub(crate) fn no_reader_takes(source: std::io::Error) -> PutError {
    PutError::Read { position: 0, source }
}

/// Key of a file's object, below the place of the run.
pub(crate) fn object_of(path: &RelPath, number: u64) -> Result<Arc<str>, CutError> {
    match std::str::from_utf8(path.as_bytes()) {
        Ok(path) => Ok(format!("{path}.{number:020}").into()),
        Err(_) => Err(CutError::NotText { path: path.clone() }),
    }
}

/// A chunk that the classic layout has no key for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CutError {
    /// The next stage has stopped.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// An object's key must be text.
    #[error("{path}: the name is not UTF-8, so no object can have it: use the packed layout")]
    NotText {
        /// The file.
        path: RelPath,
    },
    /// Stock readers know payload, sparse and end chunks only.
    #[error(
        "{path}: chunk at stream offset {position} renames, removes, seeks in or replaces a file, which the classic layout cannot hold: use the packed layout"
    )]
    Dialect {
        /// The file.
        path: RelPath,
        /// Offset of the chunk in the stream.
        position: u64,
    },
}

/// What was cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cut {
    /// Number of objects.
    pub objects: u64,
    /// Bytes in all of them.
    pub bytes: u64,
    /// How many of them are shorter than asked for and not the last of their file, because memory
    /// was short.
    pub short: u64,
}

#[derive(Debug)]
struct Object {
    key: Arc<str>,
    left: u64,
    part_index: u32,
    part_len: u64,
    payload: Vec<Bytes>,
}

/// Cuts a stream at its chunk borders. Chunks longer than `part` go in parts of that size.
#[derive(Debug)]
pub struct ChunkCutter {
    part: u64,
    /// Bytes whose chunk is not known yet: the head is not complete.
    early: VecDeque<Bytes>,
    heads: VecDeque<(Arc<str>, u64)>,
    /// Number of the next object of each file that is still open.
    numbers: HashMap<RelPath, u64>,
    current: Option<Object>,
    cut: Cut,
}

impl ChunkCutter {
    /// A cutter whose parts have at most `part` bytes.
    #[must_use]
    pub fn new(part: u64) -> Self {
        Self {
            part: part.max(1),
            early: VecDeque::new(),
            heads: VecDeque::new(),
            numbers: HashMap::new(),
            current: None,
            cut: Cut::default(),
        }
    }

    /// Tells of the next chunk, in stream order, at the latest with the slab in which its head ends.
    ///
    /// # Errors
    /// [`CutError`] when it can have no object.
    pub fn head(&mut self, head: &ChunkHead) -> Result<(), CutError> {
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
        let key = object_of(&head.path, number)?;
        self.heads.push_back((key, head.head_len + head.payload_len()));
        Ok(())
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// [`Closed`] when the sink has stopped.
    pub fn push(&mut self, bytes: Bytes, sink: &mut impl PartSink) -> Result<(), Closed> {
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

    /// What was cut. Only right after a whole stream.
    #[must_use]
    pub fn finish(&self) -> Cut {
        self.cut
    }
}
