//! Puts the old data of a finished swap back.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use super::entry_state::{EntryPaths, is_fleeting};
use super::error::{SwapError, failed};
use super::exchange::{lost, roll_back};
use super::folders::{exists, list};
use super::journal::Entry;
use super::journal_file::{begin, kept_journal_path, last};

/// Puts the old data of the last swap back, and the present data into `#sql-xb/.new`. What a server has
/// created since the swap goes, too: the files of its storage engines, and the entries of the data directory for which
/// `is_schema` returns true. `before` is
/// called before each rename, as by [`roll_back`]. Returns whether there was any old data.
///
/// If this is interrupted, [`finish`](super::finish) makes the received data the present one again.
///
/// # Errors
/// [`SwapError`]; the journal stays if anything has been moved.
pub fn take_back(
    datadir: &Path,
    is_schema: impl Fn(&OsStr) -> bool,
    before: impl FnMut() -> io::Result<()>,
) -> Result<bool, SwapError> {
    let Some(mut journal) = last(datadir)?.filter(|journal| !journal.old.is_empty()) else {
        return Ok(false);
    };
    // What had vanished before the swap is not part of the old data.
    let gone = std::mem::take(&mut journal.gone);
    journal.old.retain(|entry| !gone.contains(entry));
    // Checked before anything is written: a journal that cannot be followed would keep the server from starting.
    for entry in journal.old.iter().filter(|entry| !is_fleeting(&entry.name)) {
        if !exists(&EntryPaths::of(&journal, entry).old)? {
            return Err(lost(&journal, entry));
        }
    }
    // What the server has removed since, and what it has created.
    let mut new = Vec::new();
    for entry in std::mem::take(&mut journal.new) {
        if exists(&EntryPaths::of(&journal, &entry).here)? {
            new.push(entry);
        }
    }
    for (name, _) in list(datadir)? {
        let entry = Entry { folder: 0, name };
        let is_known = new.contains(&entry) || journal.stay.contains(&entry);
        if !is_known && is_schema(&entry.name) {
            new.push(entry);
        }
    }
    journal.new = new;
    begin(datadir, &journal)?;
    roll_back(datadir, &journal, before)?;
    let kept = kept_journal_path(datadir);
    std::fs::remove_file(&kept).map_err(failed("remove", &kept))?;
    Ok(true)
}
