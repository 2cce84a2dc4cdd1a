//! Finds what a transfer could not remove or rename, before it begins: otherwise it would fail only
//! after all data has arrived.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::process::geteuid;

use super::recover::all_folders;
use crate::contract::datadir::Layout;
use crate::error::SstError;
use crate::swap::WORK_DIR;

/// Checks that this process can remove what earlier transfers have left, and rename the present
/// data: the entries of the data directory for which `is_swapped` returns true.
pub(super) fn check(
    layout: &Layout,
    is_swapped: impl Fn(&OsStr, &Metadata) -> bool,
) -> Result<(), SstError> {
    for folder in all_folders(layout)? {
        tree(&folder.join(WORK_DIR))?;
    }
    let datadir = &layout.datadir;
    for entry in std::fs::read_dir(datadir).map_err(SstError::io("list", datadir))?.flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        // The system changes the entry `..` of a directory that moves.
        if metadata.is_dir() && is_swapped(&entry.file_name(), &metadata) {
            writable(&entry.path())?;
        }
    }
    Ok(())
}

/// Checks a directory that must be removed with its contents; it need not exist.
fn tree(path: &Path) -> Result<(), SstError> {
    if !path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Ok(());
    }
    let Ok(entries) = std::fs::read_dir(path) else { return writable(path) };
    let mut is_empty = true;
    for entry in entries.flatten() {
        if is_empty {
            is_empty = false;
            writable(path)?;
        }
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            tree(&entry.path())?;
        }
    }
    Ok(())
}

fn writable(path: &Path) -> Result<(), SstError> {
    if access(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_ok() {
        return Ok(());
    }
    let metadata = path.symlink_metadata().map_err(SstError::io("look at", path))?;
    let user = geteuid().as_raw();
    Err(SstError::Foreign { path: path.to_owned(), owner: metadata.uid(), user })
}
