//! `delete`: the manifest first, so that nothing half gone looks like a backup.
//!
//! The objects of a classic backup have no RUN: without their manifest they would look like a stock
//! backup. So the name is claimed before, as by a run, and until all of it is gone.

use serde::Serialize;

use crate::chain::dependents_among;
use crate::claim::{Claim, refuse_living};
use crate::classic::remove_classic_objects;
use crate::error::BackupError;
use crate::manifest::{Layout, Manifest, ManifestError, StoredManifest};
use crate::names::{BackupName, RunId, manifest_key, of_packed_run, run_folder, sums_folder};
use crate::record;
use crate::resolve::Known;
use crate::root::Root;

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Objects, the manifest not counted.
    pub objects: u64,
    /// Objects of packed runs that stay, because nobody could read whose they are.
    pub left: u64,
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
        refuse_needed(root, name, &mut Known::default()).await?;
    }
    refuse_living(root, name).await?;
    let (stored, damaged) = stored_or_damaged(root, name).await?;
    if stored.is_some() || damaged {
        refuse_pinned(root, name, stored.as_ref()).await?;
    }
    let packed = stored.as_ref().map(|stored| &stored.manifest);
    let packed = packed.filter(|manifest| manifest.layout == Layout::Packed);
    let mut objects = match packed.and_then(Manifest::run_id) {
        Some(run) => below(root, &run_folder(name, run), |_| true).await?,
        None => {
            let mut objects = below(root, name.as_str(), |key| !of_packed_run(key)).await?;
            objects.extend(below(root, &sums_folder(name), |_| true).await?);
            objects
        }
    };
    if stored.is_none() && !damaged && objects.is_empty() {
        return Err(not_there(root, name).await?);
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
/// [`BackupError::Needed`]; [`BackupError::Unclear`] when its manifest is damaged;
/// [`BackupError::Manifest`] while there is one below ROOT that only a newer version can read; and as
/// [`delete`].
pub async fn delete_unless_needed(root: &Root, name: &BackupName) -> Result<Deleted, BackupError> {
    delete_unless_needed_by(root, name, &mut Known::default()).await
}

/// As [`delete_unless_needed`], reading only the manifests that are not yet `known`.
pub(crate) async fn delete_unless_needed_by(
    root: &Root,
    name: &BackupName,
    known: &mut Known,
) -> Result<Deleted, BackupError> {
    refuse_needed(root, name, known).await?;
    delete(root, name).await
}

async fn refuse_needed(
    root: &Root,
    name: &BackupName,
    known: &mut Known,
) -> Result<(), BackupError> {
    let key = root.key(&manifest_key(name));
    let by = match dependents_among(root, name, known).await {
        Err(BackupError::Manifest { key: of, source })
            if of == key && !matches!(source, ManifestError::TooNew { .. }) =>
        {
            return Err(BackupError::Unclear { name: name.to_string(), source });
        }
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
/// [`BackupError::NotThere`] when there is none; [`BackupError::Pinned`]; [`BackupError::Manifest`] when
/// only a newer version can read it; [`BackupError::Running`] while a classic run of that name is going
/// on; [`BackupError::Store`] when something could not be removed: it no longer counts as a backup then,
/// and can be deleted again.
pub async fn delete(root: &Root, name: &BackupName) -> Result<Deleted, BackupError> {
    let key = root.key(&manifest_key(name));
    // The objects of a classic run in progress would go with those of the backup.
    refuse_living(root, name).await?;
    let (stored, damaged) = stored_or_damaged(root, name).await?;
    if stored.is_some() || damaged {
        refuse_pinned(root, name, stored.as_ref()).await?;
    }
    // What a damaged manifest belongs to is not known: only the name is made free.
    if damaged {
        let (claim, root) = &claim(root, name, None).await?;
        root.store().delete(&key).await?;
        forget(root, name).await?;
        let objects = classic(root, name, claim).await?;
        let left = root.list_below(name.as_str()).await?.len() as u64;
        return Ok(Deleted { objects, left });
    }
    let objects = match stored {
        Some(stored) => match (stored.manifest.layout, stored.manifest.run_id()) {
            (Layout::Packed, Some(run)) => {
                root.store().delete(&key).await?;
                forget(root, name).await?;
                let objects = root.remove_below(&run_folder(name, run)).await?;
                root.store().delete(&root.key(&format!("{name}.md5"))).await?;
                objects
            }
            _ => {
                let (claim, root) = &claim(root, name, Some(&stored)).await?;
                root.store().delete(&key).await?;
                forget(root, name).await?;
                classic(root, name, claim).await?
            }
        },
        None => {
            let found = root.list_below(name.as_str()).await?;
            if found.iter().all(|listed| of_packed_run(&listed.key)) {
                return Err(not_there(root, name).await?);
            }
            let (claim, root) = &claim(root, name, None).await?;
            classic(root, name, claim).await?
        }
    };
    Ok(Deleted { objects, left: 0 })
}

/// The manifest; or that it is damaged, which is not said of one that a newer version wrote.
async fn stored_or_damaged(
    root: &Root,
    name: &BackupName,
) -> Result<(Option<StoredManifest>, bool), BackupError> {
    match root.stored_manifest(name).await {
        Err(error @ BackupError::Manifest { source: ManifestError::TooNew { .. }, .. }) => {
            Err(error)
        }
        Err(BackupError::Manifest { .. }) => Ok((None, true)),
        other => Ok((other?, false)),
    }
}

/// Nothing of this name can be deleted.
async fn not_there(root: &Root, name: &BackupName) -> Result<BackupError, BackupError> {
    let state = match root.list_below(name.as_str()).await?.is_empty() {
        // Of a run that goes on, that was abandoned, or of a delete that was.
        false => {
            ": there are objects without a manifest, which `gc` removes once their run gives no sign of life"
        }
        true => crate::list::state_without_manifest(root, name).await?,
    };
    Ok(BackupError::NotThere { name: name.to_string(), state })
}

/// `stored`: its manifest, if that can be read; otherwise a pin of whatever manifest counts.
async fn refuse_pinned(
    root: &Root,
    name: &BackupName,
    stored: Option<&StoredManifest>,
) -> Result<(), BackupError> {
    match record::pinned(root, name, stored.map(StoredManifest::digest).as_deref()).await? {
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

/// Claims the name to remove what has no RUN. Gives ROOT as the holder of the claim may change it.
///
/// `judged`: the manifest that may be removed, by which it was decided.
async fn claim(
    root: &Root,
    name: &BackupName,
    judged: Option<&StoredManifest>,
) -> Result<(Claim, Root), BackupError> {
    let run = RunId::random().map_err(|error| BackupError::System {
        what: "randomness for the claim",
        source: std::io::Error::other(error),
    })?;
    let (claim, _) = Claim::classic(root, name, run).await?;
    // A run may have ended, or another delete, between the decision and the claim.
    let (now, _) = stored_or_damaged(root, name).await?;
    if now.as_ref().map(StoredManifest::digest) != judged.map(StoredManifest::digest) {
        claim.withdraw().await;
        let state = ": it was made or replaced while another one was to be deleted";
        return Err(BackupError::Exists { name: name.to_string(), state });
    }
    let root = claim.hold(root, name).await?;
    Ok((claim, root))
}

async fn classic(root: &Root, name: &BackupName, claim: &Claim) -> Result<u64, BackupError> {
    let objects = remove_classic_objects(root, name).await?;
    root.remove_below(&sums_folder(name)).await?;
    // The stock tool forgets this one.
    root.store().delete(&root.key(&format!("{name}.md5"))).await?;
    claim.end().await;
    Ok(objects)
}
