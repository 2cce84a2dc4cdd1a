//! `delete`: removes the manifest first, so that a half-deleted backup never looks complete.
//!
//! The objects are listed once, and exactly the listed ones are removed. The delete is refused if
//! objects of other programs or other backups exist below the name.
//!
//! The objects of a classic backup have no RUN: without their manifest they would look like a stock
//! backup. So the delete claims the name first, like a run, and holds it until all objects are
//! gone.

use serde::Serialize;
use xb_uploader::Listed;

use crate::catalog::chain::{refuse_dependents, refuse_needed};
use crate::catalog::manifest::{Layout, Manifest, ManifestError, StoredManifest};
use crate::catalog::names::{BackupName, RunId, manifest_key, sums_folder};
use crate::catalog::records;
use crate::catalog::resolve::Known;
use crate::catalog::root::Root;
use crate::claim::{Claim, claims, refuse_living, standing};
use crate::error::BackupError;
use crate::objects::contents::Contents;

/// Result of a delete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Number of removed objects, without the manifest.
    pub objects: u64,
    /// Objects of packed runs that stay, because a damaged manifest does not show whose they are.
    pub left: u64,
}

/// Plan of a delete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeletionPlan {
    /// Name of the backup.
    pub name: String,
    /// Key of the manifest, if there is one. It is removed first.
    pub manifest: Option<String>,
    /// All other objects to remove.
    pub objects: Vec<DoomedObject>,
    #[serde(skip)]
    how: How,
}

impl DeletionPlan {
    /// Total size of the objects in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.size).sum()
    }
}

/// An object that a delete will remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoomedObject {
    /// Full key.
    pub key: String,
    /// Its size in bytes.
    pub size: u64,
}

/// Conditions of a delete.
#[derive(Debug, Clone, PartialEq, Eq)]
struct How {
    /// Digest of the manifest; `None` if the manifest is missing or damaged.
    digest: Option<String>,
    /// Whether the backup has objects without a RUN, so that the delete must claim its name.
    claimed: bool,
    /// Objects of packed runs that stay.
    left: u64,
    /// Whether to keep the backup while others depend on it.
    unless_needed: bool,
}

/// Lists what [`delete`] would remove, or with `unless_needed` [`delete_unless_needed`], without
/// removing it.
///
/// # Errors
/// As for that function.
pub async fn doomed(
    root: &Root,
    name: &BackupName,
    unless_needed: bool,
) -> Result<DeletionPlan, BackupError> {
    if unless_needed {
        refuse_needed(root, name, &mut Known::default()).await?;
    }
    let mut doomed = plan(root, name).await?;
    doomed.how.unless_needed = unless_needed;
    Ok(doomed)
}

/// Lists the objects to remove, and fails if anything else exists below the name.
async fn plan(root: &Root, name: &BackupName) -> Result<DeletionPlan, BackupError> {
    refuse_living(root, name).await?;
    let (stored, damaged) = stored_or_damaged(root, name).await?;
    refuse_pinned(root, name, stored.as_ref()).await?;
    root.refuse_links(name)?;
    let contents = Contents::of(root, name).await?;
    if stored.is_none() && !damaged && contents.is_empty() {
        return Err(not_there(root, name).await?);
    }
    refuse_others(root, name, stored.as_ref(), damaged, &contents).await?;
    let run = match &stored {
        Some(StoredManifest { manifest, .. }) if manifest.layout == Layout::Packed => {
            let missing = BackupError::Bug("a checked manifest has no run");
            Some(manifest.run_id().ok_or(missing)?)
        }
        _ => None,
    };
    let (found, left) = match run {
        Some(run) => (contents.of_run(run), 0),
        None => (contents.classic, contents.packed.len() as u64),
    };
    if stored.is_none() && !damaged && found.is_empty() {
        return Err(not_there(root, name).await?);
    }
    let whole =
        |l: Listed| DoomedObject { key: root.key(&format!("{name}/{}", l.key)), size: l.size };
    let mut objects: Vec<DoomedObject> = found.into_iter().map(whole).collect();
    for key in beside(name, stored.is_some() || damaged, run.is_none() && !damaged) {
        let key = root.key(&key);
        objects.extend(root.store().size(&key).await?.map(|size| DoomedObject { key, size }));
    }
    if run.is_none() {
        let folder = sums_folder(name);
        let whole = |l: Listed| DoomedObject {
            key: root.key(&format!("{folder}/{}", l.key)),
            size: l.size,
        };
        objects.extend(root.list_below(&folder).await?.into_iter().map(whole));
    }
    let manifest = (stored.is_some() || damaged).then(|| root.key(&manifest_key(name)));
    let how = How {
        digest: stored.as_ref().map(StoredManifest::digest),
        claimed: run.is_none(),
        left: if damaged { left } else { 0 },
        unless_needed: false,
    };
    Ok(DeletionPlan { name: name.to_string(), manifest, objects, how })
}

/// Fails if objects below the name may belong to something other than the backup.
async fn refuse_others(
    root: &Root,
    name: &BackupName,
    stored: Option<&StoredManifest>,
    damaged: bool,
    contents: &Contents,
) -> Result<(), BackupError> {
    let manifest = stored.map(|stored| &stored.manifest);
    // A sound manifest distinguishes its objects from those of backups in subfolders.
    let told_apart = manifest.is_some_and(|manifest| {
        manifest.layout == Layout::Packed || contents.agrees_with(manifest)
    });
    if !told_apart {
        contents.refuse_folder(name)?;
    }
    contents.refuse_foreign(name)?;
    if stored.is_some() || damaged {
        return Ok(());
    }
    // A claim that has not ended shows that a classic run or delete of ours left the objects; late
    // requests may have left some after the claim had ended.
    let claims = claims(root, name).await?;
    let standing = standing(root, &claims).await?;
    match standing.seen.is_some() || standing.may_own(&contents.classic) {
        true => Ok(()),
        false => contents.refuse_unrecognised(name),
    }
}

/// Keys that may exist beside the manifest, and of the stock MD5 list, below ROOT.
fn beside(name: &BackupName, records: bool, md5: bool) -> Vec<String> {
    let records = records.then(|| records::keys(name)).into_iter().flatten();
    records.chain(md5.then(|| format!("{name}.md5"))).collect()
}

/// Removes the backup `name`, unless others depend on it.
///
/// # Errors
/// [`BackupError::Needed`]; [`BackupError::MayBeNeeded`] if the manifest of a later backup cannot
/// be read; [`BackupError::Unclear`] if its own manifest cannot be read; otherwise as [`delete`].
pub async fn delete_unless_needed(root: &Root, name: &BackupName) -> Result<Deleted, BackupError> {
    delete_unless_needed_by(root, name, &mut Known::default()).await
}

/// Like [`delete_unless_needed`], but reads only manifests that are not yet `known`.
pub(crate) async fn delete_unless_needed_by(
    root: &Root,
    name: &BackupName,
    known: &mut Known,
) -> Result<Deleted, BackupError> {
    refuse_needed(root, name, known).await?;
    let doomed = plan(root, name).await?;
    carry_out(root, name, &doomed, Some(known)).await
}

/// Removes what [`doomed`] returned, if a delete would still remove the same.
///
/// # Errors
/// [`BackupError::Changed`]; otherwise as [`delete`], or [`delete_unless_needed`].
pub async fn delete_shown(root: &Root, shown: &DeletionPlan) -> Result<Deleted, BackupError> {
    let name = BackupName::new(&shown.name)?;
    if doomed(root, &name, shown.how.unless_needed).await? != *shown {
        return Err(BackupError::Changed { name: shown.name.clone() });
    }
    let mut known = Known::default();
    carry_out(root, &name, shown, shown.how.unless_needed.then_some(&mut known)).await
}

/// Removes the backup `name`, including a stock one without a manifest. Leaves packed runs of that
/// name in progress alone. Does not check whether other backups depend on this one.
///
/// # Errors
/// [`BackupError::NotThere`] if there is none; [`BackupError::Pinned`]; [`BackupError::Folder`],
/// [`BackupError::Foreign`], [`BackupError::Linked`] or [`BackupError::Unrecognised`] if anything
/// else may exist below the name; [`BackupError::Manifest`] if the manifest requires a newer version;
/// [`BackupError::Running`] while a classic run of that name is in progress; [`BackupError::Store`]
/// if an object could not be removed: the name no longer counts as a backup then, and can be
/// deleted again.
pub async fn delete(root: &Root, name: &BackupName) -> Result<Deleted, BackupError> {
    let doomed = plan(root, name).await?;
    carry_out(root, name, &doomed, None).await
}

/// Removes exactly what is planned, the manifest first. `known`: the manifests read so far, if the
/// backup stays while others depend on it.
async fn carry_out(
    root: &Root,
    name: &BackupName,
    doomed: &DeletionPlan,
    known: Option<&mut Known>,
) -> Result<Deleted, BackupError> {
    if !doomed.how.claimed {
        refuse_changed(root, name, doomed).await?;
        return remove(root, name, doomed, known).await;
    }
    let (claim, root) = claim(root, name, doomed).await?;
    let deleted = remove(&root, name, doomed, known).await;
    if let Ok(_) | Err(BackupError::Needed { .. }) = &deleted {
        claim.end().await;
    }
    deleted
}

/// Removes the manifest, then the objects.
async fn remove(
    root: &Root,
    name: &BackupName,
    doomed: &DeletionPlan,
    known: Option<&mut Known>,
) -> Result<Deleted, BackupError> {
    match (&doomed.manifest, known) {
        (None, _) => {}
        (Some(key), None) => root.store().delete(key).await?,
        (Some(key), Some(known)) => remove_manifest_unless_needed(root, name, key, known).await?,
    }
    let keys = doomed.objects.iter().map(|object| object.key.clone()).collect();
    root.store().delete_all(keys).await?;
    Ok(Deleted { objects: doomed.objects.len() as u64, left: doomed.how.left })
}

/// Removes the manifest. If an incremental backup of its run was committed in the meantime, the
/// manifest is put back: see [`settle_base`](crate::write::settle_base).
async fn remove_manifest_unless_needed(
    root: &Root,
    name: &BackupName,
    key: &str,
    known: &mut Known,
) -> Result<(), BackupError> {
    let saved = root.store().get(key).await?;
    let run = Manifest::decode(&saved).ok().map(|stored| stored.manifest.run);
    root.store().delete(key).await?;
    let Some(run) = run else { return Ok(()) };
    let needed = refuse_dependents(root, name, &run, known).await;
    if needed.is_err() {
        root.store().create(key, saved).await?;
    }
    needed
}

/// Fails if the manifest is not the planned one.
async fn refuse_changed(
    root: &Root,
    name: &BackupName,
    doomed: &DeletionPlan,
) -> Result<(), BackupError> {
    let (stored, damaged) = stored_or_damaged(root, name).await?;
    let there = stored.is_some() || damaged;
    let digest = stored.as_ref().map(StoredManifest::digest);
    if there == doomed.manifest.is_some() && digest == doomed.how.digest {
        return Ok(());
    }
    Err(BackupError::Changed { name: name.to_string() })
}

/// Reads the manifest, or returns whether it is unreadable. A manifest of a newer version is an
/// error: that version can remove the backup completely.
async fn stored_or_damaged(
    root: &Root,
    name: &BackupName,
) -> Result<(Option<StoredManifest>, bool), BackupError> {
    match root.stored_manifest(name).await {
        Err(error @ BackupError::Manifest { source: ManifestError::TooNew { .. }, .. }) => {
            Err(error)
        }
        Err(error) if error.is_of_one_object() => Ok((None, true)),
        other => Ok((other?, false)),
    }
}

/// Error for a name that has nothing to delete.
async fn not_there(root: &Root, name: &BackupName) -> Result<BackupError, BackupError> {
    let state = match root.list_below(name.as_str()).await?.is_empty() {
        // Left by a run that is in progress, an abandoned run, or an interrupted delete.
        false => ": there are objects without a manifest; `gc` removes them once their run is dead",
        true => crate::catalog::list::state_without_manifest(root, name).await?,
    };
    Ok(BackupError::NotThere { name: name.to_string(), state })
}

/// `stored`: the manifest, if it can be read; otherwise a pin of any manifest counts.
async fn refuse_pinned(
    root: &Root,
    name: &BackupName,
    stored: Option<&StoredManifest>,
) -> Result<(), BackupError> {
    match records::pinned(root, name, stored.map(StoredManifest::digest).as_deref()).await? {
        Some(_) => Err(BackupError::Pinned { name: name.to_string() }),
        None => Ok(()),
    }
}

/// Claims the name to remove objects without a RUN. Returns the ROOT to use for changes.
async fn claim(
    root: &Root,
    name: &BackupName,
    doomed: &DeletionPlan,
) -> Result<(Claim, Root), BackupError> {
    let run = RunId::random()?;
    let (claim, _) = Claim::classic(root, name, run).await?;
    // Another run or delete may have ended between the plan and the claim.
    if let Err(changed) = refuse_changed(root, name, doomed).await {
        claim.withdraw().await;
        return Err(changed);
    }
    let root = claim.hold(root, name).await?;
    Ok((claim, root))
}
