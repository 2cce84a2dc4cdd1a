//! Whether the encryption of a tablespace may have been changed while a clone was taken.
//!
//! Only tablespaces that many tables share are encrypted and decrypted in place. To encrypt one begins with a record of the
//! redo log that has its new key, and as long as either lasts, its first page has a key. So none of this was under way at the
//! end of a clone without such a record and such a page.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Range;

use xb_reader::{IfMissing, TargetDir};

use crate::assemble::REDO;
use crate::error::Error;
use crate::heads::{REDO_HEAD, may_have_key};
use crate::keys;
use crate::layout::{Layout, SHARED};
use crate::moved::own;
use crate::stored::CloneInfo;

/// A key begins with one of these marks, the number of its master key, and the UUID of the server.
const MARKS: [&[u8]; 3] = [b"lCA", b"lCB", b"lCC"];
const UUID: Range<usize> = 7..43;
/// Bytes of a block of the redo log, and where its part of the records is.
pub(crate) const BLOCK: usize = 512;
pub(crate) const RECORDS: Range<usize> = 12..BLOCK - 4;

/// Whether a clone that was put together in `target` has a key in the first page of a tablespace that many tables share, or any
/// key among its redo log. One in an encrypted redo log cannot be seen, so that has one; nor can one in a redo log in place of
/// which a server that ran on it has begun another.
///
/// # Errors
/// [`Error::Damaged`], [`Error::Target`], [`Error::Output`].
pub fn has_shared_keys(target: &TargetDir, info: &CloneInfo) -> Result<bool, Error> {
    let layout = Layout::new(info)?;
    let shared = info.files.iter().zip(&layout.files).filter(|(stored, place)| {
        stored.space_flags & SHARED != 0 && place.page_size > 0 && !place.is_removed
    });
    for (_, place) in shared {
        if may_have_key(&target.open_in_place(&place.target, IfMissing::Fail)?, place)? {
            return Ok(true);
        }
    }
    // The records continue in the next file.
    let mut records = Records::default();
    for index in 0..layout.redo.len() {
        let name = own(&format!("{REDO}/#ib_redo{index}"))?;
        if !target.has(&name)? {
            return Ok(true);
        }
        if has_key(target.open_in_place(&name, IfMissing::Fail)?, &mut records)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether a file of the redo log has a key, in its head or among its records.
fn has_key(mut file: File, records: &mut Records) -> Result<bool, Error> {
    let mut head = Vec::new();
    (&mut file).take(REDO_HEAD as u64).read_to_end(&mut head)?;
    if keys::offset_in_redo(&head).is_some() {
        return Ok(true);
    }
    file.seek(SeekFrom::Start(REDO_HEAD as u64))?;
    let mut blocks = vec![0; 1 << 20];
    loop {
        let len = read_full(&mut file, &mut blocks)?;
        let read = blocks.get(..len).unwrap_or_default();
        if read.chunks(BLOCK).any(|block| records.add(block)) {
            return Ok(true);
        }
        if len < blocks.len() {
            return Ok(false);
        }
    }
}

/// Fills the buffer, or reads to the end of the file.
fn read_full(file: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut len = 0;
    while let Some(rest) = buffer.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match file.read(rest)? {
            0 => break,
            read => len += read,
        }
    }
    Ok(len)
}

/// The records of a redo log, as far as a key in the next block can begin in them.
#[derive(Debug, Default)]
struct Records(Vec<u8>);

impl Records {
    /// Takes the next block. Returns whether a key ends in it.
    fn add(&mut self, block: &[u8]) -> bool {
        let end = RECORDS.end.min(block.len());
        self.0.extend_from_slice(block.get(RECORDS.start..end).unwrap_or_default());
        let is_found = self.0.windows(UUID.end).any(|bytes| {
            let is_of_uuid = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
            MARKS.iter().any(|mark| bytes.starts_with(mark))
                && bytes.get(UUID).is_some_and(|uuid| uuid.iter().all(is_of_uuid))
        });
        let done = self.0.len().saturating_sub(UUID.end - 1);
        self.0.drain(..done);
        is_found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_wherever_it_begins_in_a_block() {
        let key =
            [&b"lCC\0\0\0\x01"[..], b"3f2e1a00-ea4f-11f1-9d5c-02fc00000001", &[9; 64]].concat();
        for at in 0..3 * RECORDS.len() - key.len() {
            let mut all = vec![7; 3 * RECORDS.len()];
            let with_key = |all: &mut Vec<u8>| all[at..at + key.len()].copy_from_slice(&key);
            let found = |all: &[u8]| {
                let mut records = Records::default();
                let block = |part: &[u8]| [&[1; 12][..], part, &[2; 4]].concat();
                all.chunks(RECORDS.len()).any(|part| records.add(&block(part)))
            };
            assert!(!found(&all));
            with_key(&mut all);
            assert!(found(&all), "{at}");
            // Three letters of a text.
            all[at + 20] = b' ';
            assert!(!found(&all), "{at}");
        }
    }
}
