//! The end of a transfer, the same for both sides.

use crate::cancel::Cancel;
use crate::error::TransferError;
use crate::protocol::message::{Stop, StopCode};

/// How a transfer ended.
#[derive(Debug, Clone)]
pub(crate) enum Over {
    /// The joiner has confirmed it.
    Done,
    /// It failed; `tell` is what the peer is sent.
    Failed { error: TransferError, tell: Option<Stop> },
}

impl Over {
    /// A failure that the peer is told of, unless it caused the failure itself.
    pub(crate) fn failed(error: TransferError) -> Self {
        let code = match &error {
            TransferError::Refused { .. } | TransferError::Aborted { .. } => None,
            TransferError::Protocol { .. } => Some(StopCode::Protocol),
            _ => Some(StopCode::Aborted),
        };
        let reason = error.to_string();
        Self::Failed { error, tell: code.map(|code| Stop { code, reason }) }
    }

    /// The end by a cancellation, which sends `stop` to the peer.
    pub(crate) fn cancelled(stop: Stop) -> Self {
        Self::Failed { error: TransferError::Cancelled, tell: Some(stop) }
    }

    /// Returns how the transfer ends now: as `over` has it, or because it is cancelled.
    pub(crate) fn now(over: Option<&Self>, cancel: &Cancel) -> Option<Self> {
        let cancelled = || cancel.is_cancelled().then(|| Self::cancelled(cancel.last_words()));
        over.cloned().or_else(cancelled)
    }

    /// Returns the error of every later call.
    pub(crate) fn error(&self) -> TransferError {
        match self {
            Self::Done => TransferError::Ended,
            Self::Failed { error, .. } => error.clone(),
        }
    }
}
