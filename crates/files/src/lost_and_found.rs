//! The directory that a file system has at its top: it belongs to no data, and often only root may read it.

use std::fs::DirEntry;

/// Its name.
pub const LOST_AND_FOUND: &str = "lost+found";

/// Returns whether an entry at the top of a directory of data is that directory.
#[must_use]
pub fn is_lost_and_found(entry: &DirEntry) -> bool {
    entry.file_name() == LOST_AND_FOUND && entry.file_type().is_ok_and(|kind| kind.is_dir())
}
