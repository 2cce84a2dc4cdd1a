//! Finds the backup that a request means: by name, the newest, or the newest of a day.
// Long because a search reads the manifests that a removal goes by, too, and both are tested here.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use xb_uploader::ListedObject;

use crate::backup_kind::Kind;
use crate::catalogue::{Catalogue, ObjectStat};
use crate::claim::DEAD;
use crate::claim::mark::removing;
use crate::error::RepoError;
use crate::list::fault_of;
use crate::list_cache::{Cached, ListCache};
use crate::manifest::{End, Manifest, StoredManifest};
use crate::names::{BackupName, CATALOG, NameError};
use crate::records::{self, Proof};
use crate::restorable::{ReadableManifests, links};
use crate::root::Root;
use crate::unread::UnreadableBackup;
use crate::verification::Level;

/// Number of manifests read concurrently.
const AT_ONCE: usize = 16;
/// Maximum lead of another host's clock, in seconds.
const AHEAD: i64 = 3600;
/// Name for backups whose server has no name.
const NONE: &str = "none";
/// Limit of the servers named in a message.
const MAX_NAMED: usize = 8;

/// A backup as the user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackupSelector {
    /// The backup of this name.
    Name(BackupName),
    /// The newest backup.
    Latest,
    /// The newest backup that had ended by this time.
    By(Timestamp),
}

/// Text that does not name a backup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackupSelectorError {
    /// The name is not allowed for a backup.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The text after `@` is neither a day nor a time.
    #[error("`{text}` is neither a day such as @2026-11-20 nor a time such as @2026-11-20T03:00Z")]
    Time {
        /// The text as written.
        text: String,
    },
}

impl BackupSelector {
    /// Parses a NAME, `latest`, `@2026-11-20` (by the end of that day, UTC) or
    /// `@2026-11-20T03:00Z`.
    ///
    /// # Errors
    /// [`BackupSelectorError`] if the text is none of these.
    pub fn parse(text: &str) -> Result<Self, BackupSelectorError> {
        if text == "latest" {
            return Ok(Self::Latest);
        }
        let Some(when) = text.strip_prefix('@') else {
            return Ok(Self::Name(BackupName::new(text)?));
        };
        let time = match when.parse::<Timestamp>() {
            Ok(time) => Some(time),
            // The parser of civil dates would also accept a time without a zone.
            Err(_) if when.len() == "2026-11-20".len() => {
                when.parse::<Date>().ok().and_then(end_of_day)
            }
            Err(_) => None,
        };
        time.map(Self::By).ok_or_else(|| BackupSelectorError::Time { text: text.to_owned() })
    }
}

/// The last moment of a day, UTC.
fn end_of_day(day: Date) -> Option<Timestamp> {
    let next = day.tomorrow().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp();
    next.checked_sub(1.nanosecond()).ok()
}

/// Returns whether a backup's end time lies so far in the future that its clock was wrong.
pub fn is_ahead(finished: Timestamp, now: Timestamp) -> bool {
    finished.as_second() > now.as_second().saturating_add(AHEAD)
}

/// The chosen backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedBackup {
    /// Name of the backup.
    pub name: BackupName,
    /// Warnings about the choice, for the user.
    pub doubts: Vec<String>,
}

/// Finds the name of the requested backup. A search by time considers only backups that can be
/// restored now, by their end times. A partial backup is chosen only if there is no whole one, and one whose end lies in
/// the future only if there is no other.
///
/// A name is returned unchanged, without a request. `server` limits the choice to backups of that
/// server; it is required if ROOT holds backups of several servers.
///
/// # Errors
/// [`RepoError::NotThere`] if there is none, [`RepoError::NotRestorable`] if none can be restored,
/// [`RepoError::WhichServer`] if the server is ambiguous; [`RepoError::Store`].
pub async fn resolve(
    root: &Root,
    wanted: &BackupSelector,
    server: Option<&str>,
) -> Result<ResolvedBackup, RepoError> {
    resolve_with(root, wanted, server, None).await
}

/// Like [`resolve`], but takes unchanged manifests from this machine's cache: only to show a backup.
///
/// # Errors
/// As [`resolve`].
pub async fn resolve_with(
    root: &Root,
    wanted: &BackupSelector,
    server: Option<&str>,
    cache: Option<&ListCache>,
) -> Result<ResolvedBackup, RepoError> {
    find(root, wanted, server, cache, Kind::Whole { tells: true }).await
}

/// Like [`resolve`], for the base of a backup, which is of its own kind if there is one: partial or whole. Of which kind the backup
/// will be is unknown if `is_partial` is `None`: then the newest one is taken.
///
/// # Errors
/// As [`resolve`].
pub async fn resolve_base(
    root: &Root,
    wanted: &BackupSelector,
    server: Option<&str>,
    is_partial: Option<bool>,
) -> Result<ResolvedBackup, RepoError> {
    let kind = match is_partial {
        Some(true) => Kind::Partial,
        Some(false) => Kind::Whole { tells: false },
        None => Kind::Any,
    };
    find(root, wanted, server, None, kind).await
}

async fn find(
    root: &Root,
    wanted: &BackupSelector,
    server: Option<&str>,
    cache: Option<&ListCache>,
    kind: Kind,
) -> Result<ResolvedBackup, RepoError> {
    let by = match wanted {
        BackupSelector::Name(name) => {
            return Ok(ResolvedBackup { name: name.clone(), doubts: Vec::new() });
        }
        BackupSelector::Latest => Timestamp::MAX,
        BackupSelector::By(time) => *time,
    };
    let (Manifests { sound, unread }, root) = manifests_with(root, cache).await?;
    let (root, sound) = (&root, &sound);
    let now = Timestamp::now();
    let mut doubts: Vec<String> = unread
        .iter()
        .map(|unread| format!("{} is skipped: {}", unread.name, unread.error))
        .collect();
    let unreadable = unread.iter().map(|unread| unread.name.clone()).collect();
    let mut left: BTreeSet<&BackupName> = sound.keys().collect();
    let name = loop {
        let all = sound.iter().map(|(name, stored)| (name, &stored.manifest));
        let all = all.filter(|(name, _)| left.contains(name));
        let Some(name) = choose(all, by, now, server, kind)?.cloned() else {
            return Err(nothing_found(wanted, unread, &doubts));
        };
        let why = match why_not(root, (sound, &unreadable), &name).await? {
            None => why_another(root, (sound, &unreadable), &name).await?,
            why => why,
        };
        match why {
            None => break name,
            Some(why) => doubts.push(format!("{name} is skipped: {why}")),
        }
        left.remove(&name);
    };
    if kind == (Kind::Whole { tells: true }) {
        doubts.extend(newer_partial(sound, &name, by, now));
    }
    let undated = sound.get(&name).and_then(|stored| stored.manifest.undated.as_ref());
    doubts.extend(undated.map(|why| {
        format!("{name} is the newest only by when it was stored, and may be older: {why}")
    }));
    let ends = sound.iter().map(|(of, stored)| (of, stored.manifest.finished));
    doubts.extend(ends.filter(|(_, finished)| is_ahead(*finished, now)).map(|(of, finished)| {
        let what = if *of == name { "using it, because there is no other" } else { "skipped" };
        format!("{of} finished in the future by its clock, {finished}: {what}")
    }));
    Ok(ResolvedBackup { name, doubts })
}

/// What is to be said of the newest partial backup of the same server, if it is newer than the whole one that was chosen.
fn newer_partial(
    sound: &ReadableManifests,
    name: &BackupName,
    by: Timestamp,
    now: Timestamp,
) -> Option<String> {
    let chosen = &sound.get(name)?.manifest;
    if chosen.source.is_partial {
        return None;
    }
    let ends = |manifest: &Manifest| manifest.finished <= by && !is_ahead(manifest.finished, now);
    let others = sound.iter().filter(|(_, StoredManifest { manifest, .. })| {
        manifest.source.is_partial && server_of(manifest) == server_of(chosen) && ends(manifest)
    });
    let (partial, stored) = others.max_by_key(|(_, stored)| stored.manifest.finished)?;
    (stored.manifest.finished > chosen.finished).then(|| {
        format!("{partial} is newer, but partial: it does not count while there is a whole backup; name it to use it")
    })
}

/// Returns why `name` cannot be restored now, as far as the catalogue shows; see [`crate::restorable`].
async fn why_not(
    root: &Root,
    (sound, unreadable): (&ReadableManifests, &BTreeSet<BackupName>),
    name: &BackupName,
) -> Result<Option<String>, RepoError> {
    let links = match links(sound, name) {
        Ok(links) => links,
        Err(broken) => return Ok(Some(broken.beside(unreadable).describe(name))),
    };
    for link in links {
        let why = match sound.get(link) {
            Some(stored) => fault_of(root, link, stored).await?,
            None => None,
        };
        if let Some(why) = why {
            return Ok(Some(match link == name {
                true => why,
                false => format!("its base {link}: {why}"),
            }));
        }
    }
    Ok(None)
}

/// Why another backup counts in place of a consolidated one that no trial restore has proven: it has the same data, can be
/// restored, and is proven or the last one of the chain.
async fn why_another(
    root: &Root,
    (sound, unreadable): (&ReadableManifests, &BTreeSet<BackupName>),
    name: &BackupName,
) -> Result<Option<String>, RepoError> {
    let Some(stored) = sound.get(name) else { return Ok(None) };
    let Some(last) = stored.manifest.stands_for() else { return Ok(None) };
    let facts = |of: &StoredManifest| {
        let Manifest { server, finished, source, .. } = &of.manifest;
        (server.clone(), *finished, source.to_lsn)
    };
    let is_last = |other: &StoredManifest| other.manifest.run == last.run;
    let is_same = |other: &StoredManifest| {
        let of = other.manifest.stands_for();
        facts(other) == facts(stored) && (is_last(other) || of.is_some_and(|of| of.run == last.run))
    };
    let others = sound.iter().filter(|(other, found)| *other != name && is_same(found));
    let mut others = others.peekable();
    if others.peek().is_none() || is_proven(root, name, stored).await? {
        return Ok(None);
    }
    for (other, found) in others {
        let counts = is_last(found) || is_proven(root, other, found).await?;
        if counts && why_not(root, (sound, unreadable), other).await?.is_none() {
            return Ok(Some(format!(
                "no trial restore has proven it, and {other} has the same data: run `verify --level=restore`, or `consolidate` again"
            )));
        }
    }
    Ok(None)
}

/// Returns whether a trial restore has proven a full backup, as its records state. It cannot prove one that may lack imported
/// tablespaces.
///
/// # Errors
/// [`RepoError::Store`].
pub async fn is_proven(
    root: &Root,
    name: &BackupName,
    stored: &StoredManifest,
) -> Result<bool, RepoError> {
    if stored.manifest.may_lack_imports() {
        return Ok(false);
    }
    match records::results(root, name, &stored.digest(), None).await {
        Ok(found) => Ok(Proof::of(&found.results).reaches(Level::Restore)),
        Err(error) if error.is_of_one_object() => Ok(false),
        Err(error) => Err(error),
    }
}

/// The error if no backup can be chosen. An unreadable manifest is a better cause than none.
fn nothing_found(
    wanted: &BackupSelector,
    mut unread: Vec<UnreadableBackup>,
    skipped: &[String],
) -> RepoError {
    if skipped.len() > unread.len() {
        return RepoError::NotRestorable { why: skipped.join("; ") };
    }
    if !unread.is_empty() {
        return unread.swap_remove(0).error;
    }
    RepoError::NotThere {
        name: match wanted {
            BackupSelector::By(time) => format!("that finished by {time}"),
            _ => "at all".to_owned(),
        },
        state: "",
    }
}

fn server_of(manifest: &Manifest) -> &str {
    manifest.server.as_deref().unwrap_or(NONE)
}

fn choose<'a>(
    all: impl Iterator<Item = (&'a BackupName, &'a Manifest)> + Clone,
    by: Timestamp,
    now: Timestamp,
    server: Option<&str>,
    kind: Kind,
) -> Result<Option<&'a BackupName>, RepoError> {
    let of_server = all.filter(|(_, manifest)| server.is_none_or(|id| server_of(manifest) == id));
    if server.is_none() {
        // A backup that was not inspected does not count as that of a server.
        let inspected = of_server.clone().filter(|(_, manifest)| manifest.end != End::Raw);
        let servers: BTreeSet<_> = inspected.map(|(_, manifest)| server_of(manifest)).collect();
        if servers.len() > 1 {
            let mut named: Vec<String> =
                servers.iter().take(MAX_NAMED).map(|id| (*id).to_owned()).collect();
            if servers.len() > MAX_NAMED {
                named.push("...".to_owned());
            }
            return Err(RepoError::WhichServer { servers: named.join(", ") });
        }
    }
    Ok(of_server
        .filter(|(_, manifest)| manifest.finished <= by)
        .max_by_key(|(name, manifest)| {
            // Of the same data, a full backup is restored sooner, and makes increments depend on less.
            let is_merged = manifest.stands_for().is_some();
            let is_past = !is_ahead(manifest.finished, now);
            (kind.is_of(manifest), is_past, manifest.finished, is_merged, *name)
        })
        .map(|(name, _)| name))
}

/// The manifests below ROOT.
#[derive(Debug, Default)]
pub struct Manifests {
    /// The sound manifests.
    pub sound: ReadableManifests,
    /// The others. Commands that remove backups must not ignore them.
    pub unread: Vec<UnreadableBackup>,
}

/// Reads all manifests below ROOT.
///
/// # Errors
/// [`RepoError::Store`].
pub async fn manifests(root: &Root) -> Result<Manifests, RepoError> {
    Ok(manifests_with(root, None).await?.0)
}

/// The manifests, and the same ROOT, which knows the listing.
async fn manifests_with(
    root: &Root,
    cache: Option<&ListCache>,
) -> Result<(Manifests, Root), RepoError> {
    let mut all = Manifests::default();
    let RootListings { listed, catalogue, names } = RootListings::of(root).await?;
    let known = root.knowing(&catalogue);
    let cached = match cache {
        Some(cache) => known.with_cache(Cached::new(cache, &listed)),
        None => known.clone(),
    };
    let (there, unlisted) = names.into_iter().partition(|(_, written)| written.is_some());
    let found = read(&known, unlisted).await?;
    for (name, found) in found.into_iter().chain(read(&cached, there).await?) {
        match found {
            ManifestLookup::Sound(stored) => drop(all.sound.insert(name, *stored)),
            ManifestLookup::Unread(unread) => all.unread.push(unread),
            ManifestLookup::Nothing => {}
        }
    }
    Ok((all, known))
}

/// Two listings of a ROOT.
struct RootListings {
    /// The objects of the catalogue.
    listed: Vec<ListedObject>,
    catalogue: Catalogue,
    /// The names that may have a manifest: those that have one by the listing of the catalogue, and those that have a
    /// folder. A listing alone shows no manifest to be missing.
    names: BTreeMap<BackupName, Option<ObjectStat>>,
}

impl RootListings {
    async fn of(root: &Root) -> Result<Self, RepoError> {
        let listed = root.list_below(CATALOG).await?;
        let catalogue = Catalogue::of(&listed);
        let folders = root.folders_below("").await?;
        let folders = folders.iter().filter_map(|folder| BackupName::new(folder).ok());
        let mut names: BTreeMap<_, _> = folders.map(|name| (name, None)).collect();
        names.extend(catalogue.names().map(|(name, written)| (name, Some(written))));
        Ok(Self { listed, catalogue, names })
    }
}

/// Result of reading the key of a manifest.
#[derive(Debug)]
enum ManifestLookup {
    Sound(Box<StoredManifest>),
    Unread(UnreadableBackup),
    /// There is no manifest of this name.
    Nothing,
}

/// Reads the manifests of these names. An unreadable one without a time may be of any time.
async fn read(
    root: &Root,
    names: BTreeMap<BackupName, Option<ObjectStat>>,
) -> Result<Vec<(BackupName, ManifestLookup)>, RepoError> {
    let reading = stream::iter(names).map(|(name, written)| async move {
        let written = written.map_or(i64::MAX, |(modified, _)| modified);
        let found = match root.stored_manifest(&name).await {
            Ok(Some(stored)) => ManifestLookup::Sound(Box::new(stored)),
            Ok(None) => ManifestLookup::Nothing,
            Err(error) if error.is_of_one_object() => {
                ManifestLookup::Unread(UnreadableBackup { name: name.clone(), written, error })
            }
            Err(error) => return Err(error),
        };
        Ok((name, found))
    });
    reading.buffered(AT_ONCE).try_collect().await
}

/// Manifests of a ROOT at one time, for commands that remove backups on which no other depends.
#[derive(Debug, Default)]
pub struct KnownManifests {
    manifests: BTreeMap<BackupName, (Option<ObjectStat>, ManifestLookup)>,
    /// Backups that are about to be removed, and do not count as dependants.
    leaving: BTreeSet<BackupName>,
    /// Backups that were removed, and those that this host remembers and that two reads have not found.
    gone: BTreeSet<BackupName>,
    /// The listing that was read last.
    catalogue: Catalogue,
}

impl KnownManifests {
    /// Reads all manifests.
    ///
    /// # Errors
    /// [`RepoError::Store`].
    pub async fn of(root: &Root) -> Result<Self, RepoError> {
        let mut known = Self::default();
        known.refresh(root).await?;
        Ok(known)
    }

    /// Starts from manifests that were read after `catalogue` was listed. [`KnownManifests::refresh`] reads only
    /// the others, and those that have changed since.
    pub fn read_before(catalogue: &Catalogue, sound: ReadableManifests) -> Self {
        let written: BTreeMap<BackupName, ObjectStat> = catalogue.names().collect();
        let known = |(name, stored): (BackupName, StoredManifest)| {
            let written = *written.get(&name)?;
            Some((name, (Some(written), ManifestLookup::Sound(Box::new(stored)))))
        };
        Self { manifests: sound.into_iter().filter_map(known).collect(), ..Self::default() }
    }

    /// The same ROOT, whose reads believe an answer that an object is missing only if no listing
    /// contradicts it.
    pub fn seen_in(&self, root: &Root) -> Root {
        root.knowing(&self.catalogue)
    }

    /// Leaves out a backup that is about to be removed.
    pub fn leave_out(&mut self, name: &BackupName) {
        self.leaving.insert(name.clone());
    }

    /// Counts a backup again that was left out.
    pub fn expect(&mut self, name: &BackupName) {
        self.leaving.remove(name);
    }

    /// Forgets a backup that was removed.
    pub fn forget(&mut self, name: &BackupName) {
        self.manifests.remove(name);
        self.gone.insert(name.clone());
    }

    /// The manifest of a backup, if it is sound.
    pub fn manifest(&self, name: &BackupName) -> Option<&Manifest> {
        match self.manifests.get(name) {
            Some((_, ManifestLookup::Sound(stored))) => Some(&stored.manifest),
            _ => None,
        }
    }

    /// Returns whether the backup of `run` is there, and no command is about to remove it.
    ///
    /// # Errors
    /// [`RepoError::Store`].
    pub async fn stands(
        &self,
        root: &Root,
        name: &BackupName,
        run: &str,
    ) -> Result<bool, RepoError> {
        if self.manifest(name).is_none_or(|manifest| manifest.run != run) {
            return Ok(false);
        }
        // A mark that is older is that of a dead process.
        let since = root.store().now().saturating_sub(DEAD);
        if !self.catalogue.is_claimed_since(name, since) {
            return Ok(true);
        }
        Ok(removing(root, name, run).await?.is_none())
    }

    /// Reads new and changed manifests, and forgets deleted ones.
    ///
    /// A listing alone shows no manifest to be missing: those of known names, of names that have a folder, and of
    /// increments that this host remembers, are read by key.
    ///
    /// # Errors
    /// [`RepoError::Store`].
    pub async fn refresh(&mut self, root: &Root) -> Result<(), RepoError> {
        let RootListings { catalogue, mut names, .. } = RootListings::of(root).await?;
        self.catalogue = catalogue;
        for name in self.manifests.keys() {
            names.entry(name.clone()).or_insert(None);
        }
        self.manifests
            .retain(|name, (written, _)| written.is_some() && names.get(name) == Some(written));
        names.retain(|name, _| !self.manifests.contains_key(name));
        for (name, found) in read(&self.seen_in(root), names.clone()).await? {
            if !matches!(found, ManifestLookup::Nothing) {
                let written = names.get(&name).copied().flatten();
                self.manifests.insert(name, (written, found));
            }
        }
        self.find_remembered(root).await
    }

    /// Reads the manifest of a backup that no listing shows, and the increments on it that this host remembers.
    ///
    /// # Errors
    /// [`RepoError::Store`].
    pub async fn look_for(&mut self, root: &Root, name: &BackupName) -> Result<(), RepoError> {
        if self.manifests.contains_key(name) {
            return Ok(());
        }
        let names = BTreeMap::from([(name.clone(), None)]);
        for (name, found) in read(&self.seen_in(root), names).await? {
            if !matches!(found, ManifestLookup::Nothing) {
                self.manifests.insert(name, (None, found));
            }
        }
        self.find_remembered(root).await
    }

    /// Reads the increments that this host remembers, that no listing shows, and whose bases are there.
    async fn find_remembered(&mut self, root: &Root) -> Result<(), RepoError> {
        loop {
            let runs: BTreeSet<&str> = self.iter().map(|(_, found)| found.run.as_str()).collect();
            let hidden = root.remembered().iter().filter(|of| runs.contains(of.base.as_str()));
            let hidden = hidden
                .map(|of| &of.name)
                .filter(|name| !self.manifests.contains_key(name) && !self.gone.contains(name));
            let names: BTreeMap<_, _> = hidden.map(|name| (name.clone(), None)).collect();
            if names.is_empty() {
                return Ok(());
            }
            for (name, found) in read(&self.seen_in(root), names).await? {
                match found {
                    ManifestLookup::Nothing => drop(self.gone.insert(name)),
                    found => drop(self.manifests.insert(name, (None, found))),
                }
            }
        }
    }

    /// The sound manifests, by name, of backups that stay.
    pub fn iter(&self) -> impl Iterator<Item = (&BackupName, &Manifest)> {
        self.manifests.iter().filter_map(|(name, (_, found))| match found {
            ManifestLookup::Sound(stored) if !self.leaving.contains(name) => {
                Some((name, &stored.manifest))
            }
            _ => None,
        })
    }

    /// The manifests that cannot be read.
    pub fn unread(&self) -> impl Iterator<Item = &UnreadableBackup> {
        self.manifests.values().filter_map(|(_, found)| match found {
            ManifestLookup::Unread(unread) => Some(unread),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use proptest::prelude::*;
    use xb_uploader::{Fault, Faults, Location, Operation, Policy, StorePlace, StoreSettings};

    use super::*;
    use crate::lineage::RememberedIncrement;

    fn by(text: &str) -> Timestamp {
        match BackupSelector::parse(text).unwrap() {
            BackupSelector::By(time) => time,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn days_and_times_are_understood() {
        assert_eq!(BackupSelector::parse("latest"), Ok(BackupSelector::Latest));
        assert!(matches!(BackupSelector::parse("monday"), Ok(BackupSelector::Name(_))));
        assert_eq!(by("@2026-11-20").to_string(), "2026-11-20T23:59:59.999999999Z");
        assert_eq!(by("@2026-11-20T03:00Z").to_string(), "2026-11-20T03:00:00Z");
        assert_eq!(by("@2026-11-20T05:00:01+02:00").to_string(), "2026-11-20T03:00:01Z");
        for bad in ["@", "@today", "@2026-13-01", "@2026-11-20T03:00", "@9999-12-31T", "a\nb", ""] {
            assert!(BackupSelector::parse(bad).is_err(), "{bad}");
        }
    }

    const WHOLE: Kind = Kind::Whole { tells: true };

    #[test]
    fn a_partial_backup_is_the_newest_only_without_a_whole_one() {
        let named = |name: &str, is_partial: bool, end: i64| {
            let mut manifest = crate::manifest::sample();
            manifest.source.is_partial = is_partial;
            manifest.finished = Timestamp::from_second(end).unwrap();
            let stored = Manifest::decode(&manifest.encode(None).unwrap()).unwrap();
            (BackupName::new(name).unwrap(), stored)
        };
        let all: ReadableManifests =
            [named("w", false, 10), named("p1", true, 20), named("p2", true, 30)].into();
        let newest = |all: &ReadableManifests, by: i64, kind| {
            let by = Timestamp::from_second(by).unwrap();
            let pairs = all.iter().map(|(name, stored)| (name, &stored.manifest));
            choose(pairs, by, Timestamp::MAX, None, kind).unwrap().unwrap().to_string()
        };
        assert_eq!(newest(&all, 99, WHOLE), "w");
        assert_eq!(newest(&all, 99, Kind::Partial), "p2");
        let told = |all: &ReadableManifests, name: &str, by: i64| {
            let (name, by) = (BackupName::new(name).unwrap(), Timestamp::from_second(by).unwrap());
            newer_partial(all, &name, by, Timestamp::MAX).unwrap_or_default()
        };
        assert!(told(&all, "w", 99).starts_with("p2 is newer, but partial"));
        assert!(told(&all, "w", 29).starts_with("p1 is newer, but partial"));
        assert_eq!((told(&all, "w", 19), told(&all, "p2", 99)), (String::new(), String::new()));
        // Alone, they count as before.
        let mut alone = all;
        alone.retain(|_, stored| stored.manifest.source.is_partial);
        assert_eq!(
            (newest(&alone, 99, WHOLE), newest(&alone, 29, WHOLE)),
            ("p2".into(), "p1".into())
        );
    }

    #[test]
    fn of_several_servers_one_must_be_named() {
        let named = |name: &str, server: Option<&str>, end: i64| {
            let mut manifest = crate::manifest::sample();
            manifest.server = server.map(str::to_owned);
            manifest.finished = Timestamp::from_second(end).unwrap();
            (BackupName::new(name).unwrap(), manifest)
        };
        let all = [named("a1", Some("a"), 10), named("b1", Some("b"), 20), named("old", None, 30)];
        let pick = |by: i64, server| {
            let by = Timestamp::from_second(by).unwrap();
            choose(all.iter().map(|(n, m)| (n, m)), by, Timestamp::MAX, server, WHOLE)
        };
        let error = pick(99, None).unwrap_err();
        assert!(
            matches!(&error, RepoError::WhichServer { servers } if servers == "a, b, none"),
            "{error}"
        );
        assert_eq!(pick(99, Some("a")).unwrap().unwrap().as_str(), "a1");
        assert_eq!(pick(20, Some("b")).unwrap().unwrap().as_str(), "b1");
        assert_eq!(pick(19, Some("b")).unwrap(), None);
        assert_eq!(pick(99, Some("none")).unwrap().unwrap().as_str(), "old");
        let one = [named("b1", Some("b"), 20), named("old", Some("b"), 30)];
        let at = |now: Timestamp| {
            let newest = choose(one.iter().map(|(n, m)| (n, m)), Timestamp::MAX, now, None, WHOLE);
            newest.unwrap().unwrap().as_str()
        };
        assert_eq!(at(Timestamp::MAX), "old");
        // Just over an hour earlier, so the clock of `old` was ahead. If all were ahead, the newest
        // wins.
        assert_eq!(at(Timestamp::from_second(25 - 3600).unwrap()), "b1");
        assert_eq!(at(Timestamp::from_second(-9000).unwrap()), "old");
    }

    /// Otherwise removing many backups would read all manifests once for each.
    #[tokio::test]
    async fn manifests_are_read_again_only_where_a_listing_shows_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
        let location = Location { place: StorePlace::Local, path };
        let root =
            Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap();
        let put = async |name: &str, files: u64| {
            let name = BackupName::new(name).unwrap();
            let mut manifest = crate::manifest::sample();
            (manifest.name, manifest.files) = (name.to_string(), files);
            root.commit(&name, &manifest, None).await.unwrap();
        };
        let file = |name: &str| folder.path().join(CATALOG).join(name);
        for name in ["a", "b", "c"] {
            put(name, 1).await;
        }
        let mut known = KnownManifests::of(&root).await.unwrap();
        assert_eq!(known.iter().count(), 3);
        // If it were read again, it would be damaged.
        let facts = std::fs::metadata(file("a")).unwrap();
        std::fs::write(file("a"), vec![b'x'; usize::try_from(facts.len()).unwrap()]).unwrap();
        let written = std::fs::File::options().append(true).open(file("a")).unwrap();
        written.set_modified(facts.modified().unwrap()).unwrap();
        std::fs::remove_file(file("b")).unwrap();
        std::fs::remove_file(file("c")).unwrap();
        put("c", 1000).await;
        put("d", 1).await;
        known.refresh(&root).await.unwrap();
        let found: Vec<_> = known.iter().map(|(name, m)| (name.as_str(), m.files)).collect();
        assert_eq!(found, [("a", 1), ("c", 1000), ("d", 1)]);
        std::fs::write(file("a"), b"shorter").unwrap();
        known.refresh(&root).await.unwrap();
        assert_eq!(known.iter().count(), 2);
    }

    /// Counts the reads of objects.
    #[derive(Debug, Default)]
    struct Gets(AtomicU32);

    impl Faults for Gets {
        fn next(&self, operation: Operation) -> Option<Fault> {
            if operation == Operation::Get {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
            None
        }
    }

    /// Otherwise each batch of a removal would look for all of them.
    #[tokio::test]
    async fn a_remembered_increment_that_is_gone_is_looked_for_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
        let location = Location { place: StorePlace::Local, path };
        let root =
            Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap();
        let manifest = crate::manifest::sample();
        let base = BackupName::new(&manifest.name).unwrap();
        root.commit(&base, &manifest, None).await.unwrap();
        let gone =
            RememberedIncrement { name: BackupName::new("gone").unwrap(), base: manifest.run };
        let gets = Arc::new(Gets::default());
        let root = root.remembering(vec![gone]).failing(Arc::clone(&gets) as Arc<dyn Faults>);
        let count = || gets.0.load(Ordering::Relaxed);
        let mut known = KnownManifests::of(&root).await.unwrap();
        let first = count();
        assert!(first >= 2, "of the base, and of the increment: {first}");
        known.refresh(&root).await.unwrap();
        assert_eq!((count(), known.iter().count()), (first, 1));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}", day in 0_u8..40) {
            let _ = BackupSelector::parse(&text);
            let _ = BackupSelector::parse(&format!("@{text}"));
            let _ = BackupSelector::parse(&format!("@2026-11-{day:02}"));
        }
    }
}
