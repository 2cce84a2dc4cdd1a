//! Decoding of numbers and arrays from a message body.

use super::error::ProtocolError;

/// Reader of a body's fields, front to back.
pub(super) struct Fields<'a> {
    pub(super) kind: u8,
    pub(super) rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtocolError> {
        let (field, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(ProtocolError::Field { kind: self.kind, what: "it ends inside a field" })?;
        self.rest = rest;
        Ok(*field)
    }

    pub(super) fn u16(&mut self) -> Result<u16, ProtocolError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, ProtocolError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }
}
