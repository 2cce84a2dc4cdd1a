//! Recovery of an interrupted join, and removal of what joins leave behind.

use std::path::PathBuf;

use crate::contract::datadir::Layout;
use crate::contract::error_log::ErrorLog;
use crate::error::SstError;
use crate::joiner::acceptance::{self, refuse_data_in_use};
use crate::joiner::datadir_lock::DatadirLock;
use crate::swap::{self, NEW, OLD, START, SwapError, WORK_DIR, remove_tree};

/// Finishes the swap that was interrupted in this data directory, if there was one. If that is
/// impossible, or if the swap was being taken back, it is rolled back.
///
/// # Errors
/// [`SstError::InUse`]: a server runs on the data, and nothing was changed. [`SstError::Swap`]; in that case no server may
/// start on the data.
pub fn finish_interrupted(
    layout: &Layout,
    _lock: &DatadirLock,
    error_log: &ErrorLog,
) -> Result<bool, SstError> {
    let datadir = &layout.datadir;
    let Some(journal) = swap::interrupted(datadir)? else { return Ok(false) };
    // One may have been started before the first rename, and none starts on the data while it is swapped.
    let _locks = refuse_data_in_use(layout, error_log)?;
    if journal.goes_back {
        error_log.warn(format_args!(
            "putting the old data back in {} was interrupted; continuing",
            datadir.display()
        ));
        acceptance::continue_to_take_back(layout, &journal)?;
        error_log.info("the old data is in place again");
        return Ok(true);
    }
    error_log.warn(format_args!(
        "an earlier transfer was interrupted while it swapped the data in {}; finishing the swap",
        datadir.display()
    ));
    if let Err(error) = swap::finish(datadir, &journal, || Ok(())) {
        error_log.warn(format_args!("{error}; rolling the swap back"));
        swap::roll_back(datadir, &journal, || Ok(()))?;
        error_log.info("the old data is in place again");
        return Ok(true);
    }
    error_log
        .info("the swap is finished: the received data is in place, the old data in #sql-xb/.old");
    Ok(true)
}

/// Removes the data that a join received before it was interrupted, ahead of its swap. The data
/// itself was not touched.
///
/// # Errors
/// [`SstError::Swap`].
pub fn drop_received(layout: &Layout, _lock: &DatadirLock) -> Result<(), SstError> {
    let remote = swap::remembered(&layout.datadir);
    for folder in remote.iter().chain(&folders(layout)) {
        remove_tree(&folder.join(WORK_DIR).join(NEW))?;
    }
    remove_tree(&layout.datadir.join(WORK_DIR).join(START))?;
    remote.iter().for_each(|folder| swap::tidy(folder));
    swap::forget(&layout.datadir);
    Ok(())
}

/// Removes the old data of a swap.
///
/// # Errors
/// [`SstError::Swap`].
pub fn drop_old(layout: &Layout, _lock: &DatadirLock) -> Result<(), SstError> {
    remove_old(layout)
}

/// Like [`drop_old`], for threads of the lock's holder.
pub(crate) fn remove_old(layout: &Layout) -> Result<(), SstError> {
    let ours = folders(layout);
    // Half-removed data is never put back.
    swap::mark_removal(&layout.datadir)?;
    // The data directory comes last: it holds the list of the other directories.
    for folder in all_folders(layout)?.iter().rev() {
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
pub fn tidy(layout: &Layout, _lock: &DatadirLock) {
    if swap::journal_path(&layout.datadir).exists() {
        return;
    }
    let remote = swap::remembered(&layout.datadir);
    let all = all_folders(layout).unwrap_or_else(|_| folders(layout));
    remote.iter().for_each(|folder| swap::tidy(folder));
    // Data that a reverted swap has left there is removed by the next transfer.
    if !remote.iter().any(|folder| folder.join(WORK_DIR).join(NEW).exists()) {
        swap::forget(&layout.datadir);
    }
    all.iter().rev().for_each(|folder| swap::tidy(folder));
}

/// The data directory, and every other directory that the settings or the last swap name.
pub(super) fn all_folders(layout: &Layout) -> Result<Vec<PathBuf>, SstError> {
    let last = match swap::last(&layout.datadir) {
        // The journal is of no use then, but no obstacle either.
        Err(SwapError::Elsewhere { .. } | SwapError::Journal { .. }) => None,
        last => last?,
    };
    let mut all = folders(layout);
    for folder in last.map(|journal| journal.folders).unwrap_or_default() {
        if !all.contains(&folder) {
            all.push(folder);
        }
    }
    Ok(all)
}

fn folders(layout: &Layout) -> Vec<PathBuf> {
    std::iter::once(layout.datadir.clone()).chain(layout.folders_outside()).collect()
}
