//! Assembles short parts of a stream from pieces.

/// Buffer that assembles headers, the end record and the trailer.
#[derive(Debug, Default)]
pub(crate) struct Pieces(Vec<u8>);

impl Pieces {
    /// Takes from `input` until `N` bytes are buffered.
    pub(crate) fn array<const N: usize>(&mut self, input: &mut &[u8]) -> Option<[u8; N]> {
        if self.0.is_empty()
            && let Some((whole, rest)) = input.split_first_chunk::<N>()
        {
            *input = rest;
            return Some(*whole);
        }
        self.bytes(N, input)?.first_chunk().copied()
    }

    /// Takes from `input` until `want` bytes are buffered. The caller must have checked `want`.
    pub(crate) fn bytes(&mut self, want: usize, input: &mut &[u8]) -> Option<Vec<u8>> {
        let most = want.saturating_sub(self.0.len()).min(input.len());
        let (piece, rest) = input.split_at(most);
        self.0.extend_from_slice(piece);
        *input = rest;
        (self.0.len() >= want).then(|| std::mem::take(&mut self.0))
    }
}
