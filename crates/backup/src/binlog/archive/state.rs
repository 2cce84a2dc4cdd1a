//! State of the receiver on its host: the head of its last stored segment, the records of its streams that are in no
//! roll-up yet, and whether the server has run without a log.
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
        let path = || self.0.display().to_string();
        read.map(|bytes| Record::decode(&bytes))
            .transpose()
            .map_err(|source| ArchiveError::Remembered { path: path(), source })
    }

    /// Since when the server is known to run, or to have run, without a log, if no stream has begun since: nothing else says that
    /// the archive lacks something, because the logs that the server makes later follow the stored ones.
    pub(crate) fn read_unlogged(&self) -> Result<Option<String>, ArchiveError> {
        let read = or_none(std::fs::read(self.of_unlogged()));
        let read = read.map_err(|source| self.failed(source))?;
        Ok(read.map(|text| String::from_utf8_lossy(&text).trim().to_owned()))
    }

    /// Notes that the server runs without a log.
    pub(crate) fn write_unlogged(&self, since: &str) -> Result<(), ArchiveError> {
        replace_file(&self.of_unlogged(), since.as_bytes()).map_err(|source| self.failed(source))
    }

    /// Forgets it: the archive says so now.
    pub(crate) fn remove_unlogged(&self) -> Result<(), ArchiveError> {
        let removed = or_none(std::fs::remove_file(self.of_unlogged()));
        removed.map(drop).map_err(|source| self.failed(source))
    }

    fn of_unlogged(&self) -> PathBuf {
        let mut path = self.0.clone().into_os_string();
        path.push(".unlogged");
        path.into()
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
