//! Checks all pages of one file while its bytes arrive.

use crate::doublewrite::{Area, DOUBLEWRITE_AT, Doublewrite};
use crate::format::{Format, MAX_PAGE};
use crate::page::{BadPage, Fault, PageContext, Verdict, check, is_empty, lsn, number, space};
use crate::recognise::{fits, recognise, stated};
use crate::space::{PageMap, SpaceHeader};

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
    /// they are in the doublewrite area of the system tablespace, whose content is arbitrary. After a
    /// recovery, also pages that do not match and are not in use, which no server reads.
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

/// Part of a system tablespace: what its length is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemFile {
    /// Length of this file in bytes.
    pub len: u64,
    /// Size of a page in bytes, if the file has a page that is not blank.
    pub page_size: usize,
    /// Length of the whole tablespace in pages, in its first file, and the log position of the page
    /// that states it.
    pub stated: Option<(u64, u64)>,
}

/// Results for one file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileChecked {
    /// Whether it is a tablespace.
    pub is_tablespace: bool,
    /// Number of pages, by result.
    pub counts: PageCounts,
    /// Set for a file of the system tablespace.
    pub system: Option<SystemFile>,
}

/// Kinds of tablespace files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Table,
    Undo,
    /// A file of the system tablespace: only the first of them begins with page 0.
    System,
    /// Perhaps a file of the system tablespace: its first pages show it.
    Perhaps,
    /// Not a tablespace.
    Other,
}

/// Extents of the system tablespace up to the usual end of the doublewrite area.
const DOUBLEWRITE_END: u64 = 3;

/// Number of bytes from which the format is recognised if the first page does not show it.
const WINDOW: usize = 8 * MAX_PAGE;

/// Checks the pages of one tablespace file.
///
/// The checker holds at most [`MAX_PAGE`] bytes, and only between two pieces that meet inside a
/// page; eight times as much while the format is unknown because the first page is damaged. Up to
/// 8 KiB more say which pages are in use.
#[derive(Debug)]
pub struct PageChecker {
    role: Role,
    format: Option<Format>,
    /// Bytes short of a page, or of `window` while the format is unknown.
    held: Vec<u8>,
    window: usize,
    /// Number of bytes checked.
    at: u64,
    /// Difference between a page's number and its position in the file, once known.
    base: Option<u64>,
    header: Option<SpaceHeader>,
    map: Option<PageMap>,
    doublewrite: Doublewrite,
    area: Area,
    /// The first page of the tablespace is empty, and no other page was found so far.
    begins_empty: bool,
    /// Empty pages that the tablespace has had since its creation. At most four for each group.
    empty_fixed: Vec<u64>,
    /// The lowest log position of a page: the tablespace existed then.
    oldest: Option<u64>,
    /// The same without the first two pages.
    made: Option<u64>,
    /// The file must have pages: it is not one of the later files of a system tablespace.
    never_blank: bool,
    /// Recovery is over: the tablespace itself states which of its pages are in use.
    is_recovered: bool,
    counts: PageCounts,
}

impl PageChecker {
    /// Creates a checker for the file of this name, without suffixes of compression or encryption.
    /// `None` if it is not a tablespace: those are named `*.ibd`, `*.ibu`, `ibdata*` and `undo*`.
    /// A table that was created during a backup is `t.ibd.new` in that of xtrabackup, and `t.new` in
    /// that of mariadb-backup.
    #[must_use]
    pub fn of_name(path: &[u8]) -> Option<Self> {
        let name = base_name(path);
        let in_schema = name.len() < path.len();
        let created = name.strip_suffix(b".new");
        let name = created.unwrap_or(name);
        let role = match () {
            () if numbered(name, b"ibdata") => {
                let never_blank = name == b"ibdata1";
                return Some(Self { never_blank, ..Self::new(Role::System) });
            }
            () if name.ends_with(b".ibd") => Role::Table,
            () if name.ends_with(b".ibu") => Role::Undo,
            () if numbered(name, b"undo_") || numbered(name, b"undo") => Role::Undo,
            // Recovery may have to write all of its pages.
            () if created.is_some_and(|name| !name.is_empty()) && in_schema => {
                return Some(Self { never_blank: false, ..Self::new(Role::Table) });
            }
            () => return None,
        };
        Some(Self::new(role))
    }

    /// Creates a checker for a file that may belong to a system tablespace under a name of the
    /// user's own. `None` if it does not lie where such files lie.
    #[must_use]
    pub fn of_any_name(path: &[u8]) -> Option<Self> {
        let possible = !path.contains(&b'/') && !path.ends_with(b".dblwr");
        possible.then(|| Self::new(Role::Perhaps))
    }

    /// Checks a file on which recovery is over: a page that is not in use may hold anything. A page that is missing
    /// (see [`BadPage::missing_since`]) is damage then.
    #[must_use]
    pub fn recovered(self) -> Self {
        Self { is_recovered: true, ..self }
    }

    fn new(role: Role) -> Self {
        Self {
            role,
            format: None,
            held: Vec::new(),
            window: MAX_PAGE,
            at: 0,
            base: matches!(role, Role::Table | Role::Undo).then_some(0),
            header: None,
            map: None,
            doublewrite: Doublewrite::Usual,
            area: Area::default(),
            begins_empty: false,
            empty_fixed: Vec::new(),
            oldest: None,
            made: None,
            never_blank: matches!(role, Role::Table | Role::Undo),
            is_recovered: false,
            counts: PageCounts::default(),
        }
    }

    /// The format of the pages, once known.
    #[must_use]
    pub fn format(&self) -> Option<Format> {
        self.format
    }

    /// Number of bytes currently held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len() + self.map.as_ref().map_or(0, PageMap::held)
    }

    /// Takes the next bytes of the file and calls `bad` for each damaged page.
    pub fn feed(&mut self, mut bytes: &[u8], bad: &mut impl FnMut(BadPage)) {
        while !bytes.is_empty() && self.role != Role::Other {
            let unit = self.unit();
            if self.held.is_empty() && bytes.len() >= unit {
                let (whole, rest) = bytes.split_at(unit);
                self.take(whole, false, bad);
                bytes = rest;
                continue;
            }
            let (piece, rest) = bytes.split_at(bytes.len().min(unit - self.held.len()));
            self.held.extend_from_slice(piece);
            bytes = rest;
            if self.held.len() == unit {
                let held = std::mem::take(&mut self.held);
                self.take(&held, false, bad);
            }
        }
    }

    /// Takes a hole: `len` zeros.
    pub fn feed_zeros(&mut self, mut len: u64, bad: &mut impl FnMut(BadPage)) {
        const ZEROS: [u8; 4096] = [0; 4096];
        while len > 0 && self.role != Role::Other {
            let unit = self.unit() as u64;
            if self.held.is_empty() && len >= unit {
                // Whole pages of zeros need no check.
                let whole = len - len % unit;
                self.empty(whole, bad);
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
    pub fn finish(mut self, bad: &mut impl FnMut(BadPage)) -> FileChecked {
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            self.take(&held, true, bad);
        }
        let area = self.area.finish(self.format.unwrap_or(Format::DEFAULT).kind);
        self.counts.good += area.good;
        self.counts.unchecked += area.unchecked;
        self.counts.damaged += area.damaged.len() as u64;
        area.damaged.into_iter().for_each(&mut *bad);
        let is_tablespace = !matches!(self.role, Role::Perhaps | Role::Other);
        let page_size = self.format.unwrap_or(Format::DEFAULT).page_size;
        let pages = self.at / page_size as u64;
        let stated = self.header.map(|header| (header.size, header.lsn));
        let system =
            (self.role == Role::System).then_some(SystemFile { len: self.at, page_size, stated });
        if let Some((stated, lsn)) = stated.filter(|(stated, _)| pages < *stated)
            && let Some(fault) = match self.role {
                Role::Table => Some(Fault::Short { pages, stated }),
                Role::Undo => Some(Fault::Truncated { pages, stated }),
                _ => None,
            }
        {
            let missing_since = Some(lsn);
            bad(BadPage { page: pages, offset: pages * page_size as u64, fault, missing_since });
        }
        // Without a page that states a position, the tablespace may be as old as its backup.
        let since = self.oldest.unwrap_or_default();
        // Without any of these pages, the first page shows when the others were made.
        let made = self.made.or(stated.map(|(_, lsn)| lsn)).unwrap_or_default();
        let base = self.base.unwrap_or_default();
        let fixed = |place| match (self.role, base + place) {
            (Role::Table, 2 | 3) => (place, Fault::EmptyRoot { made }, Some(since)),
            _ => (place, Fault::EmptyFixed, Some(since)),
        };
        // Only tables and undo tablespaces are created while a server runs.
        let created = (self.role != Role::System).then_some(0);
        let is_blank = self.never_blank && self.format.is_none();
        self.counts.damaged += u64::from(is_blank && created.is_none());
        let blank = is_blank.then_some((0, Fault::Blank, created));
        for (page, fault, missing_since) in self.empty_fixed.into_iter().map(fixed).chain(blank) {
            let offset = page * page_size as u64;
            bad(BadPage { page, offset, fault, missing_since });
        }
        let counts = if is_tablespace { self.counts } else { PageCounts::default() };
        FileChecked { is_tablespace, counts, system }
    }

    /// Number of bytes that are checked together.
    fn unit(&self) -> usize {
        self.format.map_or(self.window, |format| format.page_size)
    }

    /// Takes [`PageChecker::unit`] bytes, or the last bytes of the file.
    fn take(&mut self, bytes: &[u8], last: bool, bad: &mut impl FnMut(BadPage)) {
        if self.format.is_none() {
            if is_empty(bytes) {
                return self.empty(bytes.len() as u64, bad);
            }
            match stated(bytes, self.at == 0).filter(|format| fits(*format, bytes)) {
                Some(format) => self.format = Some(format),
                None if self.window < WINDOW && !last && self.role != Role::Perhaps => {
                    self.window = WINDOW;
                    self.held = bytes.to_vec();
                    return;
                }
                None => self.format = Some(recognise(bytes, self.at == 0)),
            }
        }
        let format = self.format.unwrap_or(Format::DEFAULT);
        if self.role == Role::Perhaps {
            self.role = match is_system(format, bytes, self.at == 0) {
                true => Role::System,
                false => Role::Other,
            };
        }
        for page in bytes.chunks(format.page_size) {
            self.page(format, page, bad);
        }
    }

    fn page(&mut self, format: Format, page: &[u8], bad: &mut impl FnMut(BadPage)) {
        let offset = self.at;
        let place = offset / format.page_size as u64;
        if self.role == Role::Other {
            return;
        }
        if page.len() == format.page_size && is_empty(page) && !self.in_doublewrite(format, place) {
            return self.empty(page.len() as u64, bad);
        }
        self.at += page.len() as u64;
        if self.in_doublewrite(format, place) {
            return self.area.page(format, page, place, offset);
        }
        let is_unused = self.is_recovered && self.is_unused(place);
        let mut damaged = |counts: &mut PageCounts, fault| {
            if is_unused {
                counts.unchecked += 1;
                return;
            }
            counts.damaged += 1;
            bad(BadPage { page: place, offset, fault, missing_since: None });
        };
        if page.len() < format.page_size {
            match is_empty(page) {
                true => self.counts.empty += 1,
                false => damaged(&mut self.counts, Fault::Cut { len: page.len() }),
            }
            return;
        }
        // Without the first page, nothing says whether the others may be encrypted. In undo
        // tablespaces, encryption can begin at any time.
        let encrypted =
            self.role == Role::Undo || self.header.is_none_or(|header| header.encrypted);
        let verdict = check(format, page, PageContext { first: offset == 0, encrypted });
        if let Verdict::Damaged(fault) = verdict {
            return damaged(&mut self.counts, fault);
        }
        let got = number(page).unwrap_or_default();
        let base = *self.base.get_or_insert_with(|| u64::from(got).saturating_sub(place));
        let expected = base + place;
        if u64::from(got) != expected {
            return damaged(&mut self.counts, Fault::Number { expected, got });
        }
        if let Some(fault) = self.of_another_space(format, expected, page) {
            return damaged(&mut self.counts, fault);
        }
        match verdict {
            Verdict::Inside => self.counts.unchecked += 1,
            Verdict::NoChecksum => self.counts.no_checksum += 1,
            _ => self.counts.good += 1,
        }
        if std::mem::take(&mut self.begins_empty) && base == 0 {
            self.empty_fixed.push(0);
        }
        // A server writes the first page of a new file before its redo log, without a position.
        let lsn = lsn(page).filter(|lsn| *lsn > 0);
        self.oldest = self.oldest.into_iter().chain(lsn).min();
        if expected > 1 {
            self.made = self.made.into_iter().chain(lsn).min();
        }
        if verdict != Verdict::Inside {
            self.learn(format, expected, page);
        }
    }

    /// Takes empty pages, `len` bytes: of them, those that are in use are missing.
    fn empty(&mut self, len: u64, bad: &mut impl FnMut(BadPage)) {
        let size = self.format.unwrap_or(Format::DEFAULT).page_size as u64;
        let (first, count) = (self.at / size, len / size);
        self.counts.empty += count;
        self.begins_empty |= self.at == 0 && count > 0;
        self.at += len;
        let (Some(base), Some(format)) = (self.base, self.format) else { return };
        // Beyond the last page that was ever used there is nothing to miss.
        let limit = self.header.map_or(u64::MAX, |header| header.limit);
        let end = (first + count).min(limit.saturating_sub(base));
        let mut place = first;
        while place < end {
            let number = base + place;
            let since = match &self.map {
                // The first page of a group describes itself, too.
                _ if PageMap::is_at(format, number) => self.header.map(|header| header.lsn),
                Some(map) => match map.is_used(number) {
                    Some(used) => used.then_some(map.lsn),
                    None => None,
                },
                None => None,
            };
            // When a server creates the doublewrite area, it reserves pages before it that it never
            // writes.
            let reserved =
                self.role == Role::System && number < DOUBLEWRITE_END * format.extent_of(0);
            if since.is_some() && self.is_fixed(format, number) {
                self.empty_fixed.push(place);
            } else if since.is_some() && !reserved {
                let (offset, fault) = (place * size, Fault::Empty);
                bad(BadPage { page: place, offset, fault, missing_since: since });
            }
            let known = self.map.as_ref().is_some_and(|map| map.is_used(number + 1).is_some());
            // Without a map, the next page of interest is the first of the next group.
            place = match known {
                true => place + 1,
                false => (number / size + 1) * size - base,
            };
        }
    }

    /// Returns whether the tablespace states that it does not use the page of this place.
    fn is_unused(&self, place: u64) -> bool {
        let Some(number) = self.base.map(|base| base + place) else { return false };
        let is_beyond = self.header.is_some_and(|header| number >= header.limit);
        let used = self.map.as_ref().and_then(|map| map.is_used(number));
        is_beyond || used == Some(false)
    }

    /// Returns whether a tablespace has this page from its creation on and never frees it.
    fn is_fixed(&self, format: Format, number: u64) -> bool {
        match (self.role, number % format.page_size as u64) {
            // The description of a group, and the bitmap behind it, which undo tablespaces lack.
            (_, 0) | (Role::Table | Role::System, 1) => true,
            // The list of segments, and the first root: of the table, or of MySQL's dictionary.
            (Role::Table, 2 | 3) => number < format.page_size as u64,
            // The list of segments, the head of the transactions, and that of the dictionary.
            (Role::System, 2 | 5 | 7) => number < format.page_size as u64,
            _ => false,
        }
    }

    /// Returns whether a page states that it is of another tablespace. Pages that are not in use may: an
    /// import leaves them as they were.
    fn of_another_space(&self, format: Format, expected: u64, page: &[u8]) -> Option<Fault> {
        let got = space(format, page)?;
        let own = match (self.header, self.role) {
            (Some(header), _) => header.id,
            (None, Role::System) => 0,
            // In the older formats no checksum covers the field of a page; that of the header is covered.
            (None, _) if expected == 0 => SpaceHeader::id_of(page)?,
            (None, _) => return None,
        };
        let used = self.map.as_ref().and_then(|map| map.is_used(expected)).unwrap_or(true);
        (got != own && used).then_some(Fault::Space { expected: own, got })
    }

    /// Records the facts that a valid page states about others.
    fn learn(&mut self, format: Format, number: u64, page: &[u8]) {
        if number == 0 && self.at == page.len() as u64 {
            self.header = SpaceHeader::of_page(format, page);
        }
        if PageMap::is_at(format, number) {
            let extent = self.header.map_or(format.extent_of(0), |header| header.extent);
            self.map = PageMap::of_page(page, number, extent);
        }
        if self.role == Role::System && number == DOUBLEWRITE_AT {
            self.doublewrite = Doublewrite::of_page(page);
        }
    }

    fn in_doublewrite(&self, format: Format, place: u64) -> bool {
        let first = self.role == Role::System && self.base == Some(0);
        first && self.doublewrite.includes(place, format.extent_of(0))
    }
}

/// The last component of a path.
fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Returns whether these first pages of a file are of a system tablespace: a page of tablespace 0 matches
/// its checksum.
fn is_system(format: Format, bytes: &[u8], first: bool) -> bool {
    let good = |(n, page)| {
        let place = PageContext { first: first && n == 0, encrypted: false };
        check(format, page, place) == Verdict::Good && space(format, page) == Some(0)
    };
    bytes.chunks_exact(format.page_size).enumerate().any(good)
}

/// Returns whether the name is `prefix` followed by digits only.
fn numbered(name: &[u8], prefix: &[u8]) -> bool {
    name.strip_prefix(prefix)
        .is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit))
}
