//! The data that this node has, locked while a transfer replaces it: which of its entries a swap moves, the swap, and what
//! becomes of the old data.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::geteuid;
use xb_files::or_none;

use super::acceptance;
use super::datadir_lock::DatadirLock;
use super::recover::{Finished, all_folders, drop_old, drop_received, finish_interrupted, tidy};
use super::request::MARK;
use super::{relocate, second_start};
use crate::context::Context;
use crate::contract::keep_patterns::is_of_schema;
use crate::contract::settings::Old;
use crate::error::SstError;
use crate::server::data_size;
use crate::swap::{self, Entry, NEW, OLD, WORK_DIR, make_old};

/// Time to wait for the previous transfer to clean up: longer than it may take to end.
const LOCK_LIMIT: Duration = Duration::from_secs(35);

/// The present data of a node whose data directory is locked.
#[derive(Debug)]
pub(super) struct PresentData<'a> {
    pub(super) context: &'a Context,
    pub(super) lock: DatadirLock,
    /// Whether the data is no longer that which the server had when it asked for a transfer: an interrupted swap was finished.
    pub(super) is_replaced: bool,
}

impl<'a> PresentData<'a> {
    /// Locks the data directory, finishes the swap that an earlier join has begun, and removes what that join had received
    /// otherwise.
    ///
    /// # Errors
    /// [`SstError::Busy`], [`SstError::InUse`], [`SstError::Foreign`], [`SstError::Swap`]; or if cancelled.
    pub(super) fn lock(context: &'a Context) -> Result<Self, SstError> {
        let Context { layout, error_log, .. } = context;
        let lock = DatadirLock::wait(&layout.datadir, &context.cancel, LOCK_LIMIT)?;
        let finished = finish_interrupted(layout, &lock, error_log)?;
        let is_replaced = matches!(finished, Finished::Swapped | Finished::TakenBack);
        drop(acceptance::refuse_data_in_use(layout, error_log)?);
        let data = Self { context, lock, is_replaced };
        data.check_rights()?;
        drop_received(layout, &data.lock)?;
        Ok(data)
    }

    /// Checks what only a swap needs, and a join by write sets alone does not: that no directory outside holds the data of
    /// another server's transfer, or of one that is running; and that no option keeps a schema of the present data.
    ///
    /// # Errors
    /// [`SstError::Swap`]; [`SstError::KeptSchema`]; or if a directory cannot be listed.
    pub(super) fn check_swap(&self) -> Result<(), SstError> {
        let layout = &self.context.layout;
        for folder in layout.folders_outside() {
            swap::lock_and_check(layout, &self.lock.folders, &folder)?;
        }
        self.check_schemas()
    }

    /// Refuses options that keep a schema of the present data: it would stay beside the new data, or be in its way.
    fn check_schemas(&self) -> Result<(), SstError> {
        let Context { layout, settings, .. } = self.context;
        for (name, facts) in swap::list(&layout.datadir)? {
            let option = settings.keep.option(name.as_bytes()).filter(|_| facts.is_dir());
            let path = layout.datadir.join(&name);
            if let Some(option) = option
                && !layout.leads_outside(&name)
                // No server has a schema in a directory that it cannot list.
                && access(&path, Access::READ_OK | Access::EXEC_OK) != Err(Errno::ACCESS)
                && swap::list(&path)?.iter().any(|(name, facts)| is_of_schema(name, facts))
            {
                return Err(SstError::KeptSchema { path, option: option.to_owned() });
            }
        }
        Ok(())
    }

    /// Checks that this process can remove what earlier transfers have left, and rename the present data. Otherwise a
    /// transfer would fail only after all data has arrived.
    fn check_rights(&self) -> Result<(), SstError> {
        let layout = &self.context.layout;
        for folder in all_folders(layout)? {
            check_tree(&folder.join(WORK_DIR))?;
        }
        let datadir = &layout.datadir;
        for (name, facts) in swap::list(datadir)? {
            // The system changes the entry `..` of a directory that moves.
            if facts.is_dir() && self.is_swapped(&name, &facts) {
                check_writable(&datadir.join(name))?;
            }
        }
        Ok(())
    }

    /// Removes what this join leaves behind, and unlocks the data directory. `is_done`: the data is swapped or kept as it
    /// was to be.
    pub(super) fn unlock(self, is_done: bool) {
        let layout = &self.context.layout;
        // Best effort: the next join does this, too.
        if !is_done && !swap::may_be_interrupted(&layout.datadir) {
            let _ = drop_received(layout, &self.lock);
        }
        tidy(layout, &self.lock);
    }

    /// Returns whether an entry of the data directory is swapped.
    pub(super) fn is_swapped(&self, name: &OsStr, metadata: &Metadata) -> bool {
        let Context { layout, settings, .. } = self.context;
        let kind = metadata.file_type();
        let moves = kind.is_dir() || kind.is_file() || kind.is_symlink();
        let is_dir = kind.is_dir() || kind.is_symlink() && layout.datadir.join(name).is_dir();
        // The name of a log that belongs to the data may match a pattern of logs that stay.
        let is_data =
            layout.is_named(name, metadata) && settings.keep.option(name.as_bytes()).is_none();
        let stays = settings.keep.keeps(name.as_bytes(), is_dir)
            && !is_data
            && !second_start::is_renewed(&layout.datadir, name);
        moves && !stays && !layout.leads_outside(name)
    }

    /// Swaps the data; in the `remote` directories, only the files that are new there or that links of the present data name. `is_accepted`: a server has started
    /// on the new data.
    ///
    /// # Errors
    /// [`SstError::InUse`]; [`SstError::Swap`]. The old data is then in place again, or the journal records the remaining work.
    pub(super) fn swap(&self, remote: &[PathBuf], is_accepted: bool) -> Result<(), SstError> {
        let Context { layout, settings, error_log, .. } = self.context;
        // No server starts on the data while it is swapped.
        let _locks = acceptance::refuse_data_in_use(layout, error_log)?;
        let folders: Vec<_> = std::iter::once(layout.datadir.clone())
            .chain(layout.folders_outside())
            .chain(remote.iter().cloned())
            .collect();
        if layout.datadir.join(WORK_DIR).join(NEW).join(MARK).is_dir() {
            // A schema of the donor's has the name of the mark, which is of use only until the data is there.
            let _ = std::fs::remove_file(layout.datadir.join(MARK));
        }
        // The old data of an earlier swap is no longer needed.
        drop_old(layout, &self.lock)?;
        for folder in &folders {
            make_old(folder)?;
        }
        let outside = layout.folders_outside();
        let own = relocate::own_tablespaces(self.context)?;
        let received = remote.iter().map(|here| {
            let list = swap::list(&here.join(WORK_DIR).join(NEW))?;
            let own = own.iter().filter(|(folder, _)| folder == here).map(|(_, name)| name.clone());
            Ok(list.into_iter().map(|(name, _)| name).chain(own).collect())
        });
        let received: Vec<HashSet<OsString>> = received.collect::<Result<_, SstError>>()?;
        let journal = swap::plan(folders, |folder, name, metadata| match folder.checked_sub(1) {
            None => self.is_swapped(name, metadata),
            Some(number) => {
                let of_kind = |here: &PathBuf| {
                    let mut places = layout.outside.iter().filter(|place| place.dir == *here);
                    places.any(|place| place.kind.has_entry(name, metadata))
                };
                match (outside.get(number), received.get(number.wrapping_sub(outside.len()))) {
                    (Some(here), _) => of_kind(here),
                    (None, Some(names)) => names.contains(name),
                    (None, None) => false,
                }
            }
        })?;
        if !is_accepted && !journal.old.is_empty() {
            let name = OsStr::new(acceptance::MADE_LAST);
            let has = |list: &[Entry]| list.iter().any(|e| e.folder == 0 && e.name == name);
            // One that stays, or was received, shows nothing.
            let is_made =
                settings.second_start.makes_list && !has(&journal.stay) && !has(&journal.new);
            acceptance::note_untried(layout, is_made)?;
        }
        swap::begin(&layout.datadir, &journal)?;
        if let Err(error) = swap::finish(&layout.datadir, &journal, || Ok(())) {
            error_log.warn(format_args!("{error}; rolling the swap back"));
            match swap::roll_back(&layout.datadir, &journal, || Ok(())) {
                Ok(()) => {
                    let _ = acceptance::forget_note(layout);
                    error_log.info("the old data is in place again");
                }
                Err(second) => {
                    error_log.warn(format_args!("the swap is not rolled back: {second}"))
                }
            }
            return Err(error.into());
        }
        Ok(())
    }

    /// Keeps the old data, and logs where it is, its size and when it will be removed; or removes it.
    pub(super) fn after_the_swap(&self) {
        let Context { layout, settings, error_log, .. } = self.context;
        self.report_links();
        match settings.old {
            Old::Kept => self.report_old(),
            // The new data is in place even if this fails.
            Old::Removed => drop_old(layout, &self.lock).unwrap_or_else(|error| {
                error_log.warn(format_args!("cannot remove the old data in #sql-xb/.old: {error}"));
            }),
        }
    }

    /// Names what the old data had behind links: nothing removes what is there.
    fn report_links(&self) {
        let Context { layout, error_log, .. } = self.context;
        let entries = std::fs::read_dir(layout.datadir.join(WORK_DIR).join(OLD));
        for entry in entries.into_iter().flatten().flatten() {
            let Ok(target) = std::fs::read_link(entry.path()) else { continue };
            // As seen from where the link was.
            let target = layout.datadir.join(target);
            let target = std::fs::canonicalize(&target).unwrap_or(target);
            let name = entry.file_name();
            let (link, target) = (name.to_string_lossy(), target.display());
            // Others, such as links to settings, may be of use elsewhere.
            match layout.datadir.join(&name).symlink_metadata() {
                Ok(_) => error_log.warn(format_args!(
                    "{link} was a link to {target}: the new data is in the data directory, and the link's target stays until you remove it"
                )),
                Err(_) => error_log.warn(format_args!(
                    "{link} was a link to {target}, and the donor has nothing of that name: the link is now in #sql-xb/.old, and its target is unchanged"
                )),
            }
        }
    }

    fn report_old(&self) {
        let Context { layout, error_log, .. } = self.context;
        if !has_old(&layout.datadir) {
            return;
        }
        let old = layout.datadir.join(WORK_DIR).join(OLD);
        let disk = data_size::disk_of(layout, old.clone());
        error_log.info(format_args!(
            "the old data, about {} MiB, is in {}, where servers do not see it; it is removed by wsrep_sst_xbrs-rs clean-old {}, or by the next full transfer",
            disk >> 20,
            old.display(),
            layout.datadir.display()
        ));
    }
}

/// Returns whether there is old data in `DATADIR/#sql-xb/.old`.
fn has_old(datadir: &Path) -> bool {
    let old = datadir.join(WORK_DIR).join(OLD);
    std::fs::read_dir(old).is_ok_and(|mut entries| entries.next().is_some())
}

/// Checks a directory that must be removed with its contents; it need not exist.
fn check_tree(path: &Path) -> Result<(), SstError> {
    let facts = or_none(path.symlink_metadata()).map_err(SstError::io("look at", path))?;
    if !facts.is_some_and(|facts| facts.is_dir()) {
        return Ok(());
    }
    let entries = swap::list(path);
    // Whose it is says more than why it cannot be listed. An empty one does not matter.
    if !entries.as_ref().is_ok_and(Vec::is_empty) {
        check_writable(path)?;
    }
    for (name, _) in entries?.into_iter().filter(|(_, facts)| facts.is_dir()) {
        check_tree(&path.join(name))?;
    }
    Ok(())
}

fn check_writable(path: &Path) -> Result<(), SstError> {
    let user = geteuid().as_raw();
    match owner_if_denied(path)? {
        None => Ok(()),
        Some(owner) => Err(SstError::Foreign { path: path.to_owned(), owner, user }),
    }
}

/// Checks a directory in which others must be made.
///
/// # Errors
/// [`SstError::Denied`]; or if it cannot be changed by anyone.
pub(super) fn check_can_make_in(path: &Path) -> Result<(), SstError> {
    let user = geteuid().as_raw();
    match owner_if_denied(path)? {
        None => Ok(()),
        Some(owner) => Err(SstError::Denied { path: path.to_owned(), owner, user }),
    }
}

/// Returns the owner of a directory that this process may not change.
fn owner_if_denied(path: &Path) -> Result<Option<u32>, SstError> {
    match access(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => return Ok(None),
        Err(Errno::ACCESS | Errno::PERM) => {}
        Err(error) => return Err(SstError::io("change", path)(error.into())),
    }
    let metadata = path.symlink_metadata().map_err(SstError::io("look at", path))?;
    Ok(Some(metadata.uid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_looked_at_is_not_absent() {
        let dir = tempfile::tempdir().unwrap();
        check_tree(&dir.path().join("none")).unwrap();
        let looped = dir.path().join("loop");
        std::os::unix::fs::symlink("loop", &looped).unwrap();
        let error = check_tree(&looped.join("#sql-xb")).map_err(|error| error.to_string());
        assert!(error.unwrap_err().starts_with("cannot look at "));
    }
}
