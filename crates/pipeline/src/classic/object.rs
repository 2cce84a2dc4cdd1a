//! What the ways to make classic objects have in common.

use std::sync::Arc;

use bytes::Bytes;
use xb_reader::RelPath;

use crate::flow::budget::PAGE;
use crate::pack::error::{CutError, PackError};

/// The largest payload of an xbstream chunk that we make, in bytes: what the stock tools write, and
/// what every reader holds in memory.
pub(crate) const MAX_XBSTREAM_CHUNK: u64 = 10 << 20;

/// Makes objects of the stored bytes of files, which come file by file, mixed.
pub(crate) trait FileCutter {
    /// Takes the next bytes of a file, which hold a lease of their own length.
    fn add(&mut self, path: &RelPath, block: Bytes) -> Result<(), PackError>;

    /// The file is complete.
    fn end(&mut self, path: &RelPath) -> Result<(), PackError>;

    /// What was cut, once all files are complete.
    fn finish(self) -> Cut;
}

/// The share of a budget that so many bytes take: leases are counted in pages.
pub(crate) fn page_rounded(len: u64) -> u64 {
    len.next_multiple_of(PAGE)
}

/// Error of a chunk that no head can describe: it lies beyond the largest offset.
pub(crate) fn oversized_chunk(source: std::io::Error) -> PackError {
    PackError::Read { position: 0, source }
}

/// Key of a file's object, below the place of the run.
pub(crate) fn object_key_of(path: &RelPath, number: u64) -> Result<Arc<str>, CutError> {
    match std::str::from_utf8(path.as_bytes()) {
        Ok(path) => Ok(format!("{path}.{number:020}").into()),
        Err(_) => Err(CutError::NotText { path: path.clone() }),
    }
}

/// What was cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cut {
    /// Number of objects.
    pub objects: u64,
    /// Bytes in all of them.
    pub bytes: u64,
    /// How many of them are shorter than asked for and not the last of their file, because memory
    /// was short.
    pub short: u64,
}
