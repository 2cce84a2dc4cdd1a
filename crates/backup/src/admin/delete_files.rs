//! Removal of single files of a backup in the stock layout, as the stock tool offers it.
//!
//! A backup that lacks files is not complete: its manifest goes first, and the remaining objects
//! count as a stock backup.

use std::collections::BTreeSet;

use crate::catalog::chain::refuse_needed;
use crate::catalog::manifest::{Layout, StoredManifest};
use crate::catalog::names::{BackupName, RunId, manifest_key, parse_classic_key, sums_folder};
use crate::catalog::records;
use crate::catalog::resolve::Known;
use crate::catalog::root::Root;
use crate::claim::{Claim, refuse_living};
use crate::error::BackupError;
use crate::objects::contents::Contents;

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
    let known = Known::of(root).await?;
    let root = &known.seen_in(root);
    refuse_needed(root, name, &known).await?;
    let stored = root.stored_manifest(name).await?;
    let keys = objects_of(root, name, stored.as_ref(), files).await?;
    let (claim, _) = Claim::classic(root, name, RunId::random()?).await?;
    // Another run may have ended since.
    let digest = |stored: &Option<StoredManifest>| stored.as_ref().map(StoredManifest::digest);
    match root.stored_manifest(name).await {
        Ok(again) if digest(&again) == digest(&stored) => {}
        Ok(_) => {
            claim.withdraw().await;
            return Err(BackupError::Changed { name: name.to_string() });
        }
        Err(error) => {
            claim.withdraw().await;
            return Err(error);
        }
    }
    let root = claim.hold(root, name).await?;
    if stored.is_some() {
        root.store().delete(&root.key(&manifest_key(name))).await?;
        let beside = records::keys(name).iter().map(|key| root.key(key)).collect();
        root.store().delete_all(beside).await?;
        root.remove_below(&sums_folder(name)).await?;
    }
    let count = keys.len() as u64;
    root.store().delete_all(keys).await?;
    claim.end().await;
    Ok(count)
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
    let digest = stored.map(StoredManifest::digest);
    if records::pinned(root, name, digest.as_deref()).await?.is_some() {
        return Err(BackupError::Pinned { name: name.to_string() });
    }
    let contents = Contents::of(root, name).await?;
    contents.refuse_folder(name)?;
    if contents.classic.is_empty() {
        let state = crate::catalog::list::state_without_manifest(root, name).await?;
        return Err(BackupError::NotThere { name: name.to_string(), state });
    }
    let mut missing: BTreeSet<&str> = files.iter().map(String::as_str).collect();
    let mut keys = Vec::new();
    for object in &contents.classic {
        let Some((path, _)) = parse_classic_key(&object.key) else { continue };
        if files.iter().any(|file| file == path) {
            missing.remove(path);
            keys.push(root.key(&format!("{name}/{}", object.key)));
        }
    }
    match missing.first() {
        Some(file) => Err(BackupError::Selection(format!("{name} has no file {file}"))),
        None => Ok(keys),
    }
}
