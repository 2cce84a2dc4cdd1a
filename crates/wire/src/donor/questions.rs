//! Questions to the joiner's layer above, beside the stream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::state::Shared;
use crate::error::TransferError;
use crate::limits::{MAX_QUESTION, bounded};

/// Asks the joiner's layer above. Questions and replies are in order, and neither waits for the stream.
#[derive(Debug)]
pub struct Questions {
    shared: Arc<Shared>,
}

impl Questions {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Asks, without waiting. Returns false, and does not ask, while too many questions are open.
    ///
    /// # Errors
    /// The first cause, if the transfer has failed; or if the question is empty or has more than [`MAX_QUESTION`] bytes.
    pub fn ask(&self, question: &[u8]) -> Result<bool, TransferError> {
        if question.is_empty() || question.len() > MAX_QUESTION {
            let len = question.len();
            return Err(TransferError::TooLong { what: "question", len, max: MAX_QUESTION });
        }
        let mut state = self.shared.monitor.lock();
        self.shared.check(&mut state)?;
        if !state.questions.has_room() {
            return Ok(false);
        }
        state.questions.ask(question.to_vec());
        state.wake_idle(1);
        Ok(true)
    }

    /// Takes the reply to the oldest question, if it has arrived.
    ///
    /// # Errors
    /// The first cause, if the transfer has failed.
    pub fn reply(&self) -> Result<Option<Vec<u8>>, TransferError> {
        let mut state = self.shared.monitor.lock();
        self.shared.check(&mut state)?;
        Ok(state.questions.take())
    }

    /// Waits for the reply to the oldest question; `None` if there is no question, or if the joiner has neither replied nor
    /// acknowledged nor read anything for so long, although there was a connection. Questions are no sign of progress.
    ///
    /// # Errors
    /// The first cause, if the transfer has failed.
    pub fn await_reply(&self, limit: Duration) -> Result<Option<Vec<u8>>, TransferError> {
        let limit = bounded(limit);
        let mut since = Instant::now();
        let mut state = self.shared.monitor.lock();
        loop {
            self.shared.check(&mut state)?;
            if let Some(reply) = state.questions.take() {
                return Ok(Some(reply));
            }
            // A lost connection has limits of its own.
            since = if state.up == 0 { Instant::now() } else { since.max(state.joiner_worked) };
            let left = limit.saturating_sub(since.elapsed());
            if !state.questions.is_waiting() || left.is_zero() {
                return Ok(None);
            }
            state = self.shared.monitor.wait(state, Some(left));
        }
    }

    /// Bytes of the stream that the joiner has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.shared.counters.snapshot().acknowledged
    }
}
