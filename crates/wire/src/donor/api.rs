//! Implementation of the calls of [`Outgoing`](super::Outgoing) on the shared state.

use std::time::Instant;

use bytes::Bytes;

use super::state::{Shared, State};
use crate::counters::add_time;
use crate::error::TransferError;
use crate::event::Event;
use crate::protocol::message::{StopCode, StopMessage};
use crate::transfer_end::TransferEnd;

impl Shared {
    /// Wakes every waiting thread, so that it checks for cancellation.
    pub(super) fn wake_all(&self) {
        let state = self.monitor.lock();
        self.monitor.notify();
        state.workers.iter().for_each(|worker| worker.wake.wake());
    }
}

impl State {
    /// Wakes up to `blocks` idle connections, so that they look for work.
    pub(super) fn wake_idle(&mut self, blocks: usize) {
        for worker in self.workers.iter_mut().filter(|worker| worker.idle).take(blocks) {
            worker.idle = false;
            worker.wake.wake();
        }
    }

    pub(super) fn all_idle(&self) -> bool {
        self.up > 0 && self.workers.iter().all(|worker| worker.idle || !worker.live)
    }
}

/// The calls of [`Outgoing`].
impl Shared {
    pub(super) fn check(&self, state: &mut State) -> Result<(), TransferError> {
        match TransferEnd::now(state.over.as_ref(), &self.cancel) {
            Some(over) => Err(self.end(state, over)),
            None => Ok(()),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.cancel.is_cancelled() || self.monitor.lock().over.is_some()
    }

    /// Ends the transfer with `error`, unless it has already failed; returns the first cause.
    pub(super) fn fail(&self, state: &mut State, error: TransferError) -> TransferError {
        self.end(state, TransferEnd::failed(error))
    }

    /// Ends the transfer, unless it has already ended; returns the error of the first end.
    pub(super) fn end(&self, state: &mut State, over: TransferEnd) -> TransferError {
        if state.over.is_none() {
            state.over = Some(over);
            self.monitor.notify();
            state.workers.iter().for_each(|worker| worker.wake.wake());
        }
        state.over.as_ref().map_or(TransferError::Ended, TransferEnd::error)
    }

    /// Reports a failure to the observer, once, and without the lock: the observer may call back.
    pub(super) fn tell_failure(&self) {
        let mut state = self.monitor.lock();
        let Some(TransferEnd::Failed { error, .. }) = &state.over else { return };
        let why = error.to_string();
        let told = std::mem::replace(&mut state.failure_told, true);
        drop(state);
        if !told {
            self.observer.tell(&Event::Failed { why });
        }
    }

    pub(super) fn abort(&self, reason: &str) {
        let stop = StopMessage { code: StopCode::Aborted, reason: reason.to_owned() };
        let mut state = self.monitor.lock();
        if state.over.is_none() {
            self.end(&mut state, TransferEnd::cancelled(stop));
        }
    }

    pub(super) fn push(&self, payload: Vec<Bytes>) -> Result<(), TransferError> {
        let len: usize = payload.iter().map(Bytes::len).sum();
        // A block is at most 1 MiB.
        let wire_len = u32::try_from(len).unwrap_or(u32::MAX);
        let mut state = self.monitor.lock();
        let mut since = None;
        loop {
            self.check(&mut state)?;
            if state.ledger.has_room(len) {
                break;
            }
            since.get_or_insert_with(Instant::now);
            state = self.monitor.wait(state, None);
        }
        if let Some(since) = since {
            add_time(&self.counters.network, since.elapsed());
        }
        if let Some(since) = state.no_work.take() {
            add_time(&self.counters.source, since.elapsed());
        }
        state.ledger.push(payload, wire_len);
        state.wake_idle(1);
        Ok(())
    }

    pub(super) fn finish(&self) -> Result<(), TransferError> {
        let since = Instant::now();
        let mut state = self.monitor.lock();
        state.end = Some(state.ledger.totals());
        state.no_work = None;
        state.wake_idle(usize::MAX);
        loop {
            if matches!(state.over, Some(TransferEnd::Done)) {
                add_time(&self.counters.network, since.elapsed());
                return Ok(());
            }
            self.check(&mut state)?;
            state = self.monitor.wait(state, None);
        }
    }
}
