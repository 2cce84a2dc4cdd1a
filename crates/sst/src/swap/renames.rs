//! The renames of a swap, forward and back.

use std::io;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use xb_files::or_none;

use super::entry_state::{EntryPaths, EntrySets, EntryState, is_fleeting};
use super::error::{SwapError, failed};
use super::folders::{NEW, OLD, STRAY, WORK_DIR, exists, make_dir, sync_dir};
use super::journal::{Entry, Journal};
use super::journal_file::{begin, journal_path, kept_journal_path};

/// Does the remaining work of the journal, and then removes the journal. `before` is called before
/// each rename and may interrupt the swap, as a crash would.
///
/// # Errors
/// [`SwapError`]; the journal stays, and this function can be called again.
pub fn finish(
    datadir: &Path,
    journal: &Journal,
    mut before: impl FnMut() -> io::Result<()>,
) -> Result<(), SwapError> {
    set_aside(journal, &mut before)?;
    let mut journal = journal.clone();
    let gone = look_forward(&journal)?;
    if !gone.is_empty() {
        // Recorded now: once the new entries are moved in, they could not be told from the old
        // ones.
        journal.gone.extend(gone);
        begin(datadir, &journal)?;
    }
    let listed = EntrySets::of(&journal);
    let mut step = stepping(&mut before);
    for entry in &journal.old {
        if listed.state_of(entry)? == EntryState::Old {
            let place = EntryPaths::of(&journal, entry);
            step(&place.here, &place.old)?;
        }
    }
    sync_all(&journal)?;
    for entry in &journal.new {
        let place = EntryPaths::of(&journal, entry);
        if exists(&place.new)? {
            step(&place.new, &place.here)?;
        }
    }
    keep_journal(datadir, &journal)
}

/// Puts the journal away of a swap that has nothing left to move.
///
/// # Errors
/// [`SwapError`]; the journal stays, and this function can be called again.
pub(crate) fn put_away(datadir: &Path, journal: &Journal) -> Result<(), SwapError> {
    match journal.goes_back {
        true => remove_journals(datadir, journal),
        false => keep_journal(datadir, journal),
    }
}

/// Ends a swap, durably.
fn keep_journal(datadir: &Path, journal: &Journal) -> Result<(), SwapError> {
    sync_all(journal)?;
    let (path, kept) = (journal_path(datadir), kept_journal_path(datadir));
    let old = datadir.join(WORK_DIR).join(OLD);
    make_dir(&old).map_err(failed("make", &old))?;
    std::fs::rename(&path, kept).map_err(failed("rename", &path))?;
    sync_dir(&datadir.join(WORK_DIR))
}

/// Undoes the finished work of the journal, and then removes the journal, and the kept one if there is one.
///
/// # Errors
/// [`SwapError`]; the journal stays, and this function can be called again.
pub(crate) fn roll_back(
    datadir: &Path,
    journal: &Journal,
    mut before: impl FnMut() -> io::Result<()>,
) -> Result<(), SwapError> {
    set_aside(journal, &mut before)?;
    let listed = EntrySets::of(journal);
    // Old data with missing entries is unusable.
    for entry in journal.old.iter().filter(|entry| !is_fleeting(&entry.name)) {
        if !listed.has_old(entry)? {
            return Err(lost(journal, entry));
        }
    }
    let mut step = stepping(&mut before);
    for entry in journal.new.iter().rev() {
        if listed.state_of(entry)? == EntryState::New {
            let place = EntryPaths::of(journal, entry);
            step(&place.here, &place.new)?;
        }
    }
    sync_all(journal)?;
    for entry in journal.old.iter().rev() {
        let place = EntryPaths::of(journal, entry);
        if exists(&place.old)? {
            step(&place.old, &place.here)?;
        }
    }
    remove_journals(datadir, journal)
}

/// Ends a way back, durably: there is no old data any more.
fn remove_journals(datadir: &Path, journal: &Journal) -> Result<(), SwapError> {
    sync_all(journal)?;
    // The journal goes last: without it, nothing would continue this.
    let kept = kept_journal_path(datadir);
    if or_none(std::fs::remove_file(&kept)).map_err(failed("remove", &kept))?.is_some() {
        sync_dir(&datadir.join(WORK_DIR).join(OLD))?;
    }
    let path = journal_path(datadir);
    std::fs::remove_file(&path).map_err(failed("remove", &path))?;
    sync_dir(&datadir.join(WORK_DIR))
}

fn stepping(
    before: &mut impl FnMut() -> io::Result<()>,
) -> impl FnMut(&Path, &Path) -> Result<(), SwapError> {
    |from, to| before().and_then(|()| rename(from, to)).map_err(failed("rename", from))
}

/// Checks before the first rename that the swap can be finished: every new entry must exist.
/// Returns the old entries that have vanished, which are no longer needed.
fn look_forward(journal: &Journal) -> Result<Vec<Entry>, SwapError> {
    let listed = EntrySets::of(journal);
    for entry in &journal.new {
        if !listed.has_new(entry)? {
            return Err(lost(journal, entry));
        }
    }
    let mut gone = Vec::new();
    for entry in &journal.old {
        if !journal.gone.contains(entry) && !listed.has_old(entry)? {
            gone.push(entry.clone());
        }
    }
    Ok(gone)
}

/// Moves aside files that a server created when it was started in the middle of the swap.
fn set_aside(
    journal: &Journal,
    before: &mut impl FnMut() -> io::Result<()>,
) -> Result<(), SwapError> {
    for folder in &journal.folders {
        let ours = folder.join(WORK_DIR);
        if !exists(&ours)? {
            // Its file system may not be mounted.
            return Err(SwapError::Lost { folder: folder.clone(), name: WORK_DIR.to_owned() });
        }
        for path in [ours.join(OLD), ours.join(NEW)] {
            make_dir(&path).map_err(failed("make", &path))?;
        }
    }
    let mut step = stepping(before);
    for entry in EntrySets::of(journal).foreign()? {
        let place = EntryPaths::of(journal, &entry);
        let stray = journal.folder(&entry).join(WORK_DIR).join(OLD).join(STRAY);
        make_dir(&stray).map_err(failed("make", &stray))?;
        let mut to = stray.join(&entry.name);
        for number in 2.. {
            if !exists(&to)? {
                break;
            }
            let mut name = entry.name.clone();
            name.push(format!("~{number}"));
            to = stray.join(name);
        }
        step(&place.here, &to)?;
    }
    Ok(())
}

fn lost(journal: &Journal, entry: &Entry) -> SwapError {
    SwapError::Lost {
        folder: journal.folder(entry).to_owned(),
        name: entry.name.to_string_lossy().into_owned(),
    }
}

/// Renames without overwriting anything.
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system does not support the flag.
        Err(Errno::INVAL) if std::fs::symlink_metadata(to).is_ok() => Err(Errno::EXIST.into()),
        Err(Errno::INVAL) => std::fs::rename(from, to),
        done => Ok(done?),
    }
}

fn sync_all(journal: &Journal) -> Result<(), SwapError> {
    for folder in &journal.folders {
        let ours = folder.join(WORK_DIR);
        sync_dir(folder)?;
        // When nothing is left to move, people remove them.
        for dir in [ours.join(OLD), ours.join(NEW)] {
            if exists(&dir)? {
                sync_dir(&dir)?;
            }
        }
    }
    Ok(())
}
