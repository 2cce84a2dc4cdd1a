//! Ends a clone from another thread.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use xb_mysql::HangUp;

use crate::error::Error;

/// Cancels a clone from another thread, whatever it waits for. Copies of it are the same request.
#[derive(Clone, Default)]
pub struct CloneCancel(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    asked: Condvar,
}

#[derive(Default)]
struct State {
    is_asked: bool,
    next: u64,
    open: BTreeMap<u64, HangUp>,
}

impl fmt::Debug for CloneCancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloneCancel")
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

impl CloneCancel {
    /// Ends the clone: closes its connections, and those that it would still open.
    pub fn cancel(&self) {
        let mut state = self.state();
        state.is_asked = true;
        state.open.values().for_each(HangUp::now);
        self.0.asked.notify_all();
    }

    /// Returns whether the clone is to end.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.state().is_asked
    }

    /// Waits for this long, or until the clone is to end; returns whether it is.
    #[must_use]
    pub fn wait(&self, time: Duration) -> bool {
        let waited = self.0.asked.wait_timeout_while(self.state(), time, |state| !state.is_asked);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_asked
    }

    /// Has a connection closed when the clone is to end, until the result is dropped.
    pub(crate) fn watch(&self, connection: HangUp) -> Result<Watched, Error> {
        let mut state = self.state();
        if state.is_asked {
            return Err(Error::Stopped);
        }
        let number = state.next;
        state.next += 1;
        state.open.insert(number, connection);
        Ok(Watched { cancel: self.clone(), number })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that a [`CloneCancel`] closes.
#[derive(Debug)]
pub(crate) struct Watched {
    cancel: CloneCancel,
    number: u64,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.cancel.state().open.remove(&self.number);
    }
}
