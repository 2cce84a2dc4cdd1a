//! The complete files of a stream, by folder and name.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use crate::RelPath;
use crate::files::id::FileId;

/// The complete files of a stream. Names are kept as 64-bit hashes with a random key.
#[derive(Debug, Default)]
pub(super) struct Finished {
    folders: HashMap<u64, HashMap<u64, FileId>>,
    hasher: RandomState,
}

impl Finished {
    pub(super) fn has(&self, path: &RelPath) -> bool {
        let (folder, name) = self.key(path);
        self.folders.get(&folder).is_some_and(|files| files.contains_key(&name))
    }

    pub(super) fn insert(&mut self, path: &RelPath, id: FileId) {
        let (folder, name) = self.key(path);
        self.folders.entry(folder).or_default().insert(name, id);
    }

    pub(super) fn remove(&mut self, path: &RelPath) -> Option<FileId> {
        let (folder, name) = self.key(path);
        self.folders.get_mut(&folder)?.remove(&name)
    }

    /// Removes the files in a folder, but not those in folders of it, and returns them in the order of opening. `None`: the
    /// stream had no complete file there; if they went one by one, the folder is still there.
    pub(super) fn remove_folder(&mut self, folder: &RelPath) -> Option<Vec<FileId>> {
        let files = self.folders.remove(&self.hasher.hash_one(Some(folder.as_bytes())))?;
        let mut ids: Vec<_> = files.into_values().collect();
        ids.sort_unstable();
        Some(ids)
    }

    pub(super) fn len(&self) -> usize {
        self.folders.values().map(HashMap::len).sum()
    }

    fn key(&self, path: &RelPath) -> (u64, u64) {
        let (folder, name) = path.split_last();
        (self.hasher.hash_one(folder), self.hasher.hash_one(name))
    }
}
