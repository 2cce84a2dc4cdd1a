//! Implementation of the calls of [`Listener`](super::Listener), [`Offered`](super::Offered) and
//! [`Incoming`](super::Incoming) on the shared state.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;

use super::state::{Shared, State};
use crate::error::TransferError;
use crate::protocol::error::ProtocolError;
use crate::protocol::message::{StopCode, StopMessage};
use crate::transfer_end::TransferEnd;

/// Whether the donor has received the confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Receipt {
    /// The donor has acknowledged the confirmation.
    Acknowledged,
    /// The connection was lost while the confirmation was sent, and was not restored. The donor may
    /// have received it.
    Unknown,
}

/// The calls of [`Listener`], [`Offered`] and [`Incoming`].
impl Shared {
    pub(super) fn refuse(&self, reason: &str) {
        let stop = StopMessage { code: StopCode::Refused, reason: reason.to_owned() };
        self.end(&mut self.monitor.lock(), TransferEnd::cancelled(stop));
    }

    /// The next block, and whether the stream begins again with it.
    pub(super) fn next_block(&self) -> Result<Option<(Bytes, bool)>, TransferError> {
        let mut state = self.monitor.lock();
        let mut since: Option<Instant> = None;
        loop {
            self.check(&mut state)?;
            let next = state.ledger.deliver();
            let next = match next {
                Ok(None) => state.ledger.is_whole().map(|whole| (None, whole)),
                Ok(Some(block)) => Ok((Some(block), true)),
                Err(error) => Err(error),
            };
            let (block, there) = match next {
                Ok(next) => next,
                Err(error) => return Err(self.violation(&mut state, &error)),
            };
            if there {
                if let Some(since) = since {
                    self.counters.update(|now| now.waited_for_network += since.elapsed());
                }
                if let Some((block, _)) = &block {
                    self.counters.update(|now| now.delivered += block.len() as u64);
                    self.give_credit(&mut state);
                }
                return Ok(block);
            }
            since.get_or_insert_with(Instant::now);
            state = self.monitor.wait(state, None);
        }
    }

    pub(super) fn violation(&self, state: &mut State, error: &ProtocolError) -> TransferError {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        let peer = state.transfer.as_ref().map_or(unknown, |current| current.peer);
        self.fail(state, TransferError::Protocol { peer, what: error.to_string() })
    }

    /// Reports new credit to the donor once it is large enough for a message. It is reported on
    /// every connection, since one of them may be dead without having been noticed yet.
    fn give_credit(&self, state: &mut State) {
        if self.credit_is_due(state, state.woken_at.0, state.woken_at.1) {
            state.woken_at = state.ledger.credit();
            state.wake_links();
        }
    }

    /// Returns whether the credit has grown enough to be reported, since it was `bytes` and `blocks`.
    pub(super) fn credit_is_due(&self, state: &State, bytes: u64, blocks: u64) -> bool {
        let (now_bytes, now_blocks) = state.ledger.credit();
        now_bytes.saturating_sub(bytes) >= self.limits.window_size() as u64 / 8
            || now_blocks.saturating_sub(blocks) >= self.limits.window_blocks() / 8
    }

    pub(super) fn confirm(&self) -> Result<Receipt, TransferError> {
        let mut state = self.monitor.lock();
        self.check(&mut state)?;
        match state.ledger.is_whole() {
            Ok(true) => {}
            _ => {
                let what = ProtocolError::Unexpected { what: "confirmation before the end" };
                return Err(self.violation(&mut state, &what));
            }
        }
        state.confirm = true;
        state.alone_since = state.alone_since.max(Instant::now());
        state.wake_links();
        loop {
            if matches!(state.over, Some(TransferEnd::Done)) {
                return Ok(Receipt::Acknowledged);
            }
            self.check(&mut state)?;
            let mut left = None;
            if state.links.is_empty() {
                let limit = state.alone_since + self.limits.receipt;
                let time = limit.saturating_duration_since(Instant::now());
                if time.is_zero() {
                    self.set_ended(&mut state, TransferEnd::Done);
                    return Ok(Receipt::Unknown);
                }
                left = Some(time);
            }
            state = self.monitor.wait(state, left);
        }
    }
}
