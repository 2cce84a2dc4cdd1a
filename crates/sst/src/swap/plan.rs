//! The order in which entries go and come.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use super::entry_state::of_engine;
use super::error::SwapError;
use super::folders::{NEW, OURS, list};
use super::journal::{Entry, Journal};
use crate::contract::datadir::Kind;

/// Plans the exchange: of every folder, all entries for which `goes` says so go out, and all that
/// lie in its `.xb/new` come in. The data directory is the first of `folders`.
///
/// # Errors
/// When a folder cannot be listed; [`SwapError::Kept`].
pub fn plan(
    folders: Vec<PathBuf>,
    goes: impl Fn(usize, &OsStr, &std::fs::Metadata) -> bool,
) -> Result<Journal, SwapError> {
    let mut journal = Journal { folders, ..Journal::default() };
    for (number, folder) in journal.folders.iter().enumerate() {
        let mut stays = HashSet::new();
        for (name, metadata) in list(folder)? {
            let is_of_engine = of_engine(&name, &metadata);
            let entry = Entry { folder: number, name };
            if entry.name != OURS && goes(number, &entry.name, &metadata) {
                journal.old.push(entry);
            } else {
                if is_of_engine {
                    journal.stay.push(entry.clone());
                }
                stays.insert(entry.name);
            }
        }
        for (name, _) in list(&folder.join(OURS).join(NEW))? {
            if stays.contains(&name) {
                let name = name.to_string_lossy().into_owned();
                return Err(SwapError::Kept { folder: folder.clone(), name });
            }
            journal.new.push(Entry { folder: number, name });
        }
    }
    journal.new.sort_by_key(|entry| weight(entry.folder, &entry.name));
    journal.old.sort_by_key(|entry| std::cmp::Reverse(weight(entry.folder, &entry.name)));
    Ok(journal)
}

/// What has most goes first and comes last. Without `mysql/` no server starts; `ibdata1` is never there
/// without its redo log, since servers would make a new log then, and a new `ibdata1` where there is
/// none of both.
fn weight(folder: usize, name: &OsStr) -> u8 {
    let bytes = name.as_bytes();
    if folder == 0 && bytes == b"mysql" {
        3
    } else if bytes.starts_with(b"ibdata") {
        2
    } else if Kind::Redo.has(name) {
        0
    } else {
        1
    }
}
