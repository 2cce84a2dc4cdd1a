//! The first pages and the heads of the files of the redo log that have keys, with these wrapped.
//!
//! They are written to a file of their own before any other file is changed: a page of which only a part was
//! written, when a run was killed, is then written again, and not read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;

use xb_pages::FirstPage;
use xb_reader::{IfMissing, RelPath, TargetDir};

use crate::error::Error;
use crate::keys::{self, KeyContent};
use crate::layout::{FilePlace, Layout};
use crate::moved::own;
use crate::patches::{MAGIC, Patch, PatchReader, PatchTarget, end, head};

/// Bytes at the beginning of each file of the redo log, among which its key is.
pub(crate) const REDO_HEAD: usize = 2048;

/// Name of the file, and of the one that becomes it.
const HEADS: &str = "xb_clone.heads";
const NEW_HEADS: &str = "xb_clone.heads.new";

/// Beginnings of files, as far as the patches have them.
#[derive(Debug, Default)]
pub(crate) struct FileHeads {
    /// Where the last first page of a file is among the patches, by the index of the file; `None` if it has no key. The pages
    /// themselves would take gigabytes: there may be one for each of a million encrypted tables.
    pages: BTreeMap<u32, Option<u64>>,
    /// Heads of the files of the redo log, by their index, as far as they came: each of them has the key.
    redo: BTreeMap<u32, Vec<u8>>,
}

impl FileHeads {
    /// Takes the next patch, whose bytes are at `at` in the file of patches.
    pub(crate) fn add(&mut self, patch: &Patch, at: u64) {
        match patch.to {
            PatchTarget::File(index) if patch.offset == 0 => {
                let page = FirstPage::of(&patch.bytes);
                let has_key = page.is_some_and(|page| has_key(page, &patch.bytes));
                // Those without a key are replaced by nothing, too.
                self.pages.insert(index, has_key.then_some(at));
            }
            PatchTarget::Redo(index) => {
                let Some(begin) = usize::try_from(patch.offset).ok().filter(|at| *at < REDO_HEAD)
                else {
                    return;
                };
                let bytes = patch.bytes.get(..REDO_HEAD - begin).unwrap_or(&patch.bytes);
                let end = begin + bytes.len();
                let head = self.redo.entry(index).or_default();
                head.resize(head.len().max(end), 0);
                if let Some(there) = head.get_mut(begin..end) {
                    there.copy_from_slice(bytes);
                }
            }
            PatchTarget::File(_) => {}
        }
    }

    /// Writes the beginnings with wrapped keys, as patches, to the file of their own. It has its name only when it
    /// is whole.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a first page or a key that is damaged, or of an unknown form; [`Error::Target`],
    /// [`Error::Output`].
    pub(crate) fn write(
        self,
        layout: &Layout,
        target: &TargetDir,
        patches: &File,
    ) -> Result<(), Error> {
        let (new, name) = (own(NEW_HEADS)?, own(HEADS)?);
        if target.has(&new)? {
            target.remove(&new)?;
        }
        if let Err(error) = self.fill(&new, layout, target, patches) {
            // A refusal leaves the directory unchanged.
            let _ = target.remove(&new);
            return Err(error);
        }
        Ok(target.rename(&new, &name)?)
    }

    fn fill(
        self,
        new: &RelPath,
        layout: &Layout,
        target: &TargetDir,
        patches: &File,
    ) -> Result<(), Error> {
        let file = target.open_in_place(new, IfMissing::Create)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        out.write_all(MAGIC)?;
        let mut count = 0;
        let mut add = |to, bytes: Vec<u8>| -> Result<(), Error> {
            let patch = Patch { to, offset: 0, bytes };
            // Once other files are changed, it is too late to refuse it.
            layout.check(&patch)?;
            count += 1;
            out.write_all(&head(to, 0, patch.bytes.len())?)?;
            Ok(out.write_all(&patch.bytes)?)
        };
        for (file, index) in
            layout.files.iter().zip(0..).filter(|(file, _)| file.page_size > 0 && !file.is_removed)
        {
            let page = match self.pages.get(&index) {
                Some(None) => continue,
                // It was checked there, and is once more below.
                Some(Some(at)) => page_at(patches, *at, file)?,
                None => {
                    page_at(&target.open_in_place(file.now(target)?, IfMissing::Fail)?, 0, file)?
                }
            };
            if let Some(page) = wrap_page(file, page)? {
                add(PatchTarget::File(index), page)?;
            }
        }
        if self.redo.get(&0).is_none_or(|head| head.len() < REDO_HEAD) {
            return damaged("the head of the redo log is missing".to_owned());
        }
        for (index, mut head) in self.redo {
            let unknown = |()| unknown_key(&format_args!("the redo log {index}"));
            if keys::wrap_in_redo(&mut head).map_err(unknown)? {
                add(PatchTarget::Redo(index), head)?;
            }
        }
        out.write_all(&end(count))?;
        out.into_inner().map_err(|error| Error::Output(error.into_error()))?.sync_all()?;
        Ok(())
    }
}

/// Returns whether there is something where the key belongs, or must be.
fn has_key(first: FirstPage, page: &[u8]) -> bool {
    let key = page.get(first.key_offset()..).unwrap_or_default();
    first.is_encrypted() || keys::find(key) != KeyContent::Nothing
}

/// The first page of a file, which is at `at` in `handle`.
fn page_at(handle: &File, at: u64, file: &FilePlace) -> Result<Vec<u8>, Error> {
    let mut page = vec![0; usize::try_from(file.page_size).unwrap_or(0)];
    let read = handle.read_exact_at(&mut page, at);
    read.map_err(|error| Error::Damaged(format!("the first page of {}: {error}", file.stored)))?;
    Ok(page)
}

/// Wraps the key in a first page; `None` if it has none.
fn wrap_page(file: &FilePlace, mut page: Vec<u8>) -> Result<Option<Vec<u8>>, Error> {
    // Of a tablespace that was never written to, or of one that is damaged: then the server says so.
    let Some(first) = FirstPage::of(&page).filter(|first| has_key(*first, &page)) else {
        return Ok(None);
    };
    // The new checksum would hide it.
    if !first.is_intact(&page) {
        return damaged(format!("the first page of {}, which has a key", file.stored));
    }
    let key = page.get_mut(first.key_offset()..).unwrap_or_default();
    wrap_key(key).map_err(|()| unknown_key(&file.stored))?;
    first.set_checksum(&mut page);
    Ok(Some(page))
}

/// Whether the key in the first page of a file is in clear, or wrapped by the constant. That of a tablespace which is no
/// longer encrypted protects nothing: a server that has decrypted one does not always remove it.
pub(crate) fn is_exposed(handle: &File, file: &FilePlace) -> Result<bool, Error> {
    let Some(page) = beginning(handle, file)? else { return Ok(false) };
    let first = FirstPage::of(&page).filter(FirstPage::is_encrypted);
    let key = first.and_then(|first| page.get(first.key_offset()..));
    Ok(matches!(keys::find(key.unwrap_or_default()), KeyContent::Clear | KeyContent::Wrapped))
}

/// Returns whether the first page of a file has a key, may have one, or must have one.
pub(crate) fn may_have_key(handle: &File, file: &FilePlace) -> Result<bool, Error> {
    let Some(page) = beginning(handle, file)? else { return Ok(false) };
    Ok(FirstPage::of(&page).is_none_or(|first| has_key(first, &page)))
}

/// The first page of a file; `None` if it has none.
fn beginning(handle: &File, file: &FilePlace) -> Result<Option<Vec<u8>>, Error> {
    let mut page = vec![0; usize::try_from(file.page_size).unwrap_or(0)];
    if handle.metadata()?.len() < u64::from(file.page_size) {
        return Ok(None);
    }
    handle.read_exact_at(&mut page, 0)?;
    Ok(Some(page))
}

fn wrap_key(key: &mut [u8]) -> Result<(), ()> {
    match keys::find(key) {
        KeyContent::Clear => keys::wrap(key),
        KeyContent::Wrapped => {}
        KeyContent::Nothing | KeyContent::Unknown => return Err(()),
    }
    Ok(())
}

fn unknown_key(file: &dyn std::fmt::Display) -> Error {
    Error::Damaged(format!("the key of {file} is missing, or of an unknown form"))
}

/// Opens the file, if there is one.
///
/// # Errors
/// [`Error::Target`], [`Error::Damaged`].
pub(crate) fn open(target: &TargetDir) -> Result<Option<PatchReader<BufReader<File>>>, Error> {
    let name = own(HEADS)?;
    if !target.has(&name)? {
        return Ok(None);
    }
    let file = target.open_in_place(&name, IfMissing::Fail)?;
    PatchReader::new(BufReader::with_capacity(1 << 20, file)).map(Some)
}

/// The names that these files have.
pub(crate) fn names() -> [&'static str; 2] {
    [NEW_HEADS, HEADS]
}

fn damaged<T>(what: String) -> Result<T, Error> {
    Err(Error::Damaged(what))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::*;

    /// Memory of this process, in KiB.
    fn memory() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    }

    #[test]
    fn the_first_pages_of_many_encrypted_tables_are_not_kept() {
        const PAGE: usize = 65536;
        let flags: u32 = 0x21 | 7 << 6 | 1 << 13;
        let mut bytes = vec![7; PAGE];
        bytes[54..58].copy_from_slice(&flags.to_be_bytes());
        assert!(has_key(FirstPage::of(&bytes).unwrap(), &bytes));
        let (mut heads, before) = (FileHeads::default(), memory());
        let mut patch = Patch { to: PatchTarget::File(0), offset: 0, bytes };
        for index in 0..4000 {
            patch.to = PatchTarget::File(index);
            heads.add(&patch, u64::from(index));
        }
        assert_eq!(heads.pages.len(), 4000);
        // All of them have 256 MiB.
        let more = memory().saturating_sub(before);
        assert!(more < 128 << 10, "{more} KiB");
    }
}
