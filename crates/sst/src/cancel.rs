//! The wish to end, and whom it concerns.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Why everything is to end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// A signal asked for it.
    #[error("interrupted by signal {0}")]
    Signal(i32),
    /// The server that started us is gone.
    #[error("the server that started this is gone")]
    ServerGone,
    /// The backup held up its server for too long.
    #[error(
        "the backup held locks on the server while the joiner took nothing for {seconds} s and the spool had no room: it was ended so that the server goes on"
    )]
    LockStall {
        /// How long that was waited for.
        seconds: u64,
    },
    /// Nothing has moved for too long.
    #[error("nothing has come for {seconds} s (sst-idle-timeout)")]
    Idle {
        /// How long that was waited for.
        seconds: u64,
    },
    /// Another part of the program has failed and says why.
    #[error("another part has failed")]
    Elsewhere,
}

/// Carries the wish to everybody whom it concerns. Clones are the same wish.
#[derive(Clone, Default)]
pub struct Stop(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

type Hook = Box<dyn Fn() + Send>;

#[derive(Default)]
struct State {
    why: Option<Why>,
    hooks: BTreeMap<u64, Hook>,
    next: u64,
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop").field("why", &self.why()).finish_non_exhaustive()
    }
}

/// Forgets a hook when dropped.
#[derive(Debug)]
pub struct Hooked {
    stop: Stop,
    id: u64,
}

impl Drop for Hooked {
    fn drop(&mut self) {
        self.stop.state().hooks.remove(&self.id);
    }
}

impl Stop {
    /// Nobody wants to end yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks everybody to end. The first reason counts.
    pub fn ask(&self, why: Why) {
        let hooks = {
            let mut state = self.state();
            if state.why.is_some() {
                return;
            }
            state.why = Some(why);
            std::mem::take(&mut state.hooks)
        };
        self.0.changed.notify_all();
        // Outside the lock: who is told may ask in turn.
        hooks.values().for_each(|hook| hook());
    }

    /// Why to end, if anybody has asked for it.
    #[must_use]
    pub fn why(&self) -> Option<Why> {
        self.state().why.clone()
    }

    /// An error as soon as anybody has asked for the end.
    ///
    /// # Errors
    /// Why.
    pub fn check(&self) -> Result<(), Why> {
        self.why().map_or(Ok(()), Err)
    }

    /// Calls `hook` when the end is asked for, at once if it was already. It runs in the thread that
    /// asks, must not wait, and may be called once more after its [`Hooked`] is gone.
    pub fn on_stop(&self, hook: impl Fn() + Send + 'static) -> Hooked {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        if state.why.is_some() {
            drop(state);
            hook();
        } else {
            state.hooks.insert(id, Box::new(hook));
        }
        Hooked { stop: self.clone(), id }
    }

    /// Waits until the end is asked for, at most `limit`. Why, or `None` when the time is over.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> Option<Why> {
        let end = Instant::now() + limit;
        let mut state = self.state();
        while state.why.is_none() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let waited = self.0.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.why.clone()
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
        let stop = Stop::new();
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
        stop.ask(Why::Signal(15));
        stop.ask(Why::ServerGone);
        assert_eq!(stop.wait(Duration::from_secs(60)), Some(Why::Signal(15)));
        assert_eq!(told.load(Ordering::SeqCst), 1, "who is gone is not told");
        let _late = stop.on_stop(hook());
        assert_eq!(told.load(Ordering::SeqCst), 2, "who comes late is told at once");
    }
}
