//! One transfer at a time in a data directory.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::SstError;
use crate::swap::OURS;

/// Holds the lock, which the system takes away with the process, however that ends.
#[derive(Debug)]
pub struct Lock {
    _dir: File,
}

impl Lock {
    /// Locks `DATADIR/.xb`, which is made if it is not there.
    ///
    /// # Errors
    /// [`SstError::Busy`] when another process has it.
    pub fn take(datadir: &Path) -> Result<Self, SstError> {
        let path = datadir.join(OURS);
        std::fs::create_dir_all(&path).map_err(SstError::io("make", &path))?;
        let dir = File::open(&path).map_err(SstError::io("open", &path))?;
        match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _dir: dir }),
            Err(Errno::WOULDBLOCK) => Err(SstError::Busy { datadir: datadir.to_owned() }),
            Err(error) => Err(SstError::io("lock", &path)(error.into())),
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
