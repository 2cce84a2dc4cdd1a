//! Input and result of a run: what to store, how, and what was done.

use xb_compressor::Compression;
use xb_encryptor::KeySlots;
use xb_pipeline::{AutoReport, Content, PackPlan, Transform};

use crate::catalog::manifest::{Base, Layout, Manifest};
use crate::catalog::names::BackupName;

/// What to store, and how.
#[derive(Debug)]
pub struct PutRequest {
    /// Name of the backup.
    pub name: BackupName,
    /// Layout in the store.
    pub layout: Layout,
    /// Object size in bytes (packed, and fixed-size classic).
    pub chunk_size: u64,
    /// Classic only: objects of `chunk_size`, instead of one for each chunk as the stock tool
    /// writes them.
    pub recut: bool,
    /// Codec of the frames (packed).
    pub compress: Compression,
    /// Key slots; if empty, the backup is not sealed (packed).
    pub ways_in: KeySlots,
    /// Compression and encryption of each file, if any (classic).
    pub transform: Option<Transform>,
    /// Memory budget for buffers, in bytes.
    pub memory: u64,
    /// Worker threads.
    pub threads: usize,
    /// Number of concurrent requests; the budget may allow fewer.
    pub parallel: usize,
    /// Kind of the input. An xbstream may also arrive as a native stream, which is stored unchanged
    /// (packed).
    pub content: Content,
    /// Also write the stock MD5 list (classic only).
    pub md5: bool,
    /// Program and version for the manifest.
    pub tool: String,
    /// The operator's name for the backed-up server, for the manifest.
    pub server: Option<String>,
    /// Base of an incremental backup, if the user named one.
    pub since: Option<IncrementalBase>,
}

/// Where an incremental backup begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncrementalBase {
    /// The base.
    pub base: Base,
    /// The log sequence number that the base reaches.
    pub lsn: u64,
}

/// Result of a successful run.
#[derive(Debug, Clone)]
pub struct PutReport {
    /// The manifest as committed.
    pub manifest: Manifest,
    /// Requests sent to the store, retries included; 0 for a folder.
    pub requests: u64,
    /// Number of retries.
    pub retries: u64,
    /// How the objects were protected in transit, in words.
    pub protection: &'static str,
    /// Sizes and concurrency of the run.
    pub plan: PackPlan,
    /// Codecs that `--compress=auto` has chosen.
    pub compression: Option<AutoReport>,
}
