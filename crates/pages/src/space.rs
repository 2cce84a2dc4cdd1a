//! Facts about a whole tablespace that its pages contain: its number, its length, and which of its
//! pages are in use.

use crate::format::{Format, Kind, be16, be32, be64};
use crate::page::{DATA, LSN, SPACE, TYPE};

/// Types of the pages that describe others: the first page, and the first page of each later group.
const FIRST_PAGE: u16 = 8;
const GROUP_PAGE: u16 = 9;
/// Fields of the first page: number, length in pages, pages in use or freed, flags.
const SPACE_ID: usize = DATA;
const SIZE: usize = DATA + 8;
const LIMIT: usize = DATA + 12;
const FLAGS: usize = DATA + 16;
/// Flag of MySQL: pages are encrypted.
const ENCRYPTED: u32 = 1 << 13;
/// Offset of the descriptions of extents, one after the other.
const EXTENTS: usize = 150;
/// Within the description of an extent: its state, and two bits for each of its pages.
const STATE: usize = 20;
const BITS: usize = 24;
/// States of extents that have pages in use: parts of it used, all used, owned by a segment (two
/// kinds).
const IN_USE: std::ops::RangeInclusive<u32> = 2..=5;

/// Statements of the first page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpaceHeader {
    /// Number of the tablespace.
    pub(crate) id: u32,
    /// Length of the tablespace in pages.
    pub(crate) size: u64,
    /// Pages from here on were never used.
    pub(crate) limit: u64,
    /// Whether pages may be encrypted as MySQL does it.
    pub(crate) encrypted: bool,
    /// Pages in an extent.
    pub(crate) extent: u64,
    /// Log position of the page.
    pub(crate) lsn: u64,
}

impl SpaceHeader {
    /// The number of the tablespace that the header of the first page states; `None` if the page is of
    /// another type.
    pub(crate) fn id_of(page: &[u8]) -> Option<u32> {
        if be16(page, TYPE)? == FIRST_PAGE { be32(page, SPACE_ID) } else { None }
    }

    /// Reads the first page; `None` if it is of another type.
    pub(crate) fn of_page(format: Format, page: &[u8]) -> Option<Self> {
        let (id, flags) = (Self::id_of(page)?, be32(page, FLAGS)?);
        if be32(page, SPACE)? != id {
            return None;
        }
        Some(Self {
            id,
            size: be32(page, SIZE)?.into(),
            limit: be32(page, LIMIT)?.into(),
            encrypted: format.kind != Kind::Full && flags & ENCRYPTED != 0,
            extent: format.extent_of(flags),
            lsn: be64(page, LSN)?,
        })
    }
}

/// Which pages of a group are in use. A group has as many pages as a page has bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageMap {
    first: u64,
    used: Vec<u64>,
    /// Log position of the page that contains the map.
    pub(crate) lsn: u64,
}

impl PageMap {
    /// Returns whether page `number` describes a group.
    pub(crate) fn is_at(format: Format, number: u64) -> bool {
        number.is_multiple_of(format.page_size as u64)
    }

    /// Reads the map from page `number`; `None` if it is of another type.
    pub(crate) fn of_page(page: &[u8], number: u64, extent: u64) -> Option<Self> {
        let kind = be16(page, TYPE)?;
        if kind != FIRST_PAGE && kind != GROUP_PAGE {
            return None;
        }
        let pages = page.len() as u64;
        let bits = usize::try_from(extent / 4).ok()?;
        let mut used = vec![0_u64; page.len().div_ceil(64)];
        for place in 0..pages.checked_div(extent)? {
            let at = EXTENTS + usize::try_from(place).ok()? * (BITS + bits);
            if !IN_USE.contains(&be32(page, at + STATE)?) {
                continue;
            }
            let bits = page.get(at + BITS..at + BITS + bits)?;
            for n in 0..extent {
                // The first bit of each pair says that the page is free.
                let byte = bits.get(usize::try_from(n / 4).ok()?)?;
                let number = place * extent + n;
                if byte >> (n % 4 * 2) & 1 == 0 {
                    *used.get_mut(usize::try_from(number / 64).ok()?)? |= 1 << (number % 64);
                }
            }
        }
        Some(Self { first: number, used, lsn: be64(page, LSN)? })
    }

    /// Returns whether page `number` is in use; `None` if it is of another group.
    pub(crate) fn is_used(&self, number: u64) -> Option<bool> {
        let place = number.checked_sub(self.first)?;
        let word = self.used.get(usize::try_from(place / 64).ok()?)?;
        Some(word >> (place % 64) & 1 == 1)
    }

    /// Bytes that the map occupies.
    pub(crate) fn held(&self) -> usize {
        self.used.len() * size_of::<u64>()
    }
}

/// Facts about a tablespace, from its first page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceHead {
    /// Number of the tablespace.
    pub space: u32,
    /// Its length in pages; of the system tablespace, that of all its files.
    pub pages: u64,
    /// Bytes of a page in the file.
    pub page_size: usize,
}

impl SpaceHead {
    /// Reads the first bytes of a tablespace, at least 100. `None` if they are of another kind of page.
    #[must_use]
    pub fn of_head(head: &[u8]) -> Option<Self> {
        let format = Format::of_first_page(head)?;
        let SpaceHeader { id, size, .. } = SpaceHeader::of_page(format, head)?;
        Some(Self { space: id, pages: size, page_size: format.page_size })
    }
}
