//! Ending a transfer from outside.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::error::TransferError;
use crate::protocol::message::{Stop, StopCode};

/// Something that waits and must look again when it is cancelled.
pub(crate) trait Wakes: Send + Sync {
    fn wake_all(&self);
}

/// A switch that ends every wait of the transfers it was given to: at a signal, or at the parent's
/// death. Clones are the same switch. It cannot be used in a signal handler itself.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Inner>);

#[derive(Default)]
struct Inner {
    on: AtomicBool,
    why: OnceLock<String>,
    waiting: Mutex<Vec<Weak<dyn Wakes>>>,
}

impl Cancel {
    /// A switch that is off.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`Cancel::cancel`]; peers are told `why`. The first reason counts.
    pub fn cancel_because(&self, why: &str) {
        let _ = self.0.why.set(why.to_owned());
        self.cancel();
    }

    /// The last words to a peer.
    pub(crate) fn last_words(&self) -> Stop {
        let why = self.0.why.get().cloned();
        let reason = why.unwrap_or_else(|| TransferError::Cancelled.to_string());
        Stop { code: StopCode::Aborted, reason }
    }

    /// Switches it on, for good.
    pub fn cancel(&self) {
        self.0.on.store(true, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *self.waiting());
        waiting.iter().filter_map(Weak::upgrade).for_each(|one| one.wake_all());
    }

    /// Whether it is on.
    pub fn is_cancelled(&self) -> bool {
        self.0.on.load(Ordering::SeqCst)
    }

    /// Has `one` woken when it is switched on, or at once if it is.
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
