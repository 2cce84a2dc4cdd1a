//! `pin` and `unpin` exempt a backup from `prune` and `delete`; `accept` says that it is as intended.

use std::collections::BTreeSet;

use crate::claim::mark::await_removals;
use crate::error::RepoError;
use crate::list::{list, state_without_manifest};
use crate::names::BackupName;
use crate::records::{
    Accepted, OperatorWord, pinned, remove_acceptance, remove_pin, write_acceptance, write_pin,
};
use crate::root::Root;

/// Pins the backup `name`, so that `prune` keeps it.
///
/// # Errors
/// [`RepoError::NotThere`], [`RepoError::Manifest`], [`RepoError::Store`].
pub async fn pin(
    root: &Root,
    name: &BackupName,
    reason: Option<&str>,
) -> Result<OperatorWord, RepoError> {
    let (manifest, run) = manifest_of(root, name).await?;
    let pin = write_pin(root, name, manifest.clone(), reason).await?;
    // A removal that looked for pins before this one was written is still marked, or over.
    await_removals(root, name, &run).await?;
    match digest_of(root, name).await {
        Ok(again) if again == manifest => Ok(pin),
        Ok(_) | Err(RepoError::NotThere { .. }) => {
            let state = ": it was removed or replaced meanwhile; `unpin` removes the pin";
            Err(RepoError::NotThere { name: name.to_string(), state })
        }
        Err(error) => Err(error),
    }
}

/// Accepts what is unusual about the backup `name` now, and returns it: that its base, or that of its chain, is elsewhere,
/// and otherwise its size, which is the usual one from now on.
///
/// # Errors
/// As [`pin`].
pub async fn accept(
    root: &Root,
    name: &BackupName,
    reason: Option<&str>,
) -> Result<BTreeSet<Accepted>, RepoError> {
    let manifest = digest_of(root, name).await?;
    let lines = list(root).await?;
    let line = lines.iter().find(|line| line.name == name.as_str());
    let has_base = line.is_none_or(|line| line.base_elsewhere_of.is_none());
    let is_small = line.is_some_and(|line| line.shrunk.is_some());
    let mut about = BTreeSet::new();
    about.extend((!has_base).then_some(Accepted::Base));
    about.extend((has_base || is_small).then_some(Accepted::Size));
    write_acceptance(root, name, manifest, reason, about.clone()).await?;
    Ok(about)
}

/// Takes back the acceptance of the backup `name`, and returns it, if there was one.
///
/// # Errors
/// As [`pin`]; [`RepoError::Concurrent`] if another command changed it meanwhile.
pub async fn take_back(root: &Root, name: &BackupName) -> Result<Option<OperatorWord>, RepoError> {
    let manifest = digest_of(root, name).await?;
    remove_acceptance(root, name, &manifest).await
}

/// Removes the pin and returns it, if there was one.
///
/// # Errors
/// As [`pin`], but a pin can also be removed if the manifest is damaged or missing;
/// [`RepoError::Concurrent`] if another command changed it meanwhile.
pub async fn unpin(root: &Root, name: &BackupName) -> Result<Option<OperatorWord>, RepoError> {
    let manifest = match digest_of(root, name).await {
        Err(RepoError::Manifest { .. }) => None,
        // The pin of a backup whose manifest is missing counts, too.
        Err(RepoError::NotThere { .. }) if pinned(root, name, None).await?.is_some() => None,
        digest => Some(digest?),
    };
    remove_pin(root, name, manifest.as_deref()).await
}

async fn digest_of(root: &Root, name: &BackupName) -> Result<String, RepoError> {
    Ok(manifest_of(root, name).await?.0)
}

/// Digest and run of a manifest.
async fn manifest_of(root: &Root, name: &BackupName) -> Result<(String, String), RepoError> {
    match root.stored_manifest(name).await? {
        Some(stored) => Ok((stored.digest(), stored.manifest.run)),
        None => {
            let state = state_without_manifest(root, name).await?;
            Err(RepoError::NotThere { name: name.to_string(), state })
        }
    }
}
