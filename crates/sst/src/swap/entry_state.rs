//! State of an entry in the middle of a swap: which entry a name refers to.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use super::error::SwapError;
use super::folders::{NEW, OLD, WORK_DIR, exists, list};
use super::journal::{Entry, Journal};
use crate::contract::datadir::Kind;

/// Entry to which a name in a directory refers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryState {
    Nothing,
    /// The old entry, not moved away yet.
    Old,
    /// The new entry, already moved in.
    New,
    /// Neither of them: created by a server that was started in the middle of the swap.
    Foreign,
}

/// The paths at which an entry can be.
pub(super) struct EntryPaths {
    pub(super) here: PathBuf,
    pub(super) old: PathBuf,
    pub(super) new: PathBuf,
}

impl EntryPaths {
    pub(super) fn of(journal: &Journal, entry: &Entry) -> Self {
        let folder = journal.folder(entry);
        let ours = folder.join(WORK_DIR);
        Self {
            here: folder.join(&entry.name),
            old: ours.join(OLD).join(&entry.name),
            new: ours.join(NEW).join(&entry.name),
        }
    }
}

/// A journal's entries as sets, for lookups.
pub(super) struct EntrySets<'a> {
    journal: &'a Journal,
    old: HashSet<&'a Entry>,
    new: HashSet<&'a Entry>,
    gone: HashSet<&'a Entry>,
}

impl<'a> EntrySets<'a> {
    pub(super) fn of(journal: &'a Journal) -> Self {
        let [old, new, gone] =
            [&journal.old, &journal.new, &journal.gone].map(|list| list.iter().collect());
        Self { journal, old, new, gone }
    }

    pub(super) fn state_of(&self, entry: &Entry) -> Result<EntryState, SwapError> {
        let place = EntryPaths::of(self.journal, entry);
        Ok(if !exists(&place.here)? {
            EntryState::Nothing
        } else if self.old.contains(entry) && !self.gone.contains(entry) && !exists(&place.old)? {
            EntryState::Old
        } else if self.new.contains(entry) && !exists(&place.new)? {
            EntryState::New
        } else {
            EntryState::Foreign
        })
    }

    /// Returns whether the new entry exists at one of its paths.
    pub(super) fn has_new(&self, entry: &Entry) -> Result<bool, SwapError> {
        Ok(exists(&EntryPaths::of(self.journal, entry).new)?
            || self.state_of(entry)? == EntryState::New)
    }

    /// Returns whether the old entry exists at one of its paths.
    pub(super) fn has_old(&self, entry: &Entry) -> Result<bool, SwapError> {
        Ok(exists(&EntryPaths::of(self.journal, entry).old)?
            || self.state_of(entry)? == EntryState::Old)
    }

    /// Returns the entries of a server that was started in the middle of the swap: entries in the
    /// way of others, and files of storage engines that the journal does not list.
    pub(super) fn foreign(&self) -> Result<Vec<Entry>, SwapError> {
        let mut foreign = Vec::new();
        for entry in self.old.union(&self.new) {
            if self.state_of(entry)? == EntryState::Foreign {
                foreign.push((*entry).clone());
            }
        }
        let stay: HashSet<&Entry> = self.journal.stay.iter().collect();
        for (folder, path) in self.journal.folders.iter().enumerate() {
            let kinds = KINDS.iter().filter(|kind| {
                let has = |entry: &&&Entry| entry.folder == folder && kind.has(&entry.name);
                // A directory elsewhere may hold files of other servers.
                folder == 0 || self.old.union(&self.new).any(|entry| has(&entry))
            });
            let kinds: Vec<_> = kinds.collect();
            for (name, metadata) in list(path)? {
                let of_kind = kinds.iter().any(|kind| kind.has(&name));
                let is_of_engine = of_engine(&name, &metadata);
                let entry = Entry { folder, name };
                let listed = [&self.old, &self.new, &stay].iter().any(|l| l.contains(&entry));
                if of_kind && is_of_engine && !listed {
                    foreign.push(entry);
                }
            }
        }
        Ok(foreign)
    }
}

/// Files that storage engines create in an empty directory.
static KINDS: [Kind; 4] = [Kind::Data(Vec::new()), Kind::Redo, Kind::Undo, Kind::Aria];

pub(super) fn of_engine(name: &OsStr, metadata: &Metadata) -> bool {
    // A schema may have any name.
    (metadata.is_file() || name == "#innodb_redo") && KINDS.iter().any(|kind| kind.has(name))
}

/// Files that servers remove by themselves, and that need not be restored.
pub(super) fn is_fleeting(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name == b"ibtmp1" || name.starts_with(b"gcache.page.") || name.starts_with(b"#sql")
}
