//! Checks all pages of one file while its bytes arrive.

use crate::format::{Format, Kind, MAX_PAGE};
use crate::page::{Fault, Verdict, check, is_empty, number};

/// A page that is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadPage {
    /// Its number in the file, from 0.
    pub page: u64,
    /// Offset of the page in the file, in bytes.
    pub offset: u64,
    /// What is wrong with it.
    pub fault: Fault,
}

/// Number of pages of a file, by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageCounts {
    /// Pages that match their checksum.
    pub good: u64,
    /// Pages that were never written: all zeros.
    pub empty: u64,
    /// Pages that are marked as having no checksum.
    pub no_checksum: u64,
    /// Pages that cannot be checked: their checksum is inside the compressed or encrypted part, or
    /// they are in the doublewrite area of the system tablespace, whose content is arbitrary.
    pub unchecked: u64,
    /// Pages that are damaged.
    pub damaged: u64,
}

impl PageCounts {
    /// Adds the counts of another file.
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
/// The checker holds at most [`MAX_PAGE`] bytes, and only between two pieces that meet inside a
/// page.
#[derive(Debug)]
pub struct PageChecker {
    /// Whether this is a file of the system tablespace: only the first of them begins with page 0.
    system: bool,
    format: Option<Format>,
    /// Bytes short of a page, or of [`MAX_PAGE`] while the format is unknown.
    held: Vec<u8>,
    /// Number of bytes checked.
    at: u64,
    /// Difference between a page's number and its position in the file, once known.
    base: Option<u64>,
    counts: PageCounts,
}

impl PageChecker {
    /// Creates a checker for the file of this name, without suffixes of compression or encryption.
    /// `None` if it is not a tablespace: those are named `*.ibd`, `*.ibu`, `ibdata*` and `undo*`.
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

    /// The format of the pages, once known.
    #[must_use]
    pub fn format(&self) -> Option<Format> {
        self.format
    }

    /// Number of bytes currently held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Takes the next bytes of the file and calls `bad` for each damaged page.
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

    /// Takes a hole: `len` zeros.
    pub fn feed_zeros(&mut self, mut len: u64, bad: &mut impl FnMut(BadPage)) {
        const ZEROS: [u8; 4096] = [0; 4096];
        while len > 0 {
            let unit = self.unit() as u64;
            if self.held.is_empty() && len >= unit {
                // Whole pages of zeros need no check.
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

    /// Signals the end of the file.
    #[must_use]
    pub fn finish(mut self, bad: &mut impl FnMut(BadPage)) -> PageCounts {
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            self.take(&held, bad);
        }
        self.counts
    }

    /// Number of bytes that are checked together.
    fn unit(&self) -> usize {
        self.format.map_or(MAX_PAGE, |format| format.page_size)
    }

    /// Takes [`PageChecker::unit`] bytes, or the last bytes of the file.
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

/// Whether the name is `prefix` followed by digits only.
fn numbered(name: &[u8], prefix: &[u8]) -> bool {
    name.strip_prefix(prefix)
        .is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit))
}

/// Whether a page of the first file of the system tablespace is in the doublewrite area: its second
/// and third extent. It holds copies of other pages, which may be torn or old.
fn in_doublewrite(format: Format, page: u64) -> bool {
    (format.extent()..3 * format.extent()).contains(&page)
}

/// Detects the format of pages that are not all empty. `first`: they begin the file.
fn recognise(bytes: &[u8], first: bool) -> Format {
    let named = if first { Format::of_first_page(bytes) } else { None };
    let fits = |format: &Format| {
        let page = bytes.get(..format.page_size);
        page.is_some_and(|page| !matches!(check(*format, page, true), Verdict::Damaged(_)))
    };
    if let Some(format) = named.filter(fits) {
        return format;
    }
    // The first page is damaged or not the tablespace's: choose the format that matches most bytes.
    // The format that the page states wins a tie.
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
