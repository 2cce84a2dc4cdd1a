//! Link files (`.isl`), which name the path of a tablespace outside the data directory.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Longest link that is accepted, in bytes.
const MAX_LINK: u64 = 4096;

/// Returns the content of a link file.
///
/// # Errors
/// If the file cannot be read.
pub(crate) fn read_link(link: &Path) -> io::Result<PathBuf> {
    let mut text = Vec::new();
    File::open(link)?.take(MAX_LINK).read_to_end(&mut text)?;
    Ok(OsStr::from_bytes(text.trim_ascii()).into())
}
