//! Removal of single files of a backup in the stock layout, as the stock tool offers it.
//!
//! A backup that lacks files is not complete: its manifest goes first, and the remaining objects
//! count as a stock backup.

use std::collections::BTreeSet;

use xb_repo::chain::refuse_needed;
use xb_repo::claim::mark::Mark;
use xb_repo::claim::{Claim, refuse_living};
use xb_repo::contents::Contents;
use xb_repo::error::RepoError;
use xb_repo::manifest::{Layout, StoredManifest};
use xb_repo::names::{BackupName, RunId, parse_classic_key, sums_folder};
use xb_repo::resolve::KnownManifests;
use xb_repo::root::Root;

use crate::admin::delete::refuse_pinned;
use crate::error::BackupError;

/// Removes the objects of these files, by their exact names in the stream, and returns their
/// number. Nothing is removed if one of the files does not exist.
///
/// # Errors
/// [`BackupError::Selection`] for a packed backup or a missing file; otherwise as
/// [`delete_unless_needed`](crate::delete_unless_needed).
pub async fn delete_files(
    root: &Root,
    name: &BackupName,
    files: &[String],
) -> Result<u64, BackupError> {
    refuse_living(root, name).await?;
    let root = &root.knowing(&root.catalogue().await?);
    let stored = root.stored_manifest(name).await?;
    let keys = objects_of(root, name, stored.as_ref(), files).await?;
    let count = keys.len() as u64;
    let (claim, root) = match stored {
        Some(stored) => unmade(root, name, &stored).await?,
        None => claimed(root, name).await?,
    };
    root.remove_below(&sums_folder(name)).await?;
    root.store().delete_all(keys).await?;
    claim.end().await;
    Ok(count)
}

/// Removes the manifest, unless another backup needs it.
async fn unmade(
    root: &Root,
    name: &BackupName,
    stored: &StoredManifest,
) -> Result<(Claim, Root), BackupError> {
    let (run, digest) = (&stored.manifest.run, stored.digest());
    let mark = Mark::set(root, name, Some(run), Some(digest.clone())).await?;
    // Whoever pins the backup now, or commits an increment of it, sees the mark.
    let looked = async {
        refuse_pinned(root, name, Some(&digest)).await?;
        Ok::<_, BackupError>(refuse_needed(root, name, &KnownManifests::of(root).await?).await?)
    };
    if let Err(needed) = looked.await {
        mark.withdraw().await;
        return Err(needed);
    }
    Ok(mark.remove_manifest().await?.hold().await?)
}

/// Claims a name that has no manifest.
async fn claimed(root: &Root, name: &BackupName) -> Result<(Claim, Root), BackupError> {
    let (claim, _) = Claim::classic(root, name, RunId::random()?).await?;
    // Another run may have ended since.
    let changed = match root.stored_manifest(name).await {
        Ok(None) => {
            let held = claim.hold(root, name).await?;
            return Ok((claim, held));
        }
        Ok(Some(_)) => RepoError::Changed { name: name.to_string() },
        Err(error) => error,
    };
    claim.withdraw().await;
    Err(changed.into())
}

/// Full keys of the objects of these files.
async fn objects_of(
    root: &Root,
    name: &BackupName,
    stored: Option<&StoredManifest>,
    files: &[String],
) -> Result<Vec<String>, BackupError> {
    if stored.is_some_and(|stored| stored.manifest.layout == Layout::Packed) {
        return Err(BackupError::Selection(format!(
            "{name} is packed: its files have no objects of their own"
        )));
    }
    refuse_pinned(root, name, stored.map(StoredManifest::digest).as_deref()).await?;
    let contents = Contents::of(root, name).await?;
    contents.refuse_folder(name)?;
    if contents.classic.is_empty() {
        let state = xb_repo::list::state_without_manifest(root, name).await?;
        return Err(RepoError::NotThere { name: name.to_string(), state }.into());
    }
    let mut missing: BTreeSet<&str> = files.iter().map(String::as_str).collect();
    let mut keys = Vec::new();
    for object in &contents.classic {
        let Some((path, _)) = parse_classic_key(&object.key) else { continue };
        if files.iter().any(|file| file == path) {
            missing.remove(path);
            keys.push(root.classic_keys(name).at(&object.key));
        }
    }
    match missing.first() {
        Some(file) => Err(BackupError::Selection(format!("{name} has no file {file}"))),
        None => Ok(keys),
    }
}
