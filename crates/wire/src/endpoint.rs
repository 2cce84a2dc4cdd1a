//! One end of a transfer: its limits, its end, and the state that its threads share, the same for both sides.

use std::ops::Deref;
use std::sync::Arc;

use xb_process::{CancelHook, CancelToken};

use crate::announce::secret::Secret;
use crate::counters::Counters;
use crate::error::TransferError;
use crate::event::Observer;
use crate::limits::Limits;
use crate::monitor::Monitor;
use crate::transfer_end::TransferEnd;

/// State of one side's threads.
pub(crate) trait SharedState: Send + 'static {
    /// What only this side has; its threads share it without the lock of the state.
    type Own: Send + Sync + 'static;
    /// The end of the transfer, once it has ended.
    fn over(&mut self) -> &mut Option<TransferEnd>;
    /// Wakes every thread that waits for a socket.
    fn wake_all(&self);
}

pub(crate) struct Endpoint<S: SharedState> {
    pub(crate) monitor: Monitor<S>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) secret: Option<Secret>,
    pub(crate) limits: Limits,
    pub(crate) cancel: CancelToken<String>,
    pub(crate) observer: Observer,
    pub(crate) own: S::Own,
}

impl<S: SharedState> Deref for Endpoint<S> {
    type Target = S::Own;

    fn deref(&self) -> &S::Own {
        &self.own
    }
}

impl<S: SharedState> std::fmt::Debug for Endpoint<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").finish_non_exhaustive()
    }
}

impl<S: SharedState> Endpoint<S> {
    /// Wakes the threads of `shared` when the transfer is cancelled, as long as the result lives.
    pub(crate) fn on_cancel(shared: &Arc<Self>) -> CancelHook<String> {
        let weak = Arc::downgrade(shared);
        shared.cancel.on_cancel(move || {
            if let Some(shared) = weak.upgrade() {
                let state = shared.monitor.lock();
                shared.monitor.notify();
                state.wake_all();
            }
        })
    }

    /// Fails if the transfer is over or cancelled.
    pub(crate) fn check(&self, state: &mut S) -> Result<(), TransferError> {
        match TransferEnd::now(state.over().as_ref(), &self.cancel) {
            Some(over) => Err(self.end(state, over)),
            None => Ok(()),
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.cancel.is_cancelled() || self.monitor.lock().over().is_some()
    }

    /// Ends the transfer with `error`, unless it has already ended; returns the error of the first end.
    pub(crate) fn fail(&self, state: &mut S, error: TransferError) -> TransferError {
        self.end(state, TransferEnd::failed(error))
    }

    /// Ends the transfer, unless it has already ended; returns the error of the first end.
    pub(crate) fn end(&self, state: &mut S, over: TransferEnd) -> TransferError {
        if state.over().is_none() {
            self.set_ended(state, over);
        }
        state.over().as_ref().map_or(TransferError::Ended, TransferEnd::error)
    }

    /// Ends the transfer, also if it has already ended.
    pub(crate) fn set_ended(&self, state: &mut S, over: TransferEnd) {
        *state.over() = Some(over);
        self.monitor.notify();
        state.wake_all();
    }
}

/// Fails the transfer if its thread panics: otherwise waiting threads would never be woken.
pub(crate) struct FailOnPanic<'a, S: SharedState>(pub(crate) &'a Endpoint<S>);

impl<S: SharedState> Drop for FailOnPanic<'_, S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(&mut self.0.monitor.lock(), TransferError::Panicked);
        }
    }
}
