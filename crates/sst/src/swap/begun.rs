//! Whether an interrupted swap has moved anything, or everything, and whether a server has worked on the data since.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use xb_files::or_none;

use super::entry_state::{EntryPaths, is_fleeting, of_engine};
use super::error::{SwapError, failed};
use super::folders::{NEW, OLD, WORK_DIR, exists, list};
use super::journal::{EngineState, Entry, Journal};

/// Returns the state of every file of a storage engine in these directories.
pub(super) fn engine_states(journal: &Journal) -> Result<Vec<EngineState>, SwapError> {
    let mut states = Vec::new();
    for (folder, path) in journal.folders.iter().enumerate() {
        for (name, metadata) in list(path)? {
            // The dictionary of Percona's server.
            if of_engine(&name, &metadata) || folder == 0 && name == "mysql.ibd" {
                let entry = Entry { folder, name };
                let here = path.join(&entry.name);
                let state = state(&here).map_err(failed("inspect", &here))?;
                states.extend(state.map(|(bytes, nanos)| EngineState { entry, bytes, nanos }));
            }
        }
    }
    Ok(states)
}

/// Length and time of a file, or of all files in a directory; `None` if there is none.
fn state(path: &Path) -> io::Result<Option<(u64, u128)>> {
    let Some(facts) = or_none(path.symlink_metadata())? else { return Ok(None) };
    let nanos = |seconds: i64, nanos: i64| {
        let whole = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        u128::try_from(whole).unwrap_or_default()
    };
    if !facts.is_dir() {
        return Ok(Some((facts.len(), nanos(facts.mtime(), facts.mtime_nsec()))));
    }
    let (mut bytes, mut newest) = (0_u64, 0);
    for entry in std::fs::read_dir(path)? {
        // A server that runs may remove its files.
        let Some(facts) = or_none(entry?.metadata())? else { continue };
        bytes = bytes.saturating_add(facts.len());
        newest = newest.max(nanos(facts.mtime(), facts.mtime_nsec()));
    }
    Ok(Some((bytes, newest)))
}

/// Returns whether this interrupted swap has moved any of its entries. Fleeting ones do not count: servers and people remove
/// and make them.
///
/// # Errors
/// If that cannot be found out.
pub(super) fn has_moved(journal: &Journal) -> Result<bool, SwapError> {
    let (away, here) = match journal.goes_back {
        true => (&journal.new, &journal.old),
        false => (&journal.old, &journal.new),
    };
    let lasts = |entry: &&Entry| !is_fleeting(&entry.name);
    for entry in away.iter().filter(lasts) {
        let place = EntryPaths::of(journal, entry);
        if exists(if journal.goes_back { &place.new } else { &place.old })? {
            return Ok(true);
        }
    }
    for entry in here.iter().filter(lasts).filter(|entry| !journal.gone.contains(entry)) {
        let place = EntryPaths::of(journal, entry);
        let waits = if journal.goes_back { &place.old } else { &place.new };
        if !exists(waits)? && exists(&place.here)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether this interrupted swap has nothing left to move: only its journal has to be put away. A server may have
/// worked on the data since, and what is not as the journal has it is that server's.
///
/// # Errors
/// If that cannot be found out.
pub(crate) fn has_moved_all(journal: &Journal) -> Result<bool, SwapError> {
    let lasts = |entry: &&Entry| !is_fleeting(&entry.name);
    let (waits, moved, last) = match journal.goes_back {
        true => (OLD, &journal.old, journal.old.iter().find(lasts)),
        false => (NEW, &journal.new, journal.new.iter().rev().find(lasts)),
    };
    for (number, folder) in journal.folders.iter().enumerate() {
        let (ours, mut is_here) = (folder.join(WORK_DIR), false);
        for entry in moved.iter().filter(|entry| entry.folder == number) {
            if exists(&ours.join(waits).join(&entry.name))? {
                return Ok(false);
            }
            is_here |= exists(&folder.join(&entry.name))?;
        }
        // Its file system may not be mounted.
        if !is_here && !exists(&ours)? {
            return Ok(false);
        }
    }
    match last {
        // Without it no server starts, so it goes first and comes last.
        Some(last) => exists(&EntryPaths::of(journal, last).here),
        // The old data makes room for the new, which comes later.
        None if journal.goes_back => Ok(false),
        None => {
            let mut old = journal.old.iter().filter(lasts);
            old.try_fold(true, |all, entry| Ok(all && exists(&EntryPaths::of(journal, entry).old)?))
        }
    }
}

/// Returns whether this interrupted swap has moved nothing, and a server has written to the data since it began: then the
/// data in place is what the operator works with, and the swap is of another time.
///
/// # Errors
/// If that cannot be found out.
pub(crate) fn is_overtaken(journal: &Journal) -> Result<bool, SwapError> {
    if has_moved(journal)? {
        return Ok(false);
    }
    let mut is_written = false;
    for EngineState { entry, bytes, nanos } in &journal.was {
        let here = EntryPaths::of(journal, entry).here;
        // A file that is gone shows nothing: its file system may not be mounted.
        let now = state(&here).map_err(failed("inspect", &here))?;
        is_written |= now.is_some_and(|now| now != (*bytes, *nanos));
    }
    Ok(is_written)
}
