//! The end of a transfer, the same for both sides.

use xb_process::CancelToken;

use crate::error::TransferError;
use crate::protocol::message::{StopCode, StopMessage};

/// End of a transfer.
#[derive(Debug, Clone)]
pub(crate) enum TransferEnd {
    /// The joiner has confirmed it.
    Done,
    /// It failed; `tell` is what the peer is sent.
    Failed { error: TransferError, tell: Option<StopMessage> },
}

impl TransferEnd {
    /// A failure that is reported to the peer, unless it caused the failure itself.
    pub(crate) fn failed(error: TransferError) -> Self {
        let code = match &error {
            TransferError::Refused { .. } | TransferError::Aborted { .. } => None,
            TransferError::Protocol { .. } => Some(StopCode::Protocol),
            _ => Some(StopCode::Aborted),
        };
        let reason = error.to_string();
        Self::Failed { error, tell: code.map(|code| StopMessage { code, reason }) }
    }

    /// The end by a cancellation, which sends `stop` to the peer.
    pub(crate) fn cancelled(stop: StopMessage) -> Self {
        Self::Failed { error: TransferError::Cancelled, tell: Some(stop) }
    }

    /// Returns how the transfer ends now: as `over` has it, or because it is cancelled.
    pub(crate) fn now(over: Option<&Self>, cancel: &CancelToken<String>) -> Option<Self> {
        let aborted = |reason| StopMessage { code: StopCode::Aborted, reason };
        let cancelled = || cancel.reason().map(|reason| Self::cancelled(aborted(reason)));
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
