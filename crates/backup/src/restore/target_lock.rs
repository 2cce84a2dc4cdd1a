//! Lock of the directory of a restore: two runs of the same command do not change the same files.

use std::io;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::error::BackupError;
use crate::restore::OTHER_TARGET;

/// Keeps other restores out of a directory until it is dropped, or the process ends.
#[derive(Debug)]
pub(crate) struct TargetLock {
    _dir: OwnedFd,
}

impl TargetLock {
    /// Takes the lock of a directory; `None` if it does not exist. On a file system without locks, nothing keeps
    /// another run out.
    ///
    /// # Errors
    /// [`BackupError::Restore`] if another run has the lock, or the directory cannot be opened.
    pub(crate) fn take(target: &Path) -> Result<Option<Self>, BackupError> {
        let failed =
            |what: String| BackupError::Restore { target: target.display().to_string(), what };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = match rustix::fs::open(target, flags, Mode::empty()) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => {
                return Err(failed(format!("{}; {OTHER_TARGET}", io::Error::from(error))));
            }
        };
        match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Err(failed(
                "another restore is at work in it: wait for its end, or choose another directory"
                    .to_owned(),
            )),
            _ => Ok(Some(Self { _dir: dir })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_run_has_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        assert!(TargetLock::take(&dir.path().join("none")).unwrap().is_none());
        let first = TargetLock::take(dir.path()).unwrap();
        let error = TargetLock::take(dir.path()).unwrap_err().to_string();
        assert!(error.contains("another restore"), "{error}");
        drop(first);
        assert!(TargetLock::take(dir.path()).unwrap().is_some());
    }
}
