//! The doublewrite area of a system tablespace: which pages it includes, and whether it is in use.

use crate::format::{Format, Kind, be32};
use crate::page::{BadPage, PageContext, Verdict, check, number, space};

/// Position of the doublewrite area in page 5 of the system tablespace, from its end: a mark, and
/// the first pages of its two parts.
const DOUBLEWRITE: usize = 200 - 10;
const DOUBLEWRITE_MARK: u32 = 536_853_855;
/// Number of the page that names the area.
pub(crate) const DOUBLEWRITE_AT: u64 = 5;

/// The two parts of the doublewrite area of the system tablespace, each an extent long, by their
/// first pages. They hold copies of other pages, which may be torn or old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doublewrite {
    /// Not known: where every server puts it, in the second and the third extent.
    Usual,
    /// As stated.
    At(u64, u64),
    /// The server keeps it in other files.
    Elsewhere,
}

impl Doublewrite {
    /// Reads page 5.
    pub(crate) fn of_page(page: &[u8]) -> Self {
        let at = page.len().saturating_sub(DOUBLEWRITE);
        match (be32(page, at), be32(page, at + 4), be32(page, at + 8)) {
            (Some(DOUBLEWRITE_MARK), Some(one), Some(two)) => Self::At(one.into(), two.into()),
            _ => Self::Elsewhere,
        }
    }

    /// Returns whether the area includes page `number`.
    pub(crate) fn includes(self, number: u64, extent: u64) -> bool {
        let (one, two) = match self {
            Self::Usual => (extent, 2 * extent),
            Self::At(one, two) => (one, two),
            Self::Elsewhere => return false,
        };
        [one, two].iter().any(|first| (*first..first.saturating_add(extent)).contains(&number))
    }
}

/// Contents of the pages of the area.
///
/// MySQL 8.0.20 and later keep the doublewrite in other files: then the pages of the area are like
/// others, and are damaged if they do not match. If the area is in use, they are copies of other
/// pages, and cannot be checked.
#[derive(Debug, Default)]
pub(crate) struct Area {
    /// Pages that are those of their places.
    own: u64,
    /// Copies of other pages.
    copies: u64,
    empty: u64,
    wrong: Vec<BadPage>,
}

/// Number of pages of an area, by result.
#[derive(Debug, Default)]
pub(crate) struct AreaChecked {
    pub(crate) good: u64,
    pub(crate) unchecked: u64,
    pub(crate) damaged: Vec<BadPage>,
}

impl Area {
    /// Takes the page of this place.
    pub(crate) fn page(&mut self, format: Format, page: &[u8], place: u64, offset: u64) {
        let fault = match check(format, page, PageContext { first: false, encrypted: false }) {
            Verdict::Empty => return self.empty += 1,
            Verdict::Damaged(fault) => fault,
            _ if number(page).map(u64::from) == Some(place) && space(format, page) == Some(0) => {
                return self.own += 1;
            }
            _ => return self.copies += 1,
        };
        self.wrong.push(BadPage { page: place, offset, fault, missing_since: None });
    }

    /// Returns the result of the check, after the last page.
    pub(crate) fn finish(self, kind: Kind) -> AreaChecked {
        let Self { own, copies, empty, wrong } = self;
        let all = own + copies + empty + wrong.len() as u64;
        // MariaDB keeps it there, in tablespaces of the other kind.
        if kind == Kind::Both && copies == 0 && own * 2 > all {
            return AreaChecked { good: own, unchecked: empty, damaged: wrong };
        }
        AreaChecked { unchecked: all, ..AreaChecked::default() }
    }
}
