//! From a selection and the index to the parts of a stream that must be read for it.

mod chooser;
mod frames;
mod picker;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use bytes::Bytes;
use xb_frame::Record;

use crate::error::BackupError;
use crate::read::file_filter::{Selection, Why};
use crate::read::packed_index::Index;
use chooser::{Chooser, FinalNames};
use frames::FrameFinder;
pub(crate) use picker::Picker;

/// How many files were chosen, and how large they are as they lie in the stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Files that were asked for.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that `prepare` needs besides.
    pub needed_files: u64,
    /// Their bytes.
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

/// What an earlier restore into the same target has proven, by the names in the stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Proven {
    /// Files that are whole.
    pub(crate) whole: HashSet<Vec<u8>>,
    /// Files that are not.
    pub(crate) begun: HashMap<Vec<u8>, Come>,
}

/// How far a file has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Come {
    /// All before this offset is there.
    pub(crate) upto: u64,
    /// Bytes of its part of the stream that this took.
    pub(crate) taken: u64,
}

/// A piece of the stream that is made of the chosen files.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pick {
    /// These bytes of the source.
    Source(Range<u64>),
    /// These of [`Parts::text`], which are not in the source, or nobody knows where.
    Text(Range<usize>),
}

/// The parts of a stream that hold the chosen files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parts {
    picks: Vec<Pick>,
    /// Chunks without payload, made anew.
    text: Bytes,
    /// Where their frames lie in the body.
    pub(crate) runs: Vec<Range<u64>>,
    pub(crate) chosen: Chosen,
}

impl Parts {
    /// Bytes of the stream that is made of them.
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

/// Finds the parts for the chosen files.
pub(crate) async fn parts(
    index: &Index<'_>,
    selection: &Selection,
    proven: &Proven,
) -> Result<Parts, BackupError> {
    let mut names = FinalNames::default();
    for number in 0..index.len() {
        let payload = index.payload(number).await?;
        for record in index.records(&payload)? {
            names.take(&record.map_err(|error| index.bad_record(error))?);
        }
    }
    let mut chooser = Chooser::new(selection, proven, names);
    for number in 0..index.len() {
        let payload = index.payload(number).await?;
        for record in index.records(&payload)? {
            let record = record.map_err(|error| index.bad_record(error))?;
            chooser.take(&record).map_err(|refused| refused.of(index))?;
        }
    }
    let mut parts = chooser.finish().map_err(|refused| refused.of(index))?;
    let mut frames = FrameFinder::new(&parts.picks);
    for number in 0..index.len() {
        let payload = index.payload(number).await?;
        for record in index.records(&payload)? {
            if let Record::Frames(run) = record.map_err(|error| index.bad_record(error))? {
                frames.take(&run);
            }
        }
    }
    parts.runs = frames.finish().map_err(|refused| refused.of(index))?;
    Ok(parts)
}

/// Why no parts come out.
#[derive(Debug)]
enum Refused {
    Index(&'static str),
    Selection(BackupError),
}

impl Refused {
    fn of(self, index: &Index<'_>) -> BackupError {
        match self {
            Self::Index(what) => index.damaged(what),
            Self::Selection(error) => error,
        }
    }
}
