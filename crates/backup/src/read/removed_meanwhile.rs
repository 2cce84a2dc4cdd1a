//! Distinguishes a backup that was removed from one that is damaged.

use xb_repo::error::RepoError;
use xb_repo::names::BackupName;
use xb_repo::root::Root;

use crate::error::BackupError;

/// Fails if the backup was removed or replaced since its manifest, of which this is the SHA-256, was read: whatever removes a
/// backup deletes its manifest first. `state` says so. A manifest that cannot be read shows nothing.
///
/// # Errors
/// [`RepoError::NotThere`].
pub(crate) async fn refuse_removed(
    root: &Root,
    name: &BackupName,
    manifest: &str,
    state: &'static str,
) -> Result<(), RepoError> {
    match root.stored_manifest(name).await {
        Ok(found) if found.as_ref().is_none_or(|found| found.digest() != manifest) => {
            Err(RepoError::NotThere { name: name.to_string(), state })
        }
        _ => Ok(()),
    }
}

/// The error of a read; that the backup is no longer there, if that explains it.
pub(crate) async fn unless_gone(
    root: &Root,
    name: &BackupName,
    manifest: &str,
    error: BackupError,
) -> BackupError {
    if !matches!(error, BackupError::Damaged { .. }) {
        return error;
    }
    let state = ": it was removed or replaced while it was being read";
    match refuse_removed(root, name, manifest, state).await {
        Err(gone) => gone.into(),
        Ok(()) => error,
    }
}
