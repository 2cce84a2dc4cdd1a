//! This program's directories beside the data, and operations on directories.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use xb_files::or_none;

use super::error::{SwapError, failed};

/// This program's directory in a data directory. MariaDB lists every directory there as a schema,
/// unless its name begins with `#sql`; MySQL scans every directory for tablespaces, unless its name
/// begins with a dot. So this name begins with the one, and those below with the other.
pub(crate) const WORK_DIR: &str = "#sql-xb";
/// In [`WORK_DIR`]: the future data.
pub(crate) const NEW: &str = ".new";
/// In [`WORK_DIR`]: holds the directory `data` while a server runs on the future data. MySQL finds no
/// undo tablespaces in a data directory whose own name begins with a dot, so [`NEW`] cannot be one.
pub(crate) const START: &str = ".start";
/// In [`WORK_DIR`]: the old data.
pub(crate) const OLD: &str = ".old";

/// In [`OLD`]: files of a server that was started in the middle of a swap.
pub(super) const STRAY: &str = ".stray";

/// Creates `FOLDER/#sql-xb` with an empty `new` in it.
///
/// # Errors
/// [`SwapError::Io`].
pub fn make_folders(folder: &Path) -> Result<(), SwapError> {
    let new = folder.join(WORK_DIR).join(NEW);
    // Data of an earlier transfer must not be swapped in with this one.
    remove_tree(&new)?;
    make_dir(&new).map_err(failed("make", &new))
}

/// Creates an empty `FOLDER/#sql-xb/.old`, which a swap needs.
///
/// # Errors
/// [`SwapError::Io`].
pub fn make_old(folder: &Path) -> Result<(), SwapError> {
    let old = folder.join(WORK_DIR).join(OLD);
    remove_tree(&old)?;
    make_dir(&old).map_err(failed("make", &old))
}

/// Creates a directory that only its owner can read, and its parents. Each belongs to the owner of
/// the directory above it, also if root creates it.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        // Created by another process in the meantime.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        done => done.and_then(|()| inherit_owner(path)),
    }
}

/// Gives what root has created to the owner of the directory that contains it: the server's user
/// must be able to remove it.
pub(super) fn inherit_owner(path: &Path) -> io::Result<()> {
    let Some(parent) = path.parent().filter(|_| geteuid().is_root()) else { return Ok(()) };
    let above = std::fs::symlink_metadata(parent)?;
    std::os::unix::fs::lchown(path, Some(above.uid()), Some(above.gid()))
}

/// Path of the file in a directory outside that names the data directory whose transfer it belongs to.
pub(super) fn home_path(folder: &Path) -> PathBuf {
    folder.join(WORK_DIR).join("home")
}

/// Gives a directory up that holds nothing of this data directory any more.
pub(super) fn give_up(folder: &Path) {
    let ours = folder.join(WORK_DIR);
    if !may_exist(&ours.join(NEW)) && !may_exist(&ours.join(OLD)) {
        let _ = std::fs::remove_file(home_path(folder));
        // A claim that was killed leaves a file under a name of its own.
        for (name, _) in list(&ours).unwrap_or_default() {
            if name.as_bytes().starts_with(b"home.") {
                let _ = std::fs::remove_file(ours.join(name));
            }
        }
    }
}

/// Removes a directory with its contents; succeeds if it does not exist.
///
/// # Errors
/// [`SwapError::Io`].
pub(crate) fn remove_tree(path: &Path) -> Result<(), SwapError> {
    or_none(std::fs::remove_dir_all(path)).map(drop).map_err(failed("remove", path))
}

/// Lists the entries of a directory in order; none if the directory does not exist.
pub(crate) fn list(folder: &Path) -> Result<Vec<(OsString, std::fs::Metadata)>, SwapError> {
    let entries = or_none(std::fs::read_dir(folder)).map_err(failed("list", folder))?;
    let mut list = Vec::new();
    for entry in entries.into_iter().flatten() {
        let entry = entry.map_err(failed("list", folder))?;
        // An entry may be removed during the listing, as temporary files are.
        let metadata = or_none(entry.metadata()).map_err(failed("inspect", &entry.path()))?;
        list.extend(metadata.map(|metadata| (entry.file_name(), metadata)));
    }
    list.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(list)
}

/// Returns whether there is such an entry, of any kind. An error is no absence.
pub(super) fn exists(path: &Path) -> Result<bool, SwapError> {
    xb_files::exists(path).map_err(failed("inspect", path))
}

/// Returns whether there is such an entry, or whether that is unknown.
pub(crate) fn may_exist(path: &Path) -> bool {
    exists(path).unwrap_or(true)
}

pub(super) fn sync_dir(path: &Path) -> Result<(), SwapError> {
    std::fs::File::open(path).and_then(|dir| dir.sync_all()).map_err(failed("sync", path))
}
