//! Cancellation and its propagation.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Reason why a transfer is cancelled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CancelReason {
    /// This process received a signal.
    #[error("interrupted by signal {0}")]
    Signal(i32),
    /// The server that started this process is gone.
    #[error("the server that started this program has ended")]
    ServerGone,
    /// The backup blocked its server for too long.
    #[error(
        "the backup was ended so that the server continues: it blocked commits, and waited {seconds} s for the joiner while the spool was full"
    )]
    LockStall {
        /// The time limit, in seconds.
        seconds: u64,
    },
    /// No data moved for too long.
    #[error("no data for {seconds} s (sst-idle-timeout)")]
    Idle {
        /// The time limit, in seconds.
        seconds: u64,
    },
    /// Another part of the program failed, and its error is the cause.
    #[error("another part of the transfer failed")]
    Elsewhere,
}

impl CancelReason {
    /// Returns whether this process must end, rather than only the transfer.
    fn is_outside(&self) -> bool {
        matches!(self, Self::Signal(_) | Self::ServerGone)
    }
}

/// Cancels a transfer: running programs, waits and connections. Clones are the same token.
#[derive(Clone, Default)]
pub struct CancelToken(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

type Hook = Box<dyn Fn() + Send>;

#[derive(Default)]
struct State {
    why: Option<CancelReason>,
    /// The first reason from outside.
    outside: Option<CancelReason>,
    hooks: BTreeMap<u64, Hook>,
    next: u64,
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken").field("why", &self.why()).finish_non_exhaustive()
    }
}

/// Registration of a hook; dropping it removes the hook.
#[derive(Debug)]
pub struct CancelHook {
    stop: CancelToken,
    id: u64,
}

impl Drop for CancelHook {
    fn drop(&mut self) {
        self.stop.state().hooks.remove(&self.id);
    }
}

impl CancelToken {
    /// Creates a token that is not cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels the transfer. The first reason counts.
    pub fn ask(&self, why: CancelReason) {
        let hooks = {
            let mut state = self.state();
            if state.outside.is_none() && why.is_outside() {
                state.outside = Some(why.clone());
                self.0.changed.notify_all();
            }
            if state.why.is_some() {
                return;
            }
            state.why = Some(why);
            std::mem::take(&mut state.hooks)
        };
        self.0.changed.notify_all();
        // Outside the lock: a hook may call back into the token.
        hooks.values().for_each(|hook| hook());
    }

    /// Returns the reason if the token is cancelled.
    #[must_use]
    pub fn why(&self) -> Option<CancelReason> {
        self.state().why.clone()
    }

    /// Fails if the token is cancelled.
    ///
    /// # Errors
    /// The reason for the cancellation.
    pub fn check(&self) -> Result<(), CancelReason> {
        self.why().map_or(Ok(()), Err)
    }

    /// Calls `hook` when the token is cancelled, immediately if it already is. The hook runs in the
    /// thread that cancels, must not block, and may be called once more after its [`CancelHook`] is
    /// dropped.
    pub fn on_stop(&self, hook: impl Fn() + Send + 'static) -> CancelHook {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        if state.why.is_some() {
            drop(state);
            hook();
        } else {
            state.hooks.insert(id, Box::new(hook));
        }
        CancelHook { stop: self.clone(), id }
    }

    /// Waits for cancellation, at most `limit`. Returns the reason, or `None` after that time.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> Option<CancelReason> {
        self.wait_for(limit, |state| &state.why)
    }

    /// Waits like [`CancelToken::wait`], but only for a signal or the server's end: a transfer that
    /// has already failed waits here.
    #[must_use]
    pub fn wait_outside(&self, limit: Duration) -> Option<CancelReason> {
        self.wait_for(limit, |state| &state.outside)
    }

    fn wait_for(
        &self,
        limit: Duration,
        reason: impl Fn(&State) -> &Option<CancelReason>,
    ) -> Option<CancelReason> {
        let end = Instant::now() + limit;
        let mut state = self.state();
        while reason(&state).is_none() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let waited = self.0.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        reason(&state).clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn the_first_reason_counts_and_everybody_is_told_once() {
        let stop = CancelToken::new();
        let told = Arc::new(AtomicU32::new(0));
        let hook = || {
            let told = Arc::clone(&told);
            move || {
                told.fetch_add(1, Ordering::SeqCst);
            }
        };
        let _one = stop.on_stop(hook());
        drop(stop.on_stop(hook()));
        assert!(stop.check().is_ok() && stop.wait(Duration::ZERO).is_none());
        stop.ask(CancelReason::Signal(15));
        stop.ask(CancelReason::ServerGone);
        assert_eq!(stop.wait(Duration::from_secs(60)), Some(CancelReason::Signal(15)));
        assert_eq!(told.load(Ordering::SeqCst), 1, "who is gone is not told");
        let _late = stop.on_stop(hook());
        assert_eq!(told.load(Ordering::SeqCst), 2, "who comes late is told at once");
    }
    #[test]
    fn a_failed_transfer_waits_for_a_signal_and_not_for_its_own_failure() {
        let stop = CancelToken::new();
        stop.ask(CancelReason::Elsewhere);
        assert_eq!(stop.wait_outside(Duration::ZERO), None);
        let signalled = stop.clone();
        let thread = std::thread::spawn(move || signalled.ask(CancelReason::Signal(15)));
        assert_eq!(stop.wait_outside(Duration::from_secs(60)), Some(CancelReason::Signal(15)));
        thread.join().unwrap();
        assert_eq!(stop.why(), Some(CancelReason::Elsewhere), "the first reason counts");
    }
}
