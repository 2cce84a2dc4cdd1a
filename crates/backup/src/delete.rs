//! `delete`: the manifest first, so that nothing half gone looks like a backup.

use crate::chain::dependents;
use crate::claim::refuse_living;
use crate::error::BackupError;
use crate::manifest::Layout;
use crate::names::{BackupName, manifest_key, run_folder};
use crate::put::remove_classic_objects;
use crate::root::Root;

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Objects, the manifest not counted.
    pub objects: u64,
}

/// Removes the backup `name`, unless others go on from it.
///
/// # Errors
/// [`BackupError::Needed`], and as [`delete`].
pub async fn delete_unless_needed(root: &Root, name: &BackupName) -> Result<Deleted, BackupError> {
    let by = match dependents(root, name).await {
        // What a damaged manifest was the base of, nobody can restore.
        Err(BackupError::Manifest { .. }) => Vec::new(),
        by => by?,
    };
    if by.is_empty() {
        return delete(root, name).await;
    }
    let by: Vec<_> = by.iter().map(ToString::to_string).collect();
    Err(BackupError::Needed { name: name.to_string(), by: by.join(", ") })
}

/// Removes the backup `name`, a stock one without a manifest too. Runs of that name which are
/// going on are left alone. Whether others go on from it is not looked at.
///
/// # Errors
/// [`BackupError::NotThere`] when there is none; [`BackupError::Running`] while a classic run of that
/// name is going on; [`BackupError::Store`] when something could not
/// be removed: it no longer counts as a backup then, and can be deleted again.
pub async fn delete(root: &Root, name: &BackupName) -> Result<Deleted, BackupError> {
    let key = root.key(&manifest_key(name));
    // The objects of a classic run in progress would go with those of the backup.
    refuse_living(root, name).await?;
    let manifest = match root.manifest(name).await {
        // What a damaged manifest belongs to is not known: only the name is made free.
        Err(BackupError::Manifest { .. }) => {
            root.store().delete(&key).await?;
            return Ok(Deleted { objects: remove_classic_objects(root, name).await? });
        }
        other => other?,
    };
    let objects = match &manifest {
        Some(manifest) => {
            root.store().delete(&key).await?;
            match (manifest.layout, manifest.run_id()) {
                (Layout::Packed, Some(run)) => root.remove_below(&run_folder(name, run)).await?,
                _ => remove_classic_objects(root, name).await?,
            }
        }
        None => {
            let objects = remove_classic_objects(root, name).await?;
            if objects == 0 {
                let state = crate::list::state_without_manifest(root, name).await?;
                return Err(BackupError::NotThere { name: name.to_string(), state });
            }
            objects
        }
    };
    // The stock tool forgets this one.
    root.store().delete(&root.key(&format!("{name}.md5"))).await?;
    Ok(Deleted { objects })
}
