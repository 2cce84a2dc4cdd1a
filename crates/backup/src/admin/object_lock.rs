//! Object locks on all objects of a backup, so that none can be removed before the lock expires.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use xb_repo::error::RepoError;
use xb_repo::manifest::{Layout, Manifest};
use xb_repo::names::{
    BackupName, CLAIM, in_packed_run, manifest_key, of_classic, run_folder, sums_key,
};
use xb_repo::root::Root;
use xb_uploader::{Lock, StoreError};

use crate::error::BackupError;
use crate::write::all_are_there;

/// Locks all objects of a complete backup, its manifest last, with up to `parallel` concurrent
/// requests. Returns their number. Does not lock claims and records, because they change.
///
/// # Errors
/// [`BackupError::Unlocked`] if the store refuses; some objects may be locked then.
pub async fn lock(
    root: &Root,
    name: &BackupName,
    lock: &Lock,
    parallel: usize,
) -> Result<u64, BackupError> {
    let manifest = xb_repo::list::describe(root, name).await?;
    root.store().can_lock().await.map_err(|source| unlocked(name, source))?;
    lock_complete(root, name, &manifest, lock, parallel).await
}

/// Like [`lock`], for a backup with this manifest, in a store already known to support locks.
pub(crate) async fn lock_complete(
    root: &Root,
    name: &BackupName,
    manifest: &Manifest,
    lock: &Lock,
    parallel: usize,
) -> Result<u64, BackupError> {
    let packed = manifest.layout == Layout::Packed;
    let folder = match manifest.run_id() {
        Some(run) if packed => run_folder(name, run),
        _ => name.to_string(),
    };
    let mut objects = root.list_below(&folder).await.map_err(|error| match error {
        RepoError::Store(source) => unlocked(name, source),
        other => other.into(),
    })?;
    all_are_there(manifest, &objects)?;
    objects.retain(|listed| match packed {
        true => in_packed_run(&listed.key) && listed.key != CLAIM,
        false => of_classic(&listed.key),
    });
    let mut keys: Vec<String> =
        objects.iter().map(|listed| root.key(&format!("{folder}/{}", listed.key))).collect();
    let sums = root.key(&sums_key(name, &manifest.run));
    if !packed && root.store().size(&sums).await.map_err(|e| unlocked(name, e))?.is_some() {
        keys.push(sums);
    }
    stream::iter(&keys)
        .map(|key| root.store().lock(key, lock))
        .buffer_unordered(parallel.max(1))
        .try_collect::<()>()
        .await
        .map_err(|source| unlocked(name, source))?;
    let manifest = root.key(&manifest_key(name));
    root.store().lock(&manifest, lock).await.map_err(|source| unlocked(name, source))?;
    Ok(keys.len() as u64 + 1)
}

fn unlocked(name: &BackupName, source: StoreError) -> BackupError {
    BackupError::Unlocked { name: name.to_string(), source: Box::new(source) }
}
