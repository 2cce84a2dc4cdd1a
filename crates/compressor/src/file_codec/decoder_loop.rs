//! The decoding loop of all members.

use super::progress::{Progress, State};
use crate::error::CodecError;

/// A decoder that works part by part.
pub(super) trait DecoderLoop {
    /// Moves waiting plain bytes to the front of `out`. Returns their number.
    fn give(&mut self, out: &mut [u8]) -> usize;

    /// Reason why no step is possible although there is space: the decoder needs more memory than
    /// `granted`, or the member has ended, after which `input` must be empty.
    fn pause(&self, input: &[u8], granted: u64) -> Result<Option<State>, CodecError>;

    /// Decodes one part. Returns the bytes written to `out`; `None` while the part is incomplete.
    fn step(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<Option<usize>, CodecError>;

    /// Decodes parts until the input is used up, `out` is full, or a pause is needed.
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
