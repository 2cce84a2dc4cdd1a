//! Checks one page against its own checksum.

use std::fmt;

use crate::checksums::{adler_of, crc32c, crc32c_of, fold};
use crate::format::{Format, Kind, be16, be32, be64};
use crate::mysql_compressed::uncompressed;

// Fields at the beginning of every page, by offset: checksum 0, page number 4, log position 16,
// type 24, eight bytes with several uses 26, number of the tablespace 34, content 38.
const NUMBER: usize = 4;
pub(crate) const LSN: usize = 16;
pub(crate) const TYPE: usize = 24;
const VARIOUS: usize = 26;
pub(crate) const SPACE: usize = 34;
pub(crate) const DATA: usize = 38;
/// Value of both checksum fields in a page without checksum.
const NO_CHECKSUM: u32 = 0xdead_beef;
/// Flag in the type of a compressed full_crc32 page; the other bits are its length in units of 256
/// bytes.
const FULL_COMPRESSED: u16 = 1 << 15;
/// MariaDB page types: compressed; compressed and then encrypted. The checksum is inside.
const MARIADB_COMPRESSED: [u16; 2] = [34354, 37401];
/// MySQL page types: compressed, also encrypted; encrypted, also of a spatial index. The checksum is
/// inside.
const MYSQL_COMPRESSED: [u16; 2] = [14, 16];
const MYSQL_ENCRYPTED: [u16; 2] = [15, 17];

/// Page types whose checksum is in its place, and unused numbers between them; the latter are those of indexes.
const PLAIN: [std::ops::RangeInclusive<u16>; 3] = [0..=13, 18..=48, 17853..=17855];

/// The result of checking a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It matches its checksum.
    Good,
    /// It is all zeros, never written.
    Empty,
    /// It is marked as having no checksum.
    NoChecksum,
    /// Its checksum is inside the compressed or encrypted part.
    Inside,
    /// It does not match its checksum.
    Damaged(Fault),
}

/// A page that is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadPage {
    /// Its number in the file, from 0.
    pub page: u64,
    /// Offset of the page in the file, in bytes.
    pub offset: u64,
    /// Its defect.
    pub fault: Fault,
    /// If set, the page is missing rather than wrong, and shown to be missing by a page that was
    /// changed last at this position in the redo log. Recovery writes such a page if it starts
    /// before that position; otherwise the page is damaged. It is not in
    /// [`PageCounts::damaged`](crate::PageCounts::damaged). For [`Fault::Blank`] it is 0, because no
    /// page shows when the file was created.
    pub missing_since: Option<u64>,
}

/// Defect of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The checksum does not match.
    Checksum {
        /// The checksum as stored.
        stored: u32,
        /// The checksum as computed, by the usual algorithm for this kind of page.
        computed: u32,
    },
    /// The log positions at its beginning and end differ: a torn page, mixed from two versions.
    Torn {
        /// Low 32 bits, at the beginning.
        head: u32,
        /// Low 32 bits, at the end.
        tail: u32,
    },
    /// The page has the number of another page.
    Number {
        /// The expected page number.
        expected: u64,
        /// The page number as stored.
        got: u32,
    },
    /// The page is of another tablespace.
    Space {
        /// Number of this tablespace.
        expected: u32,
        /// The tablespace's number as stored in the page.
        got: u32,
    },
    /// The page is all zeros, although the tablespace counts it as used.
    Empty,
    /// The page is all zeros, although every tablespace of its kind has it from its creation on and
    /// never frees it, such as the first page and the root of a table.
    EmptyFixed,
    /// The same of the list of segments, or the first root, of a table. A server makes them in a change of their own,
    /// after the first two pages: its checkpoint may be between the two.
    EmptyRoot {
        /// No page behind the first two was changed last before this position in the redo log.
        made: u64,
    },
    /// The file holds no page: no bytes, or only zeros.
    Blank,
    /// The file ends before this page, which the tablespace's first page counts.
    Short {
        /// Number of pages present.
        pages: u64,
        /// Number of pages as stated.
        stated: u64,
    },
    /// The same of an undo tablespace, which a server truncates while it runs.
    Truncated {
        /// Number of pages present.
        pages: u64,
        /// Number of pages as stated.
        stated: u64,
    },
    /// A compressed page states an impossible length.
    Length {
        /// The stated length in bytes.
        len: usize,
    },
    /// The content of a compressed page cannot be decompressed to the length of a page.
    Compressed {
        /// Length of the compressed content in bytes.
        len: usize,
    },
    /// The file ends inside the page.
    Cut {
        /// Number of bytes present.
        len: usize,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checksum { stored, computed } => {
                write!(f, "checksum {stored:08x} is stored, but {computed:08x} is computed")
            }
            Self::Torn { head, tail } => write!(
                f,
                "torn page: the LSN at its start ends in {head:08x}, the one at its end in {tail:08x}"
            ),
            Self::Number { expected, got } => {
                write!(f, "it has page number {got}, expected {expected}")
            }
            Self::Space { expected, got } => {
                write!(f, "page of tablespace {got} in the file of tablespace {expected}")
            }
            Self::Empty => f.write_str("empty page that the tablespace counts as used"),
            Self::EmptyFixed | Self::EmptyRoot { .. } => {
                f.write_str("empty page that is in use in every tablespace")
            }
            Self::Blank => f.write_str("the file holds no page, only zeros or nothing"),
            Self::Short { pages, stated } | Self::Truncated { pages, stated } => {
                write!(f, "the file ends after {pages} pages, but its first page states {stated}")
            }
            Self::Length { len } => write!(f, "invalid page length of {len} bytes"),
            Self::Compressed { len } => {
                write!(f, "its {len} bytes of compressed content cannot be decompressed")
            }
            Self::Cut { len } => write!(f, "the file ends after {len} bytes of this page"),
        }
    }
}

/// Facts about a page that are known before it is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageContext {
    /// It is the first page of its file, where the field that indicates encryption in other pages
    /// is a log position.
    pub(crate) first: bool,
    /// It may be encrypted as MySQL does it.
    pub(crate) encrypted: bool,
}

/// Checks a page of exactly the format's size.
pub(crate) fn check(format: Format, page: &[u8], place: PageContext) -> Verdict {
    if is_empty(page) {
        return Verdict::Empty;
    }
    let verdict = match format.kind {
        Kind::Full => full(page),
        _ if is_inside_mysql(page, place) => Some(inside(format, page)),
        Kind::Both => both(page, place.first),
        Kind::Zip => zip(page, place.first),
    };
    // Only a page shorter than its format's size lacks the fields, and none is passed here.
    verdict.unwrap_or(Verdict::Damaged(Fault::Cut { len: page.len() }))
}

/// The page number that the page states.
pub(crate) fn number(page: &[u8]) -> Option<u32> {
    be32(page, NUMBER)
}

/// The number of the tablespace that the page states; `None` if it is compressed or encrypted with
/// the rest.
pub(crate) fn space(format: Format, page: &[u8]) -> Option<u32> {
    let wrapped = be16(page, TYPE)? & FULL_COMPRESSED != 0 || be32(page, 0)? != 0;
    if format.kind == Kind::Full && wrapped { None } else { be32(page, SPACE) }
}

/// The position in the redo log of the page's last change.
pub(crate) fn lsn(page: &[u8]) -> Option<u64> {
    be64(page, LSN)
}

/// Returns whether MySQL has encrypted or compressed the page, so that its checksum is inside.
fn is_inside_mysql(page: &[u8], place: PageContext) -> bool {
    let Some(kind) = be16(page, TYPE).filter(|_| !place.first) else { return false };
    if MYSQL_ENCRYPTED.contains(&kind) {
        return place.encrypted;
    }
    // Instead of a log position: version and algorithm, the original type, the length of the
    // content before and after.
    let field = |at| be16(page, VARIOUS + at).map(usize::from);
    let (Some(how), Some(before), Some(after)) = (field(0), field(4), field(6)) else {
        return false;
    };
    let room = page.len().saturating_sub(DATA);
    MYSQL_COMPRESSED.contains(&kind) && how > 0xff && before == room && (1..=room).contains(&after)
}

/// Judges a page that states that its checksum is inside. If it matches its checksum with another type, it has only the
/// wrong type: an encrypted page matches with none.
fn inside(format: Format, page: &[u8]) -> Verdict {
    if format.kind != Kind::Both {
        return Verdict::Inside;
    }
    match (wrong_type(page), uncompressed(page)) {
        (Some(fault), _) => Verdict::Damaged(fault),
        (None, Some(Ok(whole))) => both(&whole, false).unwrap_or(Verdict::Inside),
        (None, Some(Err(len))) => Verdict::Damaged(Fault::Compressed { len }),
        (None, None) => Verdict::Inside,
    }
}

fn wrong_type(page: &[u8]) -> Option<Fault> {
    let end = page.len().checked_sub(8)?;
    let (head, tail) = (be32(page, 0)?, be32(page, end)?);
    if head != tail {
        return None;
    }
    let content = crc32c(page.get(DATA..end)?);
    let mut begin = page.get(NUMBER..VARIOUS)?.to_vec();
    let fits = PLAIN.into_iter().flatten().any(|kind| {
        begin.truncate(TYPE - NUMBER);
        begin.extend(kind.to_be_bytes());
        crc32c(&begin) ^ content == head
    });
    let computed = || crc32c_of(page, &[NUMBER..VARIOUS, DATA..end]);
    fits.then(|| Fault::Checksum { stored: head, computed: computed() })
}

/// Returns whether the page is all zeros.
pub(crate) fn is_empty(page: &[u8]) -> bool {
    // Compares 16 bytes at a time: tablespaces have many empty pages.
    let words = page.chunks_exact(16);
    words.remainder().iter().all(|byte| *byte == 0)
        && words.into_iter().all(|word| word.first_chunk() == Some(&[0_u8; 16]))
}

fn full(page: &[u8]) -> Option<Verdict> {
    let kind = be16(page, TYPE)?;
    let compressed = kind & FULL_COMPRESSED != 0;
    let len = if compressed { usize::from(kind & !FULL_COMPRESSED) << 8 } else { page.len() };
    if compressed && !(DATA + 4..page.len()).contains(&len) {
        return Some(Verdict::Damaged(Fault::Length { len }));
    }
    let end = len.checked_sub(4)?;
    let (stored, computed) = (be32(page, end)?, crc32c(page.get(..end)?));
    if stored != computed {
        return Some(Verdict::Damaged(Fault::Checksum { stored, computed }));
    }
    // An encrypted page begins with its key version; then its end is encrypted, too.
    let plain = !compressed && be32(page, 0)? == 0;
    Some(if plain { whole(page, end.checked_sub(4)?)? } else { Verdict::Good })
}

fn both(page: &[u8], first: bool) -> Option<Verdict> {
    let end = page.len().checked_sub(8)?;
    let (head, tail) = (be32(page, 0)?, be32(page, end)?);
    let kind = be16(page, TYPE)?;
    let key = be32(page, VARIOUS)?;
    if MARIADB_COMPRESSED.contains(&kind) && !first && (head == NO_CHECKSUM || key != 0) {
        return Some(Verdict::Inside);
    }
    let computed = crc32c_of(page, &[NUMBER..VARIOUS, DATA..end]);
    let good = |head, tail, sum| head == sum && tail == sum;
    if good(head, tail, computed) || (!first && key != 0 && be32(page, VARIOUS + 4)? == computed) {
        return whole(page, end + 4);
    }
    if good(head, tail, NO_CHECKSUM) {
        return Some(match whole(page, end + 4)? {
            Verdict::Good => Verdict::NoChecksum,
            torn => torn,
        });
    }
    let newer = fold(page.get(NUMBER..VARIOUS)?).wrapping_add(fold(page.get(DATA..end)?));
    if head == newer && tail == fold(page.get(..VARIOUS)?) {
        return whole(page, end + 4);
    }
    Some(Verdict::Damaged(Fault::Checksum {
        // The end that does not match.
        stored: if head == computed { tail } else { head },
        computed,
    }))
}

fn zip(page: &[u8], first: bool) -> Option<Verdict> {
    let ranges = [NUMBER..LSN, TYPE..VARIOUS, SPACE..page.len()];
    let stored = be32(page, 0)?;
    let computed = crc32c_of(page, &ranges);
    let encrypted = !first && be32(page, VARIOUS)? != 0;
    let inner = if encrypted { Some(be32(page, VARIOUS + 4)?) } else { None };
    Some(if stored == computed || inner == Some(computed) {
        Verdict::Good
    } else if stored == NO_CHECKSUM {
        Verdict::NoChecksum
    } else if stored == adler_of(page, &ranges) {
        Verdict::Good
    } else {
        Verdict::Damaged(Fault::Checksum { stored, computed })
    })
}

/// Returns whether beginning and end are of the same version.
fn whole(page: &[u8], tail_at: usize) -> Option<Verdict> {
    let (head, tail) = (be32(page, LSN + 4)?, be32(page, tail_at)?);
    Some(if head == tail { Verdict::Good } else { Verdict::Damaged(Fault::Torn { head, tail }) })
}
