//! Cancellation of work: by a signal, by a failure elsewhere, or because its result is no longer needed.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

/// Cancels work in tasks, threads and programs, for a reason `R`: the number of a signal, unless the work needs
/// others. Clones are the same token.
pub struct CancelToken<R = i32>(Arc<Shared<R>>);

struct Shared<R> {
    is_cancelled: AtomicBool,
    state: Mutex<State<R>>,
    changed: Condvar,
}

struct State<R> {
    /// The different reasons, the first one first.
    reasons: Vec<R>,
    hooks: BTreeMap<u64, Hook>,
    next: u64,
}

type Hook = Box<dyn Fn() + Send>;

/// Registration of a hook; dropping it removes the hook.
#[must_use]
#[derive(Debug)]
pub struct CancelHook<R = i32> {
    token: CancelToken<R>,
    id: u64,
}

/// Cancels a token when it is dropped.
#[must_use]
#[derive(Debug)]
pub struct CancelOnDrop(CancelToken<()>);

impl<R> Clone for CancelToken<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> Default for CancelToken<R> {
    fn default() -> Self {
        let state = State { reasons: Vec::new(), hooks: BTreeMap::new(), next: 0 };
        let (is_cancelled, changed) = (AtomicBool::new(false), Condvar::new());
        Self(Arc::new(Shared { is_cancelled, state: Mutex::new(state), changed }))
    }
}

impl<R> fmt::Debug for CancelToken<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CancelToken").field(&self.is_cancelled()).finish()
    }
}

impl<R> Drop for CancelHook<R> {
    fn drop(&mut self) {
        // Dropped after the lock is released: it may hold another hook of this token.
        let _hook = self.token.state().hooks.remove(&self.id);
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel(());
    }
}

impl CancelToken<()> {
    /// Cancels the token when the result is dropped, for example with the future that waits for a thread.
    pub fn cancel_on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }
}

impl<R> CancelToken<R> {
    /// Creates a token that is not cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether the token is cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::SeqCst)
    }

    /// Calls `hook` when the token is cancelled, immediately if it already is. The hook runs in the thread that
    /// cancels, must not block, and may be called once more after its [`CancelHook`] is dropped.
    pub fn on_cancel(&self, hook: impl Fn() + Send + 'static) -> CancelHook<R> {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        if state.reasons.is_empty() {
            state.hooks.insert(id, Box::new(hook));
        } else {
            drop(state);
            hook();
        }
        CancelHook { token: self.clone(), id }
    }

    fn state(&self) -> MutexGuard<'_, State<R>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Clone + PartialEq> CancelToken<R> {
    /// Cancels the work, permanently. The first reason counts; another one only ends [`wait_for`](Self::wait_for).
    pub fn cancel(&self, reason: R) {
        let hooks = {
            let mut state = self.state();
            if state.reasons.contains(&reason) {
                return;
            }
            state.reasons.push(reason);
            self.0.is_cancelled.store(true, Ordering::SeqCst);
            std::mem::take(&mut state.hooks)
        };
        self.0.changed.notify_all();
        // Outside the lock: a hook may call back into the token.
        hooks.values().for_each(|hook| hook());
    }

    /// Returns the first reason if the token is cancelled.
    #[must_use]
    pub fn reason(&self) -> Option<R> {
        // Asked for each row and page: no lock as long as there is none.
        self.is_cancelled().then(|| self.state().reasons.first().cloned())?
    }

    /// Fails if the token is cancelled.
    ///
    /// # Errors
    /// The first reason.
    pub fn check(&self) -> Result<(), R> {
        self.reason().map_or(Ok(()), Err)
    }

    /// Waits for cancellation, and returns the first reason.
    pub async fn cancelled(&self) -> R {
        let mut hook = None;
        poll_fn(|context| {
            if !self.is_cancelled() {
                let waker = context.waker().clone();
                hook = Some(self.on_cancel(move || waker.wake_by_ref()));
            }
            // After the hook is registered, so that no cancellation is missed.
            self.reason().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Waits for cancellation, at most `limit`. Returns the reason, or `None` after that time.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> Option<R> {
        self.wait_for(limit, |_| true)
    }

    /// Waits, at most `limit`, for the first reason that `counts`, even if there is another one already.
    #[must_use]
    pub fn wait_for(&self, limit: Duration, counts: impl Fn(&R) -> bool) -> Option<R> {
        let begin = Instant::now();
        let mut state = self.state();
        loop {
            if let Some(reason) = state.reasons.iter().find(|reason| counts(reason)) {
                return Some(reason.clone());
            }
            let left = limit.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return None;
            }
            let waited = self.0.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::task::{Context, Wake, Waker};

    use super::*;

    #[test]
    fn the_first_reason_counts_and_each_hook_is_called_once() {
        let cancel = CancelToken::new();
        let called = Arc::new(AtomicU32::new(0));
        let hook = || {
            let called = Arc::clone(&called);
            move || {
                called.fetch_add(1, Ordering::SeqCst);
            }
        };
        let _one = cancel.on_cancel(hook());
        drop(cancel.on_cancel(hook()));
        assert!(cancel.check().is_ok() && cancel.wait(Duration::ZERO).is_none());
        cancel.cancel(15);
        cancel.cancel(2);
        assert_eq!(cancel.wait(Duration::from_secs(60)), Some(15));
        assert_eq!(called.load(Ordering::SeqCst), 1, "a dropped hook is not called");
        let _late = cancel.on_cancel(hook());
        assert_eq!(called.load(Ordering::SeqCst), 2, "a late hook is called at once");
    }

    #[test]
    fn a_wait_for_some_reasons_passes_over_the_others() {
        let cancel = CancelToken::new();
        cancel.cancel("a failure");
        let is_signal = |reason: &&str| *reason == "a signal";
        assert_eq!(cancel.wait_for(Duration::ZERO, is_signal), None);
        let signalled = cancel.clone();
        let thread = std::thread::spawn(move || signalled.cancel("a signal"));
        assert_eq!(cancel.wait_for(Duration::from_secs(60), is_signal), Some("a signal"));
        thread.join().unwrap();
        assert_eq!(cancel.reason(), Some("a failure"), "the first reason counts");
    }

    #[test]
    fn a_dropped_guard_cancels() {
        let cancel = CancelToken::new();
        let guard = cancel.cancel_on_drop();
        assert!(!cancel.is_cancelled());
        drop(guard);
        assert!(cancel.is_cancelled());
    }

    #[test]
    fn a_task_that_waits_is_woken() {
        struct Count(AtomicU32);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let count = Arc::new(Count(AtomicU32::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let cancel = CancelToken::new();
        let mut waiting = std::pin::pin!(cancel.cancelled());
        assert_eq!(waiting.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(waiting.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
        cancel.cancel(15);
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "only the last registration is woken");
        assert_eq!(waiting.as_mut().poll(&mut context), Poll::Ready(15));
    }
}
