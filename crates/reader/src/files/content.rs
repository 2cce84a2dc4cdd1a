//! The checksum of a file's content, computed while the file grows.

use crate::chunk::checksum::{PieceCheck, crc32, low};
use crate::chunk::combine::CrcCombiner;

/// Zeros are checksummed in blocks of this length; longer ranges by repeated doubling.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The CRC-32 of a file from its first byte on, as the file reads back: holes are zeros.
///
/// ```
/// use xb_reader::{ContentSum, crc32};
///
/// let mut sum = ContentSum::default();
/// sum.append(2, crc32(b"ab"));
/// sum.zeros_up_to(4);
/// sum.append(1, crc32(b"c"));
/// assert_eq!((sum.len(), sum.crc32()), (5, crc32(b"ab\0\0c")));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContentSum {
    len: u64,
    crc: u32,
}

impl ContentSum {
    /// A checksum of `len` bytes that was computed before.
    #[must_use]
    pub fn new(len: u64, crc: u32) -> Self {
        Self { len, crc }
    }

    /// Number of bytes covered so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether no bytes are covered yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The CRC-32 of the bytes covered so far.
    #[must_use]
    pub fn crc32(&self) -> u32 {
        self.crc
    }

    /// Appends `len` bytes whose own CRC-32 is `crc`.
    pub fn append(&mut self, len: u64, crc: u32) {
        self.crc = match (self.len, len) {
            (_, 0) => return,
            (0, _) => crc,
            (_, len) => combine(self.crc, crc, len),
        };
        self.len = self.len.saturating_add(len);
    }

    /// Appends zeros up to the offset `end`.
    pub fn zeros_up_to(&mut self, end: u64) {
        let missing = end.saturating_sub(self.len);
        self.append(missing, crc_of_zeros(missing));
    }
}

fn combine(first: u32, second: u32, second_len: u64) -> u32 {
    low(CrcCombiner::CRC32.combine(first.into(), second.into(), second_len))
}

fn crc_of_zeros(len: u64) -> u32 {
    if let Some(zeros) = usize::try_from(len).ok().and_then(|len| ZEROS.get(..len)) {
        return crc32(zeros);
    }
    let half = crc_of_zeros(len / 2);
    let whole = combine(half, half, len / 2);
    if len.is_multiple_of(2) { whole } else { combine(whole, crc32(&[0]), 1) }
}

/// Computes the checksum of up to `len` bytes of a reader. If the reader ends earlier, the missing
/// bytes count as zeros, like a hole at the end of a file.
///
/// # Errors
/// Any error of the reader, or of `go_on`, which is called at intervals.
pub fn sum_of(
    mut input: impl std::io::Read,
    len: u64,
    mut go_on: impl FnMut() -> std::io::Result<()>,
) -> std::io::Result<ContentSum> {
    let mut buffer = vec![0; 1 << 20];
    let mut check = PieceCheck::of(&[]);
    let mut at = 0;
    while at < len {
        go_on()?;
        let room = usize::try_from(len - at).unwrap_or(buffer.len()).min(buffer.len());
        match input.read(&mut buffer[..room]) {
            Ok(0) => break,
            Ok(read) => {
                check.update(&buffer[..read]);
                at += read as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let mut sum = ContentSum::new(at, check.crc32());
    sum.zeros_up_to(len);
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_and_holes_give_the_sum_of_the_whole() {
        for hole in [0, 1, 4096, (64 << 10) + 1, 300_001] {
            let mut whole = b"front".to_vec();
            whole.resize(5 + hole, 0);
            whole.extend_from_slice(b"behind");
            let mut sum = ContentSum::default();
            sum.append(0, 7);
            sum.append(5, crc32(b"front"));
            sum.zeros_up_to(5 + hole as u64);
            sum.append(6, crc32(b"behind"));
            assert_eq!(sum, ContentSum::new(whole.len() as u64, crc32(&whole)), "{hole}");
            // The content begins and ends with a hole.
            let mut sum = ContentSum::default();
            sum.zeros_up_to(hole as u64);
            assert_eq!(sum.crc32(), crc32(&vec![0; hole]));
            let whole_len = whole.len() as u64;
            let read = sum_of(&whole[..], whole_len, || Ok(())).unwrap();
            assert_eq!(read, ContentSum::new(whole_len, crc32(&whole)));
            assert_eq!(sum_of(&whole[..5], 5 + hole as u64, || Ok(())).unwrap(), {
                ContentSum::new(5 + hole as u64, crc32(&whole[..5 + hole]))
            });
        }
        let stopped = sum_of(&[0_u8; 9][..], 9, || Err(std::io::ErrorKind::Other.into()));
        assert!(stopped.is_err());
    }
}
