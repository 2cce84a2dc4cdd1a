//! The fields of a clone's messages: little-endian in the messages, big-endian in InnoDB's descriptors.

use super::error::{CloneError, broken};

/// Reads the fields of one message. Every length is checked against what is left.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    /// Name of the message, for errors.
    what: &'static str,
}

impl<'a> Fields<'a> {
    pub(super) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, what }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], CloneError> {
        let Some((bytes, rest)) = self.rest.split_at_checked(count) else { return self.short() };
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(super) fn u8(&mut self) -> Result<u8, CloneError> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u32_le(&mut self) -> Result<u32, CloneError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u16_be(&mut self) -> Result<u16, CloneError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32_be(&mut self) -> Result<u32, CloneError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64_be(&mut self) -> Result<u64, CloneError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Bytes after their length, of four bytes.
    pub(super) fn counted(&mut self) -> Result<&'a [u8], CloneError> {
        match usize::try_from(self.u32_le()?) {
            Ok(length) => self.bytes(length),
            Err(_) => self.short(),
        }
    }

    /// Text after its length.
    pub(super) fn text(&mut self) -> Result<String, CloneError> {
        match std::str::from_utf8(self.counted()?) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => broken(format!("the {} has a text that is not UTF-8", self.what)),
        }
    }

    /// Checks that every byte was read.
    pub(super) fn end(&self) -> Result<(), CloneError> {
        match self.rest.len() {
            0 => Ok(()),
            more => broken(format!("the {} is {more} bytes too long", self.what)),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CloneError> {
        let Some((bytes, rest)) = self.rest.split_first_chunk() else { return self.short() };
        self.rest = rest;
        Ok(*bytes)
    }

    fn short<T>(&self) -> Result<T, CloneError> {
        broken(format!("the {} is too short", self.what))
    }
}
