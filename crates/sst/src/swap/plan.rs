//! The order of the renames in a swap.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use super::begun::engine_states;
use super::entry_state::of_engine;
use super::error::SwapError;
use super::folders::{NEW, WORK_DIR, list};
use super::journal::{Entry, Journal};
use crate::contract::datadir::Kind;

/// Plans the swap: in every directory, all entries for which `goes` returns true are moved out, and
/// all entries of its `#sql-xb/.new` are moved in. The data directory is the first of `folders`.
///
/// # Errors
/// If a directory cannot be listed; [`SwapError::KeptEntry`].
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
            if entry.name != WORK_DIR && goes(number, &entry.name, &metadata) {
                journal.old.push(entry);
            } else {
                // Of the data directory everything: what is not listed has been created since.
                if (is_of_engine || number == 0) && entry.name != WORK_DIR {
                    journal.stay.push(entry.clone());
                }
                stays.insert(entry.name);
            }
        }
        for (name, _) in list(&folder.join(WORK_DIR).join(NEW))? {
            if stays.contains(&name) {
                let name = name.to_string_lossy().into_owned();
                return Err(SwapError::KeptEntry { folder: folder.clone(), name });
            }
            journal.new.push(Entry { folder: number, name });
        }
    }
    journal.new.sort_by_key(|entry| weight(entry.folder, &entry.name));
    journal.old.sort_by_key(|entry| std::cmp::Reverse(weight(entry.folder, &entry.name)));
    journal.was = engine_states(&journal)?;
    Ok(journal)
}

/// Weight of an entry: the heaviest is moved out first and moved in last. Without `mysql/` no
/// server starts. `ibdata1` is never present without its redo log: a server would create a new log
/// for it, or a new `ibdata1` if both are missing.
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
