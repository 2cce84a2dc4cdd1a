//! Reads the head of the index file of a MyISAM table (`.MYI`) or an Aria table (`.MAI`).
//!
//! All positions were found by experiments with tables of MariaDB 10.11. Numbers are big-endian.

use crate::format::{be16, be64};

/// Bytes at the beginning of an index file that are needed. Shorter files are needed whole.
pub const TABLE_HEAD: usize = 8 << 10;
/// Size of the pages of Aria, unless a server is told otherwise.
pub(crate) const ARIA_PAGE: usize = 8 << 10;

/// First bytes of the index files: the engine, and the version of its format.
const MYISAM: [u8; 3] = [0xfe, 0xfe, 7];
const MYISAM_VERSION: u8 = 1;
const ARIA: [u8; 3] = [0xfe, 0xfe, 9];
const ARIA_VERSION: u8 = 3;
/// Number of times that the table is open for changes that are not all in its files; both engines.
const OPENED: usize = 24;
/// Length of the index file, and behind it that of the data file.
const MYISAM_LENGTHS: usize = 60;
const ARIA_LENGTHS: usize = 89;
/// Aria: length of the head, place of the unchanging part, kind of rows.
const ARIA_HEAD_LEN: usize = 6;
const ARIA_BASE: usize = 12;
const ARIA_ROWS: usize = 22;
const ROWS_IN_PAGES: u8 = 3;
/// Aria, from the unchanging part on: size of a page; encrypted; transactional.
const BASE_PAGE: usize = 22;
const BASE_ENCRYPTED: usize = 91;
const BASE_TRANSACTIONAL: usize = 106;

/// An engine whose tables are a data file and an index file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TableEngine {
    /// `.MYD` and `.MYI`.
    MyIsam,
    /// `.MAD` and `.MAI`.
    Aria,
}

impl TableEngine {
    /// The engine's name, as servers spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MyIsam => "MyISAM",
            Self::Aria => "Aria",
        }
    }
}

/// The head of an index file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableHead {
    /// Length of the index file in bytes.
    pub index_len: u64,
    /// Length of the data file in bytes.
    pub data_len: u64,
    /// Whether the server had changed the table and not closed it: its files may be behind.
    pub in_use: bool,
    /// Whether recovery repairs the table from Aria's log.
    pub transactional: bool,
    /// Whether an Aria table is encrypted.
    pub encrypted: bool,
    /// The pages of an Aria table, if they can be checked.
    pub pages: Option<AriaPages>,
}

/// Properties of an Aria table that are needed to check its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AriaPages {
    /// Number of pages that the head of the index file takes; they have no checksum.
    pub head: u64,
    /// Whether rows are in pages, too (`ROW_FORMAT=PAGE`).
    pub rows: bool,
}

/// Reason why a head cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadFault {
    /// The file is no index file of this engine.
    NotAnIndex,
    /// The file ends within its head.
    Cut,
    /// A later version of the format.
    Unknown,
}

impl TableHead {
    /// Reads the first [`TABLE_HEAD`] bytes of an index file.
    ///
    /// # Errors
    /// [`HeadFault`].
    pub fn of_head(engine: TableEngine, head: &[u8]) -> Result<Self, HeadFault> {
        // Fields further back belong to a table with an unusual number of keys.
        let beyond = match head.len() < TABLE_HEAD {
            true => HeadFault::Cut,
            false => HeadFault::Unknown,
        };
        let (magic, known, lengths) = match engine {
            TableEngine::MyIsam => (MYISAM, MYISAM_VERSION, MYISAM_LENGTHS),
            TableEngine::Aria => (ARIA, ARIA_VERSION, ARIA_LENGTHS),
        };
        match head.strip_prefix(&magic) {
            Some([version, ..]) if *version == known => {}
            Some([_, ..]) => return Err(HeadFault::Unknown),
            None if !head.is_empty() && magic.starts_with(head) => return Err(HeadFault::Cut),
            Some([]) => return Err(HeadFault::Cut),
            None => return Err(HeadFault::NotAnIndex),
        }
        let both = be64(head, lengths).zip(be64(head, lengths + 8));
        let (index_len, data_len) = both.ok_or(beyond)?;
        let in_use = be16(head, OPENED).ok_or(beyond)? > 0;
        let (transactional, encrypted, pages) = match engine {
            TableEngine::MyIsam => (false, false, None),
            TableEngine::Aria => aria(head, beyond)?,
        };
        Ok(Self { index_len, data_len, in_use, transactional, encrypted, pages })
    }

    /// Returns whether the files must be at least as long as stated.
    #[must_use]
    pub fn lengths_hold(&self) -> bool {
        !self.in_use && !self.transactional
    }

    /// Offset in a page of the index at which the number of its used bytes is.
    #[must_use]
    pub(crate) fn used_at(&self) -> usize {
        // In front of it are a log position and the number of a transaction in a table that has them.
        if self.transactional { 15 } else { 2 }
    }
}

/// Returns whether an Aria table is transactional, whether it is encrypted, and its pages. `beyond`: the fault if something lies
/// behind the end of these bytes.
fn aria(head: &[u8], beyond: HeadFault) -> Result<(bool, bool, Option<AriaPages>), HeadFault> {
    let base = usize::from(be16(head, ARIA_BASE).ok_or(beyond)?);
    let flag = |at| match head.get(base + at).copied().ok_or(beyond)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(HeadFault::Unknown),
    };
    let transactional = flag(BASE_TRANSACTIONAL)?;
    let page = usize::from(be16(head, base + BASE_PAGE).ok_or(beyond)?);
    let len = be16(head, ARIA_HEAD_LEN).ok_or(beyond)?;
    let rows = head.get(ARIA_ROWS) == Some(&ROWS_IN_PAGES);
    let encrypted = flag(BASE_ENCRYPTED)?;
    let plain = !encrypted && page == ARIA_PAGE;
    let pages = AriaPages { head: u64::from(len).div_ceil(ARIA_PAGE as u64), rows };
    Ok((transactional, encrypted, plain.then_some(pages)))
}
