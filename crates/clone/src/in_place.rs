//! Whether the encryption of a tablespace is changed while a clone is taken.
//!
//! Only tablespaces that many tables share are encrypted and decrypted in place. The server keeps behind the key, in the
//! first page, which of the two it does, and up to which page it is. It logs that number as it goes on, and at the end. A clone with
//! such a record in its redo log is as a crash in the middle of the change, from which MySQL does not always recover: it may
//! write pages that it cannot read.

use xb_mysql::clone::{Block, CloneFile, Stage};
use xb_pages::FirstPage;

use crate::heads::REDO_HEAD;
use crate::layout::SHARED;
use crate::shared_keys::{BLOCK, RECORDS};

/// Offsets from the key in a first page: what is being done, and the number of the page up to which it is.
const WORK: usize = 123;
const PROGRESS: usize = 124;
/// What is being done: the pages are encrypted, or decrypted.
const ENCRYPTS: u8 = 1;
const DECRYPTS: u8 = 2;
/// Kinds of a record that writes four bytes: one of several records of a change, and the only one.
const FOUR_BYTES: [u8; 2] = [0x04, 0x84];
/// Bytes of the longest record up to its value: kind, tablespace, page, offset.
const LONGEST: usize = 1 + 5 + 1 + 2;

/// Looks for such changes in what a donor sends.
#[derive(Debug, Default)]
pub(crate) struct InPlace {
    /// Known when the redo log begins.
    spaces: Vec<Space>,
    /// The last records that came, as far as one that is looked for can begin in them.
    records: Vec<u8>,
    /// Whether the records cannot be read.
    is_hidden: bool,
}

/// A tablespace that many tables share.
#[derive(Debug)]
struct Space {
    index: u32,
    /// Its number and that of its first page, as records have them, and the offset of the progress.
    place: Vec<u8>,
}

impl InPlace {
    /// Takes a file before the redo log begins, or one that changed since.
    pub(crate) fn add_file(&mut self, file: &CloneFile) {
        let Some(number) = file.space.filter(|_| file.space_flags & SHARED != 0) else { return };
        let Some(first) = FirstPage::of_flags(file.space_flags) else { return };
        let Ok(offset) = u16::try_from(first.key_offset().saturating_add(PROGRESS)) else { return };
        if self.spaces.iter().all(|space| space.index != file.index) {
            let place = [&*compressed(number), &[0], &offset.to_be_bytes()].concat();
            self.spaces.push(Space { index: file.index, place });
        }
    }

    /// Takes the next block, and whether it has a key. Returns the file whose encryption is changed.
    pub(crate) fn add<'a>(
        &mut self,
        block: &Block<'_>,
        files: &'a [CloneFile],
        has_key: bool,
    ) -> Option<&'a CloneFile> {
        let index = match block.stage {
            Stage::Redo => {
                self.is_hidden |= has_key;
                self.add_redo(block.offset, block.bytes)?
            }
            _ => block.file,
        };
        let file = files.get(usize::try_from(index).ok()?)?;
        (block.stage == Stage::Redo || is_under_way(file, block)).then_some(file)
    }

    /// Takes bytes of the redo log. Returns the index of a file whose encryption is changed.
    fn add_redo(&mut self, offset: u64, bytes: &[u8]) -> Option<u32> {
        if self.spaces.is_empty() {
            return None;
        }
        let head = REDO_HEAD.saturating_sub(usize::try_from(offset).unwrap_or(usize::MAX));
        for block in bytes.get(head..).unwrap_or_default().chunks(BLOCK) {
            let records = block.get(RECORDS.start..RECORDS.end.min(block.len()));
            self.records.extend_from_slice(records.unwrap_or_default());
        }
        let found = self.find();
        let done = self.records.len().saturating_sub(LONGEST - 1);
        self.records.drain(..done);
        found
    }

    /// Whether the redo log has a key, so that its records may be encrypted.
    pub(crate) fn is_hidden(&self) -> bool {
        self.is_hidden
    }

    fn find(&self) -> Option<u32> {
        // Most records are of other pages than the first one of a tablespace.
        let ends = self.records.windows(3).enumerate().filter(|(_, end)| end.first() == Some(&0));
        let mut found = ends.filter_map(|(at, _)| {
            let upto = self.records.get(..at + 3)?;
            let is_of = |space: &&Space| {
                let before = upto.strip_suffix(space.place.as_slice());
                before.and_then(<[u8]>::last).is_some_and(|kind| FOUR_BYTES.contains(kind))
            };
            self.spaces.iter().find(is_of).map(|space| space.index)
        });
        found.next()
    }
}

/// Returns whether a block is the first page of a tablespace whose encryption is being changed.
fn is_under_way(file: &CloneFile, block: &Block<'_>) -> bool {
    if block.offset != 0 || file.space_flags & SHARED == 0 {
        return false;
    }
    let page = usize::try_from(file.page_size).ok().and_then(|len| block.bytes.get(..len));
    let first = page.and_then(FirstPage::of);
    let work = first.and_then(|first| page?.get(first.key_offset().checked_add(WORK)?).copied());
    matches!(work, Some(ENCRYPTS | DECRYPTS))
}

/// A number as records have it: the shorter, the smaller it is, or the nearer to the greatest one.
fn compressed(number: u32) -> Vec<u8> {
    let [a, b, c, d] = number.to_be_bytes();
    match number {
        0..0x80 => vec![d],
        0x80..0x4000 => vec![c | 0x80, d],
        0x4000..0x20_0000 => vec![b | 0xc0, c, d],
        0x20_0000..0x1000_0000 => vec![a | 0xe0, b, c, d],
        0x1000_0000..0xff00_0000 => vec![0xf0, a, b, c, d],
        0xff00_0000..0xfffe_0000 => vec![0xfe, b, c, d],
        0xfffe_0000..0xffff_fc00 => vec![0xfc | (b & 1), c, d],
        0xffff_fc00.. => vec![0xf8 | (c & 3), d],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_of_a_shared_tablespace_is_found_wherever_it_is_in_the_redo_log() {
        // Of MySQL 9.7, with pages of 16 KiB.
        let record = [0x84, 0x02, 0x00, 0x29, 0x12, 0x05];
        let len = 3 * BLOCK;
        for at in 0..2 * RECORDS.len() {
            let new = || InPlace {
                spaces: vec![Space { index: 7, place: vec![0x02, 0x00, 0x29, 0x12] }],
                ..InPlace::default()
            };
            let (mut log, mut bytes) = (new(), vec![0; len]);
            for (n, byte) in record.iter().enumerate() {
                let (block, within) = ((at + n) / RECORDS.len(), (at + n) % RECORDS.len());
                bytes[block * BLOCK + RECORDS.start + within] = *byte;
            }
            // As the donor sends it: in pieces, of which the first one has the head.
            assert_eq!(log.add_redo(0, &vec![0x84; REDO_HEAD]), None);
            let (first, rest) = bytes.split_at(BLOCK);
            let found = log.add_redo(REDO_HEAD as u64, first);
            let found = found.or_else(|| log.add_redo((REDO_HEAD + BLOCK) as u64, rest));
            assert_eq!(found, Some(7), "{at}");
            // Another tablespace, page, offset or kind of record.
            for (n, other) in [(0, 0x02), (1, 0x03), (2, 0x01), (4, 0x13)] {
                let place =
                    (at + n) / RECORDS.len() * BLOCK + RECORDS.start + (at + n) % RECORDS.len();
                let mut bytes = bytes.clone();
                bytes[place] = other;
                assert_eq!(new().add_redo(REDO_HEAD as u64, &bytes), None, "{at} {n}");
            }
        }
    }

    #[test]
    fn numbers_are_as_records_have_them() {
        for (number, bytes) in [
            (0, &[0_u8][..]),
            (0x7f, &[0x7f]),
            (0x80, &[0x80, 0x80]),
            (0x3fff, &[0xbf, 0xff]),
            (0x4000, &[0xc0, 0x40, 0]),
            (0x20_0000, &[0xe0, 0x20, 0, 0]),
            (0x1000_0000, &[0xf0, 0x10, 0, 0, 0]),
            (0xffff_fffe, &[0xfb, 0xfe]),
        ] {
            assert_eq!(compressed(number), bytes, "{number:#x}");
        }
    }
}
