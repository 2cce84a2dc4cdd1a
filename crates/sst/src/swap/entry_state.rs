//! What it is that stands at a name while data is being exchanged.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;

use super::plan::list;
use super::{Entry, Journal, Place, SwapError, exists};
use crate::contract::datadir::Kind;

/// What stands in a folder under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stands {
    Nothing,
    /// The old entry, which has not gone yet.
    Old,
    /// The new one, which has come.
    New,
    /// None of both: a server was started in the middle and made it.
    Foreign,
}

/// A journal's entries, to look up.
pub(super) struct Listed<'a> {
    journal: &'a Journal,
    old: HashSet<&'a Entry>,
    new: HashSet<&'a Entry>,
    gone: HashSet<&'a Entry>,
}

impl<'a> Listed<'a> {
    pub(super) fn of(journal: &'a Journal) -> Self {
        let [old, new, gone] =
            [&journal.old, &journal.new, &journal.gone].map(|list| list.iter().collect());
        Self { journal, old, new, gone }
    }

    pub(super) fn stands(&self, entry: &Entry) -> Result<Stands, SwapError> {
        let place = Place::of(self.journal, entry);
        Ok(if !exists(&place.here)? {
            Stands::Nothing
        } else if self.old.contains(entry) && !self.gone.contains(entry) && !exists(&place.old)? {
            Stands::Old
        } else if self.new.contains(entry) && !exists(&place.new)? {
            Stands::New
        } else {
            Stands::Foreign
        })
    }

    /// Whether the new entry is there, in one of its places.
    pub(super) fn has_new(&self, entry: &Entry) -> Result<bool, SwapError> {
        Ok(exists(&Place::of(self.journal, entry).new)? || self.stands(entry)? == Stands::New)
    }

    /// Whether the old entry is there, in one of its places.
    pub(super) fn has_old(&self, entry: &Entry) -> Result<bool, SwapError> {
        Ok(exists(&Place::of(self.journal, entry).old)? || self.stands(entry)? == Stands::Old)
    }

    /// What a server has made that was started in the middle: entries in the way of others, and
    /// files of storage engines that nobody knows.
    pub(super) fn foreign(&self) -> Result<Vec<Entry>, SwapError> {
        let mut foreign = Vec::new();
        for entry in self.old.union(&self.new) {
            if self.stands(entry)? == Stands::Foreign {
                foreign.push((*entry).clone());
            }
        }
        let stay: HashSet<&Entry> = self.journal.stay.iter().collect();
        for (folder, path) in self.journal.folders.iter().enumerate() {
            let kinds = KINDS.iter().filter(|kind| {
                let has = |entry: &&&Entry| entry.folder == folder && kind.has(&entry.name);
                // A folder elsewhere may have files of other servers.
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

/// What storage engines make in an empty folder.
static KINDS: [Kind; 4] = [Kind::Data(Vec::new()), Kind::Redo, Kind::Undo, Kind::Aria];

pub(super) fn of_engine(name: &OsStr, metadata: &Metadata) -> bool {
    // A schema may have any name.
    (metadata.is_file() || name == "#innodb_redo") && KINDS.iter().any(|kind| kind.has(name))
}

/// What servers remove by themselves, and need not have back.
pub(super) fn is_fleeting(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name == b"ibtmp1" || name.starts_with(b"gcache.page.") || name.starts_with(b"#sql")
}
