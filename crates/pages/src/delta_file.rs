//! Checks the pages of a file with the changed pages of a tablespace, while its bytes arrive.
//!
//! Increments have such a file for each tablespace. It is a row of groups: a block as long as a page with the numbers
//! of the pages that follow it. A text beside it states how long a page is, but may come later in the stream: so the
//! length is taken at which the pages have the numbers that the block lists. Which pages the tablespace uses is not
//! known, so an empty page is not judged, nor the number of the tablespace.

use crate::doublewrite::{DOUBLEWRITE_AT, Doublewrite};
use crate::format::{Format, Kind, MAX_PAGE, be32};
use crate::page::{BadPage, Fault, PageContext, Verdict, check, is_empty, number};
use crate::tablespace::{FileChecked, PageCounts};

/// Marks at the beginning of a group, and of the last one.
const GROUP: &[u8] = b"xtra";
const LAST: &[u8] = b"XTRA";
/// In place of a number: the list ends here.
const NO_PAGE: u32 = u32::MAX;
/// Lengths of pages, in bytes.
const LENGTHS: std::ops::RangeInclusive<u32> = 10..=16;
/// Bytes from which the length of a page is known: the longest block, and three of the longest pages.
const WINDOW: usize = 4 * MAX_PAGE;

/// Checks the pages of one such file.
///
/// It holds at most a page, and 256 KiB while the length of a page is unknown.
#[derive(Debug)]
pub struct DeltaPageChecker {
    is_system: bool,
    /// Bytes of a page, once known.
    page_size: Option<usize>,
    /// Protection of the pages, once one of them shows it.
    kind: Option<Kind>,
    doublewrite: Doublewrite,
    held: Vec<u8>,
    /// Offset of the bytes that are held.
    at: u64,
    /// Numbers of the group's pages, the next one last.
    numbers: Vec<u32>,
    is_last: bool,
    /// The file is not made as such files are: then it is for the program that prepares it to judge.
    is_unreadable: bool,
    counts: PageCounts,
}

impl DeltaPageChecker {
    /// Creates a checker for the changed pages of the tablespace file of this name.
    #[must_use]
    pub fn of_tablespace(name: &[u8]) -> Self {
        let base = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let is_other = base.ends_with(b".ibd") || base.ends_with(b".ibu");
        Self {
            is_system: !is_other && !base.starts_with(b"undo") && base.len() == name.len(),
            page_size: None,
            kind: None,
            doublewrite: Doublewrite::Usual,
            held: Vec::new(),
            at: 0,
            numbers: Vec::new(),
            is_last: false,
            is_unreadable: false,
            counts: PageCounts::default(),
        }
    }

    /// Number of bytes currently held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len() + self.numbers.len() * size_of::<u32>()
    }

    /// Takes the next bytes of the file and calls `bad` for each damaged page. Its offset is that in this file.
    pub fn feed(&mut self, mut bytes: &[u8], bad: &mut impl FnMut(BadPage)) {
        while !bytes.is_empty() && !self.is_unreadable {
            let unit = self.page_size.unwrap_or(WINDOW);
            if self.held.is_empty() && bytes.len() >= unit && self.page_size.is_some() {
                let (whole, rest) = bytes.split_at(unit);
                self.block(whole, bad);
                bytes = rest;
                continue;
            }
            let (piece, rest) = bytes.split_at(bytes.len().min(unit - self.held.len()));
            self.held.extend_from_slice(piece);
            bytes = rest;
            if self.held.len() == unit {
                self.take_held(bad);
            }
        }
    }

    /// Takes a hole: `len` zeros.
    pub fn feed_zeros(&mut self, mut len: u64, bad: &mut impl FnMut(BadPage)) {
        const ZEROS: [u8; 4096] = [0; 4096];
        while len > 0 && !self.is_unreadable {
            let piece = usize::try_from(len).unwrap_or(usize::MAX).min(ZEROS.len());
            self.feed(ZEROS.get(..piece).unwrap_or_default(), bad);
            len -= piece as u64;
        }
    }

    /// Signals the end of the file. `None` if it is not made as such files are, or ends early.
    #[must_use]
    pub fn finish(mut self, bad: &mut impl FnMut(BadPage)) -> Option<FileChecked> {
        if self.page_size.is_none() {
            self.take_held(bad);
        }
        let is_whole = self.is_last && self.numbers.is_empty() && self.held.is_empty();
        let checked =
            FileChecked { is_tablespace: true, counts: self.counts, ..FileChecked::default() };
        (is_whole && !self.is_unreadable).then_some(checked)
    }

    /// Takes all bytes that are held: those up to a page, or those that show how long one is.
    fn take_held(&mut self, bad: &mut impl FnMut(BadPage)) {
        let held = std::mem::take(&mut self.held);
        let size = self.page_size.or_else(|| page_size_of(&held));
        let Some(size) = size else {
            self.is_unreadable = true;
            return;
        };
        self.page_size = Some(size);
        let blocks = held.chunks_exact(size);
        self.held = blocks.remainder().to_vec();
        blocks.for_each(|block| self.block(block, bad));
    }

    /// Takes a block with numbers, or a page.
    fn block(&mut self, block: &[u8], bad: &mut impl FnMut(BadPage)) {
        let offset = self.at;
        self.at += block.len() as u64;
        if self.is_unreadable {
            return;
        }
        if let Some(number) = self.numbers.pop() {
            return self.page(number, block, offset, bad);
        }
        let is_last = block.starts_with(LAST);
        if self.is_last || !is_last && !block.starts_with(GROUP) {
            self.is_unreadable = true;
            return;
        }
        self.is_last = is_last;
        self.numbers = listed(block).collect();
        self.numbers.reverse();
    }

    fn page(&mut self, expected: u32, page: &[u8], offset: u64, bad: &mut impl FnMut(BadPage)) {
        if is_empty(page) {
            self.counts.empty += 1;
            return;
        }
        let extent = Format { page_size: page.len(), kind: Kind::Both }.extent_of(0);
        if self.is_system && self.doublewrite.includes(expected.into(), extent) {
            self.counts.unchecked += 1;
            return;
        }
        let got = number(page).unwrap_or_default();
        let fault = match self.verdict(expected, page) {
            Verdict::Damaged(fault) => fault,
            _ if got != expected => Fault::Number { expected: expected.into(), got },
            Verdict::Inside => {
                self.counts.unchecked += 1;
                return;
            }
            Verdict::NoChecksum => {
                self.counts.no_checksum += 1;
                return;
            }
            Verdict::Good | Verdict::Empty => {
                if self.is_system && u64::from(expected) == DOUBLEWRITE_AT {
                    self.doublewrite = Doublewrite::of_page(page);
                }
                self.counts.good += 1;
                return;
            }
        };
        self.counts.damaged += 1;
        bad(BadPage { page: expected.into(), offset, fault, missing_since: None });
    }

    /// The result for a page, which may show the protection of all of them.
    fn verdict(&mut self, expected: u32, page: &[u8]) -> Verdict {
        let place = PageContext { first: expected == 0, encrypted: true };
        let of = |kind| check(Format { page_size: page.len(), kind }, page, place);
        if let Some(kind) = self.kind {
            return of(kind);
        }
        let kinds = kinds_of(page.len());
        let stated = Format::of_first_page(page).filter(|format| {
            place.first && format.page_size == page.len() && kinds.contains(&format.kind)
        });
        let all = kinds.iter().map(|kind| (*kind, of(*kind)));
        let all: Vec<_> = all.collect();
        if let Some((kind, _)) = all.iter().find(|(_, verdict)| *verdict == Verdict::Good) {
            self.kind = Some(stated.map_or(*kind, |format| format.kind));
            return Verdict::Good;
        }
        let mut verdicts = all.into_iter().map(|(_, verdict)| verdict);
        let first = verdicts.next().unwrap_or(Verdict::Inside);
        let is_damaged = |verdict: &Verdict| matches!(verdict, Verdict::Damaged(_));
        std::iter::once(first).chain(verdicts).find(|verdict| !is_damaged(verdict)).unwrap_or(first)
    }
}

/// The numbers that a block lists, in order.
fn listed(block: &[u8]) -> impl Iterator<Item = u32> {
    let words = block.chunks_exact(4).skip(1);
    let numbers = words.filter_map(|word| Some(u32::from_be_bytes(*word.first_chunk()?)));
    numbers.take_while(|number| *number != NO_PAGE)
}

/// The length of a page: the one at which most bytes are in pages with the numbers that the first block lists. A file
/// that lists no page is one block long.
fn page_size_of(bytes: &[u8]) -> Option<usize> {
    if !bytes.starts_with(LAST) && !bytes.starts_with(GROUP) {
        return None;
    }
    let sizes = LENGTHS.map(|shift| 1_usize << shift);
    if be32(bytes, 4) == Some(NO_PAGE) {
        return sizes.into_iter().find(|size| *size == bytes.len());
    }
    let best_of = |fits: &dyn Fn(&[u8], u32) -> bool| {
        let fitting = |size: usize| -> usize {
            let mut blocks = bytes.chunks_exact(size);
            let numbers = listed(blocks.next().unwrap_or_default());
            blocks.zip(numbers).filter(|(page, number)| fits(page, *number)).count() * size
        };
        let best = sizes.clone().map(|size| (fitting(size), size)).max_by_key(|(bytes, _)| *bytes);
        best.filter(|(bytes, _)| *bytes > 0).map(|(_, size)| size)
    };
    best_of(&|page, expected| !is_empty(page) && number(page) == Some(expected))
        // In the doublewrite area, pages have other numbers.
        .or_else(|| best_of(&|page, _| is_intact(page)))
}

/// Returns whether a page matches its checksum, whatever protects it.
fn is_intact(page: &[u8]) -> bool {
    let place = PageContext { first: false, encrypted: false };
    kinds_of(page.len()).iter().any(|kind| {
        check(Format { page_size: page.len(), kind: *kind }, page, place) == Verdict::Good
    })
}

/// The kinds of pages of this length.
fn kinds_of(page_size: usize) -> &'static [Kind] {
    match page_size {
        ..4096 => &[Kind::Zip],
        4096..=16384 => &[Kind::Full, Kind::Both, Kind::Zip],
        _ => &[Kind::Full, Kind::Both],
    }
}
