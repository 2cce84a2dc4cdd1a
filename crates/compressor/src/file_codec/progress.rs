//! The result of one call of an encoder or decoder.

/// The result of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Progress {
    /// Number of bytes written to the front of `out`.
    pub written: usize,
    /// Reason why the call returned.
    pub state: State,
}

/// Reason why a call returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// All input is taken, and all output that follows from it was written.
    NeedsInput,
    /// `out` is full; there may be more output without further input.
    OutputFull,
    /// The member has ended, and any more input is an error. Only qpress, which has an end mark,
    /// reaches this state; the other formats can always continue with another frame.
    Finished,
    /// The decoder needs this many bytes of memory in total to continue: call
    /// [`FileDecoder::grant`](super::FileDecoder::grant) first. Only decoders made by
    /// [`FileDecoder::metered`](super::FileDecoder::metered) return this.
    NeedsMemory(u64),
}
