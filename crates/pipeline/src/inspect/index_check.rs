//! Checks that the index of a native stream matches its content.
//!
//! Both are digested record by record and only the digests are compared, so neither is ever held in
//! memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use xb_frame::index::{self, ChunkRecord};
use xb_frame::{FrameError, FrameHeader, Kind, Record};

use crate::scan::scanner::Entry;

/// Digest of the files and chunks that an index lists, or should list.
#[derive(Debug, Default)]
pub(super) struct Records {
    digest: Sha256,
    /// Files so far.
    files: u64,
    /// Ids of files that differ from their number. In streams of our own there are none.
    ids: HashMap<u64, u64>,
}

impl Records {
    pub(super) fn entry(&mut self, entry: &Entry) {
        match entry {
            Entry::File { file, path } => self.file(*file, path.as_bytes()),
            Entry::Chunk(chunk) => self.chunk(chunk),
            Entry::End { file, size } => self.add(3, *file, &[*size], &[]),
            Entry::Rename { file, path } => self.add(4, *file, &[], path.as_bytes()),
            Entry::Remove { file } => self.add(5, *file, &[], &[]),
        }
    }

    fn record(&mut self, record: &Record<'_>) {
        match record {
            Record::File { file, path, .. } => self.file(*file, path),
            Record::Chunk(chunk) => self.chunk(chunk),
            Record::End { file, size } => self.add(3, *file, &[*size], &[]),
            Record::Rename { file, path } => self.add(4, *file, &[], path),
            Record::Remove { file } => self.add(5, *file, &[], &[]),
            _ => {}
        }
    }

    fn file(&mut self, file: u64, path: &[u8]) {
        if file != self.files {
            self.ids.insert(file, self.files);
        }
        self.files += 1;
        self.add(1, file, &[], path);
    }

    fn chunk(&mut self, c: &ChunkRecord) {
        let numbers =
            [c.kind.into(), c.position, c.head_len, c.payload_len, c.offset, c.logical_len];
        self.add(2, c.file, &numbers, &[]);
    }

    fn add(&mut self, tag: u8, file: u64, numbers: &[u64], path: &[u8]) {
        let number = self.ids.get(&file).copied().unwrap_or(file);
        self.digest.update([tag]);
        self.digest.update(number.to_le_bytes());
        numbers.iter().for_each(|number| self.digest.update(number.to_le_bytes()));
        self.digest.update((path.len() as u64).to_le_bytes());
        self.digest.update(path);
    }

    pub(super) fn finish(self) -> [u8; 32] {
        self.digest.finalize().into()
    }
}

/// Watches the frames of a stream for [`unpack_watched`](crate::unpack_watched). Clones share one
/// state.
#[derive(Debug, Clone, Default)]
pub struct IndexWatch(Arc<Mutex<WatchedIndex>>);

#[derive(Debug, Default)]
struct WatchedIndex {
    records: Records,
    /// Digest of the data frames found; the next field covers those that the index lists.
    found: Sha256,
    listed: Sha256,
    failure: Option<FrameError>,
}

/// Digest of an index, and whether it lists the frames that exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexProof {
    records: [u8; 32],
    frames_agree: bool,
    failure: Option<FrameError>,
}

/// An index that does not match its stream. Reading single files by it would return wrong data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexMismatch {
    /// The index cannot be read.
    #[error("cannot read the index: {0}")]
    Unreadable(FrameError),
    /// The index lists other frames.
    #[error("the frames in the index differ from those in the stream")]
    Frames,
    /// The index lists other files or chunks.
    #[error("the files or chunks in the index differ from those in the stream")]
    Records,
}

impl IndexWatch {
    /// Adds one frame.
    pub fn frame(&self, header: &FrameHeader, payload: &[Bytes]) {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match header.kind {
            Kind::Data => {
                let place = [
                    header.source.into(),
                    header.position,
                    header.plain_offset,
                    header.plain_len.into(),
                    header.stored_len.into(),
                ];
                add(&mut watched.found, place);
            }
            Kind::Index if watched.failure.is_none() => {
                watched.failure = watched.index(&payload.concat()).err();
            }
            _ => {}
        }
    }

    /// Returns the result, at the end of the stream.
    #[must_use]
    pub fn finish(self) -> IndexProof {
        let watched = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        IndexProof {
            records: watched.records.finish(),
            frames_agree: watched.found.finalize() == watched.listed.finalize(),
            failure: watched.failure,
        }
    }
}

impl WatchedIndex {
    fn index(&mut self, payload: &[u8]) -> Result<(), FrameError> {
        for record in index::parse(payload)? {
            match record? {
                Record::Frames(run) => run.frames().for_each(|frame| {
                    let place = [
                        frame.source.into(),
                        frame.position,
                        frame.plain_offset,
                        frame.plain_len.into(),
                        frame.stored_len.into(),
                    ];
                    add(&mut self.listed, place);
                }),
                record => self.records.record(&record),
            }
        }
        Ok(())
    }
}

fn add(digest: &mut Sha256, place: [u64; 5]) {
    place.iter().for_each(|number| digest.update(number.to_le_bytes()));
}

impl IndexProof {
    /// Compares with the records found in the stream; `None` if its files were not inspected.
    ///
    /// # Errors
    /// [`IndexMismatch`].
    pub fn agrees(&self, records: Option<&[u8; 32]>) -> Result<(), IndexMismatch> {
        match (&self.failure, records) {
            (Some(error), _) => Err(IndexMismatch::Unreadable(error.clone())),
            _ if !self.frames_agree => Err(IndexMismatch::Frames),
            (None, Some(records)) if *records != self.records => Err(IndexMismatch::Records),
            _ => Ok(()),
        }
    }
}
