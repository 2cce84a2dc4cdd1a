//! Checks one file of a MyISAM or Aria table while its bytes arrive.
//!
//! Pages of Aria end with a checksum: CRC-32 whose initial value is the page's number, over the
//! whole page in a data file, and over the used bytes in an index file (found by experiments with
//! MariaDB 10.11). MyISAM has no checksums; only the length of its files can be checked.

use crc_fast::{CrcAlgorithm, Digest};

use crate::format::be16;
use crate::page::{BadPage, Fault, is_empty};
use crate::table_head::{ARIA_PAGE, HeadFault, TABLE_HEAD, TableEngine, TableHead};
use crate::tablespace::PageCounts;

/// Maximum number of bad pages of one file that are kept one by one.
const MAX_BAD: usize = 100;
/// Values in place of the checksum: of a page without one, and of a bitmap without one.
const NO_CHECKSUM: [u32; 2] = [u32::MAX, u32::MAX - 1];

/// Role of a file of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TablePart {
    /// The index file, whose head describes the table.
    Index,
    /// The data file.
    Data,
}

/// Name of a file of a MyISAM or Aria table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableFileName<'n> {
    /// The engine.
    pub engine: TableEngine,
    /// The file's role.
    pub part: TablePart,
    /// The name without its suffix, the same for both files of a table.
    pub stem: &'n [u8],
}

impl<'n> TableFileName<'n> {
    /// Takes a name without suffixes of compression or encryption apart. `None` if it is of
    /// something else.
    #[must_use]
    pub fn of(path: &'n [u8]) -> Option<Self> {
        const SUFFIXES: [(&[u8], TableEngine, TablePart); 4] = [
            (b".MYI", TableEngine::MyIsam, TablePart::Index),
            (b".MYD", TableEngine::MyIsam, TablePart::Data),
            (b".MAI", TableEngine::Aria, TablePart::Index),
            (b".MAD", TableEngine::Aria, TablePart::Data),
        ];
        SUFFIXES.into_iter().find_map(|(suffix, engine, part)| {
            path.strip_suffix(suffix).map(|stem| Self { engine, part, stem })
        })
    }
}

/// Checks one file of a table. It holds at most two pages.
#[derive(Debug)]
pub struct TableFileChecker {
    engine: TableEngine,
    part: TablePart,
    /// The head of an index file, as far as it was read.
    head: Vec<u8>,
    /// The head, once it is complete.
    known: Option<TableHead>,
    /// Bytes short of a page.
    held: Vec<u8>,
    /// The result so far, without the head.
    found: TableFileChecked,
}

/// Result for one file of a table.
#[derive(Debug, Clone, Default)]
pub struct TableFileChecked {
    /// Length in bytes.
    pub len: u64,
    /// The head of an index file.
    pub head: Option<Result<TableHead, HeadFault>>,
    /// Number of pages, if it is a file of Aria; they count only if the head of the table's index
    /// file says that this file has pages.
    pub counts: PageCounts,
    /// The first bad pages, at most 100.
    pub bad: Vec<BadPage>,
    /// Number of further bad pages.
    pub more_bad: u64,
}

impl TableFileChecker {
    /// Creates a checker for a file of this engine and role.
    #[must_use]
    pub fn new(engine: TableEngine, part: TablePart) -> Self {
        Self {
            engine,
            part,
            head: Vec::new(),
            known: None,
            held: Vec::new(),
            found: TableFileChecked::default(),
        }
    }

    /// Number of bytes currently held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.head.len() + self.held.len()
    }

    /// Takes the next bytes of the file.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        self.take_head(bytes);
        if self.engine == TableEngine::MyIsam {
            self.found.len += bytes.len() as u64;
            return;
        }
        while !bytes.is_empty() {
            if self.held.is_empty() && bytes.len() >= ARIA_PAGE {
                let (page, rest) = bytes.split_at(ARIA_PAGE);
                self.page(page);
                bytes = rest;
                continue;
            }
            let (piece, rest) = bytes.split_at(bytes.len().min(ARIA_PAGE - self.held.len()));
            self.held.extend_from_slice(piece);
            bytes = rest;
            if self.held.len() == ARIA_PAGE {
                let page = std::mem::take(&mut self.held);
                self.page(&page);
            }
        }
    }

    /// Takes a hole: `len` zeros.
    pub fn feed_zeros(&mut self, mut len: u64) {
        const ZEROS: [u8; 4096] = [0; 4096];
        while len > 0 {
            let head = self.part == TablePart::Index && self.head.len() < TABLE_HEAD;
            if !head && self.held.is_empty() {
                // Whole pages of zeros need no check.
                let whole = len - len % ARIA_PAGE as u64;
                self.found.counts.empty += whole / ARIA_PAGE as u64;
                self.found.len += whole;
                len -= whole;
            }
            let piece = usize::try_from(len).unwrap_or(usize::MAX).min(ZEROS.len());
            self.feed(ZEROS.get(..piece).unwrap_or_default());
            len -= piece as u64;
        }
    }

    /// Signals the end of the file.
    #[must_use]
    pub fn finish(mut self) -> TableFileChecked {
        let rest = std::mem::take(&mut self.held);
        let head =
            (self.part == TablePart::Index).then(|| TableHead::of_head(self.engine, &self.head));
        if !rest.is_empty() {
            let (page, offset) = (self.found.len / ARIA_PAGE as u64, self.found.len);
            self.add(page, offset, Fault::Cut { len: rest.len() });
        }
        let len = self.found.len + rest.len() as u64;
        TableFileChecked { len, head, ..self.found }
    }

    fn take_head(&mut self, bytes: &[u8]) {
        if self.part == TablePart::Data || self.head.len() >= TABLE_HEAD {
            return;
        }
        let room = TABLE_HEAD.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(bytes.get(..room).unwrap_or_default());
        if self.head.len() == TABLE_HEAD {
            self.known = TableHead::of_head(self.engine, &self.head).ok();
        }
    }

    fn page(&mut self, page: &[u8]) {
        let (number, offset) = (self.found.len / ARIA_PAGE as u64, self.found.len);
        self.found.len += page.len() as u64;
        let checked = match self.part {
            TablePart::Data => page.get(..ARIA_PAGE - 4).ok_or(None),
            TablePart::Index => match self.known.and_then(|head| Some((head, head.pages?))) {
                Some((_, pages)) if number < pages.head => return,
                Some((head, _)) => used(page, head.used_at()),
                None => return,
            },
        };
        if is_empty(page) {
            self.found.counts.empty += 1;
            return;
        }
        let stored = page.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if NO_CHECKSUM.contains(&stored) {
            self.found.counts.no_checksum += 1;
            return;
        }
        match checked {
            Ok(bytes) => match crc32_from(number, bytes) {
                computed if computed == stored => self.found.counts.good += 1,
                computed => self.add(number, offset, Fault::Checksum { stored, computed }),
            },
            Err(len) => {
                let len = len.unwrap_or_default();
                self.add(number, offset, Fault::Length { len });
            }
        }
    }

    fn add(&mut self, page: u64, offset: u64, fault: Fault) {
        self.found.counts.damaged += 1;
        if self.found.bad.len() < MAX_BAD {
            self.found.bad.push(BadPage { page, offset, fault, missing_since: None });
        } else {
            self.found.more_bad += 1;
        }
    }
}

/// The used bytes of a page of an index. Fails with their number if it is impossible.
fn used(page: &[u8], at: usize) -> Result<&[u8], Option<usize>> {
    let len = usize::from(be16(page, at).ok_or(None)?);
    page.get(..len).filter(|used| used.len() <= ARIA_PAGE - 4).ok_or(Some(len))
}

/// CRC-32 with a page's number as its initial value.
fn crc32_from(number: u64, bytes: &[u8]) -> u32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    let start = !u32::from_le_bytes([a, b, c, d]);
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32IsoHdlc, u64::from(start));
    digest.update(bytes);
    let [a, b, c, d, ..] = digest.finalize().to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
