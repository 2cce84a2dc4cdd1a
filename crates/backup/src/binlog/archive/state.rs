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
const PREFIX: &str = "binlog-";
const UNLOGGED: &str = ".unlogged";
const ENDED: &str = ".ended";

/// The file of one server, whose log is archived in one ROOT.
#[derive(Debug, Clone)]
pub(crate) struct StateFile(PathBuf);

impl StateFile {
    /// A host may archive a server in several places.
    pub(crate) fn new(folder: &Path, root: &Root, server: &str) -> Self {
        let place = root.identity();
        let place = place.get(..PLACE).unwrap_or(place);
        Self(folder.join(format!("{PREFIX}{server}-{place}")))
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
        path.push(UNLOGGED);
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
        path.push(ENDED);
        path.into()
    }

    fn failed(&self, source: std::io::Error) -> ArchiveError {
        ArchiveError::State { path: self.0.display().to_string(), source }
    }
}

/// Forgets what the receivers of this host remember, in this folder, of the ROOT with this identity. Returns whether they
/// remembered anything.
///
/// # Errors
/// If the folder cannot be read, or a file cannot be removed.
pub fn forget_archives(folder: &Path, identity: &str) -> std::io::Result<bool> {
    let place = identity.get(..PLACE).unwrap_or(identity);
    let is_of_root = |name: &str| {
        let name = [ENDED, UNLOGGED].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let server = name.strip_prefix(PREFIX).and_then(|name| name.strip_suffix(place));
        server.is_some_and(|server| server.len() > 1 && server.ends_with('-'))
    };
    let mut was_there = false;
    for entry in or_none(std::fs::read_dir(folder))?.into_iter().flatten() {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_of_root) {
            std::fs::remove_file(entry.path())?;
            was_there = true;
        }
    }
    Ok(was_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_remembered_of_one_place_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = ("0123456789abcdef", "fedcba9876543210");
        let of_here = ["", ".ended", ".unlogged"].map(|end| format!("binlog-db-1-{here}{end}"));
        let others = [format!("binlog-db-1-{there}"), format!("other-{here}"), here.to_owned()];
        of_here.iter().chain(&others).for_each(|name| {
            std::fs::write(folder.path().join(name), "x").unwrap();
        });
        let identity = format!("{here}{there}");
        assert!(forget_archives(folder.path(), &identity).unwrap());
        assert!(of_here.iter().all(|name| !folder.path().join(name).exists()));
        assert!(others.iter().all(|name| folder.path().join(name).exists()));
        assert!(!forget_archives(folder.path(), &identity).unwrap());
        assert!(!forget_archives(&folder.path().join("none"), &identity).unwrap());
    }
}
