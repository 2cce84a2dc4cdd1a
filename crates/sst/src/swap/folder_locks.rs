//! Locks on directories of this program: `#sql-xb` in a data directory, and in directories outside.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use xb_files::or_none;

use super::error::{SwapError, failed};
use super::folders::WORK_DIR;

/// Time to wait for another process that only looks, or removes what is empty.
const LIMIT: Duration = Duration::from_secs(1);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Locks on `#sql-xb` of directories outside the data directory, each held from when it is first needed until this is
/// dropped. All containers of one host see them, but not other hosts, and not every network file system has locks.
#[derive(Debug, Default)]
pub struct FolderLocks {
    /// `None`: another transfer has it, and is not waited for once more.
    folders: Mutex<BTreeMap<PathBuf, Option<File>>>,
}

impl FolderLocks {
    /// Locks `FOLDER/#sql-xb`, and waits a moment for another process. Returns whether there is such a directory. Where the
    /// file system has no locks, there is none.
    ///
    /// # Errors
    /// [`SwapError::Busy`]: another transfer has it; [`SwapError::Io`].
    pub(crate) fn lock(&self, folder: &Path) -> Result<bool, SwapError> {
        self.lock_within(folder, LIMIT)
    }

    fn lock_within(&self, folder: &Path, limit: Duration) -> Result<bool, SwapError> {
        let ours = folder.join(WORK_DIR);
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        let (begin, held) = (Instant::now(), folders.entry(folder.to_owned()));
        let limit = if matches!(held, Entry::Vacant(_)) { limit } else { Duration::ZERO };
        let held = held.or_default();
        // It may have been removed since, and made again.
        if let Some(file) = held
            && is_at(file, &ours).map_err(failed("inspect", &ours))?
        {
            return Ok(true);
        }
        loop {
            match lock_dir(&ours) {
                Ok(None) => {
                    folders.remove(folder);
                    return Ok(false);
                }
                Ok(file) => {
                    *held = file;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if begin.elapsed() >= limit {
                        return Err(SwapError::Busy { folder: folder.to_owned() });
                    }
                    std::thread::sleep(RETRY_INTERVAL);
                }
                Err(error) if has_no_locks(&error) => return Ok(true),
                Err(error) => return Err(failed("lock", &ours)(error)),
            }
        }
    }
}

/// NFS wants a file that is open for writing, and no directory is.
fn has_no_locks(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    let without = [Errno::NOLCK, Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL, Errno::BADF];
    errno.is_some_and(|errno| without.contains(&errno))
}

/// Locks a directory without waiting; `None` if there is none.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if another process has the lock.
pub(crate) fn lock_dir(path: &Path) -> io::Result<Option<File>> {
    loop {
        let Some(dir) = or_none(File::open(path))? else { return Ok(None) };
        flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
        // The previous holder may be removing it at this moment.
        if is_at(&dir, path)? {
            return Ok(Some(dir));
        }
    }
}

/// Returns whether this path leads to this open file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let number = |facts: Metadata| (facts.dev(), facts.ino());
    let there = or_none(path.metadata())?.map(number);
    Ok(there == Some(number(file.metadata()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_locked_until_all_is_done_and_nobody_waits_for_it_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let ours = folder.path().join(WORK_DIR);
        let [one, two] = [FolderLocks::default(), FolderLocks::default()];
        assert!(!one.lock(folder.path()).unwrap(), "there is nothing to lock");
        std::fs::create_dir(&ours).unwrap();
        assert!(one.lock(folder.path()).unwrap() && one.lock(folder.path()).unwrap());
        let try_two = || two.lock_within(folder.path(), Duration::ZERO);
        assert!(matches!(try_two(), Err(SwapError::Busy { folder: at }) if at == folder.path()));
        // Removed, and made by the other one.
        std::fs::remove_dir(&ours).unwrap();
        assert!(!try_two().unwrap());
        std::fs::create_dir(&ours).unwrap();
        assert!(try_two().unwrap());
        let again = one.lock_within(folder.path(), Duration::ZERO);
        assert!(matches!(again, Err(SwapError::Busy { .. })));
        drop(two);
        assert!(one.lock(folder.path()).unwrap());
    }
}
