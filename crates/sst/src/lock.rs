//! One transfer at a time in a data directory.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::SstError;
use crate::swap::{OURS, make_dir};

/// Holds the lock, which the system takes away with the process, however that ends.
#[derive(Debug)]
pub struct Lock {
    dir: File,
}

impl Lock {
    /// Locks `DATADIR/.xb`, which is made if it is not there.
    ///
    /// # Errors
    /// [`SstError::Busy`] when another process has it.
    pub fn take(datadir: &Path) -> Result<Self, SstError> {
        let path = datadir.join(OURS);
        // Who had it may just be removing the folder.
        loop {
            let lock = Self::try_take(datadir, &path)?;
            let is_there = std::fs::metadata(&path)
                .is_ok_and(|there| lock.dir.metadata().is_ok_and(|ours| ours.ino() == there.ino()));
            if is_there {
                return Ok(lock);
            }
        }
    }

    fn try_take(datadir: &Path, path: &Path) -> Result<Self, SstError> {
        make_dir(path).map_err(SstError::io("make", path))?;
        let dir = File::open(path).map_err(SstError::io("open", path))?;
        match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { dir }),
            Err(Errno::WOULDBLOCK) => Err(SstError::Busy { datadir: datadir.to_owned() }),
            Err(error) => Err(SstError::io("lock", path)(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_and_it_goes_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let lock = Lock::take(folder.path()).unwrap();
        assert!(matches!(Lock::take(folder.path()), Err(SstError::Busy { .. })));
        drop(lock);
        Lock::take(folder.path()).unwrap();
    }
}
