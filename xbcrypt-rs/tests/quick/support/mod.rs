//! Shared by the tests of the binary.
#![allow(dead_code, unreachable_pub)] // each test crate uses its part of it
#![allow(clippy::unwrap_used)] // a failed step must end the test

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tempfile::TempDir;
use xb_testkit::command::{Cmd, Ran};

/// Our binary.
pub const BINARY: &str = env!("CARGO_BIN_EXE_xbcrypt-rs");

pub fn xbcrypt() -> Cmd {
    Cmd::new(BINARY)
}

/// Runs the binary with these arguments on this input.
pub fn filter(words: &[&str], input: &[u8]) -> Ran {
    xbcrypt().args(words).stdin_bytes(input).run()
}

/// A temporary folder with files.
pub struct Folder(pub TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and returns its path as text.
    pub fn file(&self, name: &str, content: &[u8]) -> String {
        fs::write(self.path(name), content).unwrap();
        self.name(name)
    }

    /// Returns the path of a file as text.
    pub fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// The names in the folder.
    pub fn names(&self) -> Vec<String> {
        names(self.0.path())
    }

    /// Our binary under another name.
    pub fn linked_as(&self, name: &str) -> Cmd {
        let link = self.path(name);
        if !link.exists() {
            std::os::unix::fs::symlink(BINARY, &link).unwrap();
        }
        Cmd::new(link)
    }
}

pub fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
