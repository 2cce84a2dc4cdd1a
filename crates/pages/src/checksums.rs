//! The checksum algorithms. Each covers part of a page; ranges beyond its end count as empty.

use std::ops::Range;

use crc_fast::{CrcAlgorithm, checksum};
use simd_adler32::Adler32;

/// CRC-32C.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let [a, b, c, d, ..] = checksum(CrcAlgorithm::Crc32Iscsi, bytes).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// CRC-32C of each range of a page, combined by exclusive or.
pub(crate) fn crc32c_of(page: &[u8], ranges: &[Range<usize>]) -> u32 {
    ranges.iter().fold(0, |sum, range| sum ^ crc32c(page.get(range.clone()).unwrap_or_default()))
}

/// Adler-32 over consecutive ranges of a page, starting from 0 instead of 1 as in RFC 1950.
pub(crate) fn adler_of(page: &[u8], ranges: &[Range<usize>]) -> u32 {
    let mut sum = Adler32::from_checksum(0);
    ranges.iter().for_each(|range| sum.write(page.get(range.clone()).unwrap_or_default()));
    sum.finish()
}

/// InnoDB's checksum before CRC-32C: each byte is folded into 32 bits with two constants.
pub(crate) fn fold(bytes: &[u8]) -> u32 {
    const MASK: u32 = 1_463_735_687;
    const MASK_2: u32 = 1_653_893_711;
    bytes.iter().fold(0_u32, |sum, &byte| {
        let byte = u32::from(byte);
        (((sum ^ byte ^ MASK_2) << 8).wrapping_add(sum) ^ MASK).wrapping_add(byte)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_books() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let whole = std::slice::from_ref(&(0..9));
        assert_eq!(crc32c_of(b"123456789", whole), 0xe306_9283);
        // RFC 1950's value for "Wikipedia" is 0x11e60398; starting from 0 subtracts 1, and 1 per
        // byte.
        assert_eq!(adler_of(b"Wikipedia", whole), 0x11e6_0398 - 1 - (9 << 16));
        assert_eq!(fold(b""), 0);
    }
}
