//! Extracts a stream that is in a regular file.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use rustix::fs::Advice;

use super::extractor::Extractor;
use super::piece::truncated;
use crate::flow::plan::SLAB;
use crate::flow::slab::SlabPool;

/// Payload of at least this many bytes is left to the workers.
const STORED_MIN: u64 = 256 << 10;

/// Longest piece that one worker reads, more than a chunk of the stock programs.
const STORED_MAX: u64 = 16 << 20;

/// First read where a chunk's head is expected. Reads grow until such payload is found.
const FIRST_READ: usize = 4 << 10;

/// A stream in a regular file. Only chunk heads and short payload are read here; long payload is
/// read by the workers that write it, so that it stays in one processor's cache.
///
/// The file must not change until extraction ends. If it is truncated meanwhile, that is an error;
/// other changes are found by the checksums.
#[derive(Debug)]
pub struct StoredStream {
    input: Arc<File>,
    /// Offset of the next byte.
    offset: u64,
    /// Length of the file at the beginning. What is appended later is read, too.
    len: u64,
    read: usize,
    slabs: SlabPool,
}

impl StoredStream {
    /// The stream in `input` from its current position to its end. `None` if `input` is not a
    /// regular file. `threads` is the number of workers of the extractor.
    ///
    /// # Errors
    /// The error of the system.
    pub fn new(mut input: File, threads: usize) -> io::Result<Option<Self>> {
        let metadata = input.metadata()?;
        if !metadata.is_file() {
            return Ok(None);
        }
        let Ok(offset) = input.stream_position() else { return Ok(None) };
        // Larger reads ahead. Requesting each piece in advance was slower (ext4, not in the cache).
        let _ = rustix::fs::fadvise(&input, offset, None, Advice::Sequential);
        let slabs = SlabPool::new(SLAB, 2 * threads.max(1) + 3);
        let (input, len) = (Arc::new(input), metadata.len());
        Ok(Some(Self { input, offset, len, read: FIRST_READ, slabs }))
    }

    /// Passes the next bytes, from one byte to 16 MiB, to `extractor`. Returns false at the end of
    /// the file. Whether the extractor has stopped must be checked before each call.
    ///
    /// # Errors
    /// The file cannot be read or was truncated. Pass the error to [`Extractor::read_failed`].
    pub fn feed_next(&mut self, extractor: &mut Extractor) -> io::Result<bool> {
        let in_file = self.len.saturating_sub(self.offset);
        let stored = extractor.storable().min(in_file);
        if stored >= STORED_MIN {
            let len = stored.min(STORED_MAX);
            extractor.push_stored(&self.input, self.offset, len);
            self.offset += len;
            self.read = FIRST_READ;
            // The caller notices Stopped.
            let _ = extractor.send_batch();
        } else {
            let mut slab = self.slabs.take(None);
            let room = &mut slab.room()[..self.read];
            let len = match self.input.read_at(room, self.offset) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
                Err(error) => return Err(error),
            };
            if len == 0 {
                return if self.offset < self.len { Err(truncated()) } else { Ok(false) };
            }
            slab.advance(len);
            extractor.push(&slab.freeze());
            self.offset += len as u64;
            self.read = (2 * self.read).min(SLAB);
            if extractor.storable().min(self.len.saturating_sub(self.offset)) < STORED_MIN {
                let _ = extractor.send_ended();
            }
            // Otherwise the payload that follows belongs to the same batch.
        }
        Ok(true)
    }

    /// Moves the position of the file, which other programs may share, to the first byte that was
    /// not passed on.
    ///
    /// # Errors
    /// The error of the system.
    pub fn leave(self) -> io::Result<()> {
        (&*self.input).seek(SeekFrom::Start(self.offset)).map(drop)
    }
}
