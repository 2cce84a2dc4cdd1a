//! Remains of an unfinished restore, as its journal describes them.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use xb_pipeline::PartialFileState;
use xb_reader::RelPath;

use crate::selection::{Checkpoint, ResumePoint};

/// Journal entry of a complete file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CompleteFile {
    pub(super) number: u64,
    pub(super) name: Vec<u8>,
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
    /// Complete files by their names in the stream.
    pub(super) whole: HashMap<Vec<u8>, CompleteFile>,
    /// Incomplete files by their numbers.
    pub(super) begun: HashMap<u64, IncompleteFile>,
    /// Names of our own files that are not proven; they are restored again.
    pub(crate) doubtful: Vec<Vec<u8>>,
    /// The stream has removed or renamed files: the state of the files is unknown.
    pub(super) rolled_back: bool,
    /// Number of files whose content differs from what was written.
    pub(crate) distrusted: u64,
}

impl ResumeState {
    /// Files and parts that need not be fetched again.
    pub(crate) fn proven(&self) -> Checkpoint {
        Checkpoint {
            whole: self.whole.keys().cloned().collect(),
            begun: self
                .begun
                .values()
                .map(|file| (file.path.clone(), ResumePoint { upto: file.upto, taken: file.taken }))
                .collect(),
        }
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
pub(super) fn as_path(name: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(name))
}
