//! The directory that a file system has at its top, which belongs to no backup.

use std::fs::DirEntry;
use std::io::ErrorKind;

/// Its name.
pub(crate) const LOST_AND_FOUND: &str = "lost+found";

/// Returns whether an entry at the top of a target is that directory.
pub(crate) fn is_lost_and_found(entry: &DirEntry) -> bool {
    entry.file_name() == LOST_AND_FOUND && entry.file_type().is_ok_and(|kind| kind.is_dir())
}

/// Returns whether it holds nothing that this user can see.
pub(crate) fn shows_nothing(entry: &DirEntry) -> bool {
    match std::fs::read_dir(entry.path()) {
        Ok(mut inside) => inside.next().is_none(),
        Err(error) => error.kind() == ErrorKind::PermissionDenied,
    }
}
