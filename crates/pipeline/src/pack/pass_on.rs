//! A source that waits for what becomes of its bytes.

use std::io;

/// The error of a source that returns no more bytes before those that it has returned have left: everything up to them is
/// passed on, through all stages, and then the source is read again. Only for a stream without a seal, whose segments
/// have one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the source waits until its bytes have been passed on")]
pub struct PassOn;

impl PassOn {
    /// Returns whether `error` is this one.
    #[must_use]
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

impl From<PassOn> for io::Error {
    fn from(pass_on: PassOn) -> Self {
        Self::other(pass_on)
    }
}
