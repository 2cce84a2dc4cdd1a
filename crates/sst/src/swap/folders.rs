//! This program's directories beside the data, and operations on directories.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::error::{SwapError, failed};

/// This program's directory in a data directory. Servers and backup programs ignore names that
/// begin with a dot, and files that could be taken for a schema's never lie directly in it.
pub const OURS: &str = ".xb";
/// In [`OURS`]: the future data.
pub const NEW: &str = "new";
/// In [`OURS`]: the old data.
pub const OLD: &str = "old";

/// In [`OLD`]: what a server created that was started in the middle of a swap.
pub(super) const STRAY: &str = ".stray";

/// Creates `FOLDER/.xb` with an empty `new` in it.
///
/// # Errors
/// [`SwapError::Io`].
pub fn make_folders(folder: &Path) -> Result<(), SwapError> {
    let new = folder.join(OURS).join(NEW);
    // Data of an earlier transfer must not be swapped in with this one.
    remove_tree(&new)?;
    make_dir(&new).map_err(failed("make", &new))
}

/// Creates an empty `FOLDER/.xb/old`, which a swap needs.
///
/// # Errors
/// [`SwapError::Io`].
pub fn make_old(folder: &Path) -> Result<(), SwapError> {
    let old = folder.join(OURS).join(OLD);
    remove_tree(&old)?;
    make_dir(&old).map_err(failed("make", &old))
}

/// Creates a directory that only its owner can read, and its parents.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes a directory with its contents; succeeds if it does not exist.
///
/// # Errors
/// [`SwapError::Io`].
pub fn remove_tree(path: &Path) -> Result<(), SwapError> {
    match std::fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("remove", path)(error)),
    }
}

/// Lists the entries of a directory in order; none if the directory does not exist.
pub(super) fn list(folder: &Path) -> Result<Vec<(OsString, std::fs::Metadata)>, SwapError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("list", folder)(error)),
    };
    let mut list = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed("list", folder))?;
        match entry.metadata() {
            Ok(metadata) => list.push((entry.file_name(), metadata)),
            // Removed during the listing, as temporary files are.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("inspect", &entry.path())(error)),
        }
    }
    list.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(list)
}

pub(super) fn exists(path: &Path) -> Result<bool, SwapError> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed("inspect", path)(error)),
    }
}

pub(super) fn sync_dir(path: &Path) -> Result<(), SwapError> {
    std::fs::File::open(path).and_then(|dir| dir.sync_all()).map_err(failed("sync", path))
}
