//! Decompresses statements and rows of MariaDB, in pieces of any size.

use flate2::{Decompress, FlushDecompress, Status};

/// Limit on the length of what is compressed: an event of a server is no longer.
const MAX: u64 = 1 << 30;
/// Bytes that are decompressed at once.
const PIECE: usize = 16 << 10;
/// One byte, whose low three bits are the size of a length that follows it, then zlib. The other bits say that it is zlib.
/// ("Compressed events", documentation of MariaDB Server)
const ZLIB: u8 = 0x80;
const SIZE: u8 = 7;

/// A reader of a compressed part of an event. No more is decompressed than the part states.
#[derive(Debug, Default)]
pub(crate) struct Inflate {
    head: Vec<u8>,
    stream: Option<(Decompress, u64)>,
    is_whole: bool,
}

impl Inflate {
    /// Takes the next bytes, and passes on what they hold. `None` if they are malformed.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut found: impl FnMut(&[u8])) -> Option<()> {
        while self.stream.is_none() {
            let (byte, rest) = bytes.split_first()?;
            self.head.push(*byte);
            bytes = rest;
            let (first, length) = self.head.split_first()?;
            let size = usize::from(first & SIZE);
            if first & !SIZE != ZLIB || !(1..=4).contains(&size) {
                return None;
            }
            if length.len() == size {
                let length = length.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
                if length > MAX {
                    return None;
                }
                self.stream = Some((Decompress::new(true), length));
            }
            if bytes.is_empty() {
                return Some(());
            }
        }
        let (zlib, length) = self.stream.as_mut()?;
        let mut piece = vec![0; PIECE];
        loop {
            if self.is_whole {
                // Nothing follows.
                return bytes.is_empty().then_some(());
            }
            let (read, written) = (zlib.total_in(), zlib.total_out());
            let status = zlib.decompress(bytes, &mut piece, FlushDecompress::None).ok()?;
            let taken = usize::try_from(zlib.total_in() - read).ok()?;
            let plain = usize::try_from(zlib.total_out() - written).ok()?;
            if zlib.total_out() > *length {
                return None;
            }
            found(piece.get(..plain)?);
            bytes = bytes.get(taken..)?;
            if status == Status::StreamEnd {
                if zlib.total_out() != *length {
                    return None;
                }
                self.is_whole = true;
            } else if taken == 0 && plain == 0 || bytes.is_empty() && plain < PIECE {
                return bytes.is_empty().then_some(());
            }
        }
    }

    /// Returns whether all has arrived.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn compressed(stated: u32, plain: &[u8]) -> Vec<u8> {
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        zlib.write_all(plain).unwrap();
        [&[0x84][..], &stated.to_be_bytes(), &zlib.finish().unwrap()].concat()
    }

    fn inflated(bytes: &[u8], piece: usize) -> Option<Vec<u8>> {
        let (mut inflate, mut found) = (Inflate::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            inflate.push(piece, |plain| found.extend_from_slice(plain))?;
        }
        inflate.is_whole().then_some(found)
    }

    #[test]
    fn it_holds_what_it_states_and_no_more() {
        let plain = vec![7; 100_000];
        for piece in [1, 2, 3, 1000, usize::MAX] {
            assert_eq!(inflated(&compressed(100_000, &plain), piece).as_ref(), Some(&plain));
            for stated in [99_999, 100_001, 1, u32::MAX] {
                assert_eq!(inflated(&compressed(stated, &plain), piece), None, "{stated}");
            }
            let more = [&compressed(100_000, &plain)[..], &[0]].concat();
            assert_eq!(inflated(&more, piece), None);
            assert_eq!(inflated(&compressed(100_000, &plain)[..40], piece), None);
        }
        for bad in [&[][..], &[0x80], &[0x85, 0, 0, 0, 0, 1], &[0x91, 1, 0x78], &[1, 1]] {
            assert_eq!(inflated(bad, 1), None, "{bad:?}");
        }
    }
}
