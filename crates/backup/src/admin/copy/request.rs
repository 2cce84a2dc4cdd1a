//! Request and result of a copy.

use xb_encryptor::Keys;
use xb_repo::manifest::Manifest;
use xb_repo::names::BackupName;
use xb_uploader::Lock;

use crate::read::unlock::{Accept, ReadKeys};

/// Request of a copy.
#[derive(Debug)]
pub struct CopyRequest {
    /// Name of the backup.
    pub name: BackupName,
    /// Name of the copy.
    pub to: BackupName,
    /// Backups that are copied although they may not be restorable.
    pub options: CopyOptions,
    /// Program and version for the records of bases that are verified before they are copied, if they are not verified yet;
    /// without it, such a base is refused.
    pub verify_bases: Option<String>,
    /// Keys of a sealed backup. Required only if the copy gets another name. With keys, the backup
    /// must be sealed, and only a verification record that a key authenticates counts.
    pub keys: Keys,
    /// Unauthenticated backups that may be copied.
    pub accept: Accept,
    /// Both ROOTs are in one bucket: let the store itself copy objects of at most this many bytes,
    /// if it can.
    pub within_store: Option<u64>,
    /// Object lock for all objects of the copy and of the backups that it needs, the manifest last.
    pub lock: Option<Lock>,
}

/// Choice of backups that are copied although they may not be restorable.
#[derive(Debug, Clone, Copy, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct CopyOptions {
    /// Copy the backup even if it is not verified
    #[cfg_attr(feature = "clap", arg(long))]
    pub unverified: bool,
    /// Copy an incremental backup even if its base is missing at the destination
    #[cfg_attr(feature = "clap", arg(long))]
    pub alone: bool,
}

impl CopyRequest {
    pub(super) fn given(&self, memory: u64) -> ReadKeys<'_> {
        ReadKeys { keys: &self.keys, accept: self.accept, memory }
    }
}

/// Result of a successful copy.
#[derive(Debug, Clone)]
pub struct CopyReport {
    /// The manifest as written at the destination.
    pub manifest: Manifest,
    /// Names of the backups that it needs and that were copied before it, the full one first.
    pub bases: Vec<String>,
    /// Data objects that the store itself copied; their content was not compared.
    pub by_store: u64,
    /// Data objects from an earlier, interrupted copy. They were read back and compared.
    pub kept: u64,
    /// Whether the copy was already complete.
    pub was_there: bool,
    /// Number of locked objects, including the small ones and the manifest.
    pub locked: u64,
    /// Why not all backups that a restore needs are locked.
    pub not_locked: Option<String>,
    /// What is doubtful of backups that were at the destination before, for the user.
    pub doubts: Vec<String>,
    /// Requests sent to both stores, retries included; 0 for folders.
    pub requests: u64,
    /// Number of retries.
    pub retries: u64,
}
