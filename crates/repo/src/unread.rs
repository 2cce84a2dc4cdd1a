//! Backups whose manifests cannot be read, for now or for good: damaged, of a newer version, in an
//! archive class, encrypted with another key of the store, or of a host that is not trusted.
//!
//! They must not stop commands on other backups. But such a backup may be incremental, so the
//! backups that it may depend on must stay.

use jiff::Timestamp;

use crate::contents::Contents;
use crate::error::RepoError;
use crate::manifest::{Manifest, ManifestError};
use crate::names::BackupName;
use crate::root::Root;

/// Maximum lead of a host's clock over the store's, in seconds.
const AHEAD: i64 = 3600;

/// A backup whose manifest exists and cannot be read.
#[derive(Debug)]
pub struct UnreadableBackup {
    /// Name of the backup.
    pub name: BackupName,
    /// When the manifest was written, by the store's clock, in seconds since 1970.
    pub written: i64,
    /// Reason why it cannot be read.
    pub error: RepoError,
}

impl UnreadableBackup {
    /// Returns whether the manifest may become readable without being replaced. A damaged one cannot.
    pub(crate) fn may_return(&self) -> bool {
        may_return(&self.error)
    }
}

/// Returns whether a manifest with this error may become readable without being replaced.
pub(crate) fn may_return(error: &RepoError) -> bool {
    match error {
        RepoError::Manifest { source, .. } => {
            matches!(source, ManifestError::TooNew { .. } | ManifestError::NotTrusted { .. })
        }
        _ => true,
    }
}

/// Returns whether a backup whose manifest was written at `written` can be based on one that ended at
/// `finished`.
pub fn is_later(written: i64, finished: Timestamp) -> bool {
    written.saturating_add(AHEAD) >= finished.as_second()
}

/// Returns whether a backup may be incremental, judged by its objects alone. Only the stock layout shows
/// that one is full.
pub(crate) async fn may_be_incremental(root: &Root, name: &BackupName) -> Result<bool, RepoError> {
    let found = Contents::of(root, name).await?;
    Ok(!found.packed.is_empty() || found.has_changed_pages())
}

/// Finds the unreadable backups that may be based on `base`.
pub(crate) async fn possible_dependents<'a>(
    root: &Root,
    base: &Manifest,
    unread: impl Iterator<Item = &'a UnreadableBackup>,
) -> Result<Vec<BackupName>, RepoError> {
    let mut found = Vec::new();
    for later in unread.filter(|unread| unread.may_return()) {
        let other = later.name.as_str() != base.name && is_later(later.written, base.finished);
        if other && may_be_incremental(root, &later.name).await? {
            found.push(later.name.clone());
        }
    }
    Ok(found)
}
