//! The names of FIFOs in their directory.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};

use super::error::FifoError;

/// Names of FIFOs that this run uses. They are removed when this is dropped, as far as they are
/// still the same FIFOs, even if another thread still waits for their other ends.
#[derive(Debug, Default)]
pub struct FifoNames(NameList);

/// The list of names, to be filled by the thread that opens or creates the FIFOs. `None` once the
/// run is over.
#[derive(Debug, Clone)]
pub(super) struct NameList(Arc<Mutex<Option<Vec<Name>>>>);

#[derive(Debug)]
struct Name {
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
}

impl Default for NameList {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Some(Vec::new()))))
    }
}

impl FifoNames {
    /// The list for a thread that creates FIFOs.
    pub(super) fn list(&self) -> NameList {
        self.0.clone()
    }
}

impl Drop for FifoNames {
    fn drop(&mut self) {
        let mut names = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.take().into_iter().flatten().for_each(|name| name.remove());
    }
}

impl Name {
    fn remove(&self) {
        let found = std::fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.id) {
            // If another program has removed it meanwhile, there is nothing left to do.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl NameList {
    /// Makes or opens a FIFO and adds its name, as one step for whoever ends the run: it removes the FIFO, or there is
    /// none. `None` if the run is over, or from `get`.
    fn adding<T>(
        &self,
        path: &Path,
        get: impl FnOnce() -> Result<Option<(T, Metadata)>, FifoError>,
    ) -> Result<Option<T>, FifoError> {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(names) = &mut *names else { return Ok(None) };
        let Some((got, found)) = get()? else { return Ok(None) };
        names.push(Name { path: path.to_owned(), id: (found.dev(), found.ino()) });
        Ok(Some(got))
    }

    /// Returns whether the run is over.
    pub(super) fn is_over(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Creates a FIFO that only its owner can use, unless the run is over.
    pub(super) fn create(&self, path: &Path) -> Result<(), FifoError> {
        let failed = |source: io::Error| FifoError::System { path: path.to_owned(), source };
        let made = self.adding(path, || {
            match mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0) {
                Ok(()) => {}
                Err(rustix::io::Errno::EXIST) => {
                    return Err(FifoError::Exists { path: path.to_owned() });
                }
                Err(error) => return Err(failed(error.into())),
            }
            Ok(Some(((), std::fs::symlink_metadata(path).map_err(failed)?)))
        });
        made.map(|_| ())
    }

    /// Opens a FIFO for reading, without waiting for a writer. `None`: it does not exist yet, or the run is over.
    pub(super) fn open_to_read(&self, path: &Path) -> Result<Option<File>, FifoError> {
        let failed = |source: io::Error| FifoError::System { path: path.to_owned(), source };
        self.adding(path, || {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = match open(path, flags, Mode::empty()) {
                Ok(fd) => File::from(fd),
                Err(rustix::io::Errno::NOENT) => return Ok(None),
                Err(rustix::io::Errno::LOOP) => {
                    return Err(FifoError::NotFifo { path: path.to_owned() });
                }
                Err(error) => return Err(failed(error.into())),
            };
            let found = file.metadata().map_err(failed)?;
            if !found.file_type().is_fifo() {
                return Err(FifoError::NotFifo { path: path.to_owned() });
            }
            Ok(Some((file, found)))
        })
    }
}
