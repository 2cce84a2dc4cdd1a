//! The order in which entries go and come.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::{Entry, Journal, NEW, OURS, SwapError, failed};

/// Plans the exchange: of every folder, all entries for which `goes` says so go out, and all that
/// lie in its `.xb/new` come in. The data directory is the first of `folders`.
///
/// # Errors
/// When a folder cannot be listed.
pub fn plan(
    folders: Vec<PathBuf>,
    goes: impl Fn(usize, &OsStr, &std::fs::Metadata) -> bool,
) -> Result<Journal, SwapError> {
    let mut journal = Journal { folders, ..Journal::default() };
    for (number, folder) in journal.folders.iter().enumerate() {
        for (name, metadata) in list(folder)? {
            if name != OURS && goes(number, &name, &metadata) {
                journal.old.push(Entry { folder: number, name });
            }
        }
        for (name, _) in list(&folder.join(OURS).join(NEW))? {
            journal.new.push(Entry { folder: number, name });
        }
    }
    journal.new.sort_by_key(|entry| weight(entry.folder, &entry.name));
    journal.old.sort_by_key(|entry| std::cmp::Reverse(weight(entry.folder, &entry.name)));
    Ok(journal)
}

/// How much a server needs it to start: what has most goes first and comes last.
fn weight(folder: usize, name: &OsStr) -> u8 {
    let name = name.as_bytes();
    if folder == 0 && name == b"mysql" {
        3
    } else if name.starts_with(b"ibdata") {
        2
    } else if name.starts_with(b"ib_logfile") || name == b"#innodb_redo" || name == b"mysql.ibd" {
        1
    } else {
        0
    }
}

fn list(folder: &Path) -> Result<Vec<(OsString, std::fs::Metadata)>, SwapError> {
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
