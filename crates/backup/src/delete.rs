//! `delete`: the manifest first, so that nothing half gone looks like a backup.
//!
//! The objects of a classic backup have no RUN: without their manifest they would look like a stock
//! backup. So the name is claimed before, as by a run, and until all of it is gone.

use crate::chain::dependents;
use crate::claim::{Claim, refuse_living};
use crate::error::BackupError;
use crate::manifest::Layout;
use crate::names::{BackupName, RunId, claims_folder, manifest_key, run_folder};
use crate::put::{of_packed_run, remove_classic_objects};
use crate::record;
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
/// [`BackupError::NotThere`] when there is none; [`BackupError::Pinned`]; [`BackupError::Running`] while a classic run of that
/// name is going on; [`BackupError::Store`] when something could not
/// be removed: it no longer counts as a backup then, and can be deleted again.
pub async fn delete(root: &Root, name: &BackupName) -> Result<Deleted, BackupError> {
    let key = root.key(&manifest_key(name));
    // The objects of a classic run in progress would go with those of the backup.
    refuse_living(root, name).await?;
    let stored = match root.stored_manifest(name).await {
        // What a damaged manifest belongs to is not known: only the name is made free.
        Err(BackupError::Manifest { .. }) => {
            root.store().delete(&key).await?;
            forget(root, name).await?;
            return Ok(Deleted { objects: remove_classic_objects(root, name).await? });
        }
        other => other?,
    };
    let objects = match stored {
        Some(stored) => {
            if record::pinned(root, name, &stored.digest()).await?.is_some() {
                return Err(BackupError::Pinned { name: name.to_string() });
            }
            match (stored.manifest.layout, stored.manifest.run_id()) {
                (Layout::Packed, Some(run)) => {
                    root.store().delete(&key).await?;
                    forget(root, name).await?;
                    root.remove_below(&run_folder(name, run)).await?
                }
                _ => {
                    let claim = claim(root, name).await?;
                    root.store().delete(&key).await?;
                    forget(root, name).await?;
                    classic(root, name, claim).await?
                }
            }
        }
        None => {
            let found = root.list_below(name.as_str()).await?;
            if found.iter().all(|listed| of_packed_run(&listed.key)) {
                let state = crate::list::state_without_manifest(root, name).await?;
                return Err(BackupError::NotThere { name: name.to_string(), state });
            }
            let claim = claim(root, name).await?;
            classic(root, name, claim).await?
        }
    };
    // The stock tool forgets this one.
    root.store().delete(&root.key(&format!("{name}.md5"))).await?;
    Ok(Deleted { objects })
}

/// Removes what was written beside the manifest.
async fn forget(root: &Root, name: &BackupName) -> Result<(), BackupError> {
    for key in record::keys(name) {
        root.store().delete(&root.key(&key)).await?;
    }
    Ok(())
}

async fn claim(root: &Root, name: &BackupName) -> Result<Claim, BackupError> {
    let run = RunId::random().map_err(|error| BackupError::System {
        what: "randomness for the claim",
        source: std::io::Error::other(error),
    })?;
    Ok(Claim::classic(root, name, run).await?.0)
}

async fn classic(root: &Root, name: &BackupName, claim: Claim) -> Result<u64, BackupError> {
    let objects = remove_classic_objects(root, name).await?;
    drop(claim);
    root.remove_below(&claims_folder(name)).await?;
    Ok(objects)
}
