//! All pages of one file, as its bytes come.

use crate::format::{Format, Kind, MAX_PAGE};
use crate::page::{Fault, Verdict, check, is_empty, number};

/// A page that is not as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadPage {
    /// Its number in the file, from 0.
    pub page: u64,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// What is wrong with it.
    pub fault: Fault,
}

/// The pages of a file, by what they were found to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageCounts {
    /// Fit their checksum.
    pub good: u64,
    /// Were never written: nothing but zeros.
    pub empty: u64,
    /// Say that they have no checksum.
    pub no_checksum: u64,
    /// Cannot be checked: their checksum is inside of what is compressed or encrypted, or they are
    /// the doublewrite area of the system tablespace, where anything may lie.
    pub unchecked: u64,
    /// Do not fit.
    pub damaged: u64,
}

impl PageCounts {
    /// Adds those of another file.
    pub fn add(&mut self, other: &Self) {
        self.good += other.good;
        self.empty += other.empty;
        self.no_checksum += other.no_checksum;
        self.unchecked += other.unchecked;
        self.damaged += other.damaged;
    }
}

/// Checks the pages of one tablespace file.
///
/// Holds at most [`MAX_PAGE`] bytes, and those only between two pieces that meet inside a page.
#[derive(Debug)]
pub struct PageChecker {
    /// A file of the system tablespace: only the first begins with page 0.
    system: bool,
    format: Option<Format>,
    /// What is not yet a page, or while the format is not known, not yet [`MAX_PAGE`] bytes.
    held: Vec<u8>,
    /// Bytes that were checked.
    at: u64,
    /// What to add to a page's place in the file for its number, once known.
    base: Option<u64>,
    counts: PageCounts,
}

impl PageChecker {
    /// A checker for the file of this name, without suffixes of compression or encryption; `None` if it
    /// is no tablespace. They are called `*.ibd`, `*.ibu`, `ibdata*` and `undo*`.
    #[must_use]
    pub fn of_name(path: &[u8]) -> Option<Self> {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let system = name.starts_with(b"ibdata") && numbered(name, b"ibdata");
        let tablespace = system
            || name.ends_with(b".ibd")
            || name.ends_with(b".ibu")
            || numbered(name, b"undo_")
            || numbered(name, b"undo");
        tablespace.then(|| Self {
            system,
            format: None,
            held: Vec::new(),
            at: 0,
            base: (!system).then_some(0),
            counts: PageCounts::default(),
        })
    }

    /// What the pages are like, once that is known.
    #[must_use]
    pub fn format(&self) -> Option<Format> {
        self.format
    }

    /// Bytes held at the moment.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Takes the next bytes of the file; `bad` is told of each page that does not fit.
    pub fn feed(&mut self, mut bytes: &[u8], bad: &mut impl FnMut(BadPage)) {
        while !bytes.is_empty() {
            let unit = self.unit();
            if self.held.is_empty() && bytes.len() >= unit {
                let (whole, rest) = bytes.split_at(unit);
                self.take(whole, bad);
                bytes = rest;
                continue;
            }
            let (piece, rest) = bytes.split_at(bytes.len().min(unit - self.held.len()));
            self.held.extend_from_slice(piece);
            bytes = rest;
            if self.held.len() == unit {
                let held = std::mem::take(&mut self.held);
                self.take(&held, bad);
            }
        }
    }

    /// Takes a hole: so many zeros.
    pub fn feed_zeros(&mut self, mut len: u64, bad: &mut impl FnMut(BadPage)) {
        const ZEROS: [u8; 4096] = [0; 4096];
        while len > 0 {
            let unit = self.unit() as u64;
            if self.held.is_empty() && len >= unit {
                // Whole pages need not be looked at.
                let whole = len - len % unit;
                let page = self.format.unwrap_or(Format::DEFAULT).page_size as u64;
                self.counts.empty += whole / page;
                self.at += whole;
                len -= whole;
                continue;
            }
            let piece = usize::try_from(len).unwrap_or(usize::MAX).min(ZEROS.len());
            self.feed(ZEROS.get(..piece).unwrap_or_default(), bad);
            len -= piece as u64;
        }
    }

    /// The file is complete.
    #[must_use]
    pub fn finish(mut self, bad: &mut impl FnMut(BadPage)) -> PageCounts {
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            self.take(&held, bad);
        }
        self.counts
    }

    /// How many bytes are looked at together.
    fn unit(&self) -> usize {
        self.format.map_or(MAX_PAGE, |format| format.page_size)
    }

    /// Takes [`PageChecker::unit`] bytes, or the last of the file.
    fn take(&mut self, bytes: &[u8], bad: &mut impl FnMut(BadPage)) {
        let format = match self.format {
            Some(format) => format,
            None if is_empty(bytes) => Format::DEFAULT,
            None => *self.format.insert(recognise(bytes, self.at == 0)),
        };
        for page in bytes.chunks(format.page_size) {
            self.page(format, page, bad);
        }
    }

    fn page(&mut self, format: Format, page: &[u8], bad: &mut impl FnMut(BadPage)) {
        let offset = self.at;
        let place = offset / format.page_size as u64;
        self.at += page.len() as u64;
        let mut damaged = |counts: &mut PageCounts, fault| {
            counts.damaged += 1;
            bad(BadPage { page: place, offset, fault });
        };
        if self.base == Some(0)
            && self.system
            && format.kind != Kind::Zip
            && in_doublewrite(format, place)
        {
            self.counts.unchecked += 1;
            return;
        }
        if page.len() < format.page_size {
            match is_empty(page) {
                true => self.counts.empty += 1,
                false => damaged(&mut self.counts, Fault::Cut { len: page.len() }),
            }
            return;
        }
        let verdict = check(format, page, offset == 0);
        let count = match verdict {
            Verdict::Good => &mut self.counts.good,
            Verdict::NoChecksum => &mut self.counts.no_checksum,
            Verdict::Empty => return self.counts.empty += 1,
            Verdict::Inside => return self.counts.unchecked += 1,
            Verdict::Damaged(fault) => return damaged(&mut self.counts, fault),
        };
        let got = number(page).unwrap_or_default();
        let base = *self.base.get_or_insert_with(|| u64::from(got).saturating_sub(place));
        let expected = base + place;
        if u64::from(got) == expected {
            *count += 1;
        } else {
            damaged(&mut self.counts, Fault::Number { expected, got });
        }
    }
}

/// Whether the name is `prefix` and then digits only.
fn numbered(name: &[u8], prefix: &[u8]) -> bool {
    name.strip_prefix(prefix)
        .is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit))
}

/// Whether a page of the first file of the system tablespace is in the doublewrite area: its second
/// and third extent. Copies of other pages lie there, any of them torn or of long ago.
fn in_doublewrite(format: Format, page: u64) -> bool {
    (format.extent()..3 * format.extent()).contains(&page)
}

/// The format of pages of which some are not empty. `first`: they are the first of the file.
fn recognise(bytes: &[u8], first: bool) -> Format {
    let named = if first { Format::of_first_page(bytes) } else { None };
    let fits = |format: &Format| {
        let page = bytes.get(..format.page_size);
        page.is_some_and(|page| !matches!(check(*format, page, true), Verdict::Damaged(_)))
    };
    if let Some(format) = named.filter(fits) {
        return format;
    }
    // The first page is damaged or not the tablespace's: the format that most bytes fit. A format
    // that is named wins over one that fits as well.
    let good = |format: &Format| -> usize {
        let pages = bytes.chunks_exact(format.page_size).enumerate();
        let good =
            pages.filter(|(n, page)| check(*format, page, first && *n == 0) == Verdict::Good);
        good.count() * format.page_size
    };
    let best = named.into_iter().chain(Format::all()).map(|format| (good(&format), format));
    let best = best.fold(
        (0, None),
        |best, (score, format)| {
            if score > best.0 { (score, Some(format)) } else { best }
        },
    );
    best.1.or(named).unwrap_or(Format::DEFAULT)
}
