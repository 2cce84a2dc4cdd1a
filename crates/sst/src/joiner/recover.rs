//! Recovery of an interrupted join, and removal of what joins leave behind.

use std::path::{Path, PathBuf};

use crate::contract::datadir::Layout;
use crate::contract::error_log::ErrorLog;
use crate::error::SstError;
use crate::joiner::acceptance::{self, refuse_data_in_use};
use crate::joiner::datadir_lock::DatadirLock;
use crate::swap::{self, FolderLocks, NEW, OLD, START, SwapError, WORK_DIR, remove_tree};

/// How an interrupted swap has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// There was none.
    Nothing,
    /// It had moved nothing, and a server has worked on the data since: it was given up, and the data stays.
    GivenUp,
    /// It had moved everything, and its journal alone was left: a server may have worked on the data since, and the data stays.
    PutAway,
    /// It went forward: the received data is in place; or back, because that was impossible.
    Swapped,
    /// It had to go back, and did: the old data is in place.
    TakenBack,
}

/// Finishes the swap that was interrupted in this data directory, if there was one. If that is
/// impossible, or if the swap was being taken back, it is rolled back.
///
/// # Errors
/// [`SstError::InUse`]: a server runs on the data, and nothing was changed. [`SstError::Swap`]; in that case no server may
/// start on the data.
pub fn finish_interrupted(
    layout: &Layout,
    lock: &DatadirLock,
    error_log: &ErrorLog,
) -> Result<Finished, SstError> {
    let datadir = &layout.datadir;
    let Some(journal) = swap::interrupted(datadir)? else { return Ok(Finished::Nothing) };
    for folder in journal.folders.iter().skip(1) {
        lock.folders.lock(folder)?;
    }
    // One may have been started before the first rename, and none starts on the data while it is swapped.
    let _locks = refuse_data_in_use(layout, error_log)?;
    if swap::is_overtaken(&journal)? {
        if !journal.goes_back {
            acceptance::forget_note(layout).map_err(SstError::io("change", datadir))?;
        }
        swap::drop_journal(datadir)?;
        let what = if journal.goes_back { "roll-back" } else { "swap" };
        error_log.warn(format_args!(
            "a {what} of the data in {} was interrupted before it moved anything, and a server has worked on the data since: the data stays, and the {what} is abandoned",
            datadir.display()
        ));
        return Ok(Finished::GivenUp);
    }
    if swap::has_moved_all(&journal)? {
        swap::put_away(datadir, &journal)?;
        if journal.goes_back {
            acceptance::forget_note(layout).map_err(SstError::io("change", datadir))?;
        }
        let what = if journal.goes_back { "roll-back" } else { "swap" };
        error_log.warn(format_args!(
            "a {what} of the data in {} was interrupted when nothing was left to move: the data stays as it is",
            datadir.display()
        ));
        return Ok(Finished::PutAway);
    }
    if journal.goes_back {
        error_log.warn(format_args!(
            "putting the old data back in {} was interrupted; continuing",
            datadir.display()
        ));
        acceptance::continue_to_take_back(layout, &journal)?;
        error_log.info("the old data is in place again");
        return Ok(Finished::TakenBack);
    }
    error_log.warn(format_args!(
        "an earlier transfer was interrupted while it swapped the data in {}; finishing the swap",
        datadir.display()
    ));
    // What Galera has noted is not the position of the data that is then in place.
    if let Err(error) = swap::finish(datadir, &journal, acceptance::forget_present_data(layout)) {
        error_log.warn(format_args!("{error}; rolling the swap back"));
        swap::roll_back(datadir, &journal, || Ok(()))?;
        error_log.info("the old data is in place again");
        return Ok(Finished::Swapped);
    }
    error_log
        .info("the swap is finished: the received data is in place, the old data in #sql-xb/.old");
    Ok(Finished::Swapped)
}

/// Removes the data that a join received before it was interrupted, ahead of its swap. The data
/// itself was not touched. Data that has made way for the old data was not received, and stays: see [`drop_new`].
///
/// # Errors
/// [`SstError::Swap`].
pub(super) fn drop_received(layout: &Layout, lock: &DatadirLock) -> Result<(), SstError> {
    if swap::holds_taken_back(&layout.datadir) {
        return Ok(());
    }
    match drop_new(layout, lock) {
        // Another transfer works in one of the directories, and has found nothing in the way. The rest is removed later.
        Err(SstError::Swap(SwapError::Busy { .. })) => Ok(()),
        done => done,
    }
}

/// Returns whether there is data in `#sql-xb/.new` that has made way for the old data.
///
/// # Errors
/// [`SstError::Swap`]: that cannot be found out.
pub fn has_made_way(layout: &Layout) -> Result<bool, SstError> {
    let new = layout.datadir.join(WORK_DIR).join(NEW);
    Ok(swap::holds_taken_back(&layout.datadir) && !swap::list(&new)?.is_empty())
}

/// Removes all that is in `#sql-xb/.new`, also data that has made way for the old data: a donor's backup is about to take
/// its place, or an operator says so.
///
/// # Errors
/// [`SstError::Swap`].
pub fn drop_new(layout: &Layout, lock: &DatadirLock) -> Result<(), SstError> {
    let remote = swap::remembered(&layout.datadir)?;
    for folder in folders(layout).iter().chain(&remote) {
        if swap::is_own(layout, &lock.folders, folder)? {
            remove_tree(&folder.join(WORK_DIR).join(NEW))?;
        }
    }
    remove_tree(&layout.datadir.join(WORK_DIR).join(START))?;
    for folder in &remote {
        tidy_own(layout, &lock.folders, folder);
    }
    swap::forget(&layout.datadir);
    Ok(())
}

/// Removes the old data of a swap.
///
/// # Errors
/// [`SstError::Swap`].
pub fn drop_old(layout: &Layout, lock: &DatadirLock) -> Result<(), SstError> {
    remove_old(layout, &lock.folders)
}

/// Like [`drop_old`], for threads of the lock's holder.
pub(crate) fn remove_old(layout: &Layout, locks: &FolderLocks) -> Result<(), SstError> {
    let ours = folders(layout);
    // Half-removed data is never put back.
    swap::mark_removal(&layout.datadir)?;
    // The data directory comes last: it holds the list of the other directories.
    for folder in all_folders(layout)?.iter().rev() {
        if !swap::is_own(layout, locks, folder)? {
            continue;
        }
        remove_tree(&folder.join(WORK_DIR).join(OLD))?;
        if !ours.contains(folder) {
            swap::tidy(folder);
        }
    }
    swap::end_removal(&layout.datadir);
    Ok(())
}

/// Removes this program's directories that are empty; a held lock stays held. Removes nothing while
/// a swap is unfinished.
pub fn tidy(layout: &Layout, lock: &DatadirLock) {
    if swap::may_be_interrupted(&layout.datadir) {
        return;
    }
    let Ok(remote) = swap::remembered(&layout.datadir) else { return };
    let all = all_folders(layout).unwrap_or_else(|_| folders(layout));
    // The data directory comes last, for its own sake: the record is in it.
    let home = &layout.datadir;
    for folder in remote.iter().chain(all.iter().rev()).filter(|folder| *folder != home) {
        tidy_own(layout, &lock.folders, folder);
    }
    let new = home.join(WORK_DIR).join(NEW);
    let _ = std::fs::remove_dir(&new);
    // Data that a reverted swap has left there is removed by the next transfer.
    let has_new = |folder: &PathBuf| swap::may_exist(&folder.join(WORK_DIR).join(NEW));
    if !has_new(home) && !remote.iter().any(has_new) {
        swap::forget(home);
    }
    swap::tidy(home);
}

/// The data directory, and every other directory that the settings or the last swap name.
pub(super) fn all_folders(layout: &Layout) -> Result<Vec<PathBuf>, SstError> {
    // A journal that is of no use is no obstacle either.
    let last = swap::if_usable(swap::last(&layout.datadir))?;
    let mut all = folders(layout);
    for folder in last.map(|journal| journal.folders).unwrap_or_default() {
        if !all.contains(&folder) {
            all.push(folder);
        }
    }
    Ok(all)
}

/// Removes the empty parts of a directory's `#sql-xb`, unless it may be of another data directory.
fn tidy_own(layout: &Layout, locks: &FolderLocks, folder: &Path) {
    if swap::is_own(layout, locks, folder).unwrap_or(false) {
        swap::tidy(folder);
    }
}

fn folders(layout: &Layout) -> Vec<PathBuf> {
    std::iter::once(layout.datadir.clone()).chain(layout.folders_outside()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::datadir::{Kind, KindDir};

    #[test]
    fn what_is_in_a_directory_that_cannot_be_looked_at_is_not_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let looped = dir.path().join("loop");
        std::os::unix::fs::symlink("loop", &looped).unwrap();
        let place = KindDir { kind: Kind::Undo, dir: looped.clone() };
        let layout = Layout { outside: vec![place], ..Layout::of(dir.path()).unwrap() };
        let lock = DatadirLock::take(&layout.datadir).unwrap();
        let ours = layout.datadir.join(WORK_DIR);
        std::fs::create_dir_all(ours.join(OLD)).unwrap();
        std::fs::write(ours.join(OLD).join("ibdata1"), "").unwrap();
        swap::remember(&layout.datadir, &[looped], false).unwrap();
        assert!(drop_new(&layout, &lock).is_err());
        assert_eq!(swap::remembered(&layout.datadir).unwrap().len(), 1);
        assert!(drop_old(&layout, &lock).is_err());
        assert!(ours.join(OLD).join("ibdata1").exists());
    }

    /// An operator who removes it is not told that it is gone.
    #[test]
    fn what_has_made_way_is_not_absent_where_it_cannot_be_listed() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::of(dir.path()).unwrap();
        let new = layout.datadir.join(WORK_DIR).join(NEW);
        std::fs::create_dir_all(&new).unwrap();
        swap::remember(&layout.datadir, &[], true).unwrap();
        assert!(!has_made_way(&layout).unwrap());
        std::fs::write(new.join("ibdata1"), "").unwrap();
        assert!(has_made_way(&layout).unwrap());
        std::fs::remove_dir_all(&new).unwrap();
        assert!(!has_made_way(&layout).unwrap());
        std::os::unix::fs::symlink(NEW, &new).unwrap();
        assert!(has_made_way(&layout).is_err());
    }
}
