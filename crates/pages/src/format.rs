//! The format of a tablespace's pages, as stated by its first page.

/// The largest page size, in bytes.
pub const MAX_PAGE: usize = 64 << 10;

/// Size and kind of a tablespace's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// Size of a page in the file, in bytes: a power of two from 1 KiB to [`MAX_PAGE`].
    pub page_size: usize,
    /// Protection of the pages.
    pub kind: Kind,
}

/// Protection of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Checksum fields at both ends: crc32, innodb or none.
    Both,
    /// MariaDB's full_crc32: a checksum at the end.
    Full,
    /// `ROW_FORMAT=COMPRESSED`.
    Zip,
}

/// Offset of the tablespace's flags in page 0: the space header follows the 38 bytes that all pages
/// have, and its flags are 16 bytes further.
const FLAGS_AT: usize = 38 + 16;
/// This bit is set in the flags of a full_crc32 tablespace.
const FULL_MARK: u32 = 1 << 4;
/// The page size of tablespaces whose flags state none.
const DEFAULT_PAGE: usize = 16 << 10;
/// Shifted by the size code of the flags, this is the page size.
const SIZE_UNIT: usize = 512;

impl Format {
    /// The format that is assumed when there is no information.
    pub(crate) const DEFAULT: Self = Self { page_size: DEFAULT_PAGE, kind: Kind::Both };

    /// Decodes the flags of a tablespace; `None` when the flags are not valid.
    ///
    /// The two families of flags differ in bit 4. It is always set for full_crc32. It cannot be set
    /// for the others, where it is the highest bit of a size code whose maximum is 5.
    #[must_use]
    pub(crate) fn of_flags(flags: u32) -> Option<Self> {
        let size = |code: u32, least: u32, most: u32| {
            (least..=most).contains(&code).then(|| SIZE_UNIT << code)
        };
        if flags & FULL_MARK != 0 {
            return Some(Self { page_size: size(flags & 15, 3, 7)?, kind: Kind::Full });
        }
        match ((flags >> 1) & 15, (flags >> 6) & 15) {
            (0, 0) => Some(Self::DEFAULT),
            (0, code) => Some(Self { page_size: size(code, 3, 7)?, kind: Kind::Both }),
            (code, _) => Some(Self { page_size: size(code, 1, 5)?, kind: Kind::Zip }),
        }
    }

    /// Reads the format from the first page of a tablespace.
    pub(crate) fn of_first_page(page: &[u8]) -> Option<Self> {
        Self::of_flags(be32(page, FLAGS_AT)?)
    }

    /// All formats.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let of = |kind, codes: std::ops::RangeInclusive<u32>| {
            codes.map(move |code| Self { page_size: SIZE_UNIT << code, kind })
        };
        of(Kind::Full, 3..=7).chain(of(Kind::Both, 3..=7)).chain(of(Kind::Zip, 1..=5))
    }

    /// Number of pages in an extent, for a tablespace with these flags: 1 MiB for pages up to 16
    /// KiB, else 64 pages. With `ROW_FORMAT=COMPRESSED`, the size of the uncompressed pages counts.
    pub(crate) fn extent_of(self, flags: u32) -> u64 {
        let size = match (self.kind, (flags >> 6) & 15) {
            (Kind::Zip, code @ 3..=7) => SIZE_UNIT << code,
            (Kind::Zip, _) => DEFAULT_PAGE,
            _ => self.page_size,
        };
        ((1 << 20) / size.max(1) as u64).max(64)
    }
}

/// Reads a 32-bit big-endian number, as InnoDB stores all numbers.
pub(crate) fn be32(page: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*page.get(at..)?.first_chunk()?))
}

/// Reads a 64-bit big-endian number.
pub(crate) fn be64(page: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*page.get(at..)?.first_chunk()?))
}

/// Reads a 16-bit big-endian number.
pub(crate) fn be16(page: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*page.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_name_size_and_kind() {
        let of = |flags| Format::of_flags(flags).map(|f| (f.page_size, f.kind));
        // Flags as written by MariaDB 10.11 and MySQL 8.0.
        assert_eq!(of(0x15), Some((16384, Kind::Full)));
        assert_eq!(of(0x13), Some((4096, Kind::Full)));
        assert_eq!(of(0x17), Some((65536, Kind::Full)));
        assert_eq!(of(0), Some((16384, Kind::Both)));
        assert_eq!(of(0x21), Some((16384, Kind::Both)));
        assert_eq!(of(0x4021), Some((16384, Kind::Both)), "with room for a dictionary");
        assert_eq!(of(0x21 | 3 << 6), Some((4096, Kind::Both)));
        assert_eq!(of(0x21 | 7 << 6), Some((65536, Kind::Both)));
        assert_eq!(of(0x21 | 4 << 1), Some((8192, Kind::Zip)));
        assert_eq!(of(0x21 | 1 << 1), Some((1024, Kind::Zip)));
        for bad in [0x1f, 0x12, 0x21 | 9 << 6, 0x21 | 6 << 1, u32::MAX] {
            assert_eq!(of(bad), None, "{bad:#x}");
        }
    }

    #[test]
    fn every_format_has_flags() {
        for format in Format::all() {
            let code = (format.page_size / SIZE_UNIT).trailing_zeros();
            let flags = match format.kind {
                Kind::Full => FULL_MARK | code,
                Kind::Both => code << 6,
                Kind::Zip => code << 1,
            };
            assert_eq!(Format::of_flags(flags), Some(format));
        }
        assert_eq!(Format::all().count(), 15);
    }
}
