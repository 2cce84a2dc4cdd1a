//! A bad page of a file in a stream.

use xb_pages::BadPage;
use xb_reader::RelPath;

/// A bad page and its file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadPageOf {
    /// The file's name in the stream.
    pub path: RelPath,
    /// The page and its defect.
    pub page: BadPage,
}
