//! State of the receiver on its host: the head of its last stored segment, and the records of its streams that are in no
//! roll-up yet.
//!
//! Whoever can write to the store can change heads there. A receiver that remembers its own cannot be made to
//! skip anything.

use std::path::{Path, PathBuf};

use xb_files::{or_none, replace_file};
use xb_repo::archive::ended::{self, EndedStream};
use xb_repo::archive::record::Record;
use xb_repo::archive::segment::SegmentHead;
use xb_repo::root::Root;

use crate::archive_error::ArchiveError;

/// Digits of a ROOT's identity in the name of a file.
const PLACE: usize = 16;

/// The file of one server, whose log is archived in one ROOT.
#[derive(Debug, Clone)]
pub(crate) struct StateFile(PathBuf);

impl StateFile {
    /// A host may archive a server in several places.
    pub(crate) fn new(folder: &Path, root: &Root, server: &str) -> Self {
        let place = root.identity();
        let place = place.get(..PLACE).unwrap_or(place);
        Self(folder.join(format!("binlog-{server}-{place}")))
    }

    /// The head that was written last; `None` if there is none.
    pub(crate) fn read(&self) -> Result<Option<Record<SegmentHead>>, ArchiveError> {
        let read = or_none(std::fs::read(&self.0)).map_err(|source| self.failed(source))?;
        Ok(read.map(|bytes| Record::decode(&bytes)).transpose()?)
    }

    /// Writes a head, whole or not at all.
    pub(crate) fn write(&self, head: &[u8]) -> Result<(), ArchiveError> {
        replace_file(&self.0, head).map_err(|source| self.failed(source))
    }

    /// Streams that have ended and are in no roll-up yet. Whatever cannot be read only costs requests.
    pub(crate) fn read_ended(&self) -> Vec<EndedStream> {
        let read = std::fs::read(self.of_ended()).ok();
        read.and_then(|text| ended::parse(&text).ok()).unwrap_or_default()
    }

    /// Writes these streams, whole or not at all.
    pub(crate) fn write_ended(&self, text: &[u8]) -> Result<(), ArchiveError> {
        replace_file(&self.of_ended(), text).map_err(|source| self.failed(source))
    }

    fn of_ended(&self) -> PathBuf {
        let mut path = self.0.clone().into_os_string();
        path.push(".ended");
        path.into()
    }

    fn failed(&self, source: std::io::Error) -> ArchiveError {
        ArchiveError::State { path: self.0.display().to_string(), source }
    }
}
