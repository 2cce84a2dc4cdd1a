//! Implementation of the calls of [`Outgoing`](super::Outgoing) on the shared state.

use std::time::Instant;

use bytes::Bytes;

use super::state::{Shared, State};
use crate::error::TransferError;
use crate::event::Event;
use crate::protocol::message::{StopCode, StopMessage};
use crate::transfer_end::TransferEnd;

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

impl Shared {
    /// Reports a failure to the observer, once, and without the lock: the observer may call back.
    pub(super) fn report_failure(&self) {
        let mut state = self.monitor.lock();
        let Some(TransferEnd::Failed { error, .. }) = &state.over else { return };
        let why = error.to_string();
        let told = std::mem::replace(&mut state.failure_reported, true);
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
            self.counters.update(|now| now.waited_for_network += since.elapsed());
        }
        if let Some(since) = state.no_work.take() {
            self.counters.update(|now| now.waited_for_source += since.elapsed());
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
                self.counters.update(|now| now.waited_for_network += since.elapsed());
                return Ok(());
            }
            self.check(&mut state)?;
            state = self.monitor.wait(state, None);
        }
    }
}
