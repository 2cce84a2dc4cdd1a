//! Request and result of reading a backup.

use xb_encryptor::Keys;
use xb_repo::manifest::Manifest;
use xb_repo::names::BackupName;

use crate::read::unlock::{Accept, ReadKeys};
use crate::selection::{Chosen, Selection};

/// Request to read a backup.
#[derive(Debug)]
pub struct GetRequest {
    /// Name of the backup.
    pub name: BackupName,
    /// Files to read.
    pub files: Selection,
    /// Returns the native stream as it is stored, preceded by its keys block if it is sealed.
    /// Packed layout only; needs no key.
    pub as_stored: bool,
    /// Keys to open a sealed backup. If there are any, the backup must be sealed, and one of them
    /// must authenticate its manifest.
    pub keys: Keys,
    /// Unauthenticated backups that are read nevertheless.
    pub accept: Accept,
}

impl GetRequest {
    /// Request to read all files of a backup, which must be authenticated if there are keys.
    #[must_use]
    pub fn new(name: BackupName, keys: Keys) -> Self {
        let (files, accept) = (Selection::default(), Accept::default());
        Self { name, files, as_stored: false, keys, accept }
    }

    /// The keys of this request.
    pub(crate) fn given(&self, memory: u64) -> ReadKeys<'_> {
        ReadKeys { keys: &self.keys, accept: self.accept, memory }
    }
}

/// Result of a successful read.
#[derive(Debug, Clone, Default)]
pub struct GetReport {
    /// Length of the stream in bytes.
    pub stream_bytes: u64,
    /// Data objects read.
    pub objects: u64,
    /// Total size of these objects in bytes.
    pub stored_bytes: u64,
    /// Requests sent to the store, retries included; 0 for a local directory.
    pub requests: u64,
    /// Requests that were retries.
    pub retries: u64,
    /// The manifest, if there is one: a stock backup has none.
    pub manifest: Option<Manifest>,
    /// SHA-256 over the bytes of the manifest, hexadecimal, if this run has read it.
    pub digest: Option<String>,
    /// The selected files, if not all were read.
    pub chosen: Option<Chosen>,
}
