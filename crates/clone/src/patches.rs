//! The changed pages and the redo log of a clone, as one file of records.

use std::io::{self, Read};

use crate::error::Error;

pub(crate) const MAGIC: &[u8; 8] = b"XBCLPT01";
const PAGE: u8 = 1;
const REDO: u8 = 2;
const END: u8 = 3;
const REMOVED: u8 = 4;
const HEAD: usize = 17;
/// Longest record, in bytes: longer than a block of any donor.
const MAX: u32 = 16 << 20;

/// File to which a record belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchTarget {
    /// The file with this index.
    File(u32),
    /// The file of the redo log with this index.
    Redo(u32),
}

/// A record: bytes that replace those at an offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// Their offset.
    pub to: PatchTarget,
    /// Offset in that file, in bytes.
    pub offset: u64,
    /// The bytes; at least one.
    pub bytes: Vec<u8>,
}

/// The head of a record.
pub(crate) fn head(to: PatchTarget, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let len = u32::try_from(len).ok().filter(|len| *len <= MAX);
    let len = len.ok_or_else(|| io::Error::other("a record of more than 16 MiB"))?;
    let (kind, file) = match to {
        PatchTarget::File(index) => (PAGE, index),
        PatchTarget::Redo(index) => (REDO, index),
    };
    Ok(fields(kind, file, offset, len))
}

/// The record behind the last one: it says how many there are.
pub(crate) fn end(records: u64) -> Vec<u8> {
    fields(END, 0, records, 0)
}

/// Says that a file was removed: nothing of it counts. Not counted as a record.
pub(crate) fn removed(file: u32) -> Vec<u8> {
    fields(REMOVED, file, 0, 0)
}

fn fields(kind: u8, file: u32, offset: u64, len: u32) -> Vec<u8> {
    let mut out = vec![kind];
    out.extend(file.to_le_bytes());
    out.extend(offset.to_le_bytes());
    out.extend(len.to_le_bytes());
    out
}

/// Reads the records of a file, and checks that it is whole.
#[derive(Debug)]
pub struct PatchReader<R> {
    input: R,
    records: u64,
    is_over: bool,
    /// Bytes of the file that were read.
    read: u64,
    /// Where the bytes of the last record begin in the file.
    last_at: u64,
}

impl<R: Read> PatchReader<R> {
    /// Begins a file.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is none.
    pub fn new(mut input: R) -> Result<Self, Error> {
        if take::<8>(&mut input)? != *MAGIC {
            return damaged("the file of patches begins otherwise");
        }
        Ok(Self { input, records: 0, is_over: false, read: MAGIC.len() as u64, last_at: 0 })
    }

    /// Offset in the file of the bytes of the record that was read last.
    pub(crate) fn last_at(&self) -> u64 {
        self.last_at
    }

    /// Reads the next record; `None` once at the end of a file that is whole.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn read(&mut self) -> Result<Option<Patch>, Error> {
        if self.is_over {
            return Ok(None);
        }
        let mut head = self.head()?;
        // This record is for readers of the stream alone.
        while head.first() == Some(&REMOVED) && head.get(5..) == Some(&[0; HEAD - 5][..]) {
            head = self.head()?;
        }
        let [kind, f0, f1, f2, f3, o0, o1, o2, o3, o4, o5, o6, o7, l0, l1, l2, l3] = head;
        let file = u32::from_le_bytes([f0, f1, f2, f3]);
        let offset = u64::from_le_bytes([o0, o1, o2, o3, o4, o5, o6, o7]);
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
        let to = match kind {
            PAGE => PatchTarget::File(file),
            REDO => PatchTarget::Redo(file),
            END if (file, offset, len) == (0, self.records, 0) => {
                let mut more = [0];
                if self.input.read(&mut more).map_err(unreadable)? != 0 {
                    return damaged("the file of patches has bytes after its end");
                }
                self.is_over = true;
                return Ok(None);
            }
            END => return damaged(&format!("{} of {offset} patches are there", self.records)),
            other => return damaged(&format!("a patch of the unknown kind {other}")),
        };
        if len == 0 || len > MAX || offset.checked_add(len.into()).is_none() {
            return damaged(&format!("a patch of {len} bytes at {offset}"));
        }
        let mut bytes = Vec::new();
        let read = self.input.by_ref().take(len.into()).read_to_end(&mut bytes);
        if u32::try_from(read.map_err(unreadable)?) != Ok(len) {
            return damaged("the file of patches ends within one");
        }
        self.records = self.records.saturating_add(1);
        self.last_at = self.read;
        self.read = self.read.saturating_add(len.into());
        Ok(Some(Patch { to, offset, bytes }))
    }
}

impl<R: Read> PatchReader<R> {
    fn head(&mut self) -> Result<[u8; HEAD], Error> {
        self.read = self.read.saturating_add(HEAD as u64);
        take(&mut self.input)
    }
}

fn take<const N: usize>(input: &mut impl Read) -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

fn unreadable(error: io::Error) -> Error {
    Error::Damaged(format!("the file of patches cannot be read: {error}"))
}

fn damaged<T>(what: &str) -> Result<T, Error> {
    Err(Error::Damaged(what.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write(patches: &[Patch]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        for patch in patches {
            out.extend(head(patch.to, patch.offset, patch.bytes.len()).unwrap());
            out.extend(&patch.bytes);
        }
        out.extend(end(patches.len() as u64));
        out
    }

    fn read_all(bytes: &[u8]) -> Result<Vec<Patch>, Error> {
        let (mut reader, mut all) = (PatchReader::new(bytes)?, Vec::new());
        while let Some(patch) = reader.read()? {
            all.push(patch);
        }
        Ok(all)
    }

    #[test]
    fn a_record_of_an_unknown_kind_or_length_is_refused() {
        let with = |head: Vec<u8>, records: u64| {
            let all = [&MAGIC[..], &head, &[1; 8], &end(records)].concat();
            read_all(&all).map(|patches| patches.len()).map_err(|error| error.to_string())
        };
        assert_eq!(with(fields(PAGE, 3, 0, 8), 1), Ok(1));
        for (head, records, words) in [
            (fields(0, 3, 0, 8), 1, "of the unknown kind 0"),
            (fields(5, 3, 0, 8), 1, "of the unknown kind 5"),
            (fields(255, 3, 0, 8), 1, "of the unknown kind 255"),
            // Only with nothing else in it, it says that a file was removed.
            (fields(REMOVED, 3, 1, 0), 0, "of the unknown kind 4"),
            (fields(REMOVED, 3, 0, 8), 0, "of the unknown kind 4"),
            (fields(PAGE, 3, 0, 0), 1, "a patch of 0 bytes"),
            (fields(REDO, 3, 0, MAX + 1), 1, "a patch of 16777217 bytes"),
            (fields(REDO, 3, u64::MAX - 7, 8), 1, "a patch of 8 bytes"),
        ] {
            let error = with(head, records).unwrap_err();
            assert!(error.contains(words), "{words}: {error}");
        }
    }

    fn patches() -> impl Strategy<Value = Vec<Patch>> {
        let patch =
            (any::<bool>(), any::<u32>(), any::<u32>(), prop::collection::vec(any::<u8>(), 1..50));
        let made = patch.prop_map(|(is_redo, file, offset, bytes)| {
            let to = if is_redo { PatchTarget::Redo(file) } else { PatchTarget::File(file) };
            Patch { to, offset: offset.into(), bytes }
        });
        prop::collection::vec(made, 0..10)
    }

    proptest! {
        #[test]
        fn patches_come_back(patches in patches()) {
            prop_assert_eq!(read_all(&write(&patches)).unwrap(), patches);
        }

        #[test]
        fn a_cut_or_longer_file_is_refused(patches in patches(), at: prop::sample::Index) {
            let bytes = write(&patches);
            prop_assert!(read_all(&bytes[..at.index(bytes.len())]).is_err());
            prop_assert!(read_all(&[&bytes[..], &[0]].concat()).is_err());
            let other = [&bytes[..bytes.len() - HEAD], &end(patches.len() as u64 + 1)].concat();
            prop_assert!(read_all(&other).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = read_all(&[&MAGIC[..], &bytes].concat());
        }
    }
}
