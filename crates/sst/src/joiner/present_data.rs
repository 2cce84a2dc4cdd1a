//! The data that this node has: which of its entries a swap moves, the room that it leaves for what a donor sends, and
//! the swap.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::acceptance;
use super::datadir_lock::DatadirLock;
use super::destination::Destination;
use super::recover::{drop_old, drop_received, remove_old};
use super::room::{self, Amount, Room};
use super::second_start;
use crate::context::Context;
use crate::contract::datadir::{Layout, is_mounted};
use crate::contract::error_log::ErrorLog;
use crate::contract::keep_patterns::Keep;
use crate::contract::settings::{Old, Settings};
use crate::error::SstError;
use crate::server::data_size;
use crate::swap::{self, NEW, OLD, WORK_DIR, make_folders, make_old};

/// Thread that deletes old data of an earlier swap while the new data arrives.
pub(super) type Deleting = std::thread::JoinHandle<Result<(), SstError>>;

/// The present data of a node whose data directory is locked.
#[derive(Debug, Clone, Copy)]
pub(super) struct PresentData<'a> {
    layout: &'a Layout,
    keep: &'a Keep,
    lock: &'a DatadirLock,
    error_log: &'a ErrorLog,
}

impl<'a> PresentData<'a> {
    pub(super) fn of(context: &'a Context, lock: &'a DatadirLock) -> Self {
        let Context { layout, settings, error_log, .. } = context;
        Self { layout, keep: &settings.keep, lock, error_log }
    }

    /// Returns whether an entry of the data directory is swapped.
    pub(super) fn is_swapped(&self, name: &OsStr, metadata: &Metadata) -> bool {
        let kind = metadata.file_type();
        let moves = kind.is_dir() || kind.is_file() || kind.is_symlink();
        let stays = self.keep.keeps(name.as_bytes())
            && !second_start::is_renewed(&self.layout.datadir, name);
        moves && !stays && !self.layout.leads_outside(name)
    }

    /// Puts the old data back, if no server has accepted the present data.
    ///
    /// # Errors
    /// [`SstError::Swap`]; or if it cannot be found out whether a server has.
    pub(super) fn take_back_untried(&self) -> Result<(), SstError> {
        let is_data = |name: &OsStr, metadata: &Metadata| self.is_swapped(name, metadata);
        acceptance::take_back_untried(self.layout, self.lock, is_data, self.error_log)
    }

    /// Checks whether the donor's data can be received, and creates the directories for it.
    ///
    /// # Errors
    /// [`SstError::Mounted`], [`SstError::Room`]; or if something cannot be listed, determined or made.
    pub(super) fn make_ready(
        &self,
        destination: &Destination,
        amount: &Amount<'_>,
        settings: &Settings,
    ) -> Result<Option<Deleting>, SstError> {
        self.refuse_mounts()?;
        let deleting = match settings.space_check {
            true => self.make_room(destination, amount, settings.old)?,
            false => None,
        };
        self.make_folders()?;
        Ok(deleting)
    }

    /// Removes what the donor has sent so far, and makes ready for all of it once more.
    ///
    /// # Errors
    /// As [`PresentData::make_ready`]; [`SstError::Swap`] if something cannot be removed.
    pub(super) fn begin_again(
        &self,
        destination: &Destination,
        amount: &Amount<'_>,
        settings: &Settings,
    ) -> Result<Option<Deleting>, SstError> {
        drop_received(self.layout, self.lock)?;
        self.make_ready(destination, amount, settings)
    }

    /// Refuses mount points, which cannot be renamed, before any data is sent.
    fn refuse_mounts(&self) -> Result<(), SstError> {
        let datadir = &self.layout.datadir;
        for entry in std::fs::read_dir(datadir).map_err(SstError::io("list", datadir))?.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if is_mounted(&entry.path()) && self.is_swapped(&entry.file_name(), &metadata) {
                return Err(SstError::Mounted { path: entry.path() });
            }
        }
        Ok(())
    }

    /// Makes room for the donor's data. The donor waits for an answer, so slow work is left to a thread.
    fn make_room(
        &self,
        destination: &Destination,
        amount: &Amount<'_>,
        old: Old,
    ) -> Result<Option<Deleting>, SstError> {
        let room = room::check(self.layout, destination, amount, old)?;
        if room == Room::WithoutOld {
            self.error_log.warn("deleting the old data before the new data arrives, as keep-old=no allows: there is no room for both");
            self.make_folders()?;
            self.swap(&[], true)?;
        }
        Ok((room != Room::Enough).then(|| {
            let layout = self.layout.clone();
            std::thread::spawn(move || remove_old(&layout))
        }))
    }

    /// Creates the directories that receive the donor's data.
    fn make_folders(&self) -> Result<(), SstError> {
        let outside = self.layout.folders_outside();
        // Recorded first: after a crash, other settings may name other directories.
        make_folders(&self.layout.datadir)?;
        swap::remember(&self.layout.datadir, &outside)?;
        for folder in std::iter::once(self.layout.datadir.clone()).chain(outside) {
            make_folders(&folder)?;
        }
        Ok(())
    }

    /// Swaps the data; in the `remote` directories, only the files that are new there. `is_accepted`: a server has started
    /// on the new data.
    ///
    /// # Errors
    /// [`SstError::Swap`]. The old data is then in place again, or the journal records the remaining work.
    pub(super) fn swap(&self, remote: &[PathBuf], is_accepted: bool) -> Result<(), SstError> {
        let Self { layout, error_log, .. } = self;
        let folders: Vec<_> = std::iter::once(layout.datadir.clone())
            .chain(layout.folders_outside())
            .chain(remote.iter().cloned())
            .collect();
        // The old data of an earlier swap is no longer needed.
        drop_old(layout, self.lock)?;
        for folder in &folders {
            make_old(folder)?;
        }
        let outside = layout.folders_outside();
        let journal = swap::plan(folders, |folder, name, metadata| match folder.checked_sub(1) {
            None => self.is_swapped(name, metadata),
            Some(number) => {
                let of_kind = |here: &PathBuf| {
                    layout.outside.iter().any(|place| place.dir == *here && place.kind.has(name))
                };
                let is_new = |here: &PathBuf| here.join(WORK_DIR).join(NEW).join(name).exists();
                match (outside.get(number), remote.get(number.wrapping_sub(outside.len()))) {
                    (Some(here), _) => of_kind(here),
                    (None, Some(here)) => is_new(here),
                    (None, None) => false,
                }
            }
        })?;
        if !is_accepted && !journal.old.is_empty() {
            acceptance::note_untried(layout)?;
        }
        swap::begin(&layout.datadir, &journal)?;
        if let Err(error) = swap::finish(&layout.datadir, &journal, || Ok(())) {
            error_log.warn(format_args!("{error}; rolling the swap back"));
            if swap::roll_back(&layout.datadir, &journal, || Ok(())).is_ok() {
                acceptance::forget_note(layout);
                error_log.info("the old data is in place again");
            }
            return Err(error.into());
        }
        Ok(())
    }

    /// Keeps the old data, and logs where it is, its size and when it will be removed; or removes it.
    pub(super) fn after_the_swap(&self, old: Old) {
        match old {
            Old::Kept => self.report_old(),
            // The new data is in place even if this fails.
            Old::Removed => drop_old(self.layout, self.lock).unwrap_or_else(|error| {
                self.error_log
                    .warn(format_args!("cannot remove the old data in #sql-xb/.old: {error}"));
            }),
        }
    }

    fn report_old(&self) {
        let Self { layout, error_log, .. } = self;
        if !has_old(&layout.datadir) {
            return;
        }
        let old = layout.datadir.join(WORK_DIR).join(OLD);
        let disk = Layout::of(&old).map_or(0, |old| data_size::estimate(&old).disk);
        error_log.info(format_args!(
            "the old data, about {} MiB, is in {}, where servers do not see it; it is removed by wsrep_sst_xbrs-rs clean-old {}, or by the next full transfer",
            disk >> 20,
            old.display(),
            layout.datadir.display()
        ));
    }
}

/// Returns whether there is old data in `DATADIR/#sql-xb/.old`.
#[must_use]
pub fn has_old(datadir: &Path) -> bool {
    let old = datadir.join(WORK_DIR).join(OLD);
    std::fs::read_dir(old).is_ok_and(|mut entries| entries.next().is_some())
}
