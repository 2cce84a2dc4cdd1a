//! Golden files: the small ones in `fixtures/`, and the full collection that may exist beside the
//! checkout.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::process::tools::workspace;

/// Returns the path of a file in `fixtures/`.
///
/// # Panics
/// The file does not exist.
#[must_use]
pub fn path(name: &str) -> PathBuf {
    let path = workspace().join("fixtures").join(name);
    assert!(path.exists(), "no fixture {}", path.display());
    path
}

/// Returns the content of a file in `fixtures/`, decompressed if its name ends in `.gz`.
///
/// # Panics
/// The file cannot be read.
#[must_use]
pub fn read(name: &str) -> Vec<u8> {
    read_file(&path(name))
}

/// Returns all files with this ending in a folder of `fixtures/`, by name.
///
/// # Panics
/// No file matches: a loop over nothing would prove nothing.
#[must_use]
pub fn all(folder: &str, ending: &str) -> Vec<(String, Vec<u8>)> {
    let dir = path(folder);
    let mut names: Vec<String> = fs::read_dir(&dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .map(|entry| entry.expect("folder entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(ending))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "no *{ending} in {}", dir.display());
    names.into_iter().map(|name| (name.clone(), read_file(&dir.join(name)))).collect()
}

/// Vector of the collection, as described in its `MANIFEST.json`.
#[derive(Debug, Clone)]
pub struct Vector {
    /// Path in the collection, such as `xbstream-bad/gap.xbs`.
    pub name: String,
    /// Expected result by file name: size and SHA-256 in hex. `None`: no result is specified,
    /// because the input is bad or readers may differ.
    pub plain: Option<Vec<(String, u64, String)>>,
    /// Remarks of the author.
    pub note: String,
    file: PathBuf,
}

impl Vector {
    /// Returns the content, decompressed.
    ///
    /// # Panics
    /// The file cannot be read.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        read_file(&self.file)
    }
}

/// Returns the vectors below `folder` of the collection `shared/vectors` beside the checkout. Empty
/// if there is no collection: tests must work without it.
///
/// # Panics
/// The collection exists but is unreadable.
#[must_use]
pub fn collection(folder: &str) -> Vec<Vector> {
    let root = workspace().join("../shared/vectors");
    if !root.is_dir() {
        return Vec::new();
    }
    let text = read_file(&root.join("MANIFEST.json"));
    let list: Value = serde_json::from_slice(&text).expect("MANIFEST.json");
    let entries = list.as_array().expect("MANIFEST.json is a list");
    let prefix = format!("{folder}/");
    entries
        .iter()
        .filter_map(|entry| {
            let name = entry["file"].as_str()?.to_owned();
            name.starts_with(&prefix).then(|| Vector {
                plain: entry["plain"].as_object().map(|files| files.iter().map(plain).collect()),
                note: entry["note"].as_str().unwrap_or_default().to_owned(),
                file: root.join(&name),
                name,
            })
        })
        .collect()
}

fn plain((name, facts): (&String, &Value)) -> (String, u64, String) {
    let size = facts["size"].as_u64().expect("size");
    (name.clone(), size, facts["sha256"].as_str().expect("sha256").to_owned())
}

fn read_file(path: &Path) -> Vec<u8> {
    if path.extension().is_some_and(|e| e == "gz") {
        let out = Command::new("gzip").arg("-dc").arg(path).output().expect("gzip");
        assert!(out.status.success(), "{}: gzip {}", path.display(), out.status);
        return out.stdout;
    }
    fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_collection_can_be_read_where_there_is_one() {
        let bad = collection("xbstream-bad");
        if workspace().join("../shared/vectors").is_dir() {
            assert!(bad.iter().any(|v| v.name.ends_with("gap.xbs") && v.plain.is_none()));
            assert!(bad.iter().any(|v| v.plain.is_some()));
            for vector in collection("xbstream") {
                assert!(
                    vector.bytes().starts_with(crate::contents::stream::MAGIC),
                    "{}",
                    vector.name
                );
            }
        } else {
            assert!(bad.is_empty());
        }
    }

    #[test]
    #[should_panic(expected = "no fixture")]
    fn a_missing_fixture_is_named() {
        let _ = read("no/such/file");
    }
}
