//! The patches of a clone of MySQL: which pages of its files they replace, and whether they are intact themselves.
//!
//! A server wrote to the files while they were read, so that a page of them may be torn: it is damaged only if no
//! patch replaces it. Patches name a file by its index, which is its place in the stream.

use std::collections::{HashMap, HashSet};

use xb_pages::{BadPage, Fault, RedoStart, is_intact_page};
use xb_reader::RelPath;

use super::bad_page::BadPageOf;
use super::redo::RedoFound;

/// Names of the files that only a clone has (`docs/spec/clone.md`). The first of them begins the stream.
const README: &[u8] = b"xb_clone.README";
const PATCHES: &[u8] = b"xb_clone.patches";
const INFO: &[u8] = b"xb_clone.json";
/// Length of the first bytes, and of the head of a record.
const MAGIC: usize = 8;
const HEAD: usize = 17;
const PAGE: u8 = 1;
const REDO: u8 = 2;
const END: u8 = 3;
const REMOVED: u8 = 4;
/// Offset in a page of its number.
const NUMBER: usize = 4;
/// Longest page, in bytes.
const MAX_PAGE: u64 = 64 << 10;
/// Most files of a clone: no donor's clone has more (`docs/spec/clone.md`), so no more than these can be removed.
const MAX_FILES: u32 = 1 << 21;
/// Most faults of the patches that are kept.
const MAX_BAD: usize = 1000;

/// The patches of a clone, while its stream arrives.
#[derive(Debug)]
pub(super) struct ClonePatches {
    /// Files in the order in which they came.
    files: Vec<RelPath>,
    /// The place of each in that order: a damaged clone has up to a million bad pages, and as many files.
    places: HashMap<RelPath, usize>,
    /// Places of bad pages that no patch has replaced so far: index of the file and offset.
    pending: Option<HashSet<(usize, u64)>>,
    /// Places that one did.
    replaced: HashSet<(usize, u64)>,
    /// Files that DDL removed while the clone ran: their pages do not count.
    removed: HashSet<usize>,
    /// Patches that are not intact.
    bad: Vec<BadPageOf>,
    /// Position at which recovery starts, from the head of the redo log.
    start: Option<RedoStart>,
    /// Bytes of the redo log, without those of its head.
    redo_len: u64,
    /// Bytes of the current head or page.
    held: Vec<u8>,
    /// Bytes of the file before them.
    before: u64,
    part: Part,
}

/// Next item in the file of patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Magic,
    Head,
    Page {
        file: usize,
        offset: u64,
        len: u64,
    },
    /// The beginning of the redo log.
    RedoHead(u64),
    /// Bytes that are not looked at.
    Rest(u64),
    Over,
}

impl ClonePatches {
    /// Begins if this is the first file of a clone.
    pub(super) fn of_first(path: &RelPath) -> Option<Self> {
        (path.as_bytes() == README).then(|| Self {
            files: Vec::new(),
            places: HashMap::new(),
            pending: None,
            replaced: HashSet::new(),
            removed: HashSet::new(),
            bad: Vec::new(),
            start: None,
            redo_len: 0,
            held: Vec::new(),
            before: 0,
            part: Part::Magic,
        })
    }

    /// Takes the name of the next file of the stream.
    pub(super) fn file(&mut self, path: &RelPath) {
        if ![README, PATCHES, INFO].contains(&path.as_bytes()) {
            self.places.entry(path.clone()).or_insert(self.files.len());
            self.files.push(path.clone());
        }
    }

    /// Returns whether this is the file of patches.
    pub(super) fn is_patches(path: &RelPath) -> bool {
        path.as_bytes() == PATCHES
    }

    /// Takes the next bytes of the file of patches. `bad`: the bad pages of the files before it.
    pub(super) fn feed<'b>(&mut self, mut bytes: &[u8], bad: impl Iterator<Item = &'b BadPageOf>) {
        if self.pending.is_none() {
            self.pending = Some(bad.filter_map(|bad| self.place(bad)).collect());
        }
        while !bytes.is_empty() {
            let want = match self.part {
                Part::Magic => MAGIC as u64,
                Part::Head => HEAD as u64,
                Part::Page { len, .. } | Part::RedoHead(len) => len,
                Part::Rest(len) => {
                    let len = len.min(bytes.len() as u64);
                    bytes = self.skip(bytes, len);
                    continue;
                }
                Part::Over => return self.broken(Fault::Cut { len: 0 }),
            };
            let missing = usize::try_from(want).unwrap_or(usize::MAX) - self.held.len();
            let (now, later) = bytes.split_at(missing.min(bytes.len()));
            self.held.extend_from_slice(now);
            bytes = later;
            if self.held.len() as u64 == want {
                let held = std::mem::take(&mut self.held);
                self.part = self.next(&held);
                self.before += want;
            }
        }
    }

    fn skip<'b>(&mut self, bytes: &'b [u8], len: u64) -> &'b [u8] {
        if let Part::Rest(left) = self.part {
            self.part = if left == len { Part::Head } else { Part::Rest(left - len) };
        }
        self.before += len;
        bytes.get(usize::try_from(len).unwrap_or(usize::MAX)..).unwrap_or_default()
    }

    /// Takes a whole part, and returns the step that follows.
    fn next(&mut self, held: &[u8]) -> Part {
        match self.part {
            Part::Page { file, offset, len } => {
                self.page(file, offset, len, held);
                return Part::Head;
            }
            Part::RedoHead(_) => {
                self.start = RedoStart::of_head(held);
                return Part::Head;
            }
            Part::Head => {}
            _ => return Part::Head,
        }
        let u32_at = |at: usize| {
            let bytes = held.get(at..).and_then(<[u8]>::first_chunk::<4>);
            u32::from_le_bytes(bytes.copied().unwrap_or_default())
        };
        let (low, high) = (u64::from(u32_at(5)), u64::from(u32_at(9)));
        let (file, offset, len) = (u32_at(1), high << 32 | low, u64::from(u32_at(13)));
        match held.first() {
            Some(&PAGE) if (1..=MAX_PAGE).contains(&len) => {
                Part::Page { file: usize::try_from(file).unwrap_or(usize::MAX), offset, len }
            }
            Some(&REDO) if (file, offset) == (0, 0) && (1..=MAX_PAGE).contains(&len) => {
                Part::RedoHead(len)
            }
            Some(&REDO) if len > 0 => {
                self.redo_len = self.redo_len.saturating_add(len);
                Part::Rest(len)
            }
            Some(&REMOVED) if (offset, len) == (0, 0) && file < MAX_FILES => {
                self.removed.insert(usize::try_from(file).unwrap_or(usize::MAX));
                Part::Head
            }
            Some(&END) => Part::Over,
            _ => {
                self.broken(Fault::Length { len: usize::try_from(len).unwrap_or(usize::MAX) });
                Part::Over
            }
        }
    }

    fn page(&mut self, file: usize, offset: u64, len: u64, page: &[u8]) {
        if self.pending.as_mut().is_some_and(|pending| pending.remove(&(file, offset))) {
            self.replaced.insert((file, offset));
        }
        // A file that DDL created has no name in the stream.
        let path = self.files.get(file).cloned().or_else(|| RelPath::new(PATCHES).ok());
        let u32_at = |at: usize| {
            let bytes = page.get(at..).and_then(<[u8]>::first_chunk::<4>);
            bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
        };
        let (got, expected) = (u32_at(NUMBER), offset / len);
        let fault = match is_intact_page(page) {
            false => Some(Fault::Checksum { stored: u32_at(0), computed: 0 }),
            // It may be intact, and of another place: a restore refuses it.
            true => (u64::from(got) != expected).then_some(Fault::Number { expected, got }),
        };
        if let (Some(fault), Some(path)) = (fault, path)
            && self.bad.len() < MAX_BAD
        {
            let page = BadPage { page: expected, offset, fault, missing_since: None };
            self.bad.push(BadPageOf { path, page });
        }
    }

    fn broken(&mut self, fault: Fault) {
        let path = RelPath::new(PATCHES).ok().filter(|_| self.bad.len() < MAX_BAD);
        self.bad.extend(path.map(|path| BadPageOf {
            path,
            page: BadPage { page: 0, offset: self.before, fault, missing_since: None },
        }));
    }

    /// The place of the patch that replaces a bad page.
    fn place(&self, bad: &BadPageOf) -> Option<(usize, u64)> {
        let file = *self.places.get(&bad.path)?;
        // The first page of a file has its length.
        let is_length = matches!(bad.page.fault, Fault::Short { .. } | Fault::Truncated { .. });
        Some((file, if is_length { 0 } else { bad.page.offset }))
    }

    /// Returns whether a patch has replaced this page, or its file was removed.
    pub(super) fn has_replaced(&self, bad: &BadPageOf) -> bool {
        self.place(bad)
            .is_some_and(|place| self.removed.contains(&place.0) || self.replaced.contains(&place))
    }

    /// The redo log that is among the patches.
    pub(super) fn redo(&self) -> Option<(RelPath, RedoFound)> {
        Some((RelPath::new(PATCHES).ok()?, RedoFound::of_clone(self.start, self.redo_len)))
    }

    /// The patches that are not intact, and whether the file of patches came to its end.
    pub(super) fn finish(&mut self) -> Vec<BadPageOf> {
        if self.part != Part::Over {
            self.broken(Fault::Cut { len: self.held.len() });
        }
        std::mem::take(&mut self.bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Faults of a file of patches.
    fn faults(bytes: &[u8]) -> usize {
        let mut patches = ClonePatches::of_first(&RelPath::new(README).unwrap()).unwrap();
        patches.feed(bytes, [].iter());
        patches.finish().len()
    }

    #[test]
    fn a_bad_page_is_found_among_as_many_files_without_a_search() {
        const FILES: usize = 200_000;
        let path = |number: usize| RelPath::new(format!("shop/t{number}.ibd").as_bytes()).unwrap();
        let mut patches = ClonePatches::of_first(&RelPath::new(README).unwrap()).unwrap();
        (0..FILES).for_each(|number| patches.file(&path(number)));
        let bad = |number: usize| BadPageOf {
            path: path(number),
            page: BadPage {
                page: 3,
                offset: 49152,
                fault: Fault::Checksum { stored: 1, computed: 0 },
                missing_since: None,
            },
        };
        // A search for each of them would take minutes.
        let all: Vec<BadPageOf> = (0..FILES).map(bad).collect();
        patches.feed(b"XBCLPT01", all.iter());
        assert_eq!(patches.pending.as_ref().unwrap().len(), FILES);
        let last = patches.place(&bad(FILES - 1));
        assert_eq!(last, Some((FILES - 1, 49152)));
        assert!(all.iter().all(|bad| !patches.has_replaced(bad)));
    }

    /// The patch of a page of 1 KiB without a checksum.
    #[test]
    fn a_patch_must_be_the_page_of_its_place() {
        let patch = |offset: u32, number: u32| {
            let mut page = vec![7; 1024];
            page[..4].copy_from_slice(&0xdead_beef_u32.to_be_bytes());
            page[4..8].copy_from_slice(&number.to_be_bytes());
            let head = [&[PAGE, 0, 0, 0, 0][..], &offset.to_le_bytes(), &[0; 4], &[0, 4, 0, 0]];
            [&b"XBCLPT01"[..], &head.concat(), &page, &[END], &[0; 16]].concat()
        };
        assert_eq!(faults(&patch(5 << 10, 5)), 0);
        for (offset, number) in [(5 << 10, 6), (6 << 10, 5), (0, 1)] {
            assert_eq!(faults(&patch(offset, number)), 1, "{offset} {number}");
        }
    }

    #[test]
    fn no_more_files_are_removed_than_a_clone_has() {
        let removed = |file: u32| [&[REMOVED][..], &file.to_le_bytes(), &[0; 12]].concat();
        let end = [&[END][..], &[0; 16]].concat();
        let with = |file| [&b"XBCLPT01"[..], &removed(file), &end].concat();
        assert_eq!(faults(&with(MAX_FILES - 1)), 0);
        assert!(faults(&with(MAX_FILES)) > 0);
    }

    #[test]
    fn patches_end_with_their_end() {
        let redo = [&[REDO, 1][..], &[0; 11], &[3, 0, 0, 0], b"abc"].concat();
        let whole = [&b"XBCLPT01"[..], &redo, &[END], &[0; 16]].concat();
        assert_eq!(faults(&whole), 0);
        for len in 0..whole.len() {
            assert_eq!(faults(&whole[..len]), 1, "{len}");
        }
        assert!(faults(&[&whole[..], &[0]].concat()) > 0);
        assert!(faults(&[&b"XBCLPT01"[..], &[9; 17]].concat()) > 0);
    }
}
