//! The limit of open files that a program gets.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// One at a time: the limit is that of the whole process, and each puts back what it found.
static RAISING: Mutex<()> = Mutex::new(());

/// The soft limit of open files of this process, raised to the hard one for a program that is started meanwhile.
/// Drop puts the old limit back.
pub(crate) struct RaisedLimit {
    before: Rlimit,
    _alone: MutexGuard<'static, ()>,
}

impl RaisedLimit {
    pub(crate) fn now() -> Self {
        let alone = RAISING.lock().unwrap_or_else(PoisonError::into_inner);
        let before = getrlimit(Resource::Nofile);
        // If raising is refused, the old limit must do.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before });
        Self { before, _alone: alone }
    }
}

impl Drop for RaisedLimit {
    fn drop(&mut self) {
        let _ = setrlimit(Resource::Nofile, self.before);
    }
}
