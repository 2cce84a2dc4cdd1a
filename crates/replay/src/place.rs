//! The directory of a replay in the data directory, and what does not belong there.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use xb_binlog::SystemZone;
use xb_files::{is_lost_and_found, or_none};

use crate::error::ReplayError;

/// Its name. The server hides directories whose names begin so.
const NAME: &str = "#sql-xb-replay";
/// Mark in it that the server has been started, so that the data is no longer what it was.
const BEGUN: &str = "begun";
/// File with the result of a replay, once that is durable.
const DONE: &str = "done";
/// Files in the data directory with the state of a replica.
const REPLICA_FILES: [&str; 3] = ["master.info", "relay-log.info", "multi-master.info"];
/// The identity of a server of MySQL, which makes a new one when there is none.
const IDENTITY: &str = "auto.cnf";

/// Checks that no replay onto this data was interrupted, after which it is of no more use.
///
/// # Errors
/// [`ReplayError::Interrupted`]; [`ReplayError::File`] if that cannot be told.
pub fn check_untouched(data: &Path) -> Result<(), ReplayError> {
    let begun = data.join(NAME).join(BEGUN);
    match begun.try_exists().map_err(failed(&begun))? {
        true => Err(ReplayError::Interrupted(data.to_owned())),
        false => Ok(()),
    }
}

/// Returns the note that a finished replay onto this data has left for its caller ([`Watch::note`](crate::Watch::note)). `None`
/// if there was none, or its end is settled.
///
/// # Errors
/// [`ReplayError::Changed`] if the data is not as the replay has left it; [`ReplayError::File`].
pub fn noted_end(data: &Path) -> Result<Option<Vec<u8>>, ReplayError> {
    let path = data.join(NAME).join(DONE);
    let Some(text) = or_none(fs::read(&path)).map_err(failed(&path))? else { return Ok(None) };
    let stamp = engine_stamp(data).map_err(failed(data))?;
    let note = text.strip_prefix(stamp.as_bytes()).and_then(|rest| rest.strip_prefix(b"\n"));
    match note {
        Some(note) => Ok(Some(note.to_vec())),
        None => Err(ReplayError::Changed(data.to_owned())),
    }
}

/// Settles the end of a replay: its caller has noted what it has to, durably.
///
/// # Errors
/// [`ReplayError::NoteNotRemoved`]; nothing is lost, and another try may succeed.
pub fn remove_note(data: &Path) -> Result<(), ReplayError> {
    let own = data.join(NAME);
    remove_tree(&own)
        .and_then(|()| File::open(data)?.sync_all())
        .map_err(|source| ReplayError::NoteNotRemoved { path: own, source })
}

/// Lengths and times of the files of the engines: a server makes one when it starts, and writes others when it stops.
fn engine_stamp(data: &Path) -> io::Result<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(data)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_of_engine = ["ib", "aria_log", "mysql.ibd", "undo_"];
        if is_of_engine.iter().any(|prefix| name.starts_with(prefix)) {
            let meta = entry.metadata()?;
            found.push(format!("{name} {} {}.{}", meta.len(), meta.mtime(), meta.mtime_nsec()));
        }
    }
    found.sort();
    Ok(found.join(" "))
}

/// The directory of a replay, with relay logs and the server's small files.
#[derive(Debug)]
pub(crate) struct ReplayDir {
    data: PathBuf,
    own: PathBuf,
}

impl ReplayDir {
    /// Makes the directory; one without the mark is of a replay that was interrupted before it changed
    /// anything.
    pub(crate) fn make(data: &Path) -> Result<Self, ReplayError> {
        check_untouched(data)?;
        let own = data.join(NAME);
        if let Some(link) = link_outside(data)? {
            return Err(ReplayError::Outside(link));
        }
        remove_tree(&own).map_err(failed(&own))?;
        fs::create_dir(&own).map_err(failed(&own))?;
        Ok(Self { data: data.to_owned(), own })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.own
    }

    /// Writes the local time of the origin's system for the server.
    pub(crate) fn zone_file(
        &self,
        zone: Option<&SystemZone>,
    ) -> Result<Option<PathBuf>, ReplayError> {
        let Some(zone) = zone else { return Ok(None) };
        let path = self.own.join("local-time");
        let no_zone =
            || io::Error::new(io::ErrorKind::InvalidData, "the archive has no such local time");
        let written = zone.to_file().ok_or_else(no_zone).and_then(|file| fs::write(&path, file));
        written.map_err(failed(&path))?;
        Ok(Some(path))
    }

    /// Leaves the mark, and removes the files in which the data says that it is a replica.
    pub(crate) fn begin(&self) -> Result<(), ReplayError> {
        let mark = self.own.join(BEGUN);
        let sync = |path: &Path| File::open(path)?.sync_all();
        let made = File::create(&mark).and_then(|file| file.sync_all());
        made.and_then(|()| sync(&self.own))
            .and_then(|()| sync(&self.data))
            .map_err(failed(&mark))?;
        for entry in fs::read_dir(&self.data).map_err(failed(&self.data))? {
            let entry = entry.map_err(failed(&self.data))?;
            if is_replica_file(&entry.file_name()) {
                fs::remove_file(entry.path()).map_err(failed(&entry.path()))?;
            }
        }
        Ok(())
    }

    /// Makes the data durable, and replaces the mark by the caller's note, the last of what is in the directory.
    pub(crate) fn end(self, note: &[u8]) -> Result<(), ReplayError> {
        let sync = || rustix::fs::syncfs(File::open(&self.data)?).map_err(io::Error::from);
        let identity = self.data.join(IDENTITY);
        remove_tree(&identity).map_err(failed(&identity))?;
        let remove = || {
            for entry in fs::read_dir(&self.own)? {
                let entry = entry?;
                if entry.file_name() != BEGUN {
                    remove_tree(&entry.path())?;
                }
            }
            let begun = self.own.join(BEGUN);
            fs::write(&begun, [engine_stamp(&self.data)?.as_bytes(), b"\n", note].concat())?;
            File::open(&begun)?.sync_all()?;
            fs::rename(&begun, self.own.join(DONE))
        };
        let done = sync().and_then(|()| remove()).and_then(|()| sync());
        done.map_err(|source| ReplayError::NotDurable { path: self.data, source })
    }

    /// Removes the directory of a replay that has changed nothing.
    pub(crate) fn abandon(self) {
        // The next replay removes the rest.
        let _ = remove_tree(&self.own);
    }
}

pub(crate) fn failed(path: &Path) -> impl Fn(io::Error) -> ReplayError {
    move |source| ReplayError::File { path: path.to_owned(), source }
}

fn remove_tree(path: &Path) -> io::Result<()> {
    let removed = match or_none(fs::symlink_metadata(path))? {
        Some(found) if found.is_dir() => fs::remove_dir_all(path),
        Some(_) => fs::remove_file(path),
        None => return Ok(()),
    };
    or_none(removed).map(drop)
}

/// Also those of named connections: `master-NAME.info`.
fn is_replica_file(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let is_named = |prefix| name.starts_with(prefix) && name.ends_with(".info");
    REPLICA_FILES.contains(&&*name) || is_named("master-") || is_named("relay-log-")
}

/// A file of the data directory that names a tablespace elsewhere.
fn link_outside(data: &Path) -> Result<Option<PathBuf>, ReplayError> {
    let list = |dir: &Path| -> Result<Vec<fs::DirEntry>, ReplayError> {
        fs::read_dir(dir).and_then(Iterator::collect).map_err(failed(dir))
    };
    let is_link = |path: &Path| path.extension().is_some_and(|extension| extension == "isl");
    for entry in list(data)? {
        let path = entry.path();
        if is_link(&path) {
            return Ok(Some(path));
        }
        if entry.file_type().map_err(failed(&path))?.is_dir()
            && !is_lost_and_found(&entry)
            && let Some(inner) =
                list(&path)?.iter().map(fs::DirEntry::path).find(|path| is_link(path))
        {
            return Ok(Some(inner));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::*;

    #[test]
    fn a_mark_that_cannot_be_looked_at_is_not_missing() {
        let data = xb_testkit::daemon::Scratch::new();
        check_untouched(data.path()).unwrap();
        let folder = data.path().join(NAME);
        fs::create_dir(&folder).unwrap();
        check_untouched(data.path()).unwrap();
        std::os::unix::fs::symlink(BEGUN, folder.join(BEGUN)).unwrap();
        let unclear = check_untouched(data.path());
        assert!(matches!(unclear, Err(ReplayError::File { .. })), "{unclear:?}");
        fs::remove_file(folder.join(BEGUN)).unwrap();
        fs::write(folder.join(BEGUN), "").unwrap();
        let begun = check_untouched(data.path());
        assert!(matches!(begun, Err(ReplayError::Interrupted(_))), "{begun:?}");
    }

    /// As another user than root, `lost+found` cannot be read.
    #[test]
    fn a_link_of_no_schema_leads_nowhere() {
        let data = xb_testkit::daemon::Scratch::new();
        for folder in ["lost+found", "shop"] {
            fs::create_dir(data.path().join(folder)).unwrap();
        }
        fs::write(data.path().join("lost+found/t.isl"), "").unwrap();
        assert_eq!(link_outside(data.path()).unwrap(), None);
        let link = data.path().join("shop/t.isl");
        fs::write(&link, "").unwrap();
        assert_eq!(link_outside(data.path()).unwrap(), Some(link));
    }
}
