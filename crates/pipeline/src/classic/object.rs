//! Common parts of all ways to create classic objects.

use std::sync::Arc;

use bytes::Bytes;
use xb_reader::RelPath;

use crate::flow::budget::PAGE;
use crate::pack::error::{CutError, PackError};
use crate::pack::result::Cut;

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
    let Ok(text) = std::str::from_utf8(path.as_bytes()) else {
        return Err(CutError::NotText { path: path.clone() });
    };
    let not_stored = |why| Err(CutError::NoKey { path: path.clone(), why });
    if text.chars().any(|c| c.is_ascii_control()) {
        return not_stored("it contains a control character, which no object name may");
    }
    // A reader would take what is in this folder for the catalogue of other backups.
    if text.rsplit_once('/').is_some_and(|(folder, _)| folder.split('/').any(|f| f == CATALOGUE)) {
        return not_stored("the folder .xb-catalog is reserved");
    }
    Ok(format!("{text}.{number:020}").into())
}

/// Folder of manifests, claims and records in a store.
const CATALOGUE: &str = ".xb-catalog";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_reader_would_find_again_are_refused() {
        let key = |path: &str| object_key_of(&RelPath::new(path.as_bytes()).unwrap(), 7);
        assert_eq!(&*key("a/t 1.ibd").unwrap(), "a/t 1.ibd.00000000000000000007");
        assert_eq!(&*key(".xb-catalog").unwrap(), ".xb-catalog.00000000000000000007");
        for (path, why) in [
            (".xb-catalog/b", "reserved"),
            ("a/.xb-catalog/@claims/b", "reserved"),
            ("a/b\nc", "control character"),
            ("a\u{7f}/b", "control character"),
        ] {
            let error = key(path).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("packed layout"), "{error}");
        }
    }
}
