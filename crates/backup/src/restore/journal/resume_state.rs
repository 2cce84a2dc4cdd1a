//! Remains of an unfinished restore, as its journal describes them.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use xb_pipeline::PartialFileState;
use xb_reader::RelPath;

use crate::selection::{Checkpoint, Resumable, ResumePoint};

/// Journal entry of a complete file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CompleteFile {
    pub(super) number: u64,
    /// Name in the stream.
    pub(super) path: Vec<u8>,
    pub(super) size: u64,
    pub(super) crc: u32,
}

/// Journal entry of an incomplete file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IncompleteFile {
    pub(super) path: Vec<u8>,
    pub(super) upto: u64,
    /// Bytes of the file's part of the stream that were consumed.
    pub(super) taken: u64,
    /// CRC-32 of the bytes before `upto`.
    pub(super) crc: u32,
}

/// Remains of an unfinished restore.
#[derive(Debug, Default)]
pub(crate) struct ResumeState {
    /// Complete files by their names in the target.
    pub(super) whole: HashMap<Vec<u8>, CompleteFile>,
    /// Incomplete files by their numbers.
    pub(super) begun: HashMap<u64, IncompleteFile>,
    /// Names of our own files that are not proven; they are restored again.
    pub(super) doubtful: HashSet<Vec<u8>>,
    /// Names of files that no line lists, after a power cut that may have taken their lines.
    pub(super) unlisted: HashSet<Vec<u8>>,
    /// The stream has removed or renamed files.
    pub(crate) changes_names: bool,
    /// Number of files whose content differs from what was written.
    pub(crate) distrusted: u64,
}

impl ResumeState {
    /// Files and parts that need not be fetched again.
    pub(crate) fn proven(&self) -> Checkpoint {
        Checkpoint {
            whole: self.whole.values().map(|file| file.path.clone()).collect(),
            begun: self
                .begun
                .values()
                .map(|file| (file.path.clone(), ResumePoint { upto: file.upto, taken: file.taken }))
                .collect(),
            unlisted: self.unlisted.clone(),
        }
    }

    /// Forgets what does not count, and returns the names of the files in the target that are to be removed.
    ///
    /// # Errors
    /// The name of a file that this restore did not write.
    pub(crate) fn keep(&mut self, resumable: &Resumable) -> Result<HashSet<Vec<u8>>, Vec<u8>> {
        if let Some(foreign) = self.unlisted.difference(&resumable.known).min() {
            return Err(foreign.clone());
        }
        let mut gone = std::mem::take(&mut self.doubtful);
        gone.extend(std::mem::take(&mut self.unlisted));
        let left = self.whole.extract_if(|_, file| !resumable.kept.contains(&file.path));
        gone.extend(left.map(|(name, _)| name));
        self.begun.retain(|_, file| resumable.kept.contains(&file.path));
        Ok(gone)
    }

    /// The first number that no partial file of an earlier run has had, as far as the journal knows.
    pub(crate) fn next_number(&self) -> u64 {
        let numbers = self.whole.values().map(|file| file.number).chain(self.begun.keys().copied());
        numbers.max().map_or(0, |last| last.saturating_add(1))
    }

    /// Takes the file of this name for one that is not proven.
    pub(super) fn doubt(&mut self, name: Vec<u8>) {
        self.whole.remove(&name);
        self.doubtful.insert(name);
    }

    /// Incomplete files to resume.
    pub(crate) fn begun(&self) -> Vec<PartialFileState> {
        let file = |(number, file): (&u64, &IncompleteFile)| {
            let path = RelPath::new(&file.path).ok()?;
            Some(PartialFileState { path, number: *number, upto: file.upto, crc: file.crc })
        };
        self.begun.iter().filter_map(file).collect()
    }

    pub(crate) fn keeps(&self, number: u64) -> bool {
        self.begun.contains_key(&number)
    }

    /// Number of complete files.
    pub(crate) fn files(&self) -> u64 {
        self.whole.len() as u64
    }

    /// Bytes that need not be written again.
    pub(crate) fn bytes(&self) -> u64 {
        self.whole
            .values()
            .map(|file| file.size)
            .chain(self.begun.values().map(|file| file.upto))
            .sum()
    }
}

/// A name in the stream as a path.
pub(crate) fn as_path(name: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(name))
}
