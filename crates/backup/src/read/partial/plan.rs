//! Parts of a stream that a selection needs, and those that an earlier restore already has.

use std::ops::Range;

use bytes::Bytes;

use crate::error::BackupError;
use crate::read::packed_index::Index;
use crate::selection::{Chosen, Resumable};

/// One piece of the stream of the selected files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SelectedPiece {
    /// A range of the source.
    Source(Range<u64>),
    /// A range of [`Parts::text`]: bytes that are not in the source, or whose position is not
    /// known.
    Text(Range<usize>),
}

/// Parts of a stream that contain the selected files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parts {
    pub(super) picks: Vec<SelectedPiece>,
    /// Generated chunks without payload.
    pub(super) text: Bytes,
    /// Ranges of the body that contain the frames.
    pub(crate) runs: Vec<Range<u64>>,
    pub(crate) chosen: Chosen,
    /// Files of an earlier restore that count.
    pub(crate) resumable: Resumable,
}

impl Parts {
    /// Length in bytes of the stream of the selected files.
    pub(crate) fn stream_bytes(&self) -> u64 {
        self.picks
            .iter()
            .map(|pick| match pick {
                SelectedPiece::Source(range) => range.end - range.start,
                SelectedPiece::Text(range) => range.len() as u64,
            })
            .sum()
    }
}

/// Reason why the parts cannot be determined.
#[derive(Debug)]
pub(super) enum PlanFailure {
    Index(&'static str),
    Selection(Box<BackupError>),
}

impl PlanFailure {
    pub(super) fn of(self, index: &Index<'_>) -> BackupError {
        match self {
            Self::Index(what) => index.damaged(what),
            Self::Selection(error) => *error,
        }
    }
}

impl From<BackupError> for PlanFailure {
    fn from(error: BackupError) -> Self {
        Self::Selection(Box::new(error))
    }
}
