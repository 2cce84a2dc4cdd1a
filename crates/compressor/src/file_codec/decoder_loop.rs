//! The loop that all decoders of members share.

use super::progress::{Progress, State};
use crate::error::CodecError;

/// A decoder that goes part by part.
pub(super) trait DecoderLoop {
    /// Moves plain bytes that wait for room to the front of `out`; says how many.
    fn give(&mut self, out: &mut [u8]) -> usize;

    /// Why there can be no next step although there is room: more memory is wanted than `granted`, or
    /// the member has ended, behind which `input` must be empty.
    fn pause(&self, input: &[u8], granted: u64) -> Result<Option<State>, CodecError>;

    /// One part, and how much it has written to `out`; `None` when it is not yet whole.
    fn step(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<Option<usize>, CodecError>;

    /// Takes parts until the input is used up, `out` is full, or it has to pause.
    fn decode(
        &mut self,
        input: &mut &[u8],
        out: &mut [u8],
        granted: u64,
    ) -> Result<Progress, CodecError> {
        let mut written = 0;
        loop {
            written += self.give(out.get_mut(written..).unwrap_or_default());
            if written == out.len() {
                return Ok(Progress { written, state: State::OutputFull });
            }
            if let Some(state) = self.pause(input, granted)? {
                return Ok(Progress { written, state });
            }
            match self.step(input, out.get_mut(written..).unwrap_or_default())? {
                Some(more) => written += more,
                None => return Ok(Progress { written, state: State::NeedsInput }),
            }
        }
    }
}
