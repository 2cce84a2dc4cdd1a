//! The classic layout in objects of one size.
//!
//! ```text
//! stored bytes of files ──► gathered by file ──► parts of the file's object: whole chunks, whose
//! plain slabs, or what       up to one part       lengths are planned so that the sum is exact
//! the transform has made
//! ```
//!
//! Every object of a file but its last has exactly the size asked for. It holds whole payload chunks
//! of that file and nothing else, so that the objects of a file, in order of their numbers, are
//! what any reader of the format takes. The end chunk rides in the last object; only where that
//! would become too long it has an object of its own.
//!
//! The head of a chunk carries the checksum of its payload, so no byte can go before its chunk is
//! there. Therefore a part consists of whole chunks too, and what a file gathers is one part: the
//! whole object where memory allows, else a piece of at least 5 MiB, and the object goes up as
//! multipart.
//!
//! Holes of sparse chunks become zeros, as in every transform: both forks' readers take these, while
//! to MariaDB's the letter of a sparse chunk means something else. The zeros cost no memory.
//!
//! # Memory, and why there is no deadlock
//!
//! What open files hold idle is bounded (three quarters of the budget at most, [`idle_limit`]). Where it
//! would become more, the file that holds most sends what it has: as a part, if it is enough for one;
//! else its object ends there, shorter than asked for, which is counted. So at least a quarter of the
//! budget is free or on its way to the store, needs nothing to go on, and comes back. Whoever leases
//! (the reader for its slabs, this stage for what it copies) asks for less than that.

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

use crate::classic::object::{Cut, FileCutter, object_key_of, oversized_chunk, page_rounded};
use crate::flow::budget::Budget;
use crate::pack::error::PackError;
use crate::pack::packer::{Part, PartSink};
use chunk_plan::{Fill, Heads};
use queue::Queue;

/// Holes are sent as slices of this.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Cuts the bytes of files into objects of one size.
#[derive(Debug)]
pub(crate) struct FixedSizeCutter<S> {
    sizes: Sizes,
    sink: S,
    files: HashMap<RelPath, File>,
    /// Bytes of memory that open files hold, and the most that they may.
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
    /// Number of the object at hand, its key once a part of it went, bytes and parts that went.
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
    /// A cutter under which open files hold at most `limit` bytes.
    pub(crate) fn new(sizes: Sizes, limit: u64, sink: S) -> Self {
        Self { sizes, sink, files: HashMap::new(), idle: 0, limit, cut: Cut::default() }
    }

    /// Takes the next bytes of a file, which hold `held` bytes of memory, and their sum if it is
    /// known.
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

    /// As [`FixedSizeCutter::push`], for bytes whose memory is wanted back: leases for a copy of them.
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

    /// A hole of `left` bytes.
    fn zeros(&mut self, path: &RelPath, mut left: u64) -> Result<(), PackError> {
        while left > 0 {
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(ZEROS.len());
            self.push(path, Bytes::from_static(&ZEROS[..len]), None, 0)?;
            left -= len as u64;
        }
        Ok(())
    }

    /// Makes the file known, if it is not, and keeps the books on what its queue holds.
    fn with_queue<T>(&mut self, path: &RelPath, change: impl FnOnce(&mut Queue) -> T) -> T {
        // Not by `entry` at once: the name is copied once a file, not once a block.
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

    /// Sends every part of the file that is full.
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

    /// Makes room for `more` bytes in what open files may hold.
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
                    // One head more than the whole would have had: the rest may be full by that.
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

    /// Sends chunks made of the front of the file's queue as the next part of its object.
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

/// What ends with a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    No,
    Object,
    /// The object, with the end chunk in it.
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
            // All of it but the end chunk would fit. With one chunk more than needed the part is
            // exact, and a few bytes are left that go with the end chunk.
            let whole = sent + room == self.sizes.object;
            self.send(path, Fill::exactly_with_one_more(room, heads), End::object_if(whole))?;
        }
        Ok(())
    }

    fn finish(self) -> Cut {
        self.cut
    }
}
