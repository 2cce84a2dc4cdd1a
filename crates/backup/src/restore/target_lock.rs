//! Lock of the directory of a restore: two runs of the same command do not change the same files.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::error::BackupError;

/// Hint for a target that cannot be used.
pub(super) const OTHER_TARGET: &str = "name a directory that this user can create or write to";

/// The error if it cannot be found out what is in a target: that is no empty one.
pub(super) fn unseen(target: &Path) -> impl Fn(std::io::Error) -> BackupError + Copy {
    move |error| BackupError::of_target(target, format!("{error}; {OTHER_TARGET}"))
}

/// Keeps other restores out of a directory until it is dropped, or the process ends.
#[derive(Debug)]
pub(crate) struct TargetLock {
    _dir: OwnedFd,
    /// Directories that did not exist before, the target first.
    made: Vec<PathBuf>,
}

impl TargetLock {
    /// Takes the lock of a directory, which is created if it is missing, and removed again at the end if nothing
    /// was put into it. On a file system without locks, nothing keeps another run out.
    ///
    /// # Errors
    /// [`BackupError::Restore`] if another run has the lock, or the directory cannot be created or opened.
    pub(crate) fn take(target: &Path) -> Result<Self, BackupError> {
        let failed = |what: String| BackupError::of_target(target, what);
        let unusable = |error: io::Error| failed(format!("{error}; {OTHER_TARGET}"));
        loop {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let open = || rustix::fs::open(target, flags, Mode::empty());
            let (opened, made) = match open() {
                Err(Errno::NOENT) => {
                    let made = missing(target);
                    std::fs::create_dir_all(target).map_err(unusable)?;
                    (open(), made)
                }
                opened => (opened, Vec::new()),
            };
            let dir = match opened {
                // Another run has removed it since.
                Err(Errno::NOENT) => continue,
                opened => opened.map_err(|error| unusable(error.into()))?,
            };
            if let Err(Errno::WOULDBLOCK) =
                rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive)
            {
                return Err(failed(
                    "another restore is running in it: wait until it ends, or choose another directory"
                        .to_owned(),
                ));
            }
            // Only the lock of the directory that is there gives the right to remove it.
            if is_still(target, &dir).map_err(|error| unusable(error.into()))? {
                return Ok(Self { _dir: dir, made });
            }
        }
    }
}

impl Drop for TargetLock {
    fn drop(&mut self) {
        // While the lock is held; a directory that has anything in it stays.
        for dir in &self.made {
            if std::fs::remove_dir(dir).is_err() {
                break;
            }
        }
    }
}

/// The directory and those above it that do not exist, from the bottom.
fn missing(target: &Path) -> Vec<PathBuf> {
    let named = |dir: &&Path| !dir.as_os_str().is_empty();
    let all = target.ancestors().filter(named);
    all.take_while(|dir| matches!(dir.try_exists(), Ok(false))).map(Path::to_owned).collect()
}

/// Returns whether a path still leads to this directory.
fn is_still(target: &Path, dir: &OwnedFd) -> Result<bool, Errno> {
    let locked = rustix::fs::fstat(dir)?;
    match rustix::fs::stat(target) {
        Ok(found) => Ok((found.st_dev, found.st_ino) == (locked.st_dev, locked.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_run_has_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let first = TargetLock::take(dir.path()).unwrap();
        let error = TargetLock::take(dir.path()).unwrap_err().to_string();
        assert!(error.contains("another restore"), "{error}");
        drop(first);
        TargetLock::take(dir.path()).unwrap();
        assert!(dir.path().exists(), "it was there before");
    }

    #[test]
    fn only_one_run_has_a_directory_that_did_not_exist() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("new/data");
        let first = TargetLock::take(&target).unwrap();
        let error = TargetLock::take(&target).unwrap_err().to_string();
        assert!(error.contains("another restore"), "{error}");
        assert!(target.exists(), "the first run has it");
        drop(first);
        assert!(!dir.path().join("new").exists(), "nothing was put into it");
        let again = TargetLock::take(&target).unwrap();
        std::fs::write(target.join("file"), "").unwrap();
        drop(again);
        assert!(target.join("file").exists());
    }

    /// Each of many runs makes the directory, and removes it: never do two have it.
    #[test]
    fn a_directory_that_goes_away_is_locked_anew() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("data");
        let at_work = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let Ok(lock) = TargetLock::take(&target) else { continue };
                        let others = at_work.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        assert_eq!(others, 0);
                        std::thread::yield_now();
                        assert!(is_still(&target, &lock._dir).unwrap());
                        at_work.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
        });
    }
}
