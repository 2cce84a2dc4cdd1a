//! Position of a clone's data in its donor's binary log, as InnoDB keeps it.

use std::os::unix::fs::FileExt as _;

use xb_pages::is_intact_page;
use xb_reader::{IfMissing, TargetDir};

use crate::error::Error;
use crate::layout::Layout;
use crate::stored::CloneInfo;

/// The page of the system tablespace with the state of transactions, and its type.
const PAGE: u64 = 5;
const TYPE: [u8; 2] = 7_u16.to_be_bytes();
/// Offsets in a page of its number, type and tablespace; where its content begins.
const NUMBER_AT: usize = 4;
const TYPE_AT: usize = 24;
const SPACE_AT: usize = 34;
const CONTENT: usize = 38;
/// Bytes from the note to the end of the page, without those before the content.
const FROM_END: usize = 1000;
/// The number with which the note begins; behind it are the offset (u64) and the name, which ends with NUL.
const MAGIC: [u8; 4] = 0x340f_5e08_u32.to_be_bytes();
const NAME: usize = 12;
/// Longest name, in bytes.
const MAX_NAME: usize = 512;

/// Name of the binary log and offset in it, in bytes, at which the transactions of the data end; `None` if the donor
/// wrote none when it was cloned: what its files state then is of an earlier time. It is that of all of the data only
/// after a server has recovered the files in `target`, and has stopped cleanly.
///
/// # Errors
/// [`Error::Damaged`] if the page is not intact, or the note cannot be read; [`Error::Target`].
pub fn binlog_position(
    target: &TargetDir,
    info: &CloneInfo,
) -> Result<Option<(String, u64)>, Error> {
    if !info.has_binlog {
        return Ok(None);
    }
    let layout = Layout::new(info)?;
    let Some((name, _)) = layout.system().next() else {
        return Err(Error::Damaged("there is no system tablespace".to_owned()));
    };
    let mut page = vec![0; usize::try_from(layout.page_size).unwrap_or(0)];
    let failed =
        |why: &dyn std::fmt::Display| Error::Damaged(format!("page {PAGE} of {name}: {why}"));
    let file = target.open_in_place(name, IfMissing::Fail)?;
    file.read_exact_at(&mut page, PAGE * u64::from(layout.page_size))
        .map_err(|error| failed(&error))?;
    note_in(&page).map_err(|why| failed(&why))
}

/// The note in a page.
fn note_in(page: &[u8]) -> Result<Option<(String, u64)>, &'static str> {
    let has = |at: usize, bytes: &[u8]| page.get(at..).is_some_and(|rest| rest.starts_with(bytes));
    let is_it = has(NUMBER_AT, &[0, 0, 0, 5]) && has(TYPE_AT, &TYPE) && has(SPACE_AT, &[0; 4]);
    if !is_it || !is_intact_page(page) {
        return Err("it is not intact");
    }
    let at = (page.len() + CONTENT).saturating_sub(FROM_END);
    let note = page.get(at..).and_then(|rest| rest.strip_prefix(&MAGIC[..]));
    let Some(note) = note else { return Ok(None) };
    // After transactions without a binary log, the name is empty.
    if note.get(NAME - MAGIC.len()) == Some(&0) {
        return Ok(None);
    }
    let offset = note.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    let name = note.get(NAME - MAGIC.len()..).and_then(|rest| {
        let name = rest.get(..MAX_NAME)?.split(|byte| *byte == 0).next()?;
        let is_plain =
            !name.is_empty() && name.len() < MAX_NAME && name.iter().all(u8::is_ascii_graphic);
        // With or without its folder.
        let name = std::str::from_utf8(name).ok().filter(|_| is_plain)?;
        name.rsplit('/').next().filter(|name| !name.is_empty())
    });
    match offset.zip(name) {
        Some((offset, name)) => Ok(Some((name.to_owned(), offset))),
        None => Err("the position in the binary log cannot be read"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A page whose checksum is the constant of servers that compute none.
    fn page(len: usize, note: &[u8]) -> Vec<u8> {
        let mut page = vec![0; len];
        page[7] = 5;
        page[23] = 9;
        page[25] = 7;
        let at = len - 962;
        page[at..at + note.len()].copy_from_slice(note);
        for at in [0, len - 8] {
            page[at..at + 4].copy_from_slice(&[0xde, 0xad, 0xbe, 0xef]);
        }
        page[len - 1] = 9;
        page
    }

    #[test]
    fn the_note_is_found_in_every_page_size() {
        for len in [4096, 8192, 16384, 32768, 65536] {
            for name in [&b"b.000003\0rest"[..], b"./b.000003\0", b"/log/b.000003\0"] {
                let note = [&MAGIC[..], &[0, 0, 0, 1, 0, 0, 0, 2], name].concat();
                let at = Ok(Some(("b.000003".to_owned(), (1 << 32) + 2)));
                assert_eq!(note_in(&page(len, &note)), at, "{len}");
            }
            assert_eq!(note_in(&page(len, b"")), Ok(None));
            let unnamed = [&MAGIC[..], &[0; 8], b"\0"].concat();
            assert_eq!(note_in(&page(len, &unnamed)), Ok(None));
        }
    }

    #[test]
    fn a_page_that_is_not_intact_says_nothing() {
        let note = [&MAGIC[..], &[0; 8], b"b.000003\0"].concat();
        for at in [0, 7, 25, 37] {
            let mut bad = page(16384, &note);
            bad[at] ^= 1;
            assert!(note_in(&bad).is_err(), "{at}");
        }
        assert!(note_in(&[0; 16384]).is_err() && note_in(&[]).is_err());
        for name in [&b"a b\0"[..], b"a/\0", b"\xff\0", &[b'a'; 600]] {
            let note = [&MAGIC[..], &[0; 8], name].concat();
            assert!(note_in(&page(16384, &note)).is_err(), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..700), len in 0..2000_usize) {
            let _ = note_in(&page(4096, &bytes));
            let _ = note_in(&bytes[..len.min(bytes.len())]);
        }
    }
}
