//! `delete`: the manifest first, so that nothing half gone looks like a backup.
//!
//! The objects of a classic backup have no RUN: without their manifest they would look like a stock
//! backup. So the name is claimed before, as by a run, and until all of it is gone.

use serde::Serialize;

use crate::chain::dependents;
use crate::claim::{Claim, refuse_living};
use crate::error::BackupError;
use crate::manifest::{Layout, Manifest, StoredManifest};
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

/// What a delete takes away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Doomed {
    /// Key of the manifest, where there is one. It goes first.
    pub manifest: Option<String>,
    /// Everything else.
    pub objects: Vec<DoomedObject>,
}

/// An object that a delete takes away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoomedObject {
    /// Its whole key.
    pub key: String,
    /// Its size in bytes.
    pub size: u64,
}

/// Says what [`delete`] would take away, or with `unless_needed` [`delete_unless_needed`]; removes
/// nothing.
///
/// # Errors
/// As these.
pub async fn doomed(
    root: &Root,
    name: &BackupName,
    unless_needed: bool,
) -> Result<Doomed, BackupError> {
    if unless_needed {
        refuse_needed(root, name).await?;
    }
    refuse_living(root, name).await?;
    let (stored, damaged) = match root.stored_manifest(name).await {
        Err(BackupError::Manifest { .. }) => (None, true),
        other => (other?, false),
    };
    if let Some(stored) = &stored {
        refuse_pinned(root, name, stored).await?;
    }
    let packed = stored.as_ref().map(|stored| &stored.manifest);
    let packed = packed.filter(|manifest| manifest.layout == Layout::Packed);
    let mut objects = match packed.and_then(Manifest::run_id) {
        Some(run) => below(root, &run_folder(name, run), |_| true).await?,
        None => below(root, name.as_str(), |key| !of_packed_run(key)).await?,
    };
    if stored.is_none() && !damaged && objects.is_empty() {
        let state = crate::list::state_without_manifest(root, name).await?;
        return Err(BackupError::NotThere { name: name.to_string(), state });
    }
    let mut beside = Vec::new();
    if stored.is_some() || damaged {
        beside.extend(record::keys(name));
    }
    if !damaged {
        beside.push(format!("{name}.md5"));
    }
    for key in beside {
        let key = root.key(&key);
        objects.extend(root.store().size(&key).await?.map(|size| DoomedObject { key, size }));
    }
    let manifest = (stored.is_some() || damaged).then(|| root.key(&manifest_key(name)));
    Ok(Doomed { manifest, objects })
}

/// The objects in a folder whose keys, counted from there, are `wanted`.
async fn below(
    root: &Root,
    folder: &str,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<DoomedObject>, BackupError> {
    let mut listed = root.list_below(folder).await?;
    listed.retain(|object| wanted(&object.key));
    let whole = |key: &str| root.key(&format!("{folder}/{key}"));
    Ok(listed.into_iter().map(|o| DoomedObject { key: whole(&o.key), size: o.size }).collect())
}

/// Removes the backup `name`, unless others go on from it.
///
/// # Errors
/// [`BackupError::Needed`], and as [`delete`].
pub async fn delete_unless_needed(root: &Root, name: &BackupName) -> Result<Deleted, BackupError> {
    refuse_needed(root, name).await?;
    delete(root, name).await
}

async fn refuse_needed(root: &Root, name: &BackupName) -> Result<(), BackupError> {
    let by = match dependents(root, name).await {
        // What a damaged manifest was the base of, nobody can restore.
        Err(BackupError::Manifest { .. }) => Vec::new(),
        by => by?,
    };
    if by.is_empty() {
        return Ok(());
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
            refuse_pinned(root, name, &stored).await?;
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

async fn refuse_pinned(
    root: &Root,
    name: &BackupName,
    stored: &StoredManifest,
) -> Result<(), BackupError> {
    match record::pinned(root, name, &stored.digest()).await? {
        Some(_) => Err(BackupError::Pinned { name: name.to_string() }),
        None => Ok(()),
    }
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
