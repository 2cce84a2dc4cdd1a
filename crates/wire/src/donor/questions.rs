//! Questions to the joiner's layer above, beside the stream.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::state::Shared;
use crate::error::TransferError;
use crate::limits::{MAX_QUESTION, bounded};

/// What [`Questions::await_reply`] has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyWait {
    /// The reply to the oldest question.
    Reply(Vec<u8>),
    /// A [`QuestionsWaker`] has been used since the last time.
    Woken,
    /// There is no question, or the joiner has done nothing for too long.
    Nothing,
}

/// Ends a wait for a reply, because the one who waits has something else to do. It keeps no transfer alive.
#[derive(Debug, Clone)]
pub struct QuestionsWaker(Weak<Shared>);

impl QuestionsWaker {
    /// Ends the wait; or the next one, if there is none at this moment.
    pub fn wake(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.monitor.lock().is_woken = true;
            shared.monitor.notify();
        }
    }
}

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

    /// Returns what ends a wait for a reply.
    pub fn waker(&self) -> QuestionsWaker {
        QuestionsWaker(Arc::downgrade(&self.shared))
    }

    /// Waits for the reply to the oldest question, or to be woken; [`ReplyWait::Nothing`] if there is no question, or if the
    /// joiner has neither replied nor acknowledged nor read anything for so long, although there was a connection. Questions
    /// are no sign of progress.
    ///
    /// # Errors
    /// The first cause, if the transfer has failed.
    pub fn await_reply(&self, limit: Duration) -> Result<ReplyWait, TransferError> {
        let limit = bounded(limit);
        let mut since = Instant::now();
        let mut state = self.shared.monitor.lock();
        loop {
            self.shared.check(&mut state)?;
            if let Some(reply) = state.questions.take() {
                return Ok(ReplyWait::Reply(reply));
            }
            if std::mem::take(&mut state.is_woken) {
                return Ok(ReplyWait::Woken);
            }
            // A lost connection has limits of its own.
            since = if state.up == 0 { Instant::now() } else { since.max(state.joiner_worked) };
            let left = limit.saturating_sub(since.elapsed());
            if !state.questions.is_waiting() || left.is_zero() {
                return Ok(ReplyWait::Nothing);
            }
            state = self.shared.monitor.wait(state, Some(left));
        }
    }

    /// Bytes of the stream that the joiner has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.shared.counters.snapshot().acknowledged
    }
}
