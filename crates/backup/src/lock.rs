//! Locks on what a backup consists of, so that nobody can remove it before their time.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use xb_uploader::{Lock, StoreError};

use crate::error::BackupError;
use crate::manifest::Layout;
use crate::names::{BackupName, CLAIM, manifest_key, of_packed_run, run_folder};
use crate::put::all_is_there;
use crate::root::Root;

/// Locks all objects of a complete backup, its manifest last, with `parallel` requests at a time. Gives
/// their number. Claims and records, which change, are left as they are.
///
/// # Errors
/// [`BackupError::Unlocked`] when the store refuses; some objects may be locked then.
pub async fn lock(
    root: &Root,
    name: &BackupName,
    lock: &Lock,
    parallel: usize,
) -> Result<u64, BackupError> {
    let manifest = crate::list::describe(root, name).await?;
    root.store().can_lock().await.map_err(|source| unlocked(name, source))?;
    let packed = manifest.layout == Layout::Packed;
    let folder = match manifest.run_id() {
        Some(run) if packed => run_folder(name, run),
        _ => name.to_string(),
    };
    all_is_there(root, &folder, &manifest).await?;
    let locked = lock_objects(root, name, &folder, packed, lock, parallel).await?;
    lock_manifest(root, name, lock).await?;
    Ok(locked + 1)
}

/// Locks the manifest, which stands.
pub(crate) async fn lock_manifest(
    root: &Root,
    name: &BackupName,
    lock: &Lock,
) -> Result<(), BackupError> {
    let locked = root.store().lock(&root.key(&manifest_key(name)), lock).await;
    locked.map_err(|source| unlocked(name, source))
}

fn unlocked(name: &BackupName, source: StoreError) -> BackupError {
    BackupError::Unlocked { name: name.to_string(), source: Box::new(source) }
}

/// Locks what lies in the folder of a complete backup, keys and sums too.
pub(crate) async fn lock_objects(
    root: &Root,
    name: &BackupName,
    folder: &str,
    packed: bool,
    lock: &Lock,
    parallel: usize,
) -> Result<u64, BackupError> {
    let mut objects = root.list_below(folder).await?;
    objects.retain(|listed| if packed { listed.key != CLAIM } else { !of_packed_run(&listed.key) });
    stream::iter(&objects)
        .map(|listed| async move {
            root.store().lock(&root.key(&format!("{folder}/{}", listed.key)), lock).await
        })
        .buffer_unordered(parallel.max(1))
        .try_collect::<()>()
        .await
        .map_err(|source| unlocked(name, source))?;
    Ok(objects.len() as u64)
}
