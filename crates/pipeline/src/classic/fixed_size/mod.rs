//! The classic layout with objects of one size.
//!
//! ```text
//! stored bytes of files ──► gathered by file ──► parts of the file's object: whole chunks, whose
//! plain slabs, or output     up to one part       lengths are planned so that the total is exact
//! of the transform
//! ```
//!
//! Every object of a file except the last has exactly the requested size. It holds whole payload
//! chunks of that file and nothing else, so any reader of the format accepts the objects of a file
//! in order of their numbers. The end chunk is in the last object; if that object would become too
//! long, the end chunk gets an object of its own.
//!
//! The head of a chunk carries the checksum of its payload, so no byte can be sent before its chunk
//! is complete. Therefore a part consists of whole chunks, too. A file gathers one part at a time:
//! the whole object if memory allows, otherwise a part of at least 5 MiB, and the object is a
//! multipart upload.
//!
//! Holes of sparse chunks become zeros, as in every transform: the readers of both forks accept
//! zeros, while MariaDB's reader gives the letter of a sparse chunk another meaning. The zeros use
//! no memory.
//!
//! # Memory, and why there is no deadlock
//!
//! The idle bytes of open files are limited (to at most three quarters of the budget,
//! [`idle_limit`]). When the limit would be exceeded, the file that holds most sends its bytes: as
//! a part, if there are enough for one; otherwise its object ends there as a short object, which is
//! counted. So at least a quarter of the budget is free or on its way to the store, needs no
//! further lease, and is returned. Every lease (by the reader for its slabs, by this stage for its
//! copies) is smaller than that.

mod chunk_plan;
mod queue;
#[cfg(test)]
mod tests;
mod untransformed;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use xb_reader::{ChunkWriter, PieceCheck, RelPath};

pub(crate) use chunk_plan::{MIN_OBJECT, Sizes};
pub(crate) use untransformed::{Untransformed, idle_limit};

use crate::classic::object::{FileCutter, object_key_of, oversized_chunk, page_rounded};
use crate::flow::budget::Budget;
use crate::pack::error::PackError;
use crate::pack::packer::{Part, PartSink};
use crate::pack::result::Cut;
use chunk_plan::{Fill, Heads};
use queue::Queue;

/// Holes are sent as slices of this buffer.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Cuts the bytes of files into objects of one size.
#[derive(Debug)]
pub(crate) struct FixedSizeCutter<S> {
    sizes: Sizes,
    sink: S,
    files: HashMap<RelPath, File>,
    /// Bytes of memory that open files hold, and their limit.
    idle: u64,
    limit: u64,
    cut: Cut,
}

/// A file that has begun and not ended.
#[derive(Debug)]
struct File {
    heads: Heads,
    queue: Queue,
    /// File offset of the first byte in the queue.
    offset: u64,
    /// State of the current object: its number, its key once a part was sent, bytes sent and parts
    /// sent.
    number: u64,
    key: Option<Arc<str>>,
    sent: u64,
    parts: u32,
}

impl File {
    fn new(path: &RelPath) -> Self {
        Self {
            heads: Heads::of(path),
            queue: Queue::default(),
            offset: 0,
            number: 0,
            key: None,
            sent: 0,
            parts: 0,
        }
    }
}

impl<S: PartSink> FixedSizeCutter<S> {
    /// Creates a cutter whose open files hold at most `limit` bytes.
    pub(crate) fn new(sizes: Sizes, limit: u64, sink: S) -> Self {
        Self { sizes, sink, files: HashMap::new(), idle: 0, limit, cut: Cut::default() }
    }

    /// Takes the next bytes of a file, which hold `held` bytes of memory, and their checksum if it
    /// is known.
    fn push(
        &mut self,
        path: &RelPath,
        bytes: Bytes,
        sum: Option<PieceCheck>,
        held: u64,
    ) -> Result<(), PackError> {
        self.with_queue(path, |queue| queue.push(bytes, sum, held));
        self.send_full(path)?;
        self.evict_largest(0)
    }

    /// Like [`FixedSizeCutter::push`], but copies the bytes into newly leased memory, so that the
    /// caller can free its own.
    fn copy(&mut self, path: &RelPath, mut bytes: &[u8], budget: &Budget) -> Result<(), PackError> {
        while !bytes.is_empty() {
            match self.with_queue(path, |queue| queue.copy_room()) {
                Ok(room) => {
                    let len = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
                    let (now, later) = bytes.split_at(len);
                    self.with_queue(path, |queue| queue.copy(now));
                    bytes = later;
                    self.send_full(path)?;
                }
                Err(wanted) => {
                    self.evict_largest(wanted)?;
                    let permit = budget.lease(wanted);
                    self.with_queue(path, |queue| queue.grow(permit));
                }
            }
        }
        Ok(())
    }

    /// Adds a hole of `left` bytes.
    fn zeros(&mut self, path: &RelPath, mut left: u64) -> Result<(), PackError> {
        while left > 0 {
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(ZEROS.len());
            self.push(path, Bytes::from_static(&ZEROS[..len]), None, 0)?;
            left -= len as u64;
        }
        Ok(())
    }

    /// Applies `change` to the file's queue, which is created if needed, and updates the idle
    /// count.
    fn with_queue<T>(&mut self, path: &RelPath, change: impl FnOnce(&mut Queue) -> T) -> T {
        // Not by `entry`, so that the name is copied once per file instead of once per block.
        let mut known = self.files.get_mut(path);
        let file = match &mut known {
            Some(file) => file,
            None => self.files.entry(path.clone()).or_insert_with(|| File::new(path)),
        };
        let before = file.queue.held();
        let done = change(&mut file.queue);
        self.idle = self.idle - before + file.queue.held();
        done
    }

    /// Sends every full part of the file.
    fn send_full(&mut self, path: &RelPath) -> Result<(), PackError> {
        loop {
            let Some(file) = self.files.get(path) else { return Ok(()) };
            let room = self.sizes.room(file.sent);
            let fill = Fill::exactly(room, file.heads);
            if file.queue.len() < fill.payload {
                return Ok(());
            }
            let whole = file.sent + room == self.sizes.object;
            self.send(path, fill, End::object_if(whole))?;
        }
    }

    /// Makes room for `more` bytes within the limit of open files.
    fn evict_largest(&mut self, more: u64) -> Result<(), PackError> {
        while self.idle + more > self.limit {
            let fullest = self.files.iter().filter(|(_, file)| file.queue.held() > 0);
            let fullest = fullest.max_by_key(|(_, file)| file.queue.held());
            let Some((path, file)) = fullest else { return Ok(()) };
            let path = path.clone();
            let all = Fill::all(file.queue.len());
            match self.sizes.early(file.sent, all.total(file.heads)) {
                Some(room) => {
                    self.send(&path, Fill::exactly(room, file.heads), End::No)?;
                    // The early part has added a head, so the rest may now fill a part.
                    self.send_full(&path)?;
                }
                None => {
                    self.cut.short += 1;
                    self.send(&path, all, End::Object)?;
                }
            }
        }
        Ok(())
    }

    /// Builds chunks from the front of the file's queue and sends them as the next part of its
    /// object.
    fn send(&mut self, path: &RelPath, fill: Fill, end: End) -> Result<(), PackError> {
        let Some(file) = self.files.get_mut(path) else { return Ok(()) };
        let before = file.queue.held();
        let mut payload = Vec::new();
        let mut len = 0;
        let mut head = |payload: &mut Vec<Bytes>, writer: ChunkWriter<Vec<u8>>| {
            let head = writer.finish().map_err(oversized_chunk)?;
            len += head.len() as u64;
            payload.push(head.into());
            Ok::<_, PackError>(())
        };
        for chunk in fill.chunks() {
            let taken = file.queue.take(chunk);
            let mut writer = ChunkWriter::new(Vec::new());
            let crc = taken.sum.crc32();
            writer.payload_head(path, file.offset, chunk, crc).map_err(oversized_chunk)?;
            head(&mut payload, writer)?;
            payload.extend(taken.bytes);
            file.offset += chunk;
        }
        if end == End::File {
            let mut writer = ChunkWriter::new(Vec::new());
            writer.end(path).map_err(oversized_chunk)?;
            head(&mut payload, writer)?;
        }
        len += fill.payload;
        self.idle = self.idle - before + file.queue.held();
        let object = match file.key.take() {
            Some(key) => key,
            None => object_key_of(path, file.number)?,
        };
        let (index, ended) = (file.parts, end != End::No);
        if ended {
            (file.number, file.sent, file.parts) = (file.number + 1, 0, 0);
            self.cut.objects += 1;
        } else {
            file.key = Some(Arc::clone(&object));
            (file.sent, file.parts) = (file.sent + len, file.parts + 1);
        }
        self.cut.bytes += len;
        Ok(self.sink.part(Part { object, index, payload, end: ended })?)
    }
}

/// Object or file that ends with a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    No,
    Object,
    /// The object, which contains the end chunk.
    File,
}

impl End {
    fn object_if(whole: bool) -> Self {
        if whole { Self::Object } else { Self::No }
    }
}

impl<S: PartSink> FileCutter for FixedSizeCutter<S> {
    fn add(&mut self, path: &RelPath, block: Bytes) -> Result<(), PackError> {
        let held = page_rounded(block.len() as u64);
        self.push(path, block, None, held)
    }

    fn end(&mut self, path: &RelPath) -> Result<(), PackError> {
        self.with_queue(path, |_| ());
        while let Some(file) = self.files.get(path) {
            let (heads, sent, all) = (file.heads, file.sent, Fill::all(file.queue.len()));
            let room = self.sizes.room(sent);
            if all.total(heads) + heads.end <= room {
                self.send(path, all, End::File)?;
                self.files.remove(path);
                break;
            }
            // Only the end chunk does not fit. One more chunk than needed makes the part exact and
            // leaves a few bytes, which are sent with the end chunk.
            let whole = sent + room == self.sizes.object;
            self.send(path, Fill::exactly_with_one_more(room, heads), End::object_if(whole))?;
        }
        Ok(())
    }

    fn finish(self) -> Cut {
        self.cut
    }
}
