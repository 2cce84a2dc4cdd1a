//! Comparison of folders and long streams by their digests.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};

/// Writer that keeps the count and SHA-256 of its bytes. Clones share both, so one clone can serve
/// as an output while another reports the result.
#[derive(Debug, Clone, Default)]
pub struct Digester(Arc<Mutex<(Sha256, u64)>>);

impl Digester {
    /// Returns the number of bytes so far, and their SHA-256 in hex.
    #[must_use]
    pub fn result(&self) -> (u64, String) {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let digest = state.0.clone().finalize();
        (state.1, digest.iter().map(|b| format!("{b:02x}")).collect())
    }
}

impl Write for Digester {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0.update(bytes);
        state.1 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns every file below a folder: its relative path, size and SHA-256. Our own folders (`.xb…`)
/// are skipped.
///
/// # Panics
/// An entry cannot be read, or is neither a file nor a folder.
#[must_use]
pub fn tree(root: &Path) -> BTreeMap<String, (u64, String)> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(dir) = todo.pop() {
        let entries = fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        for entry in entries {
            let entry = entry.expect("folder entry");
            let (path, kind) = (entry.path(), entry.file_type().expect("file type"));
            let name = path.strip_prefix(root).expect("below the root").display().to_string();
            if kind.is_dir() {
                if !name.starts_with(".xb") {
                    todo.push(path);
                }
                continue;
            }
            assert!(kind.is_file(), "{} is not a regular file", path.display());
            let mut digest = Digester::default();
            let copied = File::open(&path).and_then(|mut file| io::copy(&mut file, &mut digest));
            copied.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            found.insert(name, digest.result());
        }
    }
    found
}

/// Asserts that two folders have the same files with the same contents.
///
/// # Panics
/// The folders differ, or both are empty. The message lists the names that differ.
#[track_caller]
pub fn assert_same_tree(one: &Path, other: &Path) {
    let (left, right) = (tree(one), tree(other));
    let names = left.keys().chain(right.keys());
    let mut differ: Vec<&String> = names.filter(|n| left.get(*n) != right.get(*n)).collect();
    differ.sort();
    differ.dedup();
    assert!(differ.is_empty(), "{} and {}: {differ:?}", one.display(), other.display());
    assert!(!left.is_empty(), "both folders are empty");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::daemon::Scratch;

    #[test]
    fn digests_are_sha_256() {
        let mut digest = Digester::default();
        digest.clone().write_all(b"a").unwrap();
        digest.write_all(b"bc").unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.result(), (3, abc.to_owned()));
    }

    #[test]
    #[should_panic(expected = "[\"d/changed\", \"more\"]")]
    fn differences_are_named() {
        let scratch = Scratch::new();
        for (dir, text) in [("one", "x"), ("two", "y")] {
            fs::create_dir_all(scratch.join(dir).join("d")).unwrap();
            fs::write(scratch.join(dir).join("same"), "same").unwrap();
            fs::write(scratch.join(dir).join("d/changed"), text).unwrap();
        }
        fs::write(scratch.join("two/more"), "").unwrap();
        assert_same_tree(&scratch.join("one"), &scratch.join("two"));
    }
}
