//! The directories beneath the target that files go into.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::Mode;
use rustix::io::Errno;

use crate::target::dirs::{STEP, make_dir};
use crate::target::error::TargetError;
use crate::{Printable, RelPath};

/// Finds and creates directories beneath the target, one component at a time.
#[derive(Debug)]
pub(crate) struct Parents {
    pub(crate) root: Arc<OwnedFd>,
    /// Permission bits of new directories.
    mode: Mode,
    /// The directory used last. Most streams list files directory by directory.
    last: Mutex<Option<Parent>>,
}

/// A directory beneath the target, and its name there.
#[derive(Debug)]
struct Parent {
    name: Box<[u8]>,
    dir: Arc<OwnedFd>,
}

/// What to do about missing directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Make,
    Stop,
}

impl Parents {
    pub(crate) fn new(root: Arc<OwnedFd>, mode: Mode) -> Self {
        Self { root, mode, last: Mutex::new(None) }
    }

    /// The directory that contains `path`'s last component; `None` if it does not exist.
    pub(crate) fn parent_of(
        &self,
        path: &RelPath,
        missing: Missing,
    ) -> Result<Option<Arc<OwnedFd>>, TargetError> {
        let Some(parent) = path.split_last().0 else { return Ok(Some(Arc::clone(&self.root))) };
        let mut cached = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = cached.as_ref().filter(|known| *known.name == *parent) {
            return Ok(Some(Arc::clone(&known.dir)));
        }
        let failed =
            |error: Errno| TargetError::Create { path: path.clone(), source: error.into() };
        let mut dir = Arc::clone(&self.root);
        for component in parent.split(|&b| b == b'/') {
            if missing == Missing::Make {
                make_dir(&dir, component, self.mode).map_err(failed)?;
            }
            dir = match rustix::fs::openat(&dir, component, STEP, Mode::empty()) {
                Ok(next) => Arc::new(next),
                Err(Errno::NOENT) if missing == Missing::Stop => return Ok(None),
                // For a link or a file, Linux returns one or the other depending on the two flags.
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    let component = Printable::new(component);
                    return Err(TargetError::NotADirectory { path: path.clone(), component });
                }
                Err(error) => return Err(failed(error)),
            };
        }
        *cached = Some(Parent { name: parent.into(), dir: Arc::clone(&dir) });
        Ok(Some(dir))
    }
}
