//! Pieces of payload, in memory or in a file, and their way into the extracted file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::Bytes;
use xb_reader::{PieceCheck, Placement, TargetDir, crc32};

use super::open_file::{OpenFile, at};
use super::report::ExtractCause;
use crate::extract::decode::write_with_holes;
use crate::flow::budget::Permit;
use crate::flow::observer::Observer;
use crate::flow::slab::Buffer;
use crate::flow::work::Work;

/// Bytes of a stored piece that are read, checksummed and written at a time. Copying takes the same
/// time with any size from 64 KiB to 4 MiB, but threads that write to one file take turns.
const BLOCK: usize = 1 << 20;

/// A piece of a chunk's payload.
pub(super) struct Piece {
    pub(super) file: Arc<OpenFile>,
    /// Position of the bytes in the file.
    pub(super) place: Placement,
    pub(super) content: Content,
    /// Whether it must not be written before the pieces in front of it.
    pub(super) serial: bool,
    /// Stream offset of the chunk.
    pub(super) position: u64,
    /// Permit for the memory that the piece keeps alive, if it may wait long.
    pub(super) flight: Option<Arc<Permit>>,
}

/// The bytes of a piece.
pub(super) enum Content {
    Memory(Bytes),
    /// The worker reads them. Only for pieces that workers write themselves.
    Stored(StoredBytes),
}

/// Bytes of the stream that are in a file.
pub(super) struct StoredBytes {
    pub(super) input: Arc<File>,
    /// Offset in the file.
    pub(super) offset: u64,
    pub(super) len: u64,
    /// Offset in the stream.
    pub(super) position: u64,
}

/// A contiguous part of a piece, without a hole.
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) crc: u32,
}

impl Piece {
    /// Writes the piece and returns its checksum. `block` is a buffer for stored pieces.
    pub(super) fn transfer(
        &self,
        target: &TargetDir,
        observer: &Observer,
        block: &mut Block,
    ) -> Result<PieceCheck, ExtractCause> {
        let mut place = self.place.clone();
        match &self.content {
            Content::Memory(bytes) => {
                // The checksum first: it loads the bytes into the cache for the copy that follows.
                let sum = PieceCheck::of(bytes);
                self.write(&mut place, bytes, target, observer)?;
                Ok(sum)
            }
            Content::Stored(stored) => {
                let mut sum = PieceCheck::of(&[]);
                let mut done = 0;
                while done < stored.len {
                    let bytes = block.read(stored, done)?;
                    sum.update(bytes);
                    self.write(&mut place, bytes, target, observer)?;
                    done += bytes.len() as u64;
                }
                Ok(sum)
            }
        }
    }

    /// Writes the piece, whose checksum is known.
    pub(super) fn write_content(
        &self,
        target: &TargetDir,
        observer: &Observer,
    ) -> Result<(), ExtractCause> {
        match &self.content {
            Content::Memory(bytes) => self.write(&mut self.place.clone(), bytes, target, observer),
            Content::Stored(_) => {
                self.transfer(target, observer, &mut Block::default()).map(|_sum| ())
            }
        }
    }

    /// Checksums of the contiguous parts.
    pub(super) fn extents(&self) -> Vec<Extent> {
        let Content::Memory(bytes) = &self.content else { return Vec::new() };
        let mut place = self.place.clone();
        let mut rest = &bytes[..];
        let extent = || {
            let (offset, len) = place.take(rest.len() as u64)?;
            let (now, later) = rest.split_at(usize::try_from(len).unwrap_or(rest.len()));
            rest = later;
            Some(Extent { offset, len, crc: crc32(now) })
        };
        std::iter::from_fn(extent).collect()
    }

    /// Writes `bytes`, which belong at `place`, and advances it.
    fn write(
        &self,
        place: &mut Placement,
        bytes: &[u8],
        target: &TargetDir,
        observer: &Observer,
    ) -> Result<(), ExtractCause> {
        let mut rest = bytes;
        let write = || {
            self.file.with(target, |partial| {
                while let Some((offset, len)) = place.take(rest.len() as u64) {
                    // At most the rest of the piece, so the conversion cannot fail.
                    let len = usize::try_from(len).unwrap_or(rest.len());
                    let (now, later) = rest.split_at(len);
                    // A serial piece may have to overwrite data with zeros.
                    if self.file.may_have_holes && !self.serial {
                        write_with_holes(partial, offset, now)?;
                    } else {
                        partial.write_at(offset, now)?;
                    }
                    rest = later;
                }
                Ok(())
            })
        };
        observer.working(Work::Write, bytes.len() as u64, write).map_err(at(self.position))
    }
}

/// Buffer of a worker, allocated when it is first used.
#[derive(Debug, Default)]
pub(super) struct Block(Option<Buffer>);

impl Block {
    /// Reads the next bytes of a stored piece, of which `done` bytes are read already. Without an
    /// error, at least one byte.
    fn read(&mut self, stored: &StoredBytes, done: u64) -> Result<&[u8], ExtractCause> {
        let buffer = self.0.get_or_insert_with(|| Buffer::new(BLOCK));
        let len = usize::try_from(stored.len - done).unwrap_or(BLOCK).min(BLOCK);
        let bytes = &mut buffer[..len];
        stored.input.read_exact_at(bytes, stored.offset + done).map_err(|error| {
            let source = match error.kind() {
                io::ErrorKind::UnexpectedEof => truncated(),
                _ => error,
            };
            ExtractCause::Read { position: stored.position + done, source }
        })?;
        Ok(bytes)
    }
}

/// Error for an input file that is shorter than it was at the beginning.
pub(super) fn truncated() -> io::Error {
    let text = "the input file was truncated while it was being read";
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}
