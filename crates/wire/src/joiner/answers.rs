//! Answers to the questions of the donor's layer above, beside the stream.

use std::sync::Arc;

use super::state::Shared;
use crate::error::TransferError;
use crate::limits::MAX_REPLY;
use crate::transfer_end::TransferEnd;

/// Answers the questions of the donor's layer above, one after the other. Clones answer for the same transfer.
#[derive(Debug, Clone)]
pub struct Answers {
    shared: Arc<Shared>,
}

impl Answers {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Waits for the next question; `None` once [`Answers::close`] was called, or the transfer is complete.
    ///
    /// # Errors
    /// The first cause, if the transfer has failed.
    pub fn next_question(&self) -> Result<Option<Vec<u8>>, TransferError> {
        let mut state = self.shared.monitor.lock();
        loop {
            if state.questions.is_closed() || matches!(state.over, Some(TransferEnd::Done)) {
                return Ok(None);
            }
            self.shared.check(&mut state)?;
            if let Some(question) = state.questions.take() {
                return Ok(Some(question));
            }
            state = self.shared.monitor.wait(state, None);
        }
    }

    /// Answers the question that [`Answers::next_question`] has returned. The donor gets this reply however often
    /// connections break.
    ///
    /// # Errors
    /// If the reply has more than [`MAX_REPLY`] bytes.
    pub fn reply(&self, reply: &[u8]) -> Result<(), TransferError> {
        if reply.len() > MAX_REPLY {
            return Err(TransferError::TooLong { what: "reply", len: reply.len(), max: MAX_REPLY });
        }
        let mut state = self.shared.monitor.lock();
        state.questions.reply(reply.to_vec());
        state.wake_links();
        Ok(())
    }

    /// Ends the questions: later ones are ignored.
    pub fn close(&self) {
        self.shared.monitor.lock().questions.close();
        self.shared.monitor.notify();
    }
}
