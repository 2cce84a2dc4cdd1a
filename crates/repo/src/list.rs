//! `list`: backups and their verification state.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use xb_uploader::{ListedObject, StoreErrorKind};

use crate::catalogue::Catalogue;
use crate::claim::{DEAD, claims, is_of_dead_process, numbered, standing};
use crate::contents::Contents;
use crate::error::RepoError;
use crate::first_object::{Lost, lost};
use crate::list_cache::{Cached, ListCache};
pub use crate::list_line::{BackupKind, Listing, State};
use crate::list_line::{age, empty, fill_in};
use crate::manifest::{Layout, ManifestError, StoredManifest};
use crate::names::{BackupName, CATALOG, CLAIM, CLAIMS};
use crate::records::{self, CatalogMarkers, OperatorWord, Proof};
use crate::restorable::{ReadableManifests, links};
use crate::root::Root;
use crate::roots::{FoundRoot, folders};
use crate::sizes::judge_sizes;
use crate::unread::{may_be_incremental, may_return};

const REMOVED: &str = "another program has removed them";
/// Number of manifests read concurrently.
const AT_ONCE: usize = 16;

/// Lists all names below ROOT, in byte order.
///
/// # Errors
/// [`RepoError::Store`] when ROOT cannot be listed. A damaged manifest is a line, not an error.
pub async fn list(root: &Root) -> Result<Vec<Listing>, RepoError> {
    list_with(root, None).await
}

/// Like [`list`], but takes unchanged manifests and records from this machine's cache, and looks for
/// the objects of a backup only until they were seen once. The result is for display only: no decision
/// may rely on it.
///
/// # Errors
/// As [`list`].
pub async fn list_with(root: &Root, cache: Option<&ListCache>) -> Result<Vec<Listing>, RepoError> {
    Ok(listings(root, cache, None, false).await?.lines)
}

/// Like [`list_with`], for a ROOT of which listings have already shown the catalogue and the folders.
pub async fn list_found(
    root: &Root,
    cache: Option<&ListCache>,
    shown: FoundRoot,
) -> Result<ListedRoot, RepoError> {
    listings(root, cache, Some(shown), false).await
}

/// Like [`list`], for a decision about what to remove: it reads by key whatever the listing of the
/// catalogue does not show, too. That takes up to three more small reads for each backup.
///
/// # Errors
/// As [`list`].
pub async fn list_by_key(root: &Root) -> Result<ListedRoot, RepoError> {
    listings(root, None, None, true).await
}

/// A listing, and what was read for it.
#[derive(Debug)]
pub struct ListedRoot {
    /// The lines, in byte order of the names.
    pub lines: Vec<Listing>,
    /// The sound manifests.
    pub sound: ReadableManifests,
    /// The listing of the catalogue.
    pub catalogue: Catalogue,
}

async fn listings(
    root: &Root,
    cache: Option<&ListCache>,
    shown: Option<FoundRoot>,
    by_key: bool,
) -> Result<ListedRoot, RepoError> {
    let (manifests, shown) = match shown {
        Some(mut shown) => (std::mem::take(&mut shown.catalogue), Some(shown)),
        None => (root.list_below(CATALOG).await?, None),
    };
    let catalogue = Catalogue::of(&manifests);
    let known = &root.knowing(&catalogue);
    let root = match cache {
        Some(cache) => &known.with_cache(Cached::new(cache, &manifests)),
        None => known,
    };
    let beside = &match by_key {
        true => CatalogMarkers::unknown(),
        false => CatalogMarkers::of(manifests.iter().map(|listed| listed.key.as_str())),
    };
    let claimed = fresh_claims(&manifests, root.store().now());
    // Claims lie one level deeper.
    let names = manifests
        .into_iter()
        .filter(|listed| !listed.key.contains('/'))
        .filter_map(|listed| Some((BackupName::new(&listed.key).ok()?, listed.modified)));
    let found: Vec<ListedManifest> = stream::iter(names)
        .map(|(name, written)| async move { with_manifest(root, name, written, beside).await })
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    let (mut lines, mut sound): (Vec<Listing>, Vec<_>) = found.into_iter().unzip();
    let complete = lines.iter().filter(|line| line.state == State::Complete);
    let folders = folders(root, shown, complete.map(|line| &*line.name)).await?;
    mark_missing(root, &mut lines, &folders, by_key).await?;
    let named: BTreeSet<String> = lines.iter().map(|line| line.name.clone()).collect();
    let remembered = cache.map(ListCache::names).unwrap_or_default();
    let hidden =
        remembered.into_iter().filter(|name| !named.contains(name) && !folders.contains(name));
    let hidden: Vec<Option<ListedManifest>> = stream::iter(hidden.collect::<Vec<_>>())
        .map(|name| async move { shown_before(known, &name).await })
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    let bare = claimed.into_iter().filter(|(name, _)| {
        !named.contains(name.as_str()) && !folders.iter().any(|folder| folder == name.as_str())
    });
    let bare: Vec<Option<String>> = stream::iter(bare)
        .map(|(name, claims)| async move {
            let found = standing(root, &numbered(root, &name, claims)).await?;
            // One that removes what was there is no backup in the making.
            let is_made = found.alive.is_some() && found.removals.is_empty();
            Ok::<_, RepoError>(is_made.then(|| name.to_string()))
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    let folders = folders.into_iter().chain(bare.into_iter().flatten());
    let unnamed = folders.filter(|folder| folder != CATALOG && !named.contains(folder));
    let others: Vec<Option<ListedManifest>> = stream::iter(unnamed)
        .map(|folder| async move { unlisted(known, &folder).await })
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    for (line, manifest) in hidden.into_iter().chain(others).flatten() {
        lines.push(line);
        sound.push(manifest);
    }
    if let Some(cache) = cache {
        let has_manifest = |line: &&Listing| {
            matches!(line.state, State::Complete | State::Damaged | State::Unreadable)
        };
        cache.remember(lines.iter().filter(has_manifest).map(|line| &*line.name));
    }
    let sound: ReadableManifests = sound.into_iter().flatten().collect();
    judge_chains(&mut lines, &sound);
    lines.sort_by(|a, b| a.name.cmp(&b.name));
    judge_sizes(&mut lines, async |line: &Listing| acceptance(root, line).await).await?;
    accept_bases(root, &mut lines).await?;
    Ok(ListedRoot { lines, sound, catalogue })
}

/// The claims of classic runs in the listing of a catalogue that may be of living ones, by the names of the backups, with
/// keys as [`numbered`] takes them. A run that has stored no object yet has nothing else.
fn fresh_claims(catalogue: &[ListedObject], now: i64) -> BTreeMap<BackupName, Vec<ListedObject>> {
    let mut claims: BTreeMap<BackupName, Vec<ListedObject>> = BTreeMap::new();
    let fresh = catalogue.iter().filter(|listed| now.saturating_sub(listed.modified) < DEAD);
    for listed in fresh {
        let below = listed.key.strip_prefix(CLAIMS).and_then(|key| key.strip_prefix('/'));
        if let Some((name, key)) = below.and_then(|below| below.split_once('/'))
            && let Ok(name) = BackupName::new(name)
        {
            let key = key.to_owned();
            claims.entry(name).or_default().push(ListedObject { key, ..listed.clone() });
        }
    }
    claims
}

/// Listing of one name, and its manifest if that is sound; `None` if there is nothing of that name. Says
/// nothing about its chain.
///
/// # Errors
/// As [`list`].
pub async fn line(
    root: &Root,
    name: &BackupName,
) -> Result<Option<(Listing, Option<StoredManifest>)>, RepoError> {
    // Small reads that find nothing cost less than a listing. Its time matters only in a listing of all.
    let beside = CatalogMarkers::unknown();
    let (mut listing, sound) = with_manifest(root, name.clone(), i64::MAX, &beside).await?;
    if listing.state == State::Abandoned {
        let found = incomplete(root, name.as_str()).await?;
        if found.as_ref().is_some_and(|found| found.state == State::StockUnproven) {
            root.refuse_denied_manifest(name).await?;
        }
        return Ok(found.map(|listing| (listing, None)));
    }
    if let Some((_, stored)) = &sound
        && let Some(lost) = lost(root, name, &stored.manifest).await?
    {
        missing(root, &mut listing, lost).await?;
    }
    Ok(Some((listing, sound.map(|(_, stored)| stored))))
}

/// Returns why nothing that needs this backup can be restored, apart from its own chain; see
/// [`Listing::fault`].
///
/// # Errors
/// As [`list`].
pub async fn fault_of(
    root: &Root,
    name: &BackupName,
    stored: &StoredManifest,
) -> Result<Option<String>, RepoError> {
    let mut listing = empty(name.as_str(), State::Complete);
    fill_in(&mut listing, stored.manifest.clone());
    verified(root, name, &stored.digest(), &mut listing).await?;
    if let Some(lost) = lost(root, name, &stored.manifest).await? {
        missing(root, &mut listing, lost).await?;
    }
    Ok(match listing.state {
        State::Abandoned => Some("it was removed meanwhile".to_owned()),
        _ => listing.fault(),
    })
}

/// Finds the incremental backups whose chains cannot be restored or may lack imported tablespaces, and the backups that can be
/// restored.
fn judge_chains(listings: &mut [Listing], sound: &ReadableManifests) {
    let faults: BTreeMap<String, String> =
        listings.iter().filter_map(|line| Some((line.name.clone(), line.fault()?))).collect();
    let is_unread = |line: &&Listing| matches!(line.state, State::Damaged | State::Unreadable);
    let unread = listings.iter().filter(is_unread);
    let unread = unread.filter_map(|line| BackupName::new(&line.name).ok()).collect();
    for listing in listings.iter_mut().filter(|l| l.kind == Some(BackupKind::Incremental)) {
        let Ok(name) = BackupName::new(&listing.name) else { continue };
        let fault = |base: &BackupName| faults.get(base.as_str());
        let link = |base: &BackupName, what: &str| format!("its base {base}: {what}");
        listing.broken = match links(sound, &name) {
            Ok(links) => {
                let full = links.last().and_then(|full| sound.get(*full));
                if full.is_some_and(|full| full.manifest.may_lack_imports()) {
                    listing.doubt_imports();
                }
                links.into_iter().skip(1).find_map(|base| Some(link(base, fault(base)?)))
            }
            Err(broken) => {
                let absent = broken.absent && broken.missing.as_ref().and_then(fault).is_none();
                listing.base_elsewhere_of = absent.then(|| broken.at.to_string());
                Some(broken.beside(&unread).describe(&name))
            }
        };
    }
    for listing in listings {
        listing.restorable = listing.fault().is_none() && listing.broken.is_none();
    }
}

/// Finds the acceptances of chains that begin elsewhere. One at the break counts for all backups on it.
async fn accept_bases(root: &Root, listings: &mut [Listing]) -> Result<(), RepoError> {
    let small: BTreeSet<&str> =
        listings.iter().filter(|line| line.shrunk.is_some()).map(|line| &*line.name).collect();
    let mut accepted = BTreeMap::new();
    for line in listings.iter() {
        if line.base_elsewhere_of.is_none() {
            continue;
        }
        let found = acceptance(root, line).await?;
        if let Some(found) = found.filter(|found| found.is_for_base(small.contains(&*line.name))) {
            accepted.insert(line.name.clone(), found);
        }
    }
    for line in listings {
        if let Some(at) = &line.base_elsewhere_of {
            let found = accepted.get(&line.name).or_else(|| accepted.get(at)).cloned();
            line.accepted_base = found.is_some();
            line.accepted = found.or(line.accepted.take());
        }
    }
    Ok(())
}

async fn acceptance(root: &Root, line: &Listing) -> Result<Option<OperatorWord>, RepoError> {
    match &line.digest {
        Some(digest) => records::accepted(root, &BackupName::new(&line.name)?, digest).await,
        None => Ok(None),
    }
}

/// Marks the backups that have lost what their restore begins with. `folders` are those that the store has listed, of any run. For a
/// decision, `by_key`, a listed folder of a classic backup is looked into, too: another program's object may be all that
/// is in it.
async fn mark_missing(
    root: &Root,
    listings: &mut [Listing],
    folders: &[String],
    by_key: bool,
) -> Result<(), RepoError> {
    let folders: BTreeSet<&String> = folders.iter().collect();
    let look = by_key || root.store().may_list_empty_folders() || root.store().is_folder();
    let complete = listings.iter_mut().filter(|listing| listing.state == State::Complete);
    stream::iter(complete.map(Ok))
        .try_for_each_concurrent(AT_ONCE, |listing| {
            let listed = folders.contains(&listing.name);
            let shown = listed && !look && listing.layout != Some(Layout::Packed);
            async move {
                let lost = match (shown, listed) {
                    (true, _) => None,
                    (false, true) => lost_of(root, listing).await?,
                    (false, false) => Some(Lost::All),
                };
                match lost {
                    None => Ok(()),
                    Some(lost) => missing(root, listing, lost).await,
                }
            }
        })
        .await
}

/// Returns what a backup has lost; a cache remembers that it has everything.
async fn lost_of(root: &Root, listing: &Listing) -> Result<Option<Lost>, RepoError> {
    let name = BackupName::new(&listing.name)?;
    if root.has_seen_objects(&name) {
        return Ok(None);
    }
    let lost = lost(root, &name, listing).await?;
    if lost.is_none() {
        root.saw_objects(&name);
    }
    Ok(lost)
}

/// Says why the files of a backup may be on a disk that is not there now: its folder is empty, as a mount point is, or behind a
/// link. `None` if nothing looks like that.
#[must_use]
pub fn may_be_away(root: &Root, name: &str) -> Option<String> {
    let (store, folder) = (root.store(), root.key(name));
    match store.link_to_nothing(&folder) {
        Some(link) => Some(format!("the symbolic link {link} leads nowhere: is its disk mounted?")),
        None => (store.may_be_mount_point(&folder))
            .then(|| "its folder is empty: is its disk mounted?".to_owned()),
    }
}

/// Marks a backup that has lost objects.
async fn missing(root: &Root, listing: &mut Listing, lost: Lost) -> Result<(), RepoError> {
    let name = BackupName::new(&listing.name)?;
    listing.state = match root.store().size(&root.manifest_key(&name)).await? {
        Some(_) => State::Missing,
        None => State::Abandoned, // Deleted after the listing.
    };
    let part = match lost {
        Lost::All => None,
        Lost::First => Some("its first object is missing"),
        Lost::Keys => Some("its keys are missing, and nothing else opens it"),
    };
    if let Some(part) = part {
        let text = || format!("{part}: copy it again from another place, or delete it");
        listing.problem = (listing.state == State::Missing).then(text);
        return Ok(());
    }
    let why = match (may_be_away(root, &listing.name), listing.layout) {
        (Some(away), _) => away,
        (None, Some(Layout::Packed)) => format!("{REMOVED}; a new backup may take the name"),
        // Without keys to look for, only `delete` frees the name.
        _ => format!("{REMOVED}; delete it, then a new backup may take the name"),
    };
    listing.problem = (listing.state == State::Missing).then(|| format!("objects missing: {why}"));
    Ok(())
}

/// Reads the manifest of one backup.
///
/// # Errors
/// [`RepoError::NotThere`] if no complete backup has that name, and the errors of reading it.
pub async fn describe(root: &Root, name: &BackupName) -> Result<StoredManifest, RepoError> {
    match root.stored_manifest(name).await? {
        Some(stored) => Ok(stored),
        None => {
            let state = state_without_manifest(root, name).await?;
            Err(RepoError::NotThere { name: name.to_string(), state })
        }
    }
}

/// Listing of a name, and its manifest if that is sound.
type ListedManifest = (Listing, Option<(BackupName, StoredManifest)>);

/// Listing of a name whose manifest exists and was written at `written`.
async fn with_manifest(
    root: &Root,
    of: BackupName,
    written: i64,
    beside: &CatalogMarkers,
) -> Result<ListedManifest, RepoError> {
    let name = &of;
    let mut listing = empty(name.as_str(), State::Complete);
    let mut sound = None;
    listing.written = written;
    match root.stored_manifest(name).await {
        Ok(Some(stored)) => {
            let digest = stored.digest();
            listing.signer = stored.signer().map(|key| key.to_string());
            fill_in(&mut listing, sound.insert(stored).manifest.clone());
            listing.digest = Some(digest.clone());
            if beside.may_be_verified(name) {
                verified(root, name, &digest, &mut listing).await?;
            }
            if beside.may_be_pinned(name) {
                listing.pinned = records::pinned(root, name, Some(&digest)).await?;
            }
        }
        // Deleted after the listing.
        Ok(None) => listing.state = State::Abandoned,
        Err(error) if error.is_of_one_object() => {
            let may_return = may_return(&error);
            listing.state = if may_return { State::Unreadable } else { State::Damaged };
            listing.untrusted = matches!(
                error,
                RepoError::Manifest { source: ManifestError::NotTrusted { .. }, .. }
            );
            listing.problem = Some(error.to_string());
            if may_return && may_be_incremental(root, name).await? {
                listing.may_depend_since = Some(written);
            }
            if beside.may_be_pinned(name) {
                listing.pinned = records::pinned(root, name, None).await?;
            }
        }
        Err(error) => return Err(error),
    }
    Ok((listing, sound.map(|stored| (of, stored))))
}

/// Adds the verification state. A record that cannot be read is a problem of this backup alone.
async fn verified(
    root: &Root,
    name: &BackupName,
    digest: &str,
    listing: &mut Listing,
) -> Result<(), RepoError> {
    match records::results(root, name, digest, None).await {
        Ok(records::VerificationState { results, failed_try, size }) => {
            let proof = Proof::of(&results);
            listing.verified_age_seconds = proof.at.map(age);
            let proof = if listing.may_lack_imports { proof.without_trial() } else { proof };
            listing.verified = (!results.is_empty()).then_some(proof);
            (listing.failed_try, listing.noted_size) = (failed_try, size);
        }
        Err(error) if error.is_of_one_object() => {
            listing.unread_record = true;
            listing.problem = Some(format!("a verification record cannot be read: {error}"));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Listing of a backup that an earlier listing has shown, and of which this one shows nothing, unless it is gone.
async fn shown_before(root: &Root, name: &str) -> Result<Option<ListedManifest>, RepoError> {
    let Ok(of) = BackupName::new(name) else { return Ok(None) };
    match root.manifest(&of).await {
        Ok(None) => Ok(None),
        Err(RepoError::Store(error))
            if error.kind == StoreErrorKind::Denied && denies_absent(root).await =>
        {
            Ok(None)
        }
        _ => unlisted(root, name).await,
    }
}

/// Returns whether the store denies what is not there, too, as S3 does without the right to list all of a bucket: then a
/// denied read shows nothing.
async fn denies_absent(root: &Root) -> bool {
    let read = root.store().get(&root.key(&format!("{CATALOG}/@none"))).await;
    matches!(read, Err(error) if error.kind == StoreErrorKind::Denied)
}

/// Listing of a folder whose manifest no listing shows.
async fn unlisted(root: &Root, folder: &str) -> Result<Option<ListedManifest>, RepoError> {
    let Ok(name) = BackupName::new(folder) else { return Ok(None) };
    if matches!(root.manifest(&name).await, Ok(None)) {
        return Ok(incomplete(root, folder).await?.map(|listing| (listing, None)));
    }
    let (mut listing, manifest) =
        with_manifest(root, name, i64::MAX, &CatalogMarkers::unknown()).await?;
    listing.problem.get_or_insert_with(|| "the store does not list its manifest".to_owned());
    Ok(Some((listing, manifest)))
}

/// Listing of a folder without a manifest.
async fn incomplete(root: &Root, folder: &str) -> Result<Option<Listing>, RepoError> {
    let Ok(name) = BackupName::new(folder) else { return Ok(None) };
    let found = match Contents::of(root, &name).await {
        // Such as `lost+found`, which only root may read.
        Err(error) if error.is_of_one_object() => {
            let problem = Some(error.to_string());
            return Ok(Some(Listing { problem, ..empty(folder, State::Unreadable) }));
        }
        found => found?,
    };
    let classic_claim = standing(root, &claims(root, &name).await?).await?;
    let fresh = |modified: i64| root.store().now().saturating_sub(modified) < DEAD;
    let is_claim = |listed: &&ListedObject| listed.key.ends_with(&format!("/{CLAIM}"));
    let packed_claim = found.packed.iter().filter(is_claim).map(|listed| listed.modified).max();
    let mut packed_alive = false;
    for claim in found.packed.iter().filter(is_claim).filter(|claim| fresh(claim.modified)) {
        let key = root.key(&format!("{name}/{}", claim.key));
        packed_alive = packed_alive || !is_of_dead_process(root, &key).await?;
    }
    let classic = !found.classic.is_empty();
    let state = match packed_claim {
        _ if classic_claim.alive.is_some() => State::Running,
        _ if packed_alive => State::Running,
        _ if found.is_folder() => State::Folder,
        None if classic && !classic_claim.may_own(&found.classic) => State::StockUnproven,
        _ if classic || !found.packed.is_empty() => State::Abandoned,
        _ if !found.foreign.is_empty() => State::Foreign,
        _ => return Ok(None),
    };
    let mut listing = empty(folder, state);
    if state == State::Folder {
        listing.backups = Some(found.backups.len() as u64);
        return Ok(Some(listing));
    }
    let link = root.store().link_in(&root.key(folder));
    let link = link.map(|link| format!("the symbolic link {link}: nothing is removed through it"));
    let problems = [found.foreign_objects(), found.unrecognised(), link];
    let shown = [true, state == State::StockUnproven, true];
    let problems: Vec<String> = problems
        .into_iter()
        .zip(shown)
        .filter_map(|(what, shown)| what.filter(|_| shown))
        .collect();
    listing.problem = (!problems.is_empty()).then(|| format!("it holds {}", problems.join("; ")));
    if state == State::Foreign {
        return Ok(Some(listing));
    }
    let own = || found.packed.iter().chain(&found.classic);
    let classic = classic || found.packed.is_empty();
    listing.layout = Some(if classic { Layout::Classic } else { Layout::Packed });
    listing.stored_bytes = Some(own().map(|listed| listed.size).sum());
    listing.objects = Some(own().filter(|listed| !is_claim(listed)).count() as u64);
    Ok(Some(listing))
}

/// State of a name that has neither a manifest nor classic objects.
pub async fn state_without_manifest(
    root: &Root,
    name: &BackupName,
) -> Result<&'static str, RepoError> {
    Ok(match incomplete(root, name.as_str()).await?.map(|l| l.state) {
        Some(State::Running) => ": a run of that name is in progress",
        Some(State::Abandoned) => ": a run of that name was abandoned",
        Some(State::Folder) => ": the name is a folder of backups",
        Some(State::Foreign) => ": the objects under that name are not part of a backup",
        _ => "",
    })
}
