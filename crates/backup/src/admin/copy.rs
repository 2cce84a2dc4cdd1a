//! `copy`: copies a backup from one ROOT to another, its manifest last.
//!
//! A copy of a packed backup keeps the RUN, so a retry continues with the objects that an
//! interrupted copy left. A copy of a classic backup starts over. Without a manifest a copy is not
//! a backup.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::mpsc;
use xb_encryptor::Keys;
use xb_pipeline::{ObjectSize, Observer, PackPlan, PackSizing, RootDigest, UnpackPlan};
use xb_uploader::{Lock, PartData, PartSender, Store, StoreErrorKind};

use crate::admin::object_lock::lock_complete;
use crate::cancel::CancelToken;
use crate::catalog::chain::find_base;
use crate::catalog::manifest::{Layout, Manifest, StoredManifest};
use crate::catalog::names::{
    BackupName, KEYS, RunId, SUMS, is_data_object, manifest_key, of_classic, run_folder,
};
use crate::catalog::records::{self, Proof};
use crate::catalog::resolve::manifests;
use crate::catalog::root::Root;
use crate::catalog::verification::Level;
use crate::claim::Claim;
use crate::error::BackupError;
use crate::hex::hex;
use crate::objects::checksums::Known;
use crate::objects::checksums::Summing;
use crate::objects::classic::{ClassicFiles, list_classic};
use crate::objects::classic_checksums::list_with_sums;
use crate::objects::contents::Contents;
use crate::objects::ledger::Ledger;
use crate::read::ranges::{Range, fetch_all, ranges};
use crate::read::unlock::{Accept, Given, unlock};
use crate::write::{
    Foreign, claim_emptied, free_if_vacant, part_limits, prove_shared, settle_commit,
};

/// What to copy, and how.
#[derive(Debug)]
pub struct CopyRequest {
    /// Name of the backup.
    pub name: BackupName,
    /// Name of the copy.
    pub to: BackupName,
    /// Copy the backup even if it is not verified.
    pub unverified: bool,
    /// Copy an incremental backup even if its base is missing at the destination.
    pub alone: bool,
    /// Keys of a sealed backup. Required only if the copy gets another name. With keys, the backup
    /// must be sealed, and only a verification record that a key authenticates counts.
    pub keys: Keys,
    /// What to copy although the keys do not authenticate it.
    pub accept: Accept,
    /// Both ROOTs are in one bucket: let the store itself copy objects of at most this many bytes,
    /// if it can.
    pub within_store: Option<u64>,
    /// Object lock for all copied objects, the manifest last.
    pub lock: Option<Lock>,
    /// Memory budget for buffers, in bytes.
    pub memory: u64,
    /// Worker threads.
    pub threads: usize,
    /// Number of concurrent requests; the budget may allow fewer.
    pub parallel: usize,
}

impl CopyRequest {
    fn given(&self) -> Given<'_> {
        Given { keys: &self.keys, accept: self.accept, memory: self.memory }
    }
}

/// Result of a successful copy.
#[derive(Debug, Clone)]
pub struct CopyReport {
    /// The manifest as written at the destination.
    pub manifest: Manifest,
    /// Data objects that the store itself copied; their content was not compared.
    pub by_store: u64,
    /// Data objects from an earlier, interrupted copy. They were read back and compared.
    pub kept: u64,
    /// Whether the copy was already complete.
    pub was_there: bool,
    /// Number of locked objects, including the small ones and the manifest.
    pub locked: u64,
    /// Requests sent to both stores, retries included; 0 for folders.
    pub requests: u64,
    /// Number of retries.
    pub retries: u64,
}

/// Copies a backup. The copy exists if and only if this returns `Ok`, or [`BackupError::Unlocked`].
///
/// # Errors
/// [`BackupError::Unverified`] unless that is allowed; [`BackupError::Exists`] if another backup
/// has the name. Objects of a failed copy are not a backup; a retry continues with them, or `gc`
/// removes them.
pub async fn copy(
    from: &Root,
    to: &Root,
    request: &CopyRequest,
    observer: &Observer,
    stop: &mut CancelToken,
) -> Result<CopyReport, BackupError> {
    let source = stop.or(Source::open(from, request)).await?;
    let mut report = CopyReport {
        manifest: source.copied.clone(),
        by_store: 0,
        kept: 0,
        was_there: false,
        locked: 0,
        requests: 0,
        retries: 0,
    };
    if request.lock.is_some() {
        stop.or(async { Ok(to.store().can_lock().await?) }).await?;
    }
    // A manifest that has lost its objects is no copy.
    let there = match stop.or(free_if_vacant(to, &request.to)).await? {
        true => None,
        false => to.stored_manifest(&request.to).await?,
    };
    match there {
        Some(there) if there.digest() == source.digest => {
            report.was_there = true;
            if let Some(lock) = &request.lock {
                let locking =
                    crate::admin::object_lock::lock(to, &request.to, lock, request.parallel);
                report.locked = stop.or(locking).await?;
            }
        }
        Some(_) => return Err(BackupError::Exists { name: request.to.to_string(), state: "" }),
        None => {
            stop.or(base_is_there(to, &source.manifest, request)).await?;
            let copying = Copying { from, to, request, source: &source, observer };
            copying.all(&mut report, stop).await?;
        }
    }
    // A verification of these bytes also holds for the copy if all of them passed through us. If
    // the copy existed before, its own records may already be newer.
    if source.same_name && !report.was_there && report.by_store == 0 {
        carry_records(from, to, request).await;
    }
    report.requests = from.store().traffic().requests() + to.store().traffic().requests();
    report.retries = from.store().traffic().retries() + to.store().traffic().retries();
    Ok(report)
}

/// The backup to copy.
struct Source {
    manifest: Manifest,
    /// Digest of the manifest at the source.
    original: String,
    run: RunId,
    /// The manifest for the destination.
    copied: Manifest,
    bytes: Bytes,
    /// Digest of those bytes.
    digest: String,
    same_name: bool,
}

impl Source {
    async fn open(from: &Root, request: &CopyRequest) -> Result<Self, BackupError> {
        let name = &request.name;
        let Some(stored) = from.stored_manifest(name).await? else {
            let state = match crate::catalog::list::state_without_manifest(from, name).await? {
                "" if !from.list_below(name.as_str()).await?.is_empty() => {
                    ": it is a stock backup without a manifest, so its completeness cannot be verified"
                }
                state => state,
            };
            return Err(BackupError::NotThere { name: name.to_string(), state });
        };
        let (manifest, original) = (stored.manifest.clone(), stored.digest());
        let Some(run) = manifest.run_id() else {
            return Err(BackupError::Bug("a checked manifest has no run"));
        };
        let mut mac = None;
        if !request.keys.is_empty() {
            let key = unlock(from, name, Some(&stored), request.given()).await?.key;
            let id = manifest.stream_id().filter(|_| !manifest.is_carried());
            mac = key.zip(id).map(|(key, id)| key.manifest_key(&id));
        }
        if !request.unverified {
            let results = records::results(from, name, &stored.digest(), mac.as_ref()).await?;
            demand_proof(name, Proof::of(&results))?;
        }
        let same_name = *name == request.to;
        if same_name {
            let (bytes, digest) = raw(from, name, &stored).await?;
            let copied = manifest.clone();
            return Ok(Self { manifest, original, run, copied, bytes, digest, same_name });
        }
        if manifest.is_sealed() && !manifest.is_carried() && mac.is_none() {
            return Err(BackupError::Keys(format!(
                "{name} is sealed: copying it under another name needs its key, because the manifest contains the name"
            )));
        }
        let copied = Manifest { name: request.to.to_string(), ..manifest.clone() };
        let encoded = copied
            .encode(mac.as_ref())
            .map_err(|source| BackupError::Manifest { key: manifest_key(&request.to), source })?;
        let digest = Manifest::decode(&encoded)
            .map_err(|source| BackupError::Manifest { key: manifest_key(&request.to), source })?
            .digest();
        let bytes = encoded.into();
        Ok(Self { manifest, original, run, copied, bytes, digest, same_name })
    }
}

/// Fails for an incremental backup whose base is missing at the destination, because it could not
/// be restored there.
async fn base_is_there(
    to: &Root,
    manifest: &Manifest,
    request: &CopyRequest,
) -> Result<(), BackupError> {
    if request.alone || !manifest.is_incremental() {
        return Ok(());
    }
    let refused = |what: String| Err(BackupError::Chain { name: request.name.to_string(), what });
    let base = match &manifest.base {
        Some(base) => Some(base.clone()),
        None => {
            let all = manifests(to).await?.sound;
            find_base(all.iter().map(|(name, manifest)| (name, manifest)), manifest)
        }
    };
    let Some(base) = base else {
        return refused("its base is not at the destination; copy the base first".to_owned());
    };
    let name = BackupName::new(&base.name)?;
    match to.stored_manifest(&name).await? {
        Some(found) if found.manifest.run == base.run => match request.keys.is_empty() {
            true => Ok(()),
            false => unlock(to, &name, Some(&found), request.given()).await.map(drop),
        },
        Some(_) => refused(format!(
            "its base is {}, but the destination holds another backup of that name",
            base.name
        )),
        None => refused(format!(
            "its base {} is not at the destination; copy the base first",
            base.name
        )),
    }
}

/// The exact bytes of a manifest.
async fn raw(
    from: &Root,
    name: &BackupName,
    stored: &StoredManifest,
) -> Result<(Bytes, String), BackupError> {
    let key = from.key(&manifest_key(name));
    let bytes = from.store().get(&key).await?;
    match Manifest::decode(&bytes) {
        Ok(again) if again.digest() == stored.digest() => Ok((bytes, again.digest())),
        _ => Err(BackupError::Damaged {
            name: name.to_string(),
            what: "its manifest was replaced while it was being read".to_owned(),
        }),
    }
}

fn demand_proof(name: &BackupName, proof: Proof) -> Result<(), BackupError> {
    if proof.reaches(Level::Checksum) {
        return Ok(());
    }
    let why = match (proof.failed, proof.level) {
        (Some(level), _) => format!("the last verification found damage at level {level}"),
        (None, Some(level)) => format!("it was verified only up to level {level}"),
        (None, None) => "there is no verification record for its present content".to_owned(),
    };
    Err(BackupError::Unverified { name: name.to_string(), why })
}

/// Copies the verification records. Best effort: a failure does not fail the copy.
async fn carry_records(from: &Root, to: &Root, request: &CopyRequest) {
    // The pin, the last of the keys, stays with the source.
    let [with_key, without_key, _] = records::keys(&request.name);
    for key in [with_key, without_key] {
        if let Ok(bytes) = from.store().get(&from.key(&key)).await {
            let _ = to.store().create(&to.key(&key), bytes).await;
        }
    }
}

/// A copy in progress.
#[derive(Clone, Copy)]
struct Copying<'a> {
    from: &'a Root,
    to: &'a Root,
    request: &'a CopyRequest,
    source: &'a Source,
    observer: &'a Observer,
}

/// An object to copy: its key below both folders, and its size.
type Object = (String, u64);

/// The known checksums of the objects.
enum Sums {
    /// By object number.
    Packed(Vec<u64>),
    /// By file and object number.
    Classic(ClassicFiles),
}

impl Sums {
    fn of(&self, key: &str) -> Option<u64> {
        match self {
            Self::Packed(sums) => sums.get(key.parse::<usize>().ok()?).copied(),
            Self::Classic(files) => files.sum_of(key),
        }
    }
}

impl Copying<'_> {
    async fn all(
        &self,
        report: &mut CopyReport,
        stop: &mut CancelToken,
    ) -> Result<(), BackupError> {
        let (Self { request, source, .. }, name) = (self, &self.request.to);
        let packed = source.manifest.layout == Layout::Packed;
        let (folders, claim, to) = if packed {
            let folders = (run_folder(&request.name, source.run), run_folder(name, source.run));
            (folders, stop.or(self.claim_packed()).await?, self.to.clone())
        } else {
            // Starts from an empty folder, as a classic run does.
            let (claim, to) =
                stop.or(claim_emptied(self.to, name, source.run, Foreign::Refuse)).await?;
            ((request.name.to_string(), name.to_string()), claim, to)
        };
        let copying = Copying { to: &to, ..*self };
        let copied = copying.under(&claim, &folders, report, stop).await;
        drop(claim);
        copied?;
        if let Some(lock) = &request.lock {
            let locking = lock_complete(&to, name, &source.manifest, lock, request.parallel);
            report.locked = stop.or(locking).await?;
        }
        Ok(())
    }

    /// Copies under a claim.
    async fn under(
        &self,
        claim: &Claim,
        folders: &(String, String),
        report: &mut CopyReport,
        stop: &mut CancelToken,
    ) -> Result<(), BackupError> {
        let (Self { from, to, request, source, .. }, name) = (self, &self.request.to);
        let packed = source.manifest.layout == Layout::Packed;
        let objects = stop.or(self.objects()).await?;
        let there = stop.or(self.there(&folders.1)).await?;
        let known = stop.or(self.sums()).await?;
        // Only its checksum shows that an existing object is sound, so without checksums none is
        // kept.
        let (of_size, mut missing): (Vec<Object>, Vec<Object>) = objects
            .into_iter()
            .partition(|(key, size)| known.is_some() && there.get(key) == Some(size));
        let wrong = self.compare(&folders.1, &of_size, known.as_ref(), stop).await?;
        let (kept, bad): (Vec<Object>, Vec<Object>) =
            of_size.into_iter().partition(|(key, _)| !wrong.contains(key));
        missing.extend(bad);
        missing.sort();
        report.kept = kept.len() as u64;
        let sealed = source.manifest.is_sealed();
        for small in [KEYS, SUMS].into_iter().filter(|small| packed && (sealed || *small != KEYS)) {
            let key = from.key(&format!("{}/{small}", folders.0));
            match stop.or(async { Ok(from.store().get(&key).await) }).await? {
                Ok(bytes) => {
                    let key = to.key(&format!("{}/{small}", folders.1));
                    stop.or(async { Ok(to.store().put(&key, bytes.into()).await?) }).await?;
                }
                Err(error) if error.kind == StoreErrorKind::NotFound && small == SUMS => {}
                Err(error) => return Err(error.into()),
            }
        }
        // Without checksums all objects must pass through us, so that the root digest can verify
        // them.
        let by_store = request
            .within_store
            .filter(|_| from.store().copies() && (known.is_some() || !packed))
            .map(|most| most.min(Store::MAX_COPY));
        let (small, large): (Vec<Object>, Vec<Object>) =
            missing.into_iter().partition(|(_, size)| by_store.is_some_and(|most| *size <= most));
        report.by_store = small.len() as u64;
        let mut ledger = Ledger::default();
        for (key, size) in &small {
            ledger.copied(key, *size, known.as_ref().and_then(|known| known.of(key)));
        }
        self.have_copied(folders, small, stop).await?;
        let check = match known {
            Some(known) => Check::each(&known, &large),
            None => Check::whole(report.kept == 0 && report.by_store == 0),
        };
        self.read_and_put(folders, large, check, &mut ledger, stop).await?;
        if packed {
            stop.or(self.all_is_there(&folders.1)).await?;
        } else {
            stop.or(self.classic_is_there(claim, &ledger)).await?;
        }
        if let Some(signal) = stop.signal() {
            return Err(BackupError::Interrupted(signal));
        }
        // Not cancellable: otherwise it would be unknown whether the manifest exists.
        to.commit_bytes(name, source.bytes.clone()).await?;
        // A process that took this run for dead may have begun to remove its objects before our
        // claim.
        if packed && let Err(error) = self.all_is_there(&folders.1).await {
            to.store().delete(&to.key(&manifest_key(name))).await?;
            return Err(error);
        }
        settle_commit(to, name, claim).await
    }

    /// Claims the folder of the run at the destination, unless the copy would hide existing
    /// objects.
    async fn claim_packed(&self) -> Result<Claim, BackupError> {
        let (to, name) = (self.to, &self.request.to);
        Contents::of(to, name).await?.refuse_taken(name)?;
        Claim::packed(to, name, self.source.run).await
    }

    /// Checks that the objects of a classic copy are those that were sent, and that the source
    /// still exists.
    async fn classic_is_there(&self, claim: &Claim, ledger: &Ledger) -> Result<(), BackupError> {
        self.source_stands().await?;
        claim.confirm().await?;
        self.all_is_there(self.request.to.as_str()).await?;
        let name = &self.request.to;
        let mut listed = self.to.list_below(name.as_str()).await?;
        listed.retain(|object| of_classic(&object.key));
        // The manifest is that of the source, which may have no digest.
        let mut copied = self.source.copied.clone();
        let stated = copied.object_digest.clone();
        prove_shared(self.to, name.as_str(), &mut copied, ledger, &listed).await?;
        if stated.is_none() || copied.object_digest == stated {
            return Ok(());
        }
        let what = "the digest of its objects does not match the manifest".to_owned();
        Err(BackupError::Damaged { name: self.request.name.to_string(), what })
    }

    /// The objects that the complete copy must have.
    async fn objects(&self) -> Result<Vec<Object>, BackupError> {
        let manifest = &self.source.manifest;
        match &manifest.packed {
            Some(packed) => {
                let stated = |number| {
                    let len = crate::objects::checksums::object_len(manifest, packed, number);
                    (xb_pipeline::object_key(number), len)
                };
                // The listing bounds the work, not the number that a manifest states.
                let folder = run_folder(&self.request.name, self.source.run);
                let listed = self.from.list_below(&folder).await?;
                let there: BTreeSet<String> = listed.into_iter().map(|object| object.key).collect();
                let absent = (0..manifest.objects).find(|n| !there.contains(&stated(*n).0));
                match absent {
                    None => Ok((0..manifest.objects).map(stated).collect()),
                    Some(number) => Err(BackupError::Damaged {
                        name: self.request.name.to_string(),
                        what: format!("object {} is missing", stated(number).0),
                    }),
                }
            }
            None => {
                let files = list_classic(self.from, &self.request.name).await?;
                files.agree_with(&self.request.name, manifest)?;
                Ok(files.in_order().map(|(key, _, size)| (key, size)).collect())
            }
        }
    }

    /// The checksum of each object, if known.
    async fn sums(&self) -> Result<Option<Sums>, BackupError> {
        let (manifest, name) = (&self.source.manifest, &self.request.name);
        let Some(packed) = &manifest.packed else {
            let files = list_with_sums(self.from, name, Some(manifest)).await?;
            let each = matches!(files.known(), Known::Each(_));
            return Ok(each.then_some(Sums::Classic(files)));
        };
        let about = (manifest, packed, self.source.run);
        Ok(crate::objects::checksums::read(self.from, name, about).await?.ok().map(Sums::Packed))
    }

    /// Objects at the destination with their sizes.
    async fn there(&self, folder: &str) -> Result<BTreeMap<String, u64>, BackupError> {
        let listed = self.to.list_below(folder).await?;
        Ok(listed
            .into_iter()
            .filter(|listed| match self.source.manifest.layout {
                Layout::Packed => is_data_object(&listed.key),
                Layout::Classic => of_classic(&listed.key),
            })
            .map(|listed| (listed.key, listed.size))
            .collect())
    }

    /// Checks that the source still exists. A classic backup has no RUN in its keys, so the next
    /// backup of that name would replace its objects. Whatever removes a backup deletes its
    /// manifest first.
    async fn source_stands(&self) -> Result<(), BackupError> {
        let name = &self.request.name;
        match self.from.stored_manifest(name).await? {
            Some(stored) if stored.digest() == self.source.original => Ok(()),
            _ => Err(BackupError::Damaged {
                name: name.to_string(),
                what: "it was removed or replaced while it was being copied".to_owned(),
            }),
        }
    }

    async fn all_is_there(&self, folder: &str) -> Result<(), BackupError> {
        let there = self.there(folder).await?;
        let (objects, bytes) = (there.len() as u64, there.values().sum::<u64>());
        let manifest = &self.source.manifest;
        if (objects, bytes) == (manifest.objects, manifest.stored_bytes) {
            return Ok(());
        }
        let what = format!(
            "the copy has {objects} objects with {bytes} bytes, the source {} with {}",
            manifest.objects, manifest.stored_bytes
        );
        Err(BackupError::Damaged { name: self.request.to.to_string(), what })
    }

    /// Plans the fetch so that objects of up to `largest` bytes are fetched in the pieces in which
    /// they are sent.
    fn plan(&self, largest: u64) -> Result<UnpackPlan, BackupError> {
        let CopyRequest { memory, threads, parallel, .. } = *self.request;
        let limits = part_limits(self.to.store().limits());
        let put = PackPlan::new(PackSizing {
            memory,
            object_size: ObjectSize::new(largest),
            threads,
            parallel,
            limits,
        })?;
        Ok(UnpackPlan {
            threads: put.threads,
            depth: put.depth,
            range: put.part_size,
            parallel: put.parallel,
            memory: put.memory,
        })
    }

    /// Reads objects at the destination back, and returns those that differ from the stored ones.
    async fn compare(
        &self,
        folder: &str,
        objects: &[Object],
        known: Option<&Sums>,
        stop: &mut CancelToken,
    ) -> Result<BTreeSet<String>, BackupError> {
        let (Some(known), Some(largest)) = (known, objects.iter().map(|(_, size)| *size).max())
        else {
            return Ok(BTreeSet::new());
        };
        let fetching = self.plan(largest)?;
        let mut check = Check::each(known, objects);
        let (arrived, mut arriving) = mpsc::channel(1);
        let objects =
            objects.iter().map(|(key, size)| (self.to.key(&format!("{folder}/{key}")), 0, *size));
        let objects: Vec<_> = objects.collect();
        let fetch = fetch_all(
            self.to.store(),
            &fetching,
            ranges(objects.into_iter(), fetching.range),
            arrived,
            |range, sum| {
                check.range(range, sum);
                Ok(())
            },
        );
        let pass = async { while arriving.recv().await.is_some() {} };
        let (fetched, ()) = stop.or(async { Ok(tokio::join!(fetch, pass)) }).await?;
        fetched?;
        match check {
            Check::Each { wrong, .. } => Ok(wrong.into_iter().collect()),
            _ => Ok(BTreeSet::new()),
        }
    }

    /// Copies objects within the store.
    async fn have_copied(
        &self,
        (from, to): &(String, String),
        objects: Vec<Object>,
        stop: &mut CancelToken,
    ) -> Result<(), BackupError> {
        use futures::stream::{self, StreamExt as _, TryStreamExt as _};
        let copying = stream::iter(objects).map(|(key, size)| async move {
            let source = self.from.key(&format!("{from}/{key}"));
            let target = self.to.key(&format!("{to}/{key}"));
            self.from.store().copy(&source, &target).await?;
            self.observer.add_bytes(size);
            self.observer.add_stored(size);
            Ok::<_, BackupError>(())
        });
        let parallel = self.request.parallel.max(1);
        stop.or(copying.buffer_unordered(parallel).try_collect::<()>()).await
    }

    /// Reads objects and sends them, in parts as large as the budget allows.
    async fn read_and_put(
        &self,
        (from, to): &(String, String),
        objects: Vec<Object>,
        check: Check,
        ledger: &mut Ledger,
        stop: &mut CancelToken,
    ) -> Result<(), BackupError> {
        let Some(largest) = objects.iter().map(|(_, size)| *size).max() else { return Ok(()) };
        let fetching = self.plan(largest)?;
        // Empty objects have no range.
        for (key, _) in objects.iter().filter(|(_, size)| *size == 0) {
            let key = self.to.key(&format!("{to}/{key}"));
            stop.or(async { Ok(self.to.store().put(&key, Bytes::new().into()).await?) }).await?;
        }
        let source =
            objects.iter().map(|(key, size)| (self.from.key(&format!("{from}/{key}")), 0, *size));
        let source: Vec<_> = source.collect();
        let check = Mutex::new(check);
        let (arrived, mut arriving) = mpsc::channel(1);
        let fetch = fetch_all(
            self.from.store(),
            &fetching,
            ranges(source.into_iter(), fetching.range),
            arrived,
            |range, sum| {
                lock(&check).range(range, sum);
                Ok(())
            },
        );
        let classic = self.source.manifest.layout == Layout::Classic;
        let mut sender = PartSender::new(self.to.store().clone(), fetching.parallel);
        if classic {
            sender = sender.shared();
        }
        let target = self.to.key(&format!("{to}/"));
        let targets = objects.iter().filter(|(_, size)| *size > 0).map(|(key, size)| {
            let parts = size.div_ceil(fetching.range);
            (self.to.key(&format!("{to}/{key}")), parts)
        });
        let mut parts = targets.flat_map(|(key, parts)| {
            let key: std::sync::Arc<str> = key.into();
            (0..parts).map(move |n| (std::sync::Arc::clone(&key), n, n + 1 == parts))
        });
        let send = async {
            while let Some(piece) = arriving.recv().await {
                // The fetching side reports the reason.
                let Some(bytes) = piece else { break };
                // Its checksum was computed before the piece arrived here, so a damaged object is
                // never completed.
                let wrong = lock(&check).wrong().map(str::to_owned);
                if let Some(key) = wrong {
                    return Err(BackupError::Damaged {
                        name: self.request.name.to_string(),
                        what: format!(
                            "object {key}: the checksum does not match the one recorded when it was stored"
                        ),
                    });
                }
                let Some((key, index, end)) = parts.next() else {
                    return Err(BackupError::Bug("more ranges arrived than were requested"));
                };
                let len = bytes.len() as u64;
                let index = u32::try_from(index).unwrap_or(u32::MAX);
                if let Some(below) = key.strip_prefix(&target).filter(|_| classic) {
                    ledger.piece(&below.into(), std::slice::from_ref(&bytes), end);
                }
                sender.send(PartData { key, index, payload: vec![bytes], end }).await?;
                ledger.stored(&target, sender.stored());
                self.observer.add_bytes(len);
                self.observer.add_stored(len);
            }
            // Close the channel, so that the fetching side does not wait for space in it.
            drop(arriving);
            Ok(())
        };
        let outcome = tokio::select! {
            both = async { tokio::join!(fetch, send) } => match both {
                (Err(error), _) => Err(crate::read::unlock::missing_is_damage(error, &self.request.name)),
                (Ok(()), sent) => sent,
            },
            signal = stop.asked() => Err(BackupError::Interrupted(signal)),
        };
        drop(parts);
        if let Err(error) = outcome {
            sender.abort().await;
            return Err(error);
        }
        stop.or(async { Ok(sender.finish().await?) }).await?;
        ledger.stored(&target, sender.stored());
        match &self.source.manifest.packed {
            Some(packed) => check
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner)
                .finish(&packed.root)
                .map_err(|what| BackupError::Damaged { name: self.request.name.to_string(), what }),
            None => Ok(()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks that objects, which arrive in ranges, are those that were stored.
enum Check {
    /// Each object against its own checksum; the expected ones are a stack with the next on top.
    Each { expected: Vec<(String, u64)>, wrong: Vec<String>, summing: Summing },
    /// All objects together, against the root digest.
    Whole { root: RootDigest, summing: Summing },
    /// No checksum is known.
    Nothing,
}

impl Check {
    fn each(known: &Sums, objects: &[Object]) -> Self {
        let objects = objects.iter().rev().filter(|(_, size)| *size > 0);
        let expected = objects.filter_map(|(key, _)| Some((key.clone(), known.of(key)?)));
        let summing = Summing::default();
        Self::Each { expected: expected.collect(), wrong: Vec::new(), summing }
    }

    /// `all`: no object is skipped.
    fn whole(all: bool) -> Self {
        match all {
            true => Self::Whole { root: RootDigest::default(), summing: Summing::default() },
            false => Self::Nothing,
        }
    }

    fn range(&mut self, range: &Range, sum: u64) {
        match self {
            Self::Each { expected, wrong, summing } => {
                if let Some((_, crc)) = summing.range(range, sum)
                    && let Some((key, expected)) = expected.pop()
                    && expected != crc
                {
                    wrong.push(key);
                }
            }
            Self::Whole { root, summing } => {
                if let Some((len, crc)) = summing.range(range, sum) {
                    root.object(len, crc);
                }
            }
            Self::Nothing => {}
        }
    }

    /// The first damaged object.
    fn wrong(&self) -> Option<&str> {
        match self {
            Self::Each { wrong, .. } => wrong.first().map(String::as_str),
            _ => None,
        }
    }

    fn finish(self, expected: &str) -> Result<(), String> {
        match self {
            Self::Whole { root, .. } => {
                let got = hex(&root.finish());
                if got == expected {
                    return Ok(());
                }
                Err(format!("wrong root digest of the objects: {got}, the manifest has {expected}"))
            }
            _ => Ok(()),
        }
    }
}
