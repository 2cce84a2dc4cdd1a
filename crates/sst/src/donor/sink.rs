//! The sink of the donor's stream: the connections to the joiner.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xb_pipeline::{Closed, Observer, Part};
use xb_wire::{Counters, Outgoing, TransferError};

use crate::cancel::{CancelReason, CancelToken};
use crate::context::Context;
use crate::error::SstError;
use crate::run::ChildError;

/// Size of the blocks that are sent, in bytes.
pub(super) const BLOCK: u64 = 1 << 20;

/// Passes blocks to the connection. Clones share the same connection.
#[derive(Debug, Clone)]
pub(super) struct Sink {
    pub(super) counters: Arc<Counters>,
    outgoing: Arc<Mutex<Option<Outgoing>>>,
    observer: Observer,
    cancel: CancelToken,
}

impl Sink {
    pub(super) fn new(outgoing: Outgoing, observer: &Observer, context: &Context) -> Self {
        let (counters, cancel) = (outgoing.counters(), context.cancel.clone());
        let outgoing = Arc::new(Mutex::new(Some(outgoing)));
        Self { counters, outgoing, observer: observer.clone(), cancel }
    }

    fn outgoing(&self) -> MutexGuard<'_, Option<Outgoing>> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a part of the stream.
    pub(super) fn take(&self, part: Part) -> Result<(), Closed> {
        let len: usize = part.payload.iter().map(bytes::Bytes::len).sum();
        let sent = self.outgoing().as_mut().map(|outgoing| {
            if len as u64 == BLOCK {
                return outgoing.send_all(part.payload);
            }
            // The source waits for the reply. A copy does not keep the buffers, which are far larger.
            outgoing.send(part.payload.concat().into())?;
            outgoing.pass_on()
        });
        if !matches!(sent, Some(Ok(()))) {
            // Cancel, because the backup may be waiting for something else at this moment.
            self.cancel.cancel(CancelReason::Elsewhere);
            return Err(Closed);
        }
        self.observer.add_stored(len as u64);
        Ok(())
    }

    /// Returns the error of the connection if it has failed; it returns the same error every time.
    pub(super) fn check(&self) -> Result<(), TransferError> {
        self.outgoing().as_ref().map_or(Ok(()), Outgoing::check)
    }

    /// Returns whether the joiner can discard what it has received, and take another stream.
    pub(super) fn can_begin_again(&self) -> bool {
        self.outgoing().as_ref().is_some_and(Outgoing::can_begin_again)
    }

    /// Tells the joiner to discard what it has received: another stream follows.
    pub(super) fn begin_again(&self) {
        if let Some(outgoing) = self.outgoing().as_mut() {
            outgoing.begin_again();
        }
    }

    /// Ends the stream, and waits until the joiner confirms that everything is stored.
    pub(super) fn finish(&self) -> Result<(), TransferError> {
        let outgoing = self.outgoing().take();
        outgoing.map_or(Ok(()), Outgoing::finish)
    }

    /// Returns the first cause of an error that may only report the failure of another part.
    pub(super) fn cause(&self, error: SstError) -> SstError {
        match (&error, self.check()) {
            (
                SstError::Stopped(CancelReason::Elsewhere)
                | SstError::Child(ChildError::Stopped(CancelReason::Elsewhere)),
                Err(cause),
            ) => cause.into(),
            _ => error,
        }
    }

    /// Tells the joiner why the transfer ends.
    pub(super) fn abort(&self, error: &SstError) {
        if let Some(outgoing) = self.outgoing().take() {
            outgoing.abort(&error.to_string());
        }
    }
}
