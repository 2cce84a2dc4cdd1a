//! The temporary directory of a program that a transfer starts, and removal of those that killed
//! transfers have left.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::contract::args::Role;
use crate::error::SstError;
use crate::swap::{WORK_DIR, lock_dir, make_dir};

/// Minimum age of a directory before it is removed as orphaned.
const FRESH: Duration = Duration::from_secs(60);

/// Temporary directory, removed when dropped. It is locked while its owner lives, so that the next
/// transfer in the same role can recognize the directories of dead ones.
#[derive(Debug)]
pub(crate) struct WorkFolder {
    folder: tempfile::TempDir,
    _lock: File,
    _holder: Option<Holder>,
}

/// `DATADIR/#sql-xb`, removed when dropped, unless something is in it.
#[derive(Debug)]
struct Holder(PathBuf);

impl Drop for Holder {
    fn drop(&mut self) {
        // Nobody else may be about to work there.
        if let Ok(Some(_lock)) = lock_dir(&self.0) {
            let _ = std::fs::remove_dir(&self.0);
        }
    }
}

impl WorkFolder {
    /// Creates a directory in `dir`, or in the system's directory for temporary files.
    pub(crate) fn make(role: Role, dir: Option<&Path>, datadir: &Path) -> Result<Self, SstError> {
        let mut prefix = format!("xbrs-{}-", role.word());
        let mut dir = dir.map_or_else(std::env::temp_dir, Path::to_owned);
        let failed = |dir: &Path| {
            let path = dir.to_owned();
            |source: io::Error| {
                let source = without_path(&source);
                SstError::NoTmpdir { what: "create a directory in", path, source }
            }
        };
        let mut holder = None;
        if is_same(&dir, datadir) {
            // Backup programs send any directory there as a schema. A joiner knows that this one is none.
            dir.push(WORK_DIR);
            prefix.insert(0, '.');
            make_dir(&dir).map_err(failed(&dir))?;
            holder = Some(Holder(dir.clone()));
        }
        sweep(&dir, &prefix);
        let folder =
            tempfile::Builder::new().prefix(&prefix).tempdir_in(&dir).map_err(failed(&dir))?;
        let lock = File::open(folder.path()).map_err(failed(&dir))?;
        // If locks are not supported, no directory is ever swept.
        let _ = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        Ok(Self { folder, _lock: lock, _holder: holder })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Returns the error without a path in it, for messages that have the path already.
pub(crate) fn without_path(error: &io::Error) -> io::Error {
    let text = error.to_string();
    let plain = text.split(" at path ").next().unwrap_or(&text).to_owned();
    io::Error::new(error.kind(), plain)
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(one).is_some_and(|one| real(other) == Some(one))
}

/// Removes orphaned directories. Best effort: one that remains only takes up space. A directory
/// that is just being created is not locked yet, so young ones are skipped.
fn sweep(dir: &Path, prefix: &str) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix));
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_ours || !is_dir {
            continue;
        }
        let changed = entry.metadata().and_then(|metadata| metadata.modified());
        if !changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age > FRESH)) {
            continue;
        }
        let Ok(handle) = File::open(entry.path()) else { continue };
        if flock(&handle, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_dead_donors_are_removed_and_live_ones_stay() {
        let scratch = tempfile::tempdir().unwrap();
        let dead = scratch.path().join("xbrs-donor-dead");
        std::fs::create_dir(&dead).unwrap();
        std::fs::write(dead.join("file"), "x").unwrap();
        let long_ago = std::fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
        File::open(&dead).unwrap().set_times(long_ago).unwrap();
        std::fs::create_dir(scratch.path().join("other")).unwrap();
        let elsewhere = Path::new("/data");
        let [one, two] =
            [1, 2].map(|_| WorkFolder::make(Role::Donor, Some(scratch.path()), elsewhere).unwrap());
        assert!(!dead.exists() && one.path().is_dir() && two.path().is_dir());
        drop((one, two));
        let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1);
    }
}
