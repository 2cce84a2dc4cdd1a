//! Shared by the tests of the binary.
#![allow(dead_code, unreachable_pub)] // each test crate uses its part of it
#![allow(clippy::unwrap_used)] // a failed step must end the test

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::files::tree;
use xb_testkit::vectors;

/// Our binary.
pub const BINARY: &str = env!("CARGO_BIN_EXE_xbstream-rs");

/// Name to size and SHA-256.
pub type Files = BTreeMap<String, (u64, String)>;

pub fn xbstream() -> Cmd {
    Cmd::new(BINARY)
}

/// Our binary under another name.
pub fn linked_as(name: &str, dir: &TempDir) -> Cmd {
    let link = dir.path().join(name);
    if !link.exists() {
        std::os::unix::fs::symlink(BINARY, &link).unwrap();
    }
    Cmd::new(link)
}

/// Extracts into `dir` with this number of threads.
pub fn extract(dir: &Path, stream: &[u8], threads: usize) -> Ran {
    let threads = format!("--parallel={threads}");
    xbstream().args(["-x", "-C"]).arg(dir).arg(threads).stdin_bytes(stream).run()
}

/// A directory inside another one, so that files outside it are noticed.
pub struct Cage {
    pub outer: TempDir,
    pub inner: PathBuf,
}

impl Cage {
    pub fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("inner");
        fs::create_dir(&inner).unwrap();
        Self { outer, inner }
    }

    /// The files inside. Checks that there is nothing outside and nothing unfinished.
    #[track_caller]
    pub fn files(&self) -> Files {
        assert_eq!(fs::read_dir(&self.outer).unwrap().count(), 1, "something lies outside");
        assert!(!self.inner.join(".xb-partial").exists(), "unfinished files are left");
        tree(&self.inner)
    }
}

/// A stream and the expected files; `None`: it must be refused.
pub struct Vector {
    pub name: String,
    pub plain: Option<Files>,
    pub bytes: Vec<u8>,
}

/// The vectors in the repository, and those of the collection if it is present beside the checkout.
pub fn all_vectors() -> Vec<Vector> {
    let list = String::from_utf8(vectors::read("xbstream/vectors.jsonl")).unwrap();
    let mut all: Vec<Vector> = list
        .lines()
        .map(|line| {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap();
            let name = entry["file"].as_str().unwrap().to_owned();
            let plain = entry["plain"].as_object().map(|files| {
                let facts = |facts: &serde_json::Value| {
                    (facts["size"].as_u64().unwrap(), facts["sha256"].as_str().unwrap().to_owned())
                };
                files.iter().map(|(name, file)| (name.clone(), facts(file))).collect()
            });
            let bytes = vectors::read(&format!("xbstream/{name}"));
            Vector { name, plain, bytes }
        })
        .collect();
    assert!(all.len() > 50, "vectors are missing");
    for folder in ["xbstream", "xbstream-bad", "mbstream-ext"] {
        all.extend(vectors::collection(folder).into_iter().map(|vector| Vector {
            bytes: vector.bytes(),
            plain: vector.plain.map(|files| {
                files.into_iter().map(|(name, size, sha256)| (name, (size, sha256))).collect()
            }),
            name: vector.name,
        }));
    }
    all
}
