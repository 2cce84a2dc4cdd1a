//! The temporary directory of a program that a transfer starts, and removal of those that killed
//! transfers have left.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::contract::args::Role;
use crate::error::SstError;

/// Minimum age of a directory before it is removed as orphaned.
const FRESH: Duration = Duration::from_secs(60);

/// Temporary directory, removed when dropped. It is locked while its owner lives, so that the next
/// transfer in the same role can recognize the directories of dead ones.
#[derive(Debug)]
pub(crate) struct WorkFolder {
    folder: tempfile::TempDir,
    _lock: File,
}

impl WorkFolder {
    /// Creates a directory in `dir`, or in the system's directory for temporary files.
    pub(crate) fn make(role: Role, dir: Option<&Path>) -> Result<Self, SstError> {
        let prefix = format!("xbrs-{}-", role.word());
        let dir = dir.map_or_else(std::env::temp_dir, Path::to_owned);
        sweep(&dir, &prefix);
        let failed = || SstError::io("create a directory in", &dir);
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(&dir).map_err(failed())?;
        let lock = File::open(folder.path()).map_err(failed())?;
        // If locks are not supported, no directory is ever swept.
        let _ = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        Ok(Self { folder, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
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
        let one = WorkFolder::make(Role::Donor, Some(scratch.path())).unwrap();
        let two = WorkFolder::make(Role::Donor, Some(scratch.path())).unwrap();
        assert!(!dead.exists() && one.path().is_dir() && two.path().is_dir());
        drop((one, two));
        let left: Vec<_> = std::fs::read_dir(scratch.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1);
    }
}
