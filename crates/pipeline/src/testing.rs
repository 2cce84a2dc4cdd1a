//! Helpers of several unit tests.
#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use xb_reader::TargetDir;

use crate::{ExtractError, ExtractOptions, ExtractReport, Extractor};

/// Extracts a stream that is fed `step` bytes at a time.
pub(crate) fn extract(
    dir: &Path,
    bytes: &[u8],
    step: usize,
    options: ExtractOptions,
) -> Result<ExtractReport, ExtractError> {
    let mut extractor = Extractor::new(TargetDir::open(dir).unwrap(), options)?;
    for piece in bytes.chunks(step) {
        if extractor.feed(Bytes::copy_from_slice(piece)).is_err() {
            break;
        }
    }
    extractor.finish()
}

/// Reads all files beneath a directory, including unfinished ones.
pub(crate) fn tree(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                // A damaged name may not be text.
                let name = path.strip_prefix(dir).unwrap().to_string_lossy().into_owned();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}
