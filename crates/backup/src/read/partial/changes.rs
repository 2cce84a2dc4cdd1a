//! Changes that a stream makes to files that it has begun.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use xb_frame::Record;

/// Files to which something happens in the course of the stream, other than that they grow to their ends.
///
/// Takes some 50 bytes for a file that only grows, and its name for each other one.
#[derive(Debug, Default)]
pub(super) struct LaterChanges {
    renamed: HashMap<u64, Vec<u8>>,
    /// Files that the stream removes, or that another file replaces.
    removed: HashSet<u64>,
    /// Files with a chunk that does not begin where the one before ended.
    reordered: HashSet<u64>,
    /// Names that several files have, one after the other.
    reused: HashSet<Vec<u8>>,
    /// Where the next chunk of each open file begins, if nothing is reordered.
    next: HashMap<u64, u64>,
    /// The last file that got each name.
    files: HashMap<Name, u64>,
    /// The last name of each file.
    names: HashMap<u64, Name>,
    hashers: [RandomState; 2],
}

/// Two hashes of a name with random keys.
type Name = [u64; 2];

impl LaterChanges {
    /// Takes the records in order.
    pub(super) fn take(&mut self, record: &Record<'_>) {
        match record {
            Record::File { file, path, .. } => {
                self.next.insert(*file, 0);
                if self.give(*file, path) {
                    self.reused.insert(path.to_vec());
                }
            }
            Record::Chunk(chunk) => {
                let next =
                    self.next.insert(chunk.file, chunk.offset.saturating_add(chunk.logical_len));
                if next != Some(chunk.offset) {
                    self.reordered.insert(chunk.file);
                }
            }
            Record::End { file, .. } => drop(self.next.remove(file)),
            Record::Rename { file, path } => {
                self.renamed.insert(*file, path.to_vec());
                self.give(*file, path);
                // Any other file with this name has had it before, or gets it later.
                self.reused.insert(path.to_vec());
            }
            Record::Remove { file } => drop(self.removed.insert(*file)),
            _ => {}
        }
    }

    /// Gives a file a name, and returns whether another one has had it.
    fn give(&mut self, file: u64, path: &[u8]) -> bool {
        let name = self.hashers.each_ref().map(|hasher| hasher.hash_one(path));
        self.names.insert(file, name);
        let Some(before) = self.files.insert(name, file).filter(|before| *before != file) else {
            return false;
        };
        if self.names.get(&before) == Some(&name) {
            self.removed.insert(before);
        }
        true
    }

    /// Returns whether the stream removes or replaces the file.
    pub(super) fn is_removed(&self, file: u64) -> bool {
        self.removed.contains(&file)
    }

    /// The last name of a file that is renamed.
    pub(super) fn new_name(&self, file: u64) -> Option<&[u8]> {
        self.renamed.get(&file).map(Vec::as_slice)
    }

    /// Returns whether the file that begins under the name `path` keeps it, is the only one that ever has it, and is
    /// written from its first byte to its last. Of every other file, no part is final before the end of the stream.
    pub(super) fn only_grows(&self, file: u64, path: &[u8]) -> bool {
        !self.removed.contains(&file)
            && !self.renamed.contains_key(&file)
            && !self.reordered.contains(&file)
            && !self.reused.contains(path)
    }
}
