//! Parts of a stream that a selection needs, and those that an earlier restore already has.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use bytes::Bytes;

use crate::error::BackupError;
use crate::read::file_filter::Why;
use crate::read::packed_index::Index;

/// Number of selected files, and their size in the stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Files that the user selected.
    pub files: u64,
    /// Size of these files in bytes.
    pub bytes: u64,
    /// Other files that `prepare` needs.
    pub needed_files: u64,
    /// Size of the other files in bytes.
    pub needed_bytes: u64,
}

impl Chosen {
    pub(crate) fn add(&mut self, why: Why, files: u64, bytes: u64) {
        match why {
            Why::Asked => {
                self.files += files;
                self.bytes += bytes;
            }
            Why::Needed => {
                self.needed_files += files;
                self.needed_bytes += bytes;
            }
        }
    }
}

/// Files that an earlier restore into the same target has proven, by their names in the stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checkpoint {
    /// Complete files.
    pub(crate) whole: HashSet<Vec<u8>>,
    /// Incomplete files.
    pub(crate) begun: HashMap<Vec<u8>, ResumePoint>,
}

/// Progress of an incomplete file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ResumePoint {
    /// All bytes before this offset are written.
    pub(crate) upto: u64,
    /// Bytes of the file's part of the stream that were consumed so far.
    pub(crate) taken: u64,
}

/// One piece of the stream of the selected files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pick {
    /// A range of the source.
    Source(Range<u64>),
    /// A range of [`Parts::text`]: bytes that are not in the source, or whose position is not
    /// known.
    Text(Range<usize>),
}

/// Parts of a stream that contain the selected files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parts {
    pub(super) picks: Vec<Pick>,
    /// Generated chunks without payload.
    pub(super) text: Bytes,
    /// Ranges of the body that contain the frames.
    pub(crate) runs: Vec<Range<u64>>,
    pub(crate) chosen: Chosen,
}

impl Parts {
    /// Length in bytes of the stream of the selected files.
    pub(crate) fn stream_bytes(&self) -> u64 {
        self.picks
            .iter()
            .map(|pick| match pick {
                Pick::Source(range) => range.end - range.start,
                Pick::Text(range) => range.len() as u64,
            })
            .sum()
    }
}

/// Reason why the parts cannot be determined.
#[derive(Debug)]
pub(super) enum Refused {
    Index(&'static str),
    Selection(Box<BackupError>),
}

impl Refused {
    pub(super) fn of(self, index: &Index<'_>) -> BackupError {
        match self {
            Self::Index(what) => index.damaged(what),
            Self::Selection(error) => *error,
        }
    }
}

impl From<BackupError> for Refused {
    fn from(error: BackupError) -> Self {
        Self::Selection(Box::new(error))
    }
}
