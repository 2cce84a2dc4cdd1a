//! Puts the old data of a finished swap back.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::path::Path;

use rustix::fs::{Access, access};
use xb_files::or_none;

use super::begun::{engine_states, has_moved};
use super::entry_state::{EntryPaths, is_fleeting};
use super::error::{SwapError, failed};
use super::folder_locks::FolderLocks;
use super::folders::{NEW, OLD, WORK_DIR, exists, list, make_dir, remove_tree};
use super::journal::{Entry, Journal};
use super::journal_file::{begin, drop_journal, is_being_removed, last, remember};
use super::owner::claim_all;
use super::renames::roll_back;
use crate::contract::datadir::Layout;

/// Checks that the old data of the last swap is whole, if there is any, and that this process may move it and the present
/// data. Changes nothing.
///
/// # Errors
/// [`SwapError::OldIsNotWhole`], [`SwapError::NothingMoved`]; or if that cannot be found out.
pub fn may_take_back(datadir: &Path) -> Result<(), SwapError> {
    way_back(datadir).map(drop)
}

/// Returns what has to be moved to put the old data back, except what a server has created since; `None` if there is no
/// old data.
fn way_back(datadir: &Path) -> Result<Option<Journal>, SwapError> {
    let Some(mut journal) = last(datadir)?.filter(|journal| !journal.old.is_empty()) else {
        return Ok(None);
    };
    // Entries that had vanished before the swap are not part of the old data.
    let gone = std::mem::take(&mut journal.gone);
    journal.old.retain(|entry| !gone.contains(entry));
    // Checked before anything is written: a journal that cannot be followed would keep the server from starting.
    whole(&journal)?;
    // Entries that the server has removed since are not put aside.
    let mut known = Vec::new();
    for entry in std::mem::take(&mut journal.new) {
        if exists(&EntryPaths::of(&journal, &entry).here)? {
            known.push(entry);
        }
    }
    journal.new = known;
    leave_out_unused(&mut journal);
    for entry in journal.old.iter().map(|entry| EntryPaths::of(&journal, entry).old) {
        may_rename(&entry)?;
    }
    for entry in journal.new.iter().map(|entry| EntryPaths::of(&journal, entry).here) {
        may_rename(&entry)?;
    }
    Ok(Some(journal))
}

/// Puts the old data of the last swap back, and the present data into `#sql-xb/.new`. What a server has created since the
/// swap goes there, too: the entries of the data directory for which `is_data` returns true and that were not there before.
/// `before` is called before each rename, as by `roll_back`. Returns whether there was any old data.
///
/// If this is interrupted, [`interrupted`](super::interrupted) returns a journal that goes back, with which `roll_back`
/// continues; or nothing, and then this can be called again.
///
/// # Errors
/// [`SwapError::OldIsNotWhole`], [`SwapError::NothingMoved`]: the present data is in place. Else the journal stays.
pub fn take_back(
    layout: &Layout,
    locks: &FolderLocks,
    is_data: impl Fn(&OsStr, &Metadata) -> bool,
    mut before: impl FnMut() -> io::Result<()>,
) -> Result<bool, SwapError> {
    let datadir = &layout.datadir;
    let Some(mut journal) = way_back(datadir)? else { return Ok(false) };
    // What makes way must not be taken for another server's, also where there was no old data.
    claim_all(layout, locks, &journal.folders).map_err(nothing_moved)?;
    for folder in &journal.folders {
        let [old, new] = [OLD, NEW].map(|name| folder.join(WORK_DIR).join(name));
        // Data that an interrupted transfer has received is not the present data. A directory without old data was tidied up.
        remove_tree(&new)?;
        for path in [old, new] {
            make_dir(&path).map_err(failed("make", &path))?;
        }
    }
    // Entries that the server has created since.
    let mut created = Vec::new();
    for (name, metadata) in list(datadir)? {
        let entry = Entry { folder: 0, name };
        let is_known = journal.new.contains(&entry) || journal.stay.contains(&entry);
        if !is_known && entry.name != WORK_DIR && is_data(&entry.name, &metadata) {
            may_rename(&EntryPaths::of(&journal, &entry).here)?;
            created.push(entry);
        }
    }
    // They are moved out last: the last of the known ones, without which no server starts, must be the first.
    journal.new.splice(..0, created);
    journal.goes_back = true;
    journal.was = engine_states(&journal)?;
    // What is then in these directories is removed when a donor's backup takes its place.
    remember(datadir, journal.folders.get(1..).unwrap_or_default(), true)?;
    begin(datadir, &journal)?;
    let mut renames = 0_usize;
    let counted = || {
        renames += 1;
        before()
    };
    match roll_back(datadir, &journal, counted) {
        Ok(()) => Ok(true),
        Err(error) => {
            let is_rename = matches!(error, SwapError::Io { what: "rename", .. });
            if (renames == 0 || renames == 1 && is_rename) && !has_moved(&journal)? {
                // A journal that stays would take away what a server writes from now on.
                drop_journal(datadir)?;
                return Err(nothing_moved(error));
            }
            Err(error)
        }
    }
}

/// Leaves out the directories outside in which nothing is to be moved. Another server may have them by now.
fn leave_out_unused(journal: &mut Journal) {
    let mut number = 0;
    while number < journal.folders.len() {
        let is_there = |entry: &Entry| entry.folder == number;
        if number == 0 || journal.old.iter().chain(&journal.new).any(is_there) {
            number += 1;
            continue;
        }
        journal.folders.remove(number);
        journal.stay.retain(|entry| entry.folder != number);
        for entry in journal.old.iter_mut().chain(&mut journal.new).chain(&mut journal.stay) {
            if entry.folder > number {
                entry.folder -= 1;
            }
        }
    }
}

fn nothing_moved(error: SwapError) -> SwapError {
    SwapError::NothingMoved { source: Box::new(error) }
}

/// Fails if this process may not move a directory: the system changes the entry `..` of one that moves.
fn may_rename(path: &Path) -> Result<(), SwapError> {
    let facts = or_none(path.symlink_metadata()).map_err(failed("inspect", path));
    if !facts.map_err(nothing_moved)?.is_some_and(|facts| facts.is_dir()) {
        return Ok(());
    }
    access(path, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| nothing_moved(failed("rename", path)(error.into())))
}

/// Fails if an old entry is missing, or one of the directories.
fn whole(journal: &Journal) -> Result<(), SwapError> {
    let missing = |folder: &Path, name: &OsStr| SwapError::OldIsNotWhole {
        folder: folder.to_owned(),
        name: name.to_string_lossy().into_owned(),
    };
    if let Some(datadir) = journal.folders.first()
        && is_being_removed(datadir)?
    {
        return Err(missing(datadir, OsStr::new("what was being removed")));
    }
    for (number, folder) in journal.folders.iter().enumerate() {
        let mut old = journal.old.iter().filter(|entry| entry.folder == number);
        let has_old = old.any(|entry| !is_fleeting(&entry.name));
        // Its file system may not be mounted.
        if has_old && !exists(&folder.join(WORK_DIR).join(OLD))? {
            return Err(missing(folder, OsStr::new(WORK_DIR)));
        }
    }
    for entry in journal.old.iter().filter(|entry| !is_fleeting(&entry.name)) {
        if !exists(&EntryPaths::of(journal, entry).old)? {
            return Err(missing(journal.folder(entry), &entry.name));
        }
    }
    Ok(())
}
