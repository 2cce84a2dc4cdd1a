//! State shared by several threads, and waiting for its changes.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Monitor<T> {
    state: Mutex<T>,
    changed: Condvar,
}

impl<T> Monitor<T> {
    pub(crate) fn new(state: T) -> Self {
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Locks the state. Poisoning is ignored: a thread that panicked has ended the transfer, and
    /// its state is good enough for that.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, or until `limit` has passed; may return early.
    pub(crate) fn wait<'a>(
        &self,
        state: MutexGuard<'a, T>,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, T> {
        match limit {
            Some(limit) => {
                let result = self.changed.wait_timeout(state, limit);
                result.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Wakes all waiting threads.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }
}
