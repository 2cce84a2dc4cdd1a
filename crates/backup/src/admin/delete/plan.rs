//! Decides what a delete removes, and whether it may.

use std::collections::BTreeSet;

use serde::Serialize;
use xb_pipeline::object_key;
use xb_repo::claim::{claims, refuse_living, standing};
use xb_repo::contents::Contents;
use xb_repo::error::RepoError;
use xb_repo::manifest::{Layout, Manifest, ManifestError, StoredManifest};
use xb_repo::names::{BackupName, CLAIM, KEYS, RunId, SUMS, is_data_object};
use xb_repo::records;
use xb_repo::resolve::KnownManifests;
use xb_repo::root::Root;
use xb_uploader::{ListedObject, Operation, StoreError, StoreErrorKind};

use crate::error::BackupError;

/// Plan of a delete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeletionPlan {
    /// Name of the backup.
    pub name: String,
    /// Key of the manifest, if there is one. It is removed first.
    pub manifest: Option<String>,
    /// All other objects to remove.
    pub objects: Vec<ObjectToDelete>,
    #[serde(skip)]
    pub(super) how: DeleteConditions,
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
pub struct ObjectToDelete {
    /// Full key.
    pub key: String,
    /// Its size in bytes.
    pub size: u64,
}

/// Conditions of a delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeleteConditions {
    /// RUN of the backup; `None` if the manifest is missing or damaged.
    pub(super) run: Option<String>,
    /// Digest of the manifest; `None` if the manifest is missing or damaged.
    pub(super) digest: Option<String>,
    /// Whether the backup has objects without a RUN, so that the delete must claim its name.
    pub(super) claimed: bool,
    /// Objects of packed runs that stay.
    pub(super) left: u64,
    /// Whether to keep the backup while others depend on it.
    pub(super) unless_needed: bool,
    /// Whether an object of its own run is there, or it has none.
    pub(super) has_own: bool,
    /// Other runs of which the name has objects.
    pub(super) other_runs: BTreeSet<String>,
}

impl DeleteConditions {
    /// Fails if the manifest may be an old one of a name that was used again: what depends on the present one is then
    /// unknown.
    pub(in crate::admin) fn refuse_old(
        &self,
        name: &BackupName,
        known: &KnownManifests,
    ) -> Result<(), RepoError> {
        let Some(run) = &self.run else { return Ok(()) };
        let named = |(_, increment): &(&BackupName, &Manifest)| {
            let base = increment.base.as_ref().filter(|base| base.name == name.as_str());
            base.is_some_and(|base| self.other_runs.contains(&base.run))
        };
        let what = match (known.iter().find(named), self.other_runs.first()) {
            (Some((increment, _)), _) => {
                format!("{increment} is based on another run, whose objects are there")
            }
            (None, Some(other)) if !self.has_own => {
                format!("of its objects none is there, and some of run {other} are")
            }
            _ => return Ok(()),
        };
        Err(RepoError::OtherRun { name: name.to_string(), run: run.clone(), what })
    }
}

/// The packed runs that have data objects below the name.
fn packed_runs(contents: &Contents) -> BTreeSet<String> {
    let parts = contents.packed.iter().filter_map(|listed| listed.key.split_once('/'));
    parts.filter(|(_, object)| is_data_object(object)).map(|(run, _)| run.to_owned()).collect()
}

/// Lists the objects to remove, and fails if anything else exists below the name.
pub(super) async fn plan(root: &Root, name: &BackupName) -> Result<DeletionPlan, BackupError> {
    refuse_living(root, name).await?;
    let (stored, damaged) = stored_or_damaged(root, name).await?;
    let digest = stored.as_ref().map(StoredManifest::digest);
    refuse_pinned(root, name, digest.as_deref()).await?;
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
    let mut runs = packed_runs(&contents);
    let has_files = !contents.classic.is_empty();
    let (found, left) = match run {
        Some(run) => (contents.of_run(run), 0),
        None => (contents.classic, contents.packed.len() as u64),
    };
    if stored.is_none() && !damaged && found.is_empty() {
        return Err(not_there(root, name).await?);
    }
    if let (Some(run), Some(stored)) = (run, &stored) {
        refuse_hidden(root, name, run, &stored.manifest, &found).await?;
    }
    let run_keys = root.classic_keys(name);
    let whole = |l: ListedObject| ObjectToDelete { key: run_keys.at(l.key), size: l.size };
    let mut objects: Vec<ObjectToDelete> = found.into_iter().map(whole).collect();
    for key in beside(name, stored.is_some() || damaged, run.is_none() && !damaged) {
        let key = root.key(&key);
        objects.extend(root.store().size(&key).await?.map(|size| ObjectToDelete { key, size }));
    }
    let own = stored.as_ref().map(|stored| &stored.manifest);
    let mut has_own = own.is_none_or(|own| own.objects == 0 || runs.contains(&own.run));
    if run.is_none() || !has_own {
        let sums = root.classic_sums(name);
        let listed = root.list_below(sums.folder()).await?;
        if run.is_none() {
            // The keys of the files name no run; older programs wrote no checksum lists.
            let is_listed = |own: &Manifest| listed.iter().any(|listed| listed.key == own.run);
            has_own |= has_files && (listed.is_empty() || own.is_some_and(is_listed));
        }
        runs.extend(listed.iter().map(|listed| listed.key.clone()));
        let whole = |l: ListedObject| ObjectToDelete { key: sums.at(l.key), size: l.size };
        objects.extend(listed.into_iter().filter(|_| run.is_none()).map(whole));
    }
    runs.retain(|run| own.is_none_or(|own| own.run != *run));
    let manifest = (stored.is_some() || damaged).then(|| root.manifest_key(name));
    let how = DeleteConditions {
        run: stored.as_ref().map(|stored| stored.manifest.run.clone()),
        digest,
        claimed: run.is_none(),
        left: if damaged { left } else { 0 },
        unless_needed: false,
        has_own,
        other_runs: runs,
    };
    Ok(DeletionPlan { name: name.to_string(), manifest, objects, how })
}

/// Fails if the listing leaves out an object of a packed run that exists: it would be left behind.
/// Looks for the first data object that is not listed, and for what every run has beside them.
async fn refuse_hidden(
    root: &Root,
    name: &BackupName,
    run: RunId,
    manifest: &Manifest,
    found: &[ListedObject],
) -> Result<(), BackupError> {
    let listed: BTreeSet<&str> = found.iter().map(|listed| listed.key.as_str()).collect();
    let is_hidden = |key: &String| !listed.contains(key.as_str());
    let mut data = (0..manifest.objects).map(|number| format!("{run}/{}", object_key(number)));
    let sealed = manifest.packed.as_ref().is_some_and(|packed| packed.sealed.is_some());
    let beside = [Some(CLAIM), Some(SUMS), sealed.then_some(KEYS)].into_iter().flatten();
    let beside = beside.map(|object| format!("{run}/{object}")).filter(is_hidden);
    let hidden: Vec<String> = data.find(is_hidden).into_iter().chain(beside).collect();
    for hidden in hidden {
        let key = root.classic_keys(name).at(hidden);
        if root.store().size(&key).await?.is_some() {
            let what = "the object exists, but the store does not list it";
            return Err(
                StoreError::new(Operation::List, key, StoreErrorKind::Rejected, what).into()
            );
        }
    }
    Ok(())
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
        false => Ok(contents.refuse_unrecognised(name)?),
    }
}

/// Keys that may exist beside the manifest, and of the stock MD5 list, below ROOT.
fn beside(name: &BackupName, records: bool, md5: bool) -> Vec<String> {
    let records = records.then(|| records::keys(name)).into_iter().flatten();
    records.chain(md5.then(|| format!("{name}.md5"))).collect()
}

/// Fails if the manifest is not the planned one.
pub(super) async fn refuse_changed(
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
    Err(RepoError::Changed { name: name.to_string() }.into())
}

/// Reads the manifest, or returns whether it is unreadable. A manifest of a newer version is an
/// error: that version can remove the backup completely.
async fn stored_or_damaged(
    root: &Root,
    name: &BackupName,
) -> Result<(Option<StoredManifest>, bool), BackupError> {
    match root.stored_manifest(name).await {
        Err(error @ RepoError::Manifest { source: ManifestError::TooNew { .. }, .. }) => {
            Err(error.into())
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
        true => xb_repo::list::state_without_manifest(root, name).await?,
    };
    Ok(BackupError::Repo(RepoError::NotThere { name: name.to_string(), state }))
}

/// `digest`: that of the manifest, if it can be read; otherwise a pin of any manifest counts.
pub(in crate::admin) async fn refuse_pinned(
    root: &Root,
    name: &BackupName,
    digest: Option<&str>,
) -> Result<(), BackupError> {
    match records::pinned(root, name, digest).await? {
        Some(_) => Err(BackupError::Pinned { name: name.to_string() }),
        None => Ok(()),
    }
}
