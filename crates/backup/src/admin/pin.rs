//! `pin` and `unpin`: exempt a backup from `prune` and `delete`.

use crate::catalog::list::state_without_manifest;
use crate::catalog::names::BackupName;
use crate::catalog::records::{Pin, pinned, remove_pin, write_pin};
use crate::catalog::root::Root;
use crate::claim::mark::settled;
use crate::error::BackupError;

/// Pins the backup `name`, so that `prune` keeps it.
///
/// # Errors
/// [`BackupError::NotThere`], [`BackupError::Manifest`], [`BackupError::Store`].
pub async fn pin(root: &Root, name: &BackupName, reason: Option<&str>) -> Result<Pin, BackupError> {
    let manifest = digest_of(root, name).await?;
    let pin = write_pin(root, name, manifest.clone(), reason).await?;
    // A removal that looked for pins before this one was written is still marked, or over.
    settled(root, name).await?;
    match digest_of(root, name).await {
        Ok(again) if again == manifest => Ok(pin),
        Ok(_) | Err(BackupError::NotThere { .. }) => {
            let state = ": it was removed or replaced meanwhile; `unpin` removes the pin";
            Err(BackupError::NotThere { name: name.to_string(), state })
        }
        Err(error) => Err(error),
    }
}

/// Removes the pin and returns it, if there was one.
///
/// # Errors
/// As [`pin`], but a pin can also be removed if the manifest is damaged or missing;
/// [`BackupError::Concurrent`] if another command changed it meanwhile.
pub async fn unpin(root: &Root, name: &BackupName) -> Result<Option<Pin>, BackupError> {
    let manifest = match digest_of(root, name).await {
        Err(BackupError::Manifest { .. }) => None,
        // The pin of a backup whose manifest is missing counts, too.
        Err(BackupError::NotThere { .. }) if pinned(root, name, None).await?.is_some() => None,
        digest => Some(digest?),
    };
    remove_pin(root, name, manifest.as_deref()).await
}

async fn digest_of(root: &Root, name: &BackupName) -> Result<String, BackupError> {
    match root.stored_manifest(name).await? {
        Some(stored) => Ok(stored.digest()),
        None => {
            let state = state_without_manifest(root, name).await?;
            Err(BackupError::NotThere { name: name.to_string(), state })
        }
    }
}
