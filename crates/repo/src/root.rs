//! ROOT: the prefix that holds backups and their catalogue.

use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use xb_encryptor::{MacKey, SigningKey, VerifyingKey};
use xb_uploader::{
    Faults, Fence, ListedObject, Location, Operation, Policy, Store, StoreError, StoreErrorKind,
    StoreSettings,
};

use crate::catalogue::Catalogue;
use crate::error::RepoError;
use crate::hex::hex;
use crate::lineage::RememberedIncrement;
use crate::list_cache::{Cached, seen_key};
use crate::manifest::{Manifest, ManifestError, StoredManifest};
use crate::names::{BackupName, CATALOG, manifest_key};

/// A store, and the prefix in it that holds all our objects. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Root {
    store: Store,
    prefix: String,
    identity: String,
    /// Local copies that a listing may use instead of the store.
    cached: Option<Cached>,
    /// Catalogue of the last listing.
    known: Catalogue,
    /// Increments of its own that this host remembers.
    remembered: Arc<[RememberedIncrement]>,
    take_over: Option<TakeOver>,
    signing: Signing,
}

/// Signer of the manifests of a ROOT. Clones are cheap.
#[derive(Debug, Clone, Default)]
pub struct Signing {
    /// The key of this host. Without one, it signs nothing.
    pub own: Option<Arc<SigningKey>>,
    /// The keys of the hosts that are trusted. If there is any, a manifest that none of them has signed counts as
    /// unreadable.
    pub trusted: Arc<[VerifyingKey]>,
}

impl Signing {
    /// Refuses a manifest that no trusted host has signed, if there are any.
    ///
    /// # Errors
    /// [`ManifestError::NotTrusted`].
    pub fn refuse_untrusted(&self, stored: &StoredManifest) -> Result<(), ManifestError> {
        match self.trusted.is_empty() {
            true => Ok(()),
            false => stored.refuse_others_than(&self.trusted),
        }
    }
}

/// Objects in a page of a listing.
const PAGE: usize = 1000;
/// Maximum number of pages of objects that are held in memory at a time.
const MAX_PAGES: usize = 100;

/// Takes over the claims of runs that look alive, and reports each run to a callback.
#[derive(Clone)]
pub struct TakeOver {
    tell: Arc<dyn Fn(&str) + Send + Sync>,
    /// Whether this also applies to a run whose process is known to be alive.
    living: bool,
}

impl TakeOver {
    /// Reports the run whose claim was taken over.
    pub fn tell(&self, holder: &str) {
        (self.tell)(holder);
    }

    /// Returns whether this also applies to a run whose process is known to be alive.
    pub(crate) fn of_living(&self) -> bool {
        self.living
    }
}

impl std::fmt::Debug for TakeOver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TakeOver")
    }
}

/// The [`Root::identity`] of a ROOT that is not opened.
#[must_use]
pub fn identity(location: &Location, settings: &StoreSettings) -> String {
    let endpoints = (&settings.s3.endpoint, &settings.google.endpoint, &settings.azure.endpoint);
    let (place, path) = (&location.place, location.path.trim_matches('/'));
    let text = format!("{place:?} {path:?} {endpoints:?} {:?}", settings.azure.account);
    hex(&Sha256::digest(text))
}

impl Root {
    /// Opens the store of `location`; `create` makes a missing directory.
    ///
    /// # Errors
    /// [`RepoError::Store`] if the settings cannot work.
    pub fn open(
        location: &Location,
        settings: &StoreSettings,
        policy: Policy,
        create: bool,
    ) -> Result<Self, RepoError> {
        let (store, prefix) = xb_uploader::open(location, settings, policy, create)?;
        let identity = identity(location, settings);
        let known = Catalogue::default();
        let (remembered, signing) = (Arc::default(), Signing::default());
        let (cached, take_over) = (None, None);
        Ok(Self { store, prefix, identity, cached, known, remembered, take_over, signing })
    }

    /// The same ROOT for a host that remembers these backups: before a base of theirs is removed, each is looked for
    /// by its key, whatever a listing shows.
    #[must_use]
    pub fn remembering(&self, increments: Vec<RememberedIncrement>) -> Self {
        Self { remembered: increments.into(), ..self.clone() }
    }

    /// The increments that this host remembers.
    pub(crate) fn remembered(&self) -> &[RememberedIncrement] {
        &self.remembered
    }

    /// The ROOT in the folder `path` below this one, in the same store. `identity` is its name for what a host
    /// remembers of it: see [`identity`].
    #[must_use]
    pub fn below(&self, path: &str, identity: String) -> Self {
        let prefix = match path.is_empty() {
            true => self.prefix.clone(),
            false => format!("{}{path}/", self.prefix),
        };
        Self { prefix, identity, known: Catalogue::default(), cached: None, ..self.clone() }
    }

    /// The same ROOT, whose manifests are signed, or have to be.
    #[must_use]
    pub fn with_signing(&self, signing: Signing) -> Self {
        Self { signing, ..self.clone() }
    }

    /// A name for this ROOT that no other has, for what a host remembers of it: 64 hexadecimal digits.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The same ROOT for a caller that knows that classic runs which look alive are dead: it takes
    /// over their claims and passes the name of each to `tell`.
    #[must_use]
    pub fn taking_over(&self, tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.with_take_over(tell, true)
    }

    /// Like [`Root::taking_over`], but not from a run whose process is alive on this host.
    #[must_use]
    pub fn taking_over_unless_alive(&self, tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.with_take_over(tell, false)
    }

    fn with_take_over(&self, tell: impl Fn(&str) + Send + Sync + 'static, living: bool) -> Self {
        let take_over = TakeOver { tell: Arc::new(tell), living };
        Self { take_over: Some(take_over), ..self.clone() }
    }

    /// Permission to take over claims of runs that look alive.
    pub fn take_over(&self) -> Option<&TakeOver> {
        self.take_over.as_ref()
    }

    /// The same ROOT over a store with failures. Only for tests.
    #[must_use]
    pub fn failing(&self, faults: Arc<dyn Faults>) -> Self {
        Self { store: self.store.failing(faults), ..self.clone() }
    }

    /// The same ROOT, with a fence before every change to the store.
    pub fn fenced(&self, fence: Arc<dyn Fence>) -> Self {
        Self { store: self.store.fenced(fence), ..self.clone() }
    }

    /// The same ROOT, for a listing of its catalogue with a cache.
    pub(crate) fn with_cache(&self, cached: Cached) -> Self {
        Self { cached: Some(cached), ..self.clone() }
    }

    /// The same ROOT, whose reads use no cache.
    pub(crate) fn uncached(&self) -> Self {
        Self { cached: None, ..self.clone() }
    }

    /// Lists the catalogue.
    ///
    /// # Errors
    /// [`RepoError::Store`].
    pub async fn catalogue(&self) -> Result<Catalogue, RepoError> {
        Ok(Catalogue::of(&self.list_below(CATALOG).await?))
    }

    /// The same ROOT, whose reads believe an answer that an object of `catalogue` is missing only if
    /// a later listing no longer shows it.
    pub fn knowing(&self, catalogue: &Catalogue) -> Self {
        Self { known: catalogue.clone(), ..self.clone() }
    }

    /// Reads a small object of the catalogue, by its key below ROOT.
    pub async fn small(&self, below: &str) -> Result<Bytes, StoreError> {
        let in_catalog = below.strip_prefix(CATALOG).and_then(|rest| rest.strip_prefix('/'));
        let cached = self.cached.as_ref().zip(in_catalog);
        if let Some((cached, key)) = cached {
            if !cached.lists(key) {
                let message = "the object is not in the listing";
                return Err(StoreError::new(
                    Operation::Get,
                    below,
                    StoreErrorKind::NotFound,
                    message,
                ));
            }
            if let Some(bytes) = cached.get(key) {
                return Ok(bytes);
            }
        }
        let bytes = match self.store.get(&self.key(below)).await {
            Err(error)
                if error.kind == StoreErrorKind::NotFound
                    && in_catalog.is_some_and(|key| self.known.shows(key)) =>
            {
                self.listed_again(below).await?
            }
            got => got?,
        };
        if let Some((cached, key)) = cached {
            cached.put(key, &bytes);
        }
        Ok(bytes)
    }

    /// Reads an object that a listing has shown, after an answer that there is none.
    async fn listed_again(&self, below: &str) -> Result<Bytes, StoreError> {
        if !self.store.is_folder() {
            self.store.pause(1).await;
        }
        let key = self.key(below);
        let missing = match self.store.get(&key).await {
            Err(error) if error.kind == StoreErrorKind::NotFound => error,
            got => return got,
        };
        let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
        if self.store.list(folder).await?.iter().all(|listed| listed.key != key) {
            return Err(missing);
        }
        let what = "the store lists this object, but answers every read as if it did not exist";
        Err(StoreError::new(Operation::Get, key, StoreErrorKind::Rejected, what))
    }

    /// The store itself.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Full key of `below`.
    #[must_use]
    pub fn key(&self, below: &str) -> String {
        format!("{}{below}", self.prefix)
    }

    /// Lists all objects in the folder `below`, with keys relative to that folder.
    pub async fn list_below(&self, below: &str) -> Result<Vec<ListedObject>, RepoError> {
        let folder = self.key(below);
        let found = self.store.list(&folder).await?;
        Ok(relative(found, &folder))
    }

    /// Like [`Root::list_below`], only the objects behind `after` in the order of their keys.
    pub(crate) async fn list_below_after(
        &self,
        below: &str,
        after: &str,
    ) -> Result<Vec<ListedObject>, RepoError> {
        let folder = self.key(below);
        let found = self.store.list_after(&folder, after).await?;
        Ok(relative(found, &folder))
    }

    /// Lists all objects below ROOT, with keys relative to it, if that takes no more requests than listing
    /// `folders` folders one by one, and not more than 100. `None` if there are more objects, and for a
    /// local directory.
    ///
    /// # Errors
    /// [`RepoError::Store`].
    pub async fn list_together(
        &self,
        folders: usize,
    ) -> Result<Option<Vec<ListedObject>>, RepoError> {
        if self.store.is_folder() {
            return Ok(None);
        }
        let most = folders.min(MAX_PAGES) * PAGE;
        let Some(mut all) = self.store.list_at_most(&self.key(""), most).await? else {
            return Ok(None);
        };
        all.retain_mut(|listed| match listed.key.strip_prefix(&self.prefix) {
            Some(below) => {
                listed.key = below.to_owned();
                true
            }
            None => false,
        });
        Ok(Some(all))
    }

    /// Lists the folders directly below `below`.
    pub async fn folders_below(&self, below: &str) -> Result<Vec<String>, RepoError> {
        let folder = self.key(below);
        Ok(self.store.folders(folder.trim_end_matches('/')).await?)
    }

    /// Returns whether an earlier listing with this cache saw objects of the backup `name`.
    pub(crate) fn has_seen_objects(&self, name: &BackupName) -> bool {
        self.cached.as_ref().is_some_and(|cached| cached.get(&seen_key(name)).is_some())
    }

    /// Remembers that the backup `name` has objects, if there is a cache.
    pub(crate) fn saw_objects(&self, name: &BackupName) {
        if let Some(cached) = &self.cached {
            cached.put(&seen_key(name), &Bytes::new());
        }
    }

    /// Returns whether the folder `below` ROOT holds an object whose key, relative to that folder, is such a one. Costs one
    /// request if it is among the first.
    pub(crate) async fn has_object(
        &self,
        below: &str,
        is_it: fn(&str) -> bool,
    ) -> Result<bool, RepoError> {
        Ok(self.store.has_object(&self.key(below), is_it).await?)
    }

    /// Fails if `name` is a symbolic link in a local directory, or holds one.
    pub fn refuse_links(&self, name: &BackupName) -> Result<(), RepoError> {
        match self.store.link_below(&self.key(name.as_str())) {
            None => Ok(()),
            Some(link) => Err(RepoError::Linked { name: name.to_string(), link }),
        }
    }

    /// Removes everything in the folder `below`.
    pub async fn remove_below(&self, below: &str) -> Result<u64, RepoError> {
        let found = self.list_below(below).await?;
        let count = found.len() as u64;
        let keys =
            found.into_iter().map(|listed| self.key(&format!("{below}/{}", listed.key))).collect();
        self.store.delete_all(keys).await?;
        Ok(count)
    }

    /// Reads the manifest of `name`; `None` if there is no such backup of ours.
    ///
    /// # Errors
    /// [`RepoError::Manifest`] if it is damaged, [`RepoError::Store`] if it cannot be read.
    pub async fn manifest(&self, name: &BackupName) -> Result<Option<Manifest>, RepoError> {
        Ok(self.stored_manifest(name).await?.map(|stored| stored.manifest))
    }

    /// Like [`Root::manifest`], with the data that authenticates it.
    pub async fn stored_manifest(
        &self,
        name: &BackupName,
    ) -> Result<Option<StoredManifest>, RepoError> {
        let key = self.manifest_key(name);
        let unusable = |source| RepoError::Manifest { key: key.clone(), source };
        // A single altered or missing answer decides nothing.
        let again = || async {
            match self.store.get(&key).await {
                Ok(bytes) => self.read_manifest(name, &bytes).map(Some).map_err(unusable),
                Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
                Err(error) if error.kind == StoreErrorKind::Damaged => {
                    Err(unusable(ManifestError::NotRead(error)))
                }
                Err(error) => Err(error.into()),
            }
        };
        match self.small(&manifest_key(name)).await {
            Ok(bytes) => match self.read_manifest(name, &bytes) {
                Ok(stored) => Ok(Some(stored)),
                // An altered answer does not become one of these.
                Err(error @ (ManifestError::TooNew { .. } | ManifestError::NotTrusted { .. })) => {
                    Err(unusable(error))
                }
                Err(_) => again().await,
            },
            Err(error) if error.kind == StoreErrorKind::NotFound => match self.store.is_folder() {
                true => Ok(None),
                false => again().await,
            },
            Err(error) if error.kind == StoreErrorKind::Damaged => {
                Err(unusable(ManifestError::NotRead(error)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the manifest of `name`, and checks that it may be believed.
    fn read_manifest(
        &self,
        name: &BackupName,
        bytes: &[u8],
    ) -> Result<StoredManifest, ManifestError> {
        let stored = Manifest::decode(bytes)?;
        if stored.manifest.name != name.as_str() {
            let reason = "it is the manifest of a backup with another name";
            return Err(ManifestError::Inconsistent { reason });
        }
        self.signing.refuse_untrusted(&stored)?;
        Ok(stored)
    }

    /// Returns the signer of the manifests.
    #[must_use]
    pub fn signing(&self) -> &Signing {
        &self.signing
    }

    /// Fails if a listing shows a manifest of `name` that no read finds: what is below the name is no stock backup then. A directory contradicts itself only by a link.
    /// Asks for a key first, then for a listing of the catalogue.
    ///
    /// # Errors
    /// [`RepoError::Store`].
    pub async fn refuse_denied_manifest(&self, name: &BackupName) -> Result<(), RepoError> {
        if self.store.is_folder() {
            return Ok(());
        }
        match self.listed_again(&manifest_key(name)).await {
            Err(error) if error.kind == StoreErrorKind::NotFound => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => {
                let what =
                    "some answers of the store return this object, others say that there is none";
                let key = self.manifest_key(name);
                Err(StoreError::new(Operation::Get, key, StoreErrorKind::Altered, what).into())
            }
        }
    }

    /// Refuses a backup without a manifest if only those of certain hosts are trusted: no host has signed it.
    ///
    /// # Errors
    /// [`RepoError::Manifest`].
    pub fn refuse_without_manifest(&self, name: &BackupName) -> Result<(), RepoError> {
        if self.signing.trusted.is_empty() {
            return Ok(());
        }
        let source = ManifestError::NotTrusted { signer: None };
        Err(RepoError::Manifest { key: self.manifest_key(name), source })
    }

    /// Encodes the manifest of `name`, for a [`Commit`](crate::claim::commit::Commit).
    pub fn encoded(
        &self,
        name: &BackupName,
        manifest: &Manifest,
        mac: Option<&MacKey>,
    ) -> Result<Bytes, RepoError> {
        let key = self.manifest_key(name);
        let bytes = manifest.encode_signed(mac, self.signing.own.as_deref());
        Ok(Bytes::from(bytes.map_err(|source| RepoError::Manifest { key, source })?))
    }

    /// Writes a manifest without looking for removals. Only for tests.
    #[cfg(any(test, feature = "testing"))]
    pub async fn commit(
        &self,
        name: &BackupName,
        manifest: &Manifest,
        mac: Option<&MacKey>,
    ) -> Result<(), RepoError> {
        self.commit_bytes(name, self.encoded(name, manifest, mac)?).await
    }

    /// Writes the manifest, after which the backup exists. [`Commit`](crate::claim::commit::Commit) also
    /// looks for removals of an earlier backup.
    pub(crate) async fn commit_bytes(
        &self,
        name: &BackupName,
        bytes: Bytes,
    ) -> Result<(), RepoError> {
        let key = self.manifest_key(name);
        match self.store.create(&key, bytes.clone()).await {
            Err(error)
                if error.kind == StoreErrorKind::AlreadyExists
                    && self.is_of_another_run(name, &bytes).await =>
            {
                let state = ": another run committed it first";
                Err(RepoError::Exists { name: name.to_string(), state })
            }
            // An earlier try may have written the manifest, possibly without being able to read it
            // back. Whatever the last response was, objects that a manifest may name must stay.
            Err(source) => Err(RepoError::InDoubt { name: name.to_string(), source }),
            Ok(()) => Ok(()),
        }
    }

    /// Returns whether the manifest in the store is a sound one of another run than these bytes.
    async fn is_of_another_run(&self, name: &BackupName, bytes: &Bytes) -> bool {
        let run = |bytes: &[u8]| Some(Manifest::decode(bytes).ok()?.manifest.run);
        // Whoever has signed it.
        match self.store.get(&self.manifest_key(name)).await {
            Ok(theirs) => run(&theirs).is_some_and(|theirs| Some(theirs) != run(bytes)),
            Err(_) => false,
        }
    }
}

/// The objects of a folder, with keys relative to it.
fn relative(mut found: Vec<ListedObject>, folder: &str) -> Vec<ListedObject> {
    found.retain_mut(|listed| match listed.key.get(folder.len() + 1..) {
        Some(rest) if !rest.is_empty() => {
            listed.key = rest.to_owned();
            true
        }
        _ => false,
    });
    found
}
