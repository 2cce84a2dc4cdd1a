//! `gc`: finds and removes what runs left without becoming a backup.
//!
//! A live run refreshes its claim every ten minutes; a run whose claim is a day old is dead.
//! Everything is listed before the manifests are read: a run that commits in between has a young
//! claim, and a run that committed before is named by its manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use serde::Serialize;
use xb_repo::catalogue::Catalogue;
use xb_repo::claim::{Claim, FORGOTTEN, NumberedClaim, belongs_to_run, numbered, standing};
use xb_repo::contents::Contents;
use xb_repo::error::RepoError;
use xb_repo::manifest::{Layout, Manifest};
use xb_repo::names::{
    BackupName, CATALOG, CLAIM, RunId, claims_folder, of_classic, of_packed_run, sums_folder,
};
use xb_repo::probes::{PROBES, dead_probes};
use xb_repo::records;
use xb_repo::root::Root;
use xb_uploader::{ListedObject, Operation, StoreError, StoreErrorKind, Unfinished};

use crate::error::BackupError;
use crate::objects::remove::remove_objects;
use crate::write::{ForeignObjects, claim_emptied};

/// Smallest accepted age: a claim misses some refreshes when a store fails for an hour.
const LEAST_AGE: Duration = Duration::from_secs(3600);
/// Number of folders inspected concurrently.
const AT_ONCE: usize = 16;

/// Objects and uploads that one dead run left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OrphanedRun {
    /// Name that the backup would have had.
    pub name: String,
    /// The run ID in the packed layout; a classic run has none.
    pub run: Option<String>,
    /// Number of objects, without the claim.
    pub objects: u64,
    /// Total size of the objects in bytes.
    pub bytes: u64,
    /// When the run last wrote an object or a claim, UTC.
    pub last_seen: Timestamp,
    /// Full keys to remove, the claim last.
    #[serde(skip)]
    keys: Vec<String>,
}

/// Findings of `gc`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct GcFindings {
    /// Remains of dead runs, by name.
    pub dead: Vec<OrphanedRun>,
    /// Unfinished multipart uploads of dead runs: no listing of objects shows them, but stores bill
    /// them. In a directory, unfinished files.
    pub uploads: u64,
    /// Reason why uploads could not be listed, if the store or the account does not allow it.
    pub unlisted: Option<String>,
    #[serde(skip)]
    unfinished: Vec<Unfinished>,
    /// Objects that killed measurements of `tune` left.
    pub measurements: u64,
    #[serde(skip)]
    probes: Vec<String>,
    /// Time by which ages were judged, in seconds since 1970.
    #[serde(skip)]
    as_of: i64,
    /// Names with a manifest that is unreadable or whose backup is not there, and the reason. Which of their
    /// objects are needed cannot be determined, so `gc` does not touch them.
    pub unclear: Vec<(String, String)>,
}

impl GcFindings {
    fn is_empty(&self) -> bool {
        self.dead.is_empty() && self.unfinished.is_empty() && self.probes.is_empty()
    }
}

/// Seconds by which the store's clock may be behind what its responses stated, without another look: their times are
/// in whole seconds, and each may come from another machine.
const SKEW: i64 = 60;

/// Like [`find_orphaned`], for their removal: what looks dead counts only by the store's own clock. The clock of a proxy in
/// front of the store may be ahead, and then a living run would look dead.
///
/// If nothing looks dead, nothing is written.
///
/// # Errors
/// [`RepoError::Store`].
pub async fn find_orphaned_to_remove(
    root: &Root,
    age: Duration,
) -> Result<GcFindings, BackupError> {
    let begun = Instant::now();
    let found = find_orphaned(root, age).await?;
    if found.is_empty() || root.store().is_folder() {
        return Ok(found);
    }
    learn_clock(root).await?;
    let since = i64::try_from(begun.elapsed().as_secs()).unwrap_or(0);
    let stated = found.as_of.saturating_add(since);
    match root.store().now() < stated.saturating_sub(SKEW) {
        true => find_orphaned(root, age).await,
        false => Ok(found),
    }
}

/// Learns the store's clock from the time of a small object, which is removed again. Where it cannot be removed, as
/// under a retention policy, it stays: like one that a killed command left, it counts as an object of a measurement,
/// which [`remove_measurements`] removes later.
async fn learn_clock(root: &Root) -> Result<(), BackupError> {
    let key = format!("{}/{}/0", xb_repo::probes::folder(root), RunId::random()?);
    root.store().create(&key, Bytes::from_static(b"clock")).await?;
    let _ = root.store().delete(&key).await;
    Ok(())
}

/// Finds the objects of runs that have shown no activity for `age`, at least an hour. Changes
/// nothing.
///
/// # Errors
/// [`RepoError::Store`] if ROOT cannot be listed.
pub async fn find_orphaned(root: &Root, age: Duration) -> Result<GcFindings, BackupError> {
    let age = i64::try_from(age.max(LEAST_AGE).as_secs()).unwrap_or(i64::MAX);
    // List uploads first: all of these began before everything that is inspected below.
    let mut all = GcFindings::default();
    let mut ours = BTreeSet::new();
    let unfinished = match root.store().unfinished_uploads(&root.key("")).await {
        // Not every store can list uploads, and not every account may. The rest is still useful.
        Err(error) if matches!(error.kind, StoreErrorKind::Denied | StoreErrorKind::Rejected) => {
            all.unlisted = Some(error.to_string());
            Vec::new()
        }
        listed => listed?,
    };
    // Before any manifest is read; a read that contradicts it is no proof that one is missing. What
    // began since is young: it has no object that is old enough.
    let catalogue = &root.list_below(CATALOG).await?;
    // By the store's clock, which its answer has shown: not every store is asked for its uploads.
    all.as_of = root.store().now();
    let dead_before = all.as_of.saturating_sub(age);
    let unfinished: Vec<Unfinished> =
        unfinished.into_iter().filter(|upload| upload.started < dead_before).collect();
    // Only our programs write to the catalogue, and no live run has an upload there that began a
    // day ago. A file that a listing shows may be the manifest, or a record, of a backup `a#b#1`.
    let in_catalogue = root.key(&format!("{CATALOG}/"));
    let of_catalogue =
        |upload: &&Unfinished| upload.key.starts_with(&in_catalogue) && !upload.is_listed;
    ours.extend(unfinished.iter().filter(of_catalogue).cloned());
    let root = &root.knowing(&Catalogue::of(catalogue));
    let mut names: BTreeSet<String> = root.folders_below("").await?.into_iter().collect();
    names.remove(CATALOG);
    // In as few requests as one for each name, if that is enough for all objects.
    let together = &root.list_together(names.len()).await?;
    // A dead run may have left only a claim, or only a checksum list.
    names.extend(["@claims", "@sums"].into_iter().flat_map(|kind| names_in(catalogue, kind)));
    let found: Vec<Result<NameFindings, (String, String)>> =
        stream::iter(names.iter().filter_map(|name| BackupName::new(name).ok()))
            .map(|name| async move {
                let listed = Listings { together: together.as_deref(), catalogue };
                of_name(root, &name, dead_before, listed).await
            })
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
    for one in found {
        match one {
            Ok(of_name) => {
                let below = |upload: &&Unfinished| {
                    upload.key.strip_prefix(&root.key("")).is_some_and(|key| of_name.may_end(key))
                };
                ours.extend(unfinished.iter().filter(below).cloned());
                all.dead.extend(of_name.dead);
            }
            Err(unclear) => all.unclear.push(unclear),
        }
    }
    all.probes = dead_probes(root, &below(catalogue, PROBES), dead_before);
    all.measurements = all.probes.len() as u64;
    all.uploads = ours.len() as u64;
    all.unfinished = ours.into_iter().collect();
    Ok(all)
}

/// Aborts the unfinished multipart uploads.
///
/// # Errors
/// [`RepoError::Store`].
pub async fn abort_uploads(root: &Root, findings: &GcFindings) -> Result<(), BackupError> {
    for upload in &findings.unfinished {
        root.store().abort(upload).await?;
    }
    Ok(())
}

/// Removes the objects of measurements.
///
/// # Errors
/// [`RepoError::Store`].
pub async fn remove_measurements(root: &Root, findings: &GcFindings) -> Result<(), BackupError> {
    Ok(root.store().delete_all(findings.probes.clone()).await?)
}

/// Removes all that was found. Returns the runs that [`remove`] has left alone; they are no longer among what was found.
///
/// # Errors
/// As [`remove`].
pub async fn remove_all(
    root: &Root,
    findings: &mut GcFindings,
) -> Result<Vec<OrphanedRun>, BackupError> {
    let mut left = Vec::new();
    for dead in std::mem::take(&mut findings.dead) {
        match remove(root, &dead).await? {
            true => findings.dead.push(dead),
            false => left.push(dead),
        }
    }
    abort_uploads(root, findings).await?;
    remove_measurements(root, findings).await?;
    Ok(left)
}

/// Findings under one name.
#[derive(Debug, Default)]
struct NameFindings {
    dead: Vec<OrphanedRun>,
    /// Folder of the name, with a trailing slash.
    folder: String,
    /// Folders of live runs, below ROOT, with a trailing slash.
    living: BTreeSet<String>,
    /// Whether a dead run in the classic layout wrote below this name.
    classic: bool,
}

impl NameFindings {
    /// Returns whether a dead run of ours began the unfinished upload of this key, which is relative to
    /// ROOT.
    fn may_end(&self, key: &str) -> bool {
        let Some(below) = key.strip_prefix(&self.folder) else { return false };
        let ours = (self.classic && of_classic(below)) || of_packed_run(below);
        ours && self.living.iter().all(|folder| !key.starts_with(folder))
    }
}

/// Removes the objects of one dead run. An interrupted removal can be repeated: the claim goes last.
///
/// Returns whether anything was removed. A run that was active since it was found, for example
/// because a copy resumed it, that became a backup, or whose name has an unreadable manifest, is
/// left alone.
///
/// # Errors
/// [`RepoError::Store`].
pub async fn remove(root: &Root, orphaned: &OrphanedRun) -> Result<bool, BackupError> {
    let name = BackupName::new(&orphaned.name)?;
    let Some(run) = &orphaned.run else {
        if is_needed_now(root, &name, orphaned).await? {
            return Ok(false);
        }
        return match orphaned.objects {
            0 => remove_keys(root, orphaned).await,
            _ => remove_classic(root, &name).await,
        };
    };
    // A copy of the run may begin at any time: it looks for this claim.
    let (claim, fenced) = match Claim::clearing(root, &name, run).await {
        Err(RepoError::Running { .. }) => return Ok(false),
        claimed => claimed?,
    };
    let removed = match is_needed_now(root, &name, orphaned).await {
        // After an error requests may still arrive, so the claim stays until it is old.
        Ok(false) => remove_keys(&fenced, orphaned).await?,
        needed => {
            claim.withdraw().await;
            return needed.map(|_| false);
        }
    };
    claim.withdraw().await;
    Ok(removed)
}

/// Removes the objects, and the claim last.
async fn remove_keys(root: &Root, orphaned: &OrphanedRun) -> Result<bool, BackupError> {
    let mut keys = orphaned.keys.clone();
    let last = keys.pop();
    match &orphaned.run {
        Some(run) => remove_objects(root, &format!("{}/{run}", orphaned.name), keys).await?,
        // Claims and lists of checksums.
        None => root.store().delete_all(keys).await?,
    }
    if let Some(last) = last {
        root.store().delete(&last).await?;
    }
    Ok(true)
}

/// Removes the remains of a dead classic run, under a claim: a new run would write the same keys.
async fn remove_classic(root: &Root, name: &BackupName) -> Result<bool, BackupError> {
    let run = RunId::random()?;
    match claim_emptied(root, name, run, ForeignObjects::Leave).await {
        Ok((claim, _)) => claim.end().await,
        Err(BackupError::Repo(RepoError::Running { .. } | RepoError::Exists { .. })) => {
            return Ok(false);
        }
        Err(error) if is_of_manifest(&error) => return Ok(false),
        Err(error) => return Err(error),
    }
    Ok(true)
}

/// Returns whether a manifest cannot be read. A store may refuse a removal with the same kinds of errors.
fn is_of_manifest(error: &BackupError) -> bool {
    let is_read = |store: &StoreError| matches!(store.operation, Operation::Get | Operation::Head);
    match error {
        BackupError::Repo(RepoError::Store(store)) => is_read(store) && error.is_of_one_object(),
        error => error.is_of_one_object(),
    }
}

async fn is_needed_now(
    root: &Root,
    name: &BackupName,
    orphaned: &OrphanedRun,
) -> Result<bool, BackupError> {
    let (folder, only_claim) = match &orphaned.run {
        Some(run) => (format!("{name}/{run}"), Some(CLAIM)),
        None => (claims_folder(name), None),
    };
    let listed = root.list_below(&folder).await?;
    let mut claims = listed.iter().filter(|l| only_claim.is_none_or(|claim| l.key == claim));
    if claims.any(|claim| claim.modified > orphaned.last_seen.as_second()) {
        return Ok(true);
    }
    // A claim that no listing shows.
    if let Some(run) = &orphaned.run {
        let claim = root.run_keys(name, run).claim();
        if !orphaned.keys.contains(&claim) && root.store().size(&claim).await?.is_some() {
            return Ok(true);
        }
    }
    // Read this after the claims: a run that has ended has written its manifest by then.
    let manifest = match root.manifest(name).await {
        Err(error) if error.is_of_one_object() => return Ok(true),
        other => other?,
    };
    Ok(manifest.is_some_and(|manifest| match &orphaned.run {
        Some(run) => manifest.run == *run,
        None => manifest.layout == Layout::Classic && orphaned.objects > 0,
    }))
}

/// Listings from before any manifest is read.
#[derive(Debug, Clone, Copy)]
struct Listings<'a> {
    /// All objects below ROOT, if few requests could list them.
    together: Option<&'a [ListedObject]>,
    /// The objects of the catalogue, with keys below it.
    catalogue: &'a [ListedObject],
}

/// Names of the folders in the folder `kind` of the catalogue.
fn names_in<'a>(catalogue: &'a [ListedObject], kind: &'a str) -> impl Iterator<Item = String> + 'a {
    let name = move |listed: &'a ListedObject| {
        let below = listed.key.strip_prefix(kind)?.strip_prefix('/')?;
        Some(below.split_once('/')?.0.to_owned())
    };
    catalogue.iter().filter_map(name)
}

/// The objects of a sorted listing in the folder `folder`, with keys below it.
fn below(listed: &[ListedObject], folder: &str) -> Vec<ListedObject> {
    let folder = format!("{folder}/");
    let first = listed.partition_point(|listed| *listed.key < *folder);
    let inside = listed[first..].iter().map_while(|listed| {
        let key = listed.key.strip_prefix(&folder)?.to_owned();
        Some(ListedObject { key, ..listed.clone() })
    });
    inside.collect()
}

async fn of_name(
    root: &Root,
    name: &BackupName,
    dead_before: i64,
    Listings { together, catalogue }: Listings<'_>,
) -> Result<Result<NameFindings, (String, String)>, BackupError> {
    // The objects behind a link may be those of another name's backup.
    if let Err(linked) = root.refuse_links(name) {
        return Ok(Err((name.to_string(), linked.to_string())));
    }
    let listed = match together {
        Some(all) => Ok(below(all, name.as_str())),
        None => root.list_below(name.as_str()).await,
    };
    let objects = match listed {
        // Such as `lost+found`, which only root may read.
        Err(error) if error.is_of_one_object() => {
            return Ok(Err((name.to_string(), error.to_string())));
        }
        listed => listed?,
    };
    let sums = below(catalogue, in_catalogue(&sums_folder(name)));
    let claims = numbered(root, name, below(catalogue, in_catalogue(&claims_folder(name))));
    let seen = standing(root, &claims).await?.seen;
    // Read the manifest only now, after the listing; see the module's comment.
    let manifest = match root.manifest(name).await {
        Err(error) if error.is_of_one_object() => {
            return Ok(Err((name.to_string(), error.to_string())));
        }
        other => other?,
    };
    // The pin remains if the manifest was deleted; a saved copy of the manifest would restore the
    // backup.
    if manifest.is_none() && records::pinned(root, name, None).await?.is_some() {
        return Ok(Err((name.to_string(), "it is pinned, but its manifest is missing".to_owned())));
    }
    let mut found = NameFindings {
        folder: format!("{name}/"),
        classic: seen.is_some(),
        ..NameFindings::default()
    };
    if claims.iter().any(|claim| claim.modified >= dead_before) {
        found.living.insert(format!("{name}/"));
    }
    for listed in objects.iter().filter(|listed| listed.modified >= dead_before) {
        if let Some((run, CLAIM)) = listed.key.split_once('/') {
            found.living.insert(format!("{name}/{run}/"));
        }
    }
    let mut contents = Contents::sort(objects);
    // Every backup has an object: without one, nothing would be missing.
    let is_there = manifest
        .as_ref()
        .is_none_or(|manifest| manifest.objects > 0 && contents.agrees_with(manifest));
    let packed = std::mem::take(&mut contents.packed);
    found.dead = dead_runs(root, name, manifest.as_ref(), packed, dead_before);
    // A manifest whose own objects or list are not there may be an old answer about a name that was used again.
    let has_own = manifest.as_ref().is_none_or(|manifest| match manifest.layout {
        Layout::Packed => is_there,
        Layout::Classic => sums.iter().any(|listed| listed.key == manifest.run),
    });
    let sums = if has_own { sums } else { Vec::new() };
    let mut lists = unused_lists(root, name, manifest.as_ref(), sums);
    let committed = manifest.as_ref().is_some_and(|stated| stated.layout == Layout::Classic);
    let alone = found.living.is_empty() && (committed || contents.classic.is_empty());
    let classic = dead_classic(name, manifest.as_ref(), contents, claims, seen, dead_before);
    // They go with the claim of the run, or alone if an earlier removal was interrupted.
    match classic {
        Some(mut dead) => {
            dead.keys.splice(0..0, lists.into_iter().map(|listed| listed.key));
            found.dead.push(dead);
        }
        None if alone => {
            lists.retain(|listed| listed.modified < dead_before);
            let key = |listed: &ListedObject| listed.key.clone();
            found.dead.extend(orphaned_run(name, None, &[], &lists, key, key, dead_before));
        }
        None => {}
    }
    // Whoever can write a manifest could make another run look dead, and with it the backup.
    if !is_there && found.dead.iter().any(|dead| dead.objects > 0) {
        let what = "some objects that its manifest names are missing, so those of other runs may be needed; verify it, or delete it";
        return Ok(Err((name.to_string(), what.to_owned())));
    }
    Ok(Ok(found))
}

/// A folder of the catalogue, relative to it.
fn in_catalogue(folder: &str) -> &str {
    folder.strip_prefix(CATALOG).map_or(folder, |below| below.trim_start_matches('/'))
}

/// Checksum lists of classic runs, with full keys, that do not belong to the backup.
fn unused_lists(
    root: &Root,
    name: &BackupName,
    manifest: Option<&Manifest>,
    mut sums: Vec<ListedObject>,
) -> Vec<ListedObject> {
    sums.retain(|listed| manifest.is_none_or(|manifest| manifest.run != listed.key));
    for listed in &mut sums {
        listed.key = root.classic_sums(name).at(&listed.key);
    }
    sums
}

/// Dead packed runs that no manifest names.
fn dead_runs(
    root: &Root,
    name: &BackupName,
    manifest: Option<&Manifest>,
    objects: Vec<ListedObject>,
    dead_before: i64,
) -> Vec<OrphanedRun> {
    let mut runs: BTreeMap<String, Vec<ListedObject>> = BTreeMap::new();
    for listed in objects {
        if let Some((run, _)) = listed.key.split_once('/') {
            runs.entry(run.to_owned()).or_default().push(listed);
        }
    }
    runs.into_iter()
        .filter(|(run, _)| manifest.is_none_or(|manifest| manifest.run != *run))
        .filter_map(|(run, objects)| {
            let (claims, data): (Vec<_>, Vec<_>) =
                objects.into_iter().partition(|listed| listed.key.ends_with(&format!("/{CLAIM}")));
            let key = |listed: &ListedObject| root.classic_keys(name).at(&listed.key);
            orphaned_run(name, Some(run), &data, &claims, key, key, dead_before)
        })
        .collect()
}

/// Returns the remains of a classic run, last active at `seen`. Without a claim of ours, objects belong to
/// another tool and stay; so do objects beside the claim of an ended run.
fn dead_classic(
    name: &BackupName,
    manifest: Option<&Manifest>,
    contents: Contents,
    claims: Vec<NumberedClaim>,
    seen: Option<i64>,
    dead_before: i64,
) -> Option<OrphanedRun> {
    let committed = manifest.is_some_and(|manifest| manifest.layout == Layout::Classic);
    let newest = claims.iter().map(|claim| claim.modified).max()?;
    let seen = seen.unwrap_or(i64::MIN);
    let others = contents.is_folder()
        || contents.classic.iter().any(|object| !belongs_to_run(object.modified, seen));
    // After a commit the classic objects are the backup, and newer objects or those of a backup in
    // a subfolder belong to others: then only claims are left over.
    let objects = if committed || others { Vec::new() } else { contents.classic };
    // Written objects count, too: a store may have refused the claims of a live run.
    let last_seen = objects.iter().map(|object| object.modified).fold(newest, i64::max);
    // The claim of an ended run prevents older ones from counting again.
    let dead_before = match seen {
        i64::MIN => dead_before.saturating_sub(FORGOTTEN),
        _ => dead_before,
    };
    (last_seen < dead_before).then(|| OrphanedRun {
        name: name.to_string(),
        run: None,
        objects: objects.len() as u64,
        bytes: objects.iter().map(|listed| listed.size).sum(),
        last_seen: Timestamp::from_second(last_seen).unwrap_or(Timestamp::UNIX_EPOCH),
        keys: claims.into_iter().map(|claim| claim.key).collect(),
    })
}

fn orphaned_run(
    name: &BackupName,
    run: Option<String>,
    objects: &[ListedObject],
    claims: &[ListedObject],
    object_key: impl Fn(&ListedObject) -> String,
    claim_key: impl Fn(&ListedObject) -> String,
    dead_before: i64,
) -> Option<OrphanedRun> {
    // Written objects count, too: a store may have refused the claims of a live run.
    let last_seen = objects.iter().chain(claims).map(|listed| listed.modified).max()?;
    (last_seen < dead_before).then(|| OrphanedRun {
        name: name.to_string(),
        run,
        objects: objects.len() as u64,
        bytes: objects.iter().map(|listed| listed.size).sum(),
        last_seen: Timestamp::from_second(last_seen).unwrap_or(Timestamp::UNIX_EPOCH),
        keys: objects.iter().map(object_key).chain(claims.iter().map(claim_key)).collect(),
    })
}
