//! Checks the content of a redo log as mariadb-backup 10.8 and later writes it.
//!
//! The log is a sequence of mini-transactions: records, a byte that is 0 or 1, and the CRC-32C of the records. A record
//! begins with its kind; the low four bits are the number of bytes that follow, unless they are zero: then a
//! number of one to five bytes is next, which is 15 less than what follows the kind. (Observed on MariaDB 10.11 and 11.8.)

use crc_fast::{CrcAlgorithm, Digest};

use crate::redo::{REDO_HEAD, RedoHeader, RedoStart};

/// Largest first byte behind the records of a mini-transaction.
const END: u8 = 1;
/// Added to a length that has a number of its own.
const SHORT: u64 = 15;

/// The content of a redo log while its bytes arrive.
#[derive(Debug, Clone)]
pub struct RedoRecords {
    /// Bytes that are older than the checkpoint.
    before: u64,
    /// Log position of the next byte.
    at: u64,
    /// Log position at which the current mini-transaction begins.
    intact: u64,
    next: Next,
    /// Of the records of the current mini-transaction.
    sum: Digest,
    is_damaged: bool,
}

#[derive(Debug, Clone, Copy)]
enum Next {
    Kind,
    /// The number behind the kind, of which `have` bytes are known.
    Length {
        bytes: [u8; 5],
        have: usize,
    },
    /// So many more bytes of the record.
    Content(u64),
    /// The checksum, of which `have` bytes are known.
    Sum {
        bytes: [u8; 4],
        have: usize,
    },
}

impl RedoRecords {
    /// Begins behind the head of a log, of [`REDO_HEAD`] bytes. `None` if the log is not one that mariadb-backup
    /// wrote, of another format, or encrypted.
    #[must_use]
    pub fn of_head(head: &[u8]) -> Option<Self> {
        let head = head.get(..REDO_HEAD)?;
        let at = RedoHeader::of_head(head).filter(|header| !header.is_encrypted)?.copied_from()?;
        let before = RedoStart::of_head(head)?.checkpoint.checked_sub(at)?;
        let sum = Digest::new(CrcAlgorithm::Crc32Iscsi);
        Some(Self { before, at, intact: at, next: Next::Kind, sum, is_damaged: false })
    }

    /// Log position up to which the mini-transactions are intact.
    #[must_use]
    pub const fn intact(&self) -> u64 {
        self.intact
    }

    /// Takes the next bytes of the log, in pieces of any size.
    pub fn feed(&mut self, bytes: &[u8]) {
        let skip = usize::try_from(self.before).unwrap_or(usize::MAX).min(bytes.len());
        self.before -= skip as u64;
        self.at = self.at.saturating_add(skip as u64);
        if skip > 0 {
            self.intact = self.at;
        }
        let mut rest = bytes.get(skip..).unwrap_or_default();
        while !rest.is_empty() && !self.is_damaged {
            rest = self.step(rest);
        }
    }

    /// Takes the next zeros of the log.
    pub fn feed_zeros(&mut self, mut len: u64) {
        const ZEROS: [u8; 4096] = [0; 4096];
        let skip = self.before.min(len);
        (self.before, len) = (self.before - skip, len - skip);
        self.at = self.at.saturating_add(skip);
        if skip > 0 {
            self.intact = self.at;
        }
        // No mini-transaction consists of zeros, so this ends with the current record.
        while len > 0 && !self.is_damaged {
            let now = len.min(ZEROS.len() as u64);
            self.feed(ZEROS.get(..usize::try_from(now).unwrap_or_default()).unwrap_or_default());
            len -= now;
        }
    }

    /// Takes the beginning of some bytes, at least one, and returns the others.
    fn step<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let Some((&first, rest)) = bytes.split_first() else { return bytes };
        match self.next {
            Next::Kind if first <= END => {
                // Without any record, the checksum of a run of zeros would match.
                self.is_damaged = self.at == self.intact;
                self.next = Next::Sum { bytes: [0; 4], have: 0 };
            }
            Next::Kind => {
                self.sum.update(&[first]);
                self.next = match first & 15 {
                    0 => Next::Length { bytes: [0; 5], have: 0 },
                    len => Next::Content(len.into()),
                };
            }
            Next::Length { mut bytes, have } => {
                self.sum.update(&[first]);
                if let Some(byte) = bytes.get_mut(have) {
                    *byte = first;
                }
                let have = have + 1;
                self.next = match number(bytes, have) {
                    // At least ten, because the number has at most five bytes.
                    Some(number) => Next::Content(number + SHORT - have as u64),
                    None => Next::Length { bytes, have },
                };
            }
            Next::Content(len) => {
                let now = usize::try_from(len).unwrap_or(usize::MAX).min(bytes.len());
                let (content, rest) = bytes.split_at(now);
                self.sum.update(content);
                self.at = self.at.saturating_add(now as u64);
                let left = len - now as u64;
                self.next = if left == 0 { Next::Kind } else { Next::Content(left) };
                return rest;
            }
            Next::Sum { mut bytes, have } => {
                if let Some(byte) = bytes.get_mut(have) {
                    *byte = first;
                }
                self.next = Next::Sum { bytes, have: have + 1 };
                if have + 1 == bytes.len() {
                    self.is_damaged = self.sum.finalize_reset() != u32::from_be_bytes(bytes).into();
                    self.next = Next::Kind;
                    if !self.is_damaged {
                        self.intact = self.at.saturating_add(1);
                    }
                }
            }
        }
        self.at = self.at.saturating_add(1);
        rest
    }
}

/// The number that begins with these bytes, if `have` of them are enough.
fn number(bytes: [u8; 5], have: usize) -> Option<u64> {
    let [first, ..] = bytes;
    // The ones in front of the first byte say how many bytes follow; numbers of more bytes begin where those of fewer end.
    let (len, mask, least) = match first {
        0..0x80 => (1, 0x7f, 0),
        0x80..0xc0 => (2, 0x3f, 0x80),
        0xc0..0xe0 => (3, 0x1f, 0x4080),
        0xe0..0xf0 => (4, 0x0f, 0x20_4080),
        _ => (5, 0, 0x1020_4080),
    };
    let rest = bytes.get(1..len).filter(|_| have >= len)?;
    let first = u64::from(first & mask);
    Some(rest.iter().fold(first, |number, byte| number << 8 | u64::from(*byte)) + least)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::checksums::crc32c;

    const CREATED: u64 = 1000;

    /// The head of a log that was copied from [`CREATED`] on.
    fn head(format: u32, checkpoint: u64) -> Vec<u8> {
        let mut head = vec![0; REDO_HEAD];
        head[..4].copy_from_slice(&format.to_be_bytes());
        head[8..16].copy_from_slice(&CREATED.to_be_bytes());
        head[16..31].copy_from_slice(b"Backup 10.11.19");
        head[4096..4104].copy_from_slice(&checkpoint.to_be_bytes());
        for (from, end) in [(0, 508), (4096, 4096 + 60)] {
            let sum = crc32c(&head[from..end]);
            head[end..end + 4].copy_from_slice(&sum.to_be_bytes());
        }
        head
    }

    fn record(len: u32) -> Vec<u8> {
        // Bytes after the kind, including the number with the length.
        let less = len.saturating_sub(15);
        let [.., short] = len.to_be_bytes();
        let mut record = vec![if len < 16 { 0x30 | short } else { 0x30 }];
        match less {
            0 => (),
            1..0x80 => record.extend_from_slice(&less.to_be_bytes()[3..]),
            0x80..0x4080 => record.extend_from_slice(&(0x8000 + less - 0x80).to_be_bytes()[2..]),
            _ => record.extend_from_slice(&(0xc0_0000 + less - 0x4080).to_be_bytes()[1..]),
        }
        record.resize(1 + len as usize, 7);
        record
    }

    fn log(transactions: &[Vec<u32>]) -> Vec<u8> {
        let mut log = Vec::new();
        for lens in transactions {
            let records: Vec<u8> = lens.iter().flat_map(|len| record(*len)).collect();
            log.extend_from_slice(&records);
            log.push(1);
            log.extend_from_slice(&crc32c(&records).to_be_bytes());
        }
        log
    }

    fn intact(log: &[u8]) -> u64 {
        let mut records = RedoRecords::of_head(&head(0x5068_7973, CREATED)).unwrap();
        records.feed(log);
        records.intact() - CREATED
    }

    fn transactions() -> impl Strategy<Value = Vec<Vec<u32>>> {
        let len = prop_oneof![4 => 1..20_u32, 2 => 20..400_u32, 1 => 16_000..17_000_u32];
        let some = prop::collection::vec(len, 1..5);
        prop::collection::vec(some, 1..8)
    }

    proptest! {
        #[test]
        fn any_changed_bit_ends_what_is_intact(
            transactions in transactions(),
            at in any::<prop::sample::Index>(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 3),
        ) {
            let mut log = log(&transactions);
            prop_assert_eq!(intact(&log), log.len() as u64);
            let mut records = RedoRecords::of_head(&head(0x5068_7973, CREATED)).unwrap();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(log.len())).collect();
            cuts.sort_unstable();
            let mut from = 0;
            for cut in cuts.into_iter().chain([log.len()]) {
                records.feed(&log[from..cut]);
                from = cut;
            }
            prop_assert_eq!(records.intact() - CREATED, log.len() as u64, "in pieces");
            let at = at.index(log.len());
            log[at] ^= 4;
            prop_assert!(intact(&log) <= at as u64);
        }
    }

    #[test]
    fn zeros_are_no_mini_transaction() {
        let mut whole = log(&[vec![3, 20]]);
        let len = whole.len() as u64;
        whole.extend_from_slice(&[0; 40]);
        assert_eq!(intact(&whole), len);
        let mut records = RedoRecords::of_head(&head(0x5068_7973, CREATED)).unwrap();
        records.feed(&whole[..10]);
        records.feed_zeros(u64::MAX);
        assert_eq!(records.intact(), CREATED);
    }

    #[test]
    fn it_begins_at_the_checkpoint_of_a_log_that_can_be_read() {
        let log = log(&[vec![9]]);
        let mut records = RedoRecords::of_head(&head(0x5068_7973, CREATED + 30)).unwrap();
        records.feed(&[9; 10]);
        records.feed_zeros(15);
        records.feed(&[&[9; 5], &log[..]].concat());
        assert_eq!(records.intact(), CREATED + 30 + log.len() as u64);
        for (format, checkpoint) in
            [(0xf09f_979d, CREATED), (0xd068_7973, CREATED), (0x5068_7973, CREATED - 1)]
        {
            assert!(RedoRecords::of_head(&head(format, checkpoint)).is_none());
        }
    }
}
