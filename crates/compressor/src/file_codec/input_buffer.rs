//! Buffers for bytes that arrive in pieces.

/// Collects small fields of known length.
#[derive(Debug, Default)]
pub(super) struct InputBuffer {
    bytes: [u8; Self::MAX],
    len: usize,
}

impl InputBuffer {
    /// The longest field: a zstd frame header has 18 bytes.
    const MAX: usize = 32;

    /// Takes bytes until there are `want`, at most [`Self::MAX`], and returns them once complete.
    /// They stay until [`InputBuffer::clear`], so that a later call can ask for more.
    pub(super) fn fill(&mut self, input: &mut &[u8], want: usize) -> Option<&[u8]> {
        let taken = take(input, want.saturating_sub(self.len));
        if let Some(room) = self.bytes.get_mut(self.len..self.len + taken.len()) {
            room.copy_from_slice(taken);
            self.len += taken.len();
        }
        self.bytes.get(..want).filter(|_| self.len >= want)
    }

    /// Fills a field of fixed length: the bytes are returned once, and the next call begins a new
    /// field.
    pub(super) fn field<const N: usize>(&mut self, input: &mut &[u8]) -> Option<[u8; N]> {
        let field = self.fill(input, N)?.first_chunk().copied();
        self.clear();
        field
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Takes at most `limit` bytes from the front of the input.
pub(super) fn take<'a>(input: &mut &'a [u8], limit: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at_checked(limit).unwrap_or((*input, &[]));
    *input = rest;
    taken
}

/// A block of known length. It is used in place in the input if possible, and only copied when it
/// arrives in pieces.
#[derive(Debug, Default)]
pub(super) struct Block {
    bytes: Vec<u8>,
}

impl Block {
    /// Returns the whole block once it is complete. Call [`Block::clear`] before the next one.
    ///
    /// The buffer grows with the bytes that arrive, not with the length announced.
    pub(super) fn fill<'s, 'i: 's>(
        &'s mut self,
        input: &mut &'i [u8],
        want: usize,
    ) -> Option<&'s [u8]> {
        if self.bytes.is_empty() && input.len() >= want {
            return Some(take(input, want));
        }
        self.bytes.extend_from_slice(take(input, want.saturating_sub(self.bytes.len())));
        (self.bytes.len() >= want).then_some(&self.bytes)
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }
}

/// Plain bytes that wait for space in the caller's buffer.
#[derive(Debug, Default)]
pub(super) struct OutputWindow {
    bytes: Vec<u8>,
    given: usize,
    len: usize,
}

impl OutputWindow {
    /// Returns a slice of this length to decode into. It replaces the bytes held so far.
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        self.given = 0;
        self.len = 0;
        self.bytes.get_mut(..len).unwrap_or_default()
    }

    /// Marks the first `len` bytes of the slice as output.
    pub(super) fn hold(&mut self, len: usize) {
        self.len = len;
    }

    /// Moves as much as fits to the front of `out`.
    pub(super) fn give(&mut self, out: &mut [u8]) -> usize {
        let mut waiting = self.bytes.get(self.given..self.len).unwrap_or_default();
        let taken = take(&mut waiting, out.len());
        if let Some(room) = out.get_mut(..taken.len()) {
            room.copy_from_slice(taken);
        }
        self.given += taken.len();
        taken.len()
    }

    /// Takes all waiting bytes.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.truncate(self.len);
        bytes.drain(..self.given);
        *self = Self::default();
        bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.given >= self.len
    }
}
