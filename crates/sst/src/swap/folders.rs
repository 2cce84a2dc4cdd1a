//! Our folders beside the data, and what is done with folders.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::error::{SwapError, failed};

/// Our folder in a data directory. Servers and backup programs pass over names with a dot, and what
/// would be taken for the files of a schema never lies directly in it.
pub const OURS: &str = ".xb";
/// In [`OURS`]: what is about to become the data.
pub const NEW: &str = "new";
/// In [`OURS`]: what was the data.
pub const OLD: &str = "old";

/// In [`OLD`]: what a server has made that was started in the middle of an exchange.
pub(super) const STRAY: &str = ".stray";

/// Makes `FOLDER/.xb` with an empty `new` in it.
///
/// # Errors
/// [`SwapError::Io`].
pub fn make_folders(folder: &Path) -> Result<(), SwapError> {
    let new = folder.join(OURS).join(NEW);
    // What is left of another transfer must not come in with this one.
    remove_tree(&new)?;
    make_dir(&new).map_err(failed("make", &new))
}

/// Makes an empty `FOLDER/.xb/old`, which an exchange needs.
///
/// # Errors
/// [`SwapError::Io`].
pub fn make_old(folder: &Path) -> Result<(), SwapError> {
    let old = folder.join(OURS).join(OLD);
    remove_tree(&old)?;
    make_dir(&old).map_err(failed("make", &old))
}

/// Makes a folder that nobody else may look into, and those on the way to it.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes a folder with all that is in it; good if there is none.
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

/// The entries of a folder, in order; none where there is no folder.
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
            // It went while we were looking, as temporary files do.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("look at", &entry.path())(error)),
        }
    }
    list.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(list)
}

pub(super) fn exists(path: &Path) -> Result<bool, SwapError> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed("look at", path)(error)),
    }
}

pub(super) fn sync_dir(path: &Path) -> Result<(), SwapError> {
    std::fs::File::open(path).and_then(|dir| dir.sync_all()).map_err(failed("sync", path))
}
