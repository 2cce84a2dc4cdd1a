//! Cancellation of transfers.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::error::TransferError;
use crate::protocol::message::{Stop, StopCode};

/// A waiting thread that must check for cancellation when it is woken.
pub(crate) trait Wakes: Send + Sync {
    fn wake_all(&self);
}

/// A switch that ends every wait of the transfers that it was passed to: after a signal, or when
/// the parent has died. Clones are the same switch. It must not be used in a signal handler itself.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Inner>);

#[derive(Default)]
struct Inner {
    on: AtomicBool,
    why: OnceLock<String>,
    waiting: Mutex<Vec<Weak<dyn Wakes>>>,
}

impl Cancel {
    /// Creates a switch that is off.
    pub fn new() -> Self {
        Self::default()
    }

    /// Like [`Cancel::cancel`]; peers receive `why` as the reason. The first reason counts.
    pub fn cancel_because(&self, why: &str) {
        let _ = self.0.why.set(why.to_owned());
        self.cancel();
    }

    /// The final message to a peer.
    pub(crate) fn last_words(&self) -> Stop {
        let why = self.0.why.get().cloned();
        let reason = why.unwrap_or_else(|| TransferError::Cancelled.to_string());
        Stop { code: StopCode::Aborted, reason }
    }

    /// Cancels the transfers, permanently.
    pub fn cancel(&self) {
        self.0.on.store(true, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *self.waiting());
        waiting.iter().filter_map(Weak::upgrade).for_each(|one| one.wake_all());
    }

    /// Returns whether the switch is on.
    pub fn is_cancelled(&self) -> bool {
        self.0.on.load(Ordering::SeqCst)
    }

    /// Wakes `one` on cancellation, or immediately if already cancelled.
    pub(crate) fn register(&self, one: Weak<dyn Wakes>) {
        {
            let mut waiting = self.waiting();
            waiting.retain(|other| other.strong_count() > 0);
            waiting.push(one.clone());
        }
        if self.is_cancelled()
            && let Some(one) = one.upgrade()
        {
            one.wake_all();
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Weak<dyn Wakes>>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancel").field(&self.is_cancelled()).finish()
    }
}
