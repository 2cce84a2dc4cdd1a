//! The directories beneath the target that files go into.

use std::collections::VecDeque;
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
    /// The directories used last. Most streams list files directory by directory, and each thread
    /// is in another one at their borders.
    kept: Mutex<VecDeque<Parent>>,
}

/// Maximum number of directories that are kept open.
pub(crate) const PARENTS: usize = 8;

/// A directory beneath the target, and its name there.
#[derive(Debug)]
struct Parent {
    name: Box<[u8]>,
    dir: Arc<OwnedFd>,
}

/// Treatment of missing directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Make,
    Stop,
}

impl Parents {
    pub(crate) fn new(root: Arc<OwnedFd>, mode: Mode) -> Self {
        Self { root, mode, kept: Mutex::default() }
    }

    /// Forgets the directory of this name and those below it, because it is about to go.
    pub(crate) fn forget(&self, name: &[u8]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_within = |rest: &[u8]| rest.is_empty() || rest.starts_with(b"/");
        kept.retain(|known| !known.name.strip_prefix(name).is_some_and(is_within));
    }

    /// The directory that contains `path`'s last component; `None` if it does not exist.
    pub(crate) fn parent_of(
        &self,
        path: &RelPath,
        missing: Missing,
    ) -> Result<Option<Arc<OwnedFd>>, TargetError> {
        let Some(parent) = path.split_last().0 else { return Ok(Some(Arc::clone(&self.root))) };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.iter().find(|known| *known.name == *parent) {
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
        kept.truncate(PARENTS - 1);
        kept.push_front(Parent { name: parent.into(), dir: Arc::clone(&dir) });
        Ok(Some(dir))
    }
}
