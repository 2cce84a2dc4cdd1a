//! Little-endian fields at fixed offsets, and the format's one checksum.

use crc_fast::CrcAlgorithm;

use crate::{ErrorLocation, FrameError};

/// CRC-32C (Castagnoli, as in RFC 3720): the checksum of headers and payloads.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    low_half(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

/// A CRC-32C computed piece by piece.
#[derive(Debug, Clone)]
pub(crate) struct Crc(crc_fast::Digest);

impl Crc {
    pub(crate) fn new() -> Self {
        Self(crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(&self) -> u32 {
        low_half(self.0.finalize())
    }
}

/// The crate returns 32-bit checksums in the low half of a u64.
#[allow(clippy::cast_possible_truncation, reason = "the upper half of a CRC-32 is zero")]
fn low_half(sum: u64) -> u32 {
    sum as u32
}

/// Reads consecutive fields from bytes whose length the caller has checked. Past the end it returns
/// zeros instead of panicking.
#[derive(Debug)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((field, rest)) => {
                self.0 = rest;
                *field
            }
            None => {
                debug_assert!(false, "fields past the end");
                self.0 = &[];
                [0; N]
            }
        }
    }

    pub(crate) fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.bytes())
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.bytes())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}

/// Writes consecutive fields into a buffer of a fixed length.
#[derive(Debug)]
pub(crate) struct Layout<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Layout<N> {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; N], at: 0 }
    }

    pub(crate) fn put(mut self, field: &[u8]) -> Self {
        let end = self.at + field.len();
        match self.bytes.get_mut(self.at..end) {
            Some(place) => place.copy_from_slice(field),
            None => debug_assert!(false, "fields past the end"),
        }
        self.at = end;
        self
    }

    /// Leaves `n` zero bytes.
    pub(crate) fn reserved(mut self, n: usize) -> Self {
        self.at += n;
        self
    }

    /// Appends the CRC-32C of `before` and all fields so far, and returns the buffer.
    pub(crate) fn crc(self, before: &[u8]) -> [u8; N] {
        let mut crc = Crc::new();
        crc.update(before);
        crc.update(self.bytes.get(..self.at).unwrap_or_default());
        let sum = crc.finish();
        let closed = self.put(&sum.to_le_bytes());
        debug_assert_eq!(closed.at, N);
        closed.bytes
    }
}

/// Compares the checksum in the last four bytes with the CRC-32C of `before` and all preceding
/// bytes.
pub(crate) fn check_closing_crc(
    bytes: &[u8],
    before: &[u8],
    place: ErrorLocation,
) -> Result<(), FrameError> {
    let (body, sum) = bytes.split_at(bytes.len().saturating_sub(4));
    let mut crc = Crc::new();
    crc.update(before);
    crc.update(body);
    let (expected, got) = (Fields::of(sum).u32(), crc.finish());
    if expected != got {
        return Err(FrameError::Checksum { place, expected, got });
    }
    Ok(())
}

/// Fails unless `got` equals `expected`.
pub(crate) fn same(
    place: ErrorLocation,
    field: &'static str,
    expected: u64,
    got: u64,
) -> Result<(), FrameError> {
    if expected != got {
        return Err(FrameError::Mismatch { place, field, expected, got });
    }
    Ok(())
}

/// Fails unless `got` is in `min..=max`.
pub(crate) fn within(
    place: ErrorLocation,
    field: &'static str,
    min: u64,
    max: u64,
    got: u64,
) -> Result<(), FrameError> {
    if !(min..=max).contains(&got) {
        return Err(FrameError::Range { place, field, min, max, got });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published check values: RFC 3720, appendix B.4, and the usual "123456789".
    #[test]
    fn crc32c_has_the_published_values() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b""), 0);
        let mut pieces = Crc::new();
        pieces.update(b"1234");
        pieces.update(b"56789");
        assert_eq!(pieces.finish(), 0xe306_9283);
    }
}
