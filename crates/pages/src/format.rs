//! How the pages of a tablespace are made, as its first page says.

/// The largest page in bytes.
pub const MAX_PAGE: usize = 64 << 10;

/// Size and kind of a tablespace's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// Bytes of a page in the file: a power of two from 1 KiB to [`MAX_PAGE`].
    pub page_size: usize,
    /// How it is protected.
    pub kind: Kind,
}

/// How pages are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Checksum fields at both ends: crc32, innodb or none.
    Both,
    /// MariaDB's full_crc32.
    Full,
    /// `ROW_FORMAT=COMPRESSED`.
    Zip,
}

/// Where the tablespace's flags are in page 0: the header of the space begins behind the 38 bytes
/// that all pages have, its flags 16 bytes further.
const FLAGS_AT: usize = 38 + 16;
/// In the flags of a full_crc32 tablespace.
const FULL_MARK: u32 = 1 << 4;
/// The page size of tablespaces whose flags name none.
const DEFAULT_PAGE: usize = 16 << 10;
/// What shifted by the size code of the flags gives a page's size.
const SIZE_UNIT: usize = 512;

impl Format {
    /// What is assumed where nothing tells.
    pub(crate) const DEFAULT: Self = Self { page_size: DEFAULT_PAGE, kind: Kind::Both };

    /// What the flags of a tablespace say; `None` when no tablespace has such flags.
    ///
    /// The two families of flags differ in bit 4, which is always set in full_crc32 ones and cannot
    /// be in the others, where it is the highest bit of a size code that ends at 5.
    #[must_use]
    pub fn of_flags(flags: u32) -> Option<Self> {
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

    /// What the first page of a tablespace says.
    pub(crate) fn of_first_page(page: &[u8]) -> Option<Self> {
        Self::of_flags(be32(page, FLAGS_AT)?)
    }

    /// All that there are.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let of = |kind, codes: std::ops::RangeInclusive<u32>| {
            codes.map(move |code| Self { page_size: SIZE_UNIT << code, kind })
        };
        of(Kind::Full, 3..=7).chain(of(Kind::Both, 3..=7)).chain(of(Kind::Zip, 1..=5))
    }

    /// Pages of an extent: 1 MiB of pages up to 16 KiB, else 64 pages.
    pub(crate) fn extent(self) -> u64 {
        ((1 << 20) / self.page_size.max(1) as u64).max(64)
    }
}

/// A big-endian number; all of InnoDB's are.
pub(crate) fn be32(page: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*page.get(at..)?.first_chunk()?))
}

/// As [`be32`], of 16 bits.
pub(crate) fn be16(page: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*page.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_name_size_and_kind() {
        let of = |flags| Format::of_flags(flags).map(|f| (f.page_size, f.kind));
        // As MariaDB 10.11 and MySQL 8.0 write them.
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
