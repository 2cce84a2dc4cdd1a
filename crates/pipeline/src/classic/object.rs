//! Common parts of all ways to create classic objects.

use std::sync::Arc;

use bytes::Bytes;
use xb_reader::RelPath;

use crate::flow::budget::PAGE;
use crate::pack::error::{CutError, PackError};

/// Maximum payload of the xbstream chunks that we write, in bytes. The stock tools use the same,
/// and every reader can hold it in memory.
pub(crate) const MAX_XBSTREAM_CHUNK: u64 = 10 << 20;

/// Cuts the stored bytes of interleaved files into objects.
pub(crate) trait FileCutter {
    /// Takes the next bytes of a file, which hold a lease of their length.
    fn add(&mut self, path: &RelPath, block: Bytes) -> Result<(), PackError>;

    /// Ends a file.
    fn end(&mut self, path: &RelPath) -> Result<(), PackError>;

    /// Returns the totals, once all files are complete.
    fn finish(self) -> Cut;
}

/// Bytes of a budget that `len` bytes use, because leases are counted in pages.
pub(crate) fn page_rounded(len: u64) -> u64 {
    len.next_multiple_of(PAGE)
}

/// Error for a chunk beyond the largest offset, which no head can describe.
pub(crate) fn oversized_chunk(source: std::io::Error) -> PackError {
    PackError::Read { position: 0, source }
}

/// Key of a file's object, relative to the prefix of the run.
pub(crate) fn object_key_of(path: &RelPath, number: u64) -> Result<Arc<str>, CutError> {
    match std::str::from_utf8(path.as_bytes()) {
        Ok(path) => Ok(format!("{path}.{number:020}").into()),
        Err(_) => Err(CutError::NotText { path: path.clone() }),
    }
}

/// Totals of the objects written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cut {
    /// Number of objects.
    pub objects: u64,
    /// Bytes in all of them.
    pub bytes: u64,
    /// Number of short objects: less than the requested size, and not the last of their file,
    /// because memory was short.
    pub short: u64,
}
