//! Request and result of a run.

use xb_compressor::Compression;
use xb_encryptor::KeySlots;
use xb_pipeline::{AutoReport, Content, ObjectSize, PackPlan, Transform, codec_memory};
use xb_repo::manifest::{Base, Layout, Manifest, MergedLink};
use xb_repo::names::BackupName;

use crate::server::watch::ServerWatch;

/// Request of a put.
#[derive(Debug)]
pub struct PutRequest {
    /// Name of the backup.
    pub name: BackupName,
    /// Whether the name was generated: if a backup or a run has it, the run appends a hyphen and
    /// four random hexadecimal digits.
    pub generated: bool,
    /// Layout in the store.
    pub layout: PutLayout,
    /// Size of the objects of a packed backup, and of fixed-size classic objects.
    pub object_size: ObjectSize,
    /// Kind of the input. An xbstream may also arrive as a native stream, which is stored unchanged
    /// (packed).
    pub content: Content,
    /// Program and version for the manifest.
    pub tool: String,
    /// The operator's name for the backed-up server, for the manifest.
    pub server: Option<String>,
    /// Whether to accept an incremental backup without a base in this ROOT.
    pub base_elsewhere: bool,
    /// Base of an incremental backup, if the user named one.
    pub since: Option<IncrementalBase>,
    /// The server before its producer started, if it is known.
    pub watch: Option<ServerWatch>,
    /// The chain that was merged into the stream, if it is not of a server.
    pub merged: Option<MergedChain>,
}

/// A chain that was merged into the stream of a full backup.
#[derive(Debug, Clone)]
pub struct MergedChain {
    /// Its last backup, whose data the stream has.
    pub last: Manifest,
    /// All of its backups, the full one first.
    pub links: Vec<MergedLink>,
    /// The user knows that no tablespace was imported between them, and they do not.
    pub accepted_imports: bool,
}

/// Layout of a backup in the store, with the settings that only this layout has.
#[derive(Debug)]
pub enum PutLayout {
    /// Frames in objects of one size.
    Packed {
        /// Codec of the frames.
        compress: Compression,
        /// Key slots; if empty, the backup is not sealed.
        key_slots: KeySlots,
    },
    /// The objects of the stock tool.
    Classic {
        /// Objects of one size, instead of one for each chunk as the stock tool writes them.
        fixed_size: bool,
        /// Compression and encryption of each file, if any.
        transform: Option<Transform>,
        /// Also write the stock MD5 list.
        md5: bool,
    },
}

impl PutLayout {
    /// A packed layout, neither compressed nor sealed.
    #[must_use]
    pub fn packed() -> Self {
        Self::Packed { compress: Compression::default(), key_slots: KeySlots::default() }
    }

    /// The classic layout as the stock tool writes it.
    #[must_use]
    pub fn classic() -> Self {
        Self::Classic { fixed_size: false, transform: None, md5: false }
    }

    /// Memory in bytes that the codec of each worker needs for itself.
    pub(super) fn codec_memory(&self) -> u64 {
        match self {
            Self::Packed { compress, .. } => codec_memory(*compress),
            // Files are compressed later, in memory that is planned there.
            Self::Classic { .. } => 0,
        }
    }

    /// The layout without its settings.
    #[must_use]
    pub fn kind(&self) -> Layout {
        match self {
            Self::Packed { .. } => Layout::Packed,
            Self::Classic { .. } => Layout::Classic,
        }
    }

    /// Returns whether the backup can be read only with a key.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        match self {
            Self::Packed { key_slots, .. } => !key_slots.is_empty(),
            Self::Classic { transform, .. } => {
                transform.as_ref().is_some_and(|transform| transform.encrypt.is_some())
            }
        }
    }
}

/// Base of an incremental backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncrementalBase {
    /// The base.
    pub base: Base,
    /// The log sequence number from which the backup has to hold changes.
    pub lsn: u64,
    /// The log sequence number that the base reaches.
    pub base_ends: u64,
    /// Whether to accept a base although it is unknown whether the server continues its history.
    pub accept_history: bool,
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
    /// Description of the protection of the objects in transit.
    pub protection: &'static str,
    /// Sizes and concurrency of the run.
    pub plan: PackPlan,
    /// Codecs that `--compress=auto` has chosen.
    pub compression: Option<AutoReport>,
}
