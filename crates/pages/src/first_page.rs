//! The first page of a tablespace of MySQL, where an encrypted one has its key.

use crate::checksums::crc32c_of;
use crate::format::{Format, Kind, be32};
use crate::page::{PageContext, Verdict, check, number};

/// Offset of the tablespace's flags.
const FLAGS: usize = 54;
const ENCRYPTED: u32 = 1 << 13;
/// Offset at which the descriptions of extents begin; the key is behind them.
const EXTENTS: u64 = 150;

/// Facts about a tablespace of MySQL, from its first page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstPage {
    format: Format,
    flags: u32,
}

impl FirstPage {
    /// Reads a first page. `None` if it does not say that its pages are as long as it is.
    #[must_use]
    pub fn of(page: &[u8]) -> Option<Self> {
        let first = Self::of_flags(be32(page, FLAGS)?)?;
        (first.format.page_size == page.len()).then_some(first)
    }

    /// Says how the first page is of a tablespace with these flags. `None` if MySQL has none of them.
    #[must_use]
    pub fn of_flags(flags: u32) -> Option<Self> {
        let format = Format::of_flags(flags)?;
        (format.kind != Kind::Full).then_some(Self { format, flags })
    }

    /// Returns whether the page matches its checksum.
    #[must_use]
    pub fn is_intact(&self, page: &[u8]) -> bool {
        let place = PageContext { first: true, encrypted: false };
        matches!(check(self.format, page, place), Verdict::Good | Verdict::NoChecksum)
    }

    /// Returns whether the pages behind it are encrypted, or being encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.flags & ENCRYPTED != 0
    }

    /// Offset in the page at which the key is, in bytes.
    #[must_use]
    pub fn key_offset(&self) -> usize {
        let extent = self.format.extent_of(self.flags);
        let described = self.format.page_size as u64 / extent;
        usize::try_from(EXTENTS + described * (24 + extent / 4)).unwrap_or(usize::MAX)
    }

    /// Writes the checksum of a page that was changed.
    pub fn set_checksum(&self, page: &mut [u8]) {
        let len = page.len();
        match self.format.kind {
            Kind::Zip => {
                let sum = crc32c_of(page, &[4..16, 24..26, 34..len]).to_be_bytes();
                page.iter_mut().zip(sum).for_each(|(to, from)| *to = from);
            }
            _ => {
                let end = len.saturating_sub(8);
                let sum = crc32c_of(page, &[4..26, 38..end]).to_be_bytes();
                page.iter_mut().zip(sum).for_each(|(to, from)| *to = from);
                page.iter_mut().skip(end).zip(sum).for_each(|(to, from)| *to = from);
            }
        }
    }
}

/// Returns whether a page of MySQL matches its checksum, if nothing is known about its tablespace. One that is encrypted or
/// compressed has its checksum inside, and passes.
#[must_use]
pub fn is_intact_page(page: &[u8]) -> bool {
    if number(page) == Some(0) && FirstPage::of(page).is_some_and(|first| first.is_intact(page)) {
        return true;
    }
    let place = PageContext { first: false, encrypted: true };
    [Kind::Both, Kind::Zip].into_iter().any(|kind| {
        let format = Format { page_size: page.len(), kind };
        !matches!(check(format, page, place), Verdict::Damaged(_))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(len: usize, flags: u32) -> Vec<u8> {
        let mut page: Vec<u8> = (0..len).map(|n| u8::try_from(n % 251).unwrap()).collect();
        page[FLAGS..FLAGS + 4].copy_from_slice(&flags.to_be_bytes());
        // Both halves of the position are the same.
        let lsn = page[20..24].to_vec();
        page[len - 4..].copy_from_slice(&lsn);
        page
    }

    #[test]
    fn the_key_lies_behind_the_extents_in_every_size() {
        // Found in files of MySQL 9.7, and by its documentation for 16 KiB.
        for (size, code, zip, offset) in [
            (4096, 3, 0, 150 + 16 * 88),
            (8192, 4, 0, 150 + 64 * 56),
            (16384, 0, 0, 10390),
            (32768, 6, 0, 150 + 512 * 40),
            (65536, 7, 0, 150 + 1024 * 40),
            (8192, 0, 4, 150 + 128 * 40),
            (4096, 0, 3, 150 + 64 * 40),
        ] {
            let first = FirstPage::of(&page(size, code << 6 | zip << 1 | ENCRYPTED)).unwrap();
            assert_eq!(first.key_offset(), offset, "{size} {zip}");
            assert!(first.is_encrypted());
        }
        assert_eq!(FirstPage::of(&page(8192, 0)), None);
        assert_eq!(FirstPage::of(&page(16384, 0x15)), None, "of MariaDB");
        assert_eq!(FirstPage::of(&[]), None);
    }

    #[test]
    fn a_changed_page_gets_a_sum_that_it_matches() {
        for (size, flags) in [(16384, 0x21), (4096, 3 << 6 | 0x21), (8192, 4 << 1 | 0x21)] {
            let mut page = page(size, flags);
            let first = FirstPage::of(&page).unwrap();
            assert!(!first.is_intact(&page));
            first.set_checksum(&mut page);
            assert!(first.is_intact(&page), "{size}");
            assert!(is_intact_page(&page));
            page[first.key_offset()] ^= 1;
            assert!(!first.is_intact(&page) && !is_intact_page(&page));
        }
    }
}
