//! What one call of an encoder or decoder has done.

/// What one call has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Progress {
    /// Bytes at the front of `out` that are now filled.
    pub written: usize,
    /// Why the call has come back.
    pub state: State,
}

/// Why a call has come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// All input is taken, and all that follows from it has been given out.
    NeedsInput,
    /// `out` is full; there may be more to come without further input.
    OutputFull,
    /// The member has ended, and any more input is an error. Only formats with an end mark, which
    /// is qpress, come to this state; the others may always continue with another frame.
    Finished,
    /// To continue, the decoder must hold so many bytes of memory altogether: call
    /// [`MemberDecoder::grant`](super::MemberDecoder::grant) first. Only decoders made by [`MemberDecoder::metered`](super::MemberDecoder::metered) ask.
    NeedsMemory(u64),
}
