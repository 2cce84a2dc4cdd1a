//! Tracks the files of a stream from its chunks.

pub(crate) mod content;
mod finished;
mod id;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use self::finished::Finished;
pub use self::id::FileId;
use crate::RelPath;
use crate::chunk::{ChunkHead, ChunkKind};

/// Maximum number of files of a stream that may be open at once. Producers interleave a few dozen.
const MAX_OPEN: usize = 65_536;

/// Maximum number of names that an [`Unfinished`] lists.
const MAX_NAMES: usize = 8;

/// The effect of a chunk on the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The chunk (payload, sparse or seek) is the first of a file.
    Opened {
        /// The new file.
        id: FileId,
        /// The finished file of this stream that it replaces, if any.
        replaces: Option<FileId>,
    },
    /// The chunk continues a file.
    Continued {
        /// The file.
        id: FileId,
    },
    /// A file is complete.
    Ended {
        /// The file.
        id: FileId,
        /// Its length in bytes, holes counted.
        size: u64,
        /// Whether this was its only chunk: an empty file.
        only_chunk: bool,
    },
    /// A file was renamed.
    Renamed {
        /// The file.
        id: FileId,
        /// Whether the file is still open.
        open: bool,
        /// The finished file of this stream that had the new name and is replaced, if any.
        replaces: Option<FileId>,
    },
    /// A file was removed, complete or not.
    Removed {
        /// The file; `None` if the stream has no file or folder of that name, and there is nothing to do.
        id: Option<FileId>,
        /// Whether the file was still open.
        open: bool,
    },
    /// A folder was removed, with the complete files in it: mariadb-backup writes that for a database
    /// which was dropped while it ran, and names only the folder.
    FolderRemoved {
        /// The files, in the order of opening; none if they were removed or renamed one by one.
        ids: Vec<FileId>,
    },
    /// The chunk has no effect on any file.
    Ignored,
}

/// A chunk contradicts the chunks before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// The chunk does not begin where the last one of its file ended.
    #[error(
        "{path}: chunk at stream offset {position} is for file offset {got}, expected {expected}"
    )]
    Offset {
        /// Offset of the chunk in the stream.
        position: u64,
        /// The chunk's file.
        path: RelPath,
        /// The file offset that should come next, holes counted.
        expected: u64,
        /// The file offset that the chunk states.
        got: u64,
    },
    /// A chunk for a file that has ended, or a second file of that name.
    #[error("{path}: chunk at stream offset {position} follows the end chunk of the file")]
    AfterEnd {
        /// Offset of the chunk in the stream.
        position: u64,
        /// The chunk's file.
        path: RelPath,
    },
    /// A rename of a file that is not in the stream.
    #[error(
        "{path}: chunk at stream offset {position} renames it to {to}, but it is not in the stream: the data of {to} is missing"
    )]
    RenameUnknown {
        /// Offset of the chunk in the stream.
        position: u64,
        /// The old name.
        path: RelPath,
        /// The new name.
        to: RelPath,
    },
    /// A rename to the name of another file of the stream that has not ended.
    #[error("{path}: chunk at stream offset {position} renames it to {to}, which has not ended")]
    RenameTaken {
        /// Offset of the chunk in the stream.
        position: u64,
        /// The old name.
        path: RelPath,
        /// The new name.
        to: RelPath,
    },
    /// More open files than any producer writes.
    #[error("{path}: chunk at stream offset {position} opens a file when {max} are already open")]
    TooManyOpen {
        /// Offset of the chunk in the stream.
        position: u64,
        /// The chunk's file.
        path: RelPath,
        /// The limit.
        max: usize,
    },
}

impl OrderError {
    /// Offset in the stream of the offending chunk.
    #[must_use]
    pub fn position(&self) -> u64 {
        match self {
            Self::Offset { position, .. }
            | Self::AfterEnd { position, .. }
            | Self::RenameUnknown { position, .. }
            | Self::RenameTaken { position, .. }
            | Self::TooManyOpen { position, .. } => *position,
        }
    }

    /// The file that the error is about.
    #[must_use]
    pub fn path(&self) -> &RelPath {
        match self {
            Self::Offset { path, .. }
            | Self::AfterEnd { path, .. }
            | Self::RenameUnknown { path, .. }
            | Self::RenameTaken { path, .. }
            | Self::TooManyOpen { path, .. } => path,
        }
    }
}

/// The input ended, but the stream is incomplete.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unfinished {
    /// The stream has no chunk at all.
    #[error("the input is empty")]
    Empty,
    /// Files were begun but not ended.
    #[error("the stream is truncated: {}", Cut { count: *count, first })]
    Files {
        /// Number of these files.
        count: usize,
        /// Some of them, sorted by name, with the bytes received of each.
        first: Vec<(RelPath, u64)>,
    },
}

struct Cut<'a> {
    count: usize,
    first: &'a [(RelPath, u64)],
}

impl fmt::Display for Cut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => f.write_str("1 file has no end chunk: ")?,
            n => write!(f, "{n} files have no end chunk: ")?,
        }
        for (n, (path, size)) in self.first.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{path} (at {size})")?;
        }
        if self.count > self.first.len() { f.write_str(", ...") } else { Ok(()) }
    }
}

/// The files of a stream: which are open, and where the next chunk of each must begin.
///
/// Pass every head to [`FileTable::apply`], in order, and call [`FileTable::finish`] at the end of
/// the input. A finished file takes some 20 bytes (its name is kept as a 64-bit hash with a random
/// key), so hundreds of thousands are no problem.
#[derive(Debug, Default)]
pub struct FileTable {
    open: HashMap<RelPath, OpenFile>,
    finished: Finished,
    next_id: u64,
    any_chunk: bool,
}

#[derive(Debug)]
struct OpenFile {
    id: FileId,
    /// File offset at which the next chunk must begin.
    next: u64,
    /// Highest byte or hole so far; less than `next` after a seek beyond it.
    size: u64,
}

impl FileTable {
    /// A table at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a file that an earlier part of the stream began and brought up to offset `next`.
    /// Only its end chunk must still follow.
    pub fn begun_before(&mut self, path: &RelPath, next: u64) -> FileId {
        let id = FileId(self.next_id);
        self.next_id += 1;
        self.open.insert(path.clone(), OpenFile { id, next, size: next });
        id
    }

    /// Notes that there was an earlier part of the stream, so that this part may be empty.
    pub fn went_before(&mut self) {
        self.any_chunk = true;
    }

    /// Checks the next chunk against the chunks before it, and returns its effect.
    ///
    /// # Errors
    ///
    /// The chunk contradicts the chunks before it; the table is unchanged.
    pub fn apply(&mut self, head: &ChunkHead) -> Result<Change, OrderError> {
        let change = match &head.kind {
            ChunkKind::Payload { offset, len, .. } => self.extend(head, *offset, *len),
            ChunkKind::Sparse { offset, len, map, .. } => {
                let holes: u64 = map.iter().map(|entry| u64::from(entry.skip)).sum();
                self.extend(head, *offset, len.saturating_add(holes))
            }
            ChunkKind::Seek { offset } => self.seek(head, *offset),
            ChunkKind::End => self.end(head),
            ChunkKind::Rename { to } => self.rename(head, to),
            ChunkKind::Remove => Ok(self.remove(&head.path)),
            ChunkKind::Ignored { .. } => Ok(Change::Ignored),
        }?;
        self.any_chunk = true;
        Ok(change)
    }

    /// The files that were begun and not ended, with the offset of their next chunk, in no
    /// particular order.
    pub fn open_files(&self) -> impl Iterator<Item = (&RelPath, u64)> {
        self.open.iter().map(|(path, file)| (path, file.next))
    }

    /// Number of complete files. Removed files are not counted; a replaced file is counted once.
    #[must_use]
    pub fn finished(&self) -> u64 {
        self.finished.len() as u64
    }

    /// Returns whether there is a complete file of this name.
    #[must_use]
    pub fn has_finished(&self, path: &RelPath) -> bool {
        self.finished.has(path)
    }

    /// Checks that the input may end here.
    ///
    /// # Errors
    ///
    /// A file has no end, or there was no chunk at all.
    pub fn finish(&self) -> Result<(), Unfinished> {
        if !self.any_chunk {
            return Err(Unfinished::Empty);
        }
        if self.open.is_empty() {
            return Ok(());
        }
        let mut first: Vec<_> =
            self.open.iter().map(|(path, file)| (path.clone(), file.size)).collect();
        first.sort();
        first.truncate(MAX_NAMES);
        Err(Unfinished::Files { count: self.open.len(), first })
    }

    /// Checks that a content chunk is allowed for this file. Returns the offset where it must
    /// begin.
    fn admit(&self, head: &ChunkHead) -> Result<u64, OrderError> {
        if let Some(file) = self.open.get(&head.path) {
            return Ok(file.next);
        }
        let (position, path) = (head.position, head.path.clone());
        if !head.is_rewrite() && self.finished.has(&path) {
            return Err(OrderError::AfterEnd { position, path });
        }
        if self.open.len() >= MAX_OPEN {
            return Err(OrderError::TooManyOpen { position, path, max: MAX_OPEN });
        }
        Ok(0)
    }

    /// Returns the file of an admitted chunk, and opens it if it is new.
    fn touch(&mut self, path: &RelPath) -> (&mut OpenFile, Change) {
        match self.open.entry(path.clone()) {
            Entry::Occupied(entry) => {
                let id = entry.get().id;
                (entry.into_mut(), Change::Continued { id })
            }
            Entry::Vacant(entry) => {
                let id = FileId(self.next_id);
                self.next_id += 1;
                let replaces = self.finished.remove(path);
                (entry.insert(OpenFile { id, next: 0, size: 0 }), Change::Opened { id, replaces })
            }
        }
    }

    fn extend(&mut self, head: &ChunkHead, offset: u64, span: u64) -> Result<Change, OrderError> {
        let expected = self.admit(head)?;
        if offset != expected {
            let (position, path) = (head.position, head.path.clone());
            return Err(OrderError::Offset { position, path, expected, got: offset });
        }
        let (file, change) = self.touch(&head.path);
        file.next = offset.saturating_add(span);
        file.size = file.size.max(file.next);
        Ok(change)
    }

    fn seek(&mut self, head: &ChunkHead, offset: u64) -> Result<Change, OrderError> {
        self.admit(head)?;
        let (file, change) = self.touch(&head.path);
        file.next = offset;
        Ok(change)
    }

    fn end(&mut self, head: &ChunkHead) -> Result<Change, OrderError> {
        let (id, size, only_chunk) = match self.open.remove(&head.path) {
            Some(file) => (file.id, file.size, false),
            None if self.finished.has(&head.path) => {
                let (position, path) = (head.position, head.path.clone());
                return Err(OrderError::AfterEnd { position, path });
            }
            None => {
                let id = FileId(self.next_id);
                self.next_id += 1;
                (id, 0, true)
            }
        };
        self.finished.insert(&head.path, id);
        Ok(Change::Ended { id, size, only_chunk })
    }

    fn rename(&mut self, head: &ChunkHead, to: &RelPath) -> Result<Change, OrderError> {
        let (position, path) = (head.position, head.path.clone());
        if !self.open.contains_key(&path) && !self.finished.has(&path) {
            return Err(OrderError::RenameUnknown { position, path, to: to.clone() });
        }
        if path == *to {
            return Ok(Change::Ignored);
        }
        if self.open.contains_key(to) {
            return Err(OrderError::RenameTaken { position, path, to: to.clone() });
        }
        // As with rename(2), which mbstream calls.
        let replaces = self.finished.remove(to);
        if let Some(file) = self.open.remove(&path) {
            let id = file.id;
            self.open.insert(to.clone(), file);
            return Ok(Change::Renamed { id, open: true, replaces });
        }
        match self.finished.remove(&path) {
            Some(id) => {
                self.finished.insert(to, id);
                Ok(Change::Renamed { id, open: false, replaces })
            }
            None => Err(OrderError::RenameUnknown { position, path, to: to.clone() }),
        }
    }

    fn remove(&mut self, path: &RelPath) -> Change {
        if let Some(file) = self.open.remove(path) {
            return Change::Removed { id: Some(file.id), open: true };
        }
        if let Some(id) = self.finished.remove(path) {
            return Change::Removed { id: Some(id), open: false };
        }
        match self.finished.remove_folder(path) {
            Some(ids) => Change::FolderRemoved { ids },
            None => Change::Removed { id: None, open: false },
        }
    }
}
