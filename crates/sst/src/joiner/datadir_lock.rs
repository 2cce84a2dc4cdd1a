//! Lock that allows one transfer at a time in a data directory.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cancel::CancelToken;
use crate::error::SstError;
use crate::swap::{FolderLocks, WORK_DIR, lock_dir, make_dir};

/// Time between two attempts to take a lock that another process holds.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Holds the lock. The system releases it with the process, however the process ends.
#[derive(Debug)]
pub struct DatadirLock {
    _dir: File,
    /// Directories outside the data directory in which this transfer works.
    pub(crate) folders: Arc<FolderLocks>,
}

impl DatadirLock {
    /// Locks `DATADIR/#sql-xb`, and creates it if it does not exist.
    ///
    /// # Errors
    /// [`SstError::Busy`] if another process holds the lock.
    pub fn take(datadir: &Path) -> Result<Self, SstError> {
        let path = datadir.join(WORK_DIR);
        // The previous holder may be removing the directory at this moment.
        loop {
            make_dir(&path).map_err(SstError::io("make", &path))?;
            match lock_dir(&path) {
                Ok(Some(dir)) => return Ok(Self { _dir: dir, folders: Arc::default() }),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(SstError::Busy { datadir: datadir.to_owned() });
                }
                Err(error) => return Err(SstError::io("lock", path)(error)),
            }
        }
    }

    /// Like [`DatadirLock::take`], but waits for the holder: a server starts the next transfer
    /// while the previous one still cleans up.
    ///
    /// # Errors
    /// [`SstError::Busy`] if another process holds the lock for all of `limit`; or if cancelled.
    pub fn wait(datadir: &Path, cancel: &CancelToken, limit: Duration) -> Result<Self, SstError> {
        let begin = Instant::now();
        loop {
            cancel.check()?;
            match Self::take(datadir) {
                Err(SstError::Busy { .. }) if begin.elapsed() < limit => {}
                done => return done,
            }
            // Cancellation is checked above.
            let _ = cancel.wait(RETRY_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_and_it_goes_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let lock = DatadirLock::take(folder.path()).unwrap();
        assert!(matches!(DatadirLock::take(folder.path()), Err(SstError::Busy { .. })));
        drop(lock);
        DatadirLock::take(folder.path()).unwrap();
    }

    #[test]
    fn a_lock_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let cancel = CancelToken::new();
        let lock = DatadirLock::take(folder.path()).unwrap();
        let busy = DatadirLock::wait(folder.path(), &cancel, Duration::ZERO);
        assert!(matches!(busy, Err(SstError::Busy { .. })));
        let long = Duration::from_secs(1000);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| DatadirLock::wait(folder.path(), &cancel, long));
            drop(lock);
            let lock = waiting.join().unwrap().unwrap();
            let waiting = scope.spawn(|| DatadirLock::wait(folder.path(), &cancel, long));
            cancel.cancel(crate::cancel::CancelReason::ServerGone);
            assert!(matches!(waiting.join().unwrap(), Err(SstError::Stopped(_))));
            drop(lock);
        });
    }
}
