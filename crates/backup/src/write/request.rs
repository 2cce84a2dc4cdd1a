//! What a run stores and how, and what a successful run did.

use xb_compressor::Algorithm;
use xb_encryptor::WaysIn;
use xb_pipeline::{Content, PackPlan, Transform};

use crate::catalog::manifest::{Base, Layout, Manifest};
use crate::catalog::names::BackupName;

/// What is to be put, and how.
#[derive(Debug)]
pub struct PutRequest {
    /// Name of the backup.
    pub name: BackupName,
    /// Layout in the store.
    pub layout: Layout,
    /// Size of the objects in bytes (packed, and classic where it is re-cut).
    pub chunk_size: u64,
    /// Classic only: objects of `chunk_size`, instead of one for each chunk as the stock tool has it.
    pub recut: bool,
    /// Codec of the frames (packed).
    pub compress: Algorithm,
    /// Who can open it; with nobody named it is not sealed (packed).
    pub ways_in: WaysIn,
    /// What is done to the files one by one, if anything (classic).
    pub transform: Option<Transform>,
    /// Budget for buffers in bytes.
    pub memory: u64,
    /// Worker threads.
    pub threads: usize,
    /// Requests at a time; the budget may allow fewer.
    pub parallel: usize,
    /// What comes in. An xbstream may also come as a native stream, which is stored as it is
    /// (packed).
    pub content: Content,
    /// Also write the stock list of MD5 sums (classic only).
    pub md5: bool,
    /// Program and version for the manifest.
    pub tool: String,
    /// What the server is called that it is taken of, for the manifest.
    pub server: Option<String>,
    /// The backup that this one is told to go on from.
    pub since: Option<Since>,
}

/// Where an incremental backup goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Since {
    /// The backup before it.
    pub base: Base,
    /// The log sequence number that it reaches.
    pub lsn: u64,
}

/// What a successful run did.
#[derive(Debug, Clone)]
pub struct PutReport {
    /// The manifest as committed.
    pub manifest: Manifest,
    /// Requests sent to the store, retries included; 0 for a folder.
    pub requests: u64,
    /// Tries that followed a failed one.
    pub retries: u64,
    /// What protected the objects on their way, in words.
    pub protection: &'static str,
    /// Sizes and numbers of things at a time.
    pub plan: PackPlan,
}
