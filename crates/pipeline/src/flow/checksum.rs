//! Checksums, each named after its algorithm, and combinations of them.

use crc_fast::{CrcAlgorithm, Digest, checksum};
use xb_reader::CrcCombiner;

/// CRC-32 as in zlib, used by xbstream chunks.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    low(checksum(CrcAlgorithm::Crc32IsoHdlc, bytes))
}

/// Combines the CRC-32 of two pieces; the second is `len` bytes long.
#[must_use]
pub fn crc32_combine(first: u32, second: u32, len: u64) -> u32 {
    if len == 0 {
        return first;
    }
    low(CrcCombiner::CRC32.combine(first.into(), second.into(), len))
}

/// CRC-32C, used by frames.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    low(checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

/// CRC-32C of several pieces, one after the other.
#[must_use]
pub fn crc32c_of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut sum = Crc32c::default();
    pieces.into_iter().for_each(|piece| sum.update(piece));
    sum.finish()
}

/// CRC-32C of bytes that arrive one piece after the other.
#[derive(Debug)]
pub(crate) struct Crc32c(Digest);

impl Default for Crc32c {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Crc32c {
    pub(crate) fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    pub(crate) fn finish(&self) -> u32 {
        low(self.0.finalize())
    }
}

/// Combines the CRC-32C of two pieces; the second is `len` bytes long.
#[must_use]
pub(crate) fn crc32c_combine(first: u32, second: u32, len: u64) -> u32 {
    if len == 0 {
        return first;
    }
    low(CrcCombiner::CRC32C.combine(first.into(), second.into(), len))
}

/// CRC-64/NVME, used for objects; S3 can check it.
#[must_use]
pub fn crc64(bytes: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// CRC-64/NVME of bytes that arrive one piece after the other.
#[derive(Debug)]
pub struct Crc64(Digest);

impl Default for Crc64 {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc64Nvme))
    }
}

impl Crc64 {
    /// Adds the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The checksum of all pieces so far.
    #[must_use]
    pub fn finish(&self) -> u64 {
        self.0.finalize()
    }
}

/// Combines the CRC-64/NVME of two pieces; the second is `len` bytes long.
#[must_use]
pub fn crc64_combine(first: u64, second: u64, len: u64) -> u64 {
    if len == 0 {
        return first;
    }
    CrcCombiner::CRC64.combine(first, second, len)
}

/// The library returns 32-bit checksums in the low half of a u64.
#[allow(clippy::cast_possible_truncation)]
fn low(sum: u64) -> u32 {
    sum as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check values from the catalogue entries of the algorithms, for the digits 1 to 9.
    #[test]
    fn known_values() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc64(b"123456789"), 0xae8b_1486_0a79_9888);
        assert_eq!((crc32(b""), crc32c(b""), crc64(b"")), (0, 0, 0));
    }

    #[test]
    fn pieces_combine_to_the_whole() {
        let data: Vec<u8> = (0..9999_u32).map(|n| (n * 7 % 251) as u8).collect();
        for cut in [0, 1, 63, 64, 5000, 9998, 9999] {
            let (a, b) = data.split_at(cut);
            let len = b.len() as u64;
            assert_eq!(crc32_combine(crc32(a), crc32(b), len), crc32(&data));
            assert_eq!(crc32c_of([a, b]), crc32c(&data));
            assert_eq!(crc32c_combine(crc32c(a), crc32c(b), len), crc32c(&data));
            assert_eq!(crc64_combine(crc64(a), crc64(b), len), crc64(&data));
        }
    }
}
