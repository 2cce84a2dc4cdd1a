//! What an interrupted join has left, and what a finished one keeps.

use std::path::Path;

use crate::error::SstError;
use crate::layout::Layout;
use crate::lock::Lock;
use crate::swap::{self, NEW, OLD, OURS, remove_tree};
use crate::talk::Talk;

/// Finishes the exchange that was interrupted in this data directory, if one was. Where that is
/// impossible, it is taken back.
///
/// # Errors
/// [`SstError::Swap`]; then no server may start on it.
pub fn finish_interrupted(datadir: &Path, _lock: &Lock, talk: &Talk) -> Result<bool, SstError> {
    let Some(journal) = swap::interrupted(datadir)? else { return Ok(false) };
    talk.warn(format_args!(
        "an earlier transfer was interrupted while it exchanged the data in {}: finishing that",
        datadir.display()
    ));
    if let Err(error) = swap::finish(datadir, &journal, || Ok(())) {
        talk.warn(format_args!("{error}; taking the exchange back"));
        swap::roll_back(datadir, &journal, || Ok(()))?;
        talk.info("the old data is in its place again");
        return Ok(true);
    }
    talk.info("the exchange is finished: the received data is in its place, the old in .xb/old");
    Ok(true)
}

/// Removes what a join that was interrupted before the exchange has received. The data itself was
/// not touched.
///
/// # Errors
/// [`SstError::Swap`].
pub fn drop_received(layout: &Layout, _lock: &Lock) -> Result<(), SstError> {
    for folder in folders(layout) {
        remove_tree(&folder.join(OURS).join(NEW))?;
    }
    Ok(())
}

/// Removes the data that an exchange has replaced.
///
/// # Errors
/// [`SstError::Swap`].
pub fn drop_old(layout: &Layout, _lock: &Lock) -> Result<(), SstError> {
    // The last exchange may have known of more folders than we do now.
    let last = swap::last(&layout.datadir)?.map(|journal| journal.folders).unwrap_or_default();
    let mut all = folders(layout);
    all.extend(last.into_iter().filter(|folder| !folders(layout).contains(folder)));
    // The data directory comes last: it has the list of the others.
    for folder in all.iter().rev() {
        remove_tree(&folder.join(OURS).join(OLD))?;
        if *folder != layout.datadir {
            swap::tidy(folder);
        }
    }
    Ok(())
}

/// Removes what is left empty of our own folders; a lock that is held goes on to hold.
pub fn tidy(layout: &Layout, _lock: &Lock) {
    folders(layout).iter().for_each(|folder| swap::tidy(folder));
}

fn folders(layout: &Layout) -> Vec<std::path::PathBuf> {
    std::iter::once(layout.datadir.clone()).chain(layout.folders_outside()).collect()
}
