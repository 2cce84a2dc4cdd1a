//! `copy`: copies a backup from one ROOT to another, its manifest last.
//!
//! A copy of a packed backup keeps the RUN, so a retry continues with the objects that an
//! interrupted copy left. A copy of a classic backup starts over. Without a manifest a copy is not
//! a backup.

mod check;
mod copying;
pub(crate) mod request;
mod source;
mod transfer;

use bytes::Bytes;
use futures::future::BoxFuture;
use xb_pipeline::Observer;
use xb_repo::chain::{Link, bases, chain_of};
use xb_repo::claim::Claim;
use xb_repo::claim::commit::Commit;
use xb_repo::claim::mark::await_removals;
use xb_repo::contents::Contents;
use xb_repo::error::RepoError;
use xb_repo::keys::RunKeys;
use xb_repo::lineage::find_base;
use xb_repo::list::may_be_away;
use xb_repo::manifest::{Layout, Manifest, StoredManifest};
use xb_repo::names::{BackupName, KEYS, SUMS};
use xb_repo::records::{self, Proof};
use xb_repo::resolve::manifests;
use xb_repo::root::Root;
use xb_repo::verification::Level;
use xb_uploader::{GuardedOutcome, ListedObject, Operation, Store, StoreError, StoreErrorKind};

use crate::admin::copy::check::{Check, Object};
use crate::admin::copy::copying::{CopyContext, CopyKeys};
use crate::admin::copy::request::{CopyReport, CopyRequest};
use crate::admin::copy::source::{Source, failed_trial};
use crate::admin::key_slots::KeySlotsClaim;
use crate::binlog::archive::copy::{ArchiveCopy, archive_of, copy_archive};
use crate::cancel::{CancelToken, OrInterrupted as _};
use crate::error::BackupError;
use crate::objects::ledger::Ledger;
use crate::read::unlock::{parse_keys_object, unlock};
use crate::session::Session;
use crate::verify::{VerifyRequest, verify};
use crate::write::clone_keys::refuse_unsealed;
use crate::write::{
    CompanionObjects, ForeignObjects, claim_emptied, free_if_vacant, is_vacant, list_stored,
    lost_objects, prove_classic,
};

/// Copies a backup of the session to the repository `to`, after the backups that it needs and that are
/// missing there. The copy exists if and only if this returns `Ok`, or [`BackupError::Unlocked`].
///
/// # Errors
/// [`BackupError::Unverified`] unless that is allowed; [`RepoError::Exists`] if another backup
/// has the name. Objects of a failed copy are not a backup; a retry continues with them, or `gc`
/// removes them. Bases that were copied before stay.
pub async fn copy(
    session: &Session,
    to: &Root,
    mut request: CopyRequest,
) -> Result<CopyReport, BackupError> {
    Box::pin(copy_chain(session, to, &mut request)).await
}

/// Copies a backup as [`copy`] does, and then what the archive of its server's log has and `to` lacks. Nothing is copied
/// if there is no such archive.
///
/// # Errors
/// As [`copy`] and [`copy_archive`]. After an error of the archive, the backup may be copied.
pub async fn copy_with_archive(
    session: &Session,
    to: &Root,
    mut request: CopyRequest,
) -> Result<(CopyReport, ArchiveCopy), BackupError> {
    let server = archive_of(session, &request.name).await?;
    let mut report = Box::pin(copy_chain(session, to, &mut request)).await?;
    let archive = copy_archive(session, to, &server, &request.to, &request.keys).await?;
    count_requests(session, to, &mut report);
    Ok((report, archive))
}

async fn copy_chain(
    session: &Session,
    to: &Root,
    request: &mut CopyRequest,
) -> Result<CopyReport, BackupError> {
    let Session { root: from, resources, cancel, .. } = session;
    let stored = cancel.or(Source::read(from, &request.name)).await?;
    let memory = resources.memory;
    let source = cancel.or(Source::open(from, to, request, stored.clone(), memory)).await?;
    if request.lock.is_some() {
        cancel.or(to.store().can_lock()).await?;
    }
    let names = (request.name.clone(), request.to.clone());
    let (mut bases, mut doubts) = (Vec::new(), Vec::new());
    let missing = missing_bases(from, to, request, stored, &mut doubts);
    for Link { name, stored } in cancel.or(Box::pin(missing)).await? {
        bases.push(name.to_string());
        (request.name, request.to) = (name.clone(), name);
        let source = cancel.or(Box::pin(open_base(session, to, request, stored))).await?;
        doubts.append(&mut Box::pin(copy_one(session, to, request, source)).await?.doubts);
    }
    (request.name, request.to) = names;
    // On the heap, as all that copies: these futures do not fit on the stack of every thread.
    let mut report = Box::pin(copy_one(session, to, request, source)).await?;
    report.bases = bases;
    doubts.append(&mut report.doubts);
    report.doubts = doubts;
    if let Some(lock) = &request.lock {
        let locking = crate::admin::object_lock::lock(to, &request.to, lock, resources.parallel);
        let locked = cancel.or(locking).await?;
        (report.locked, report.not_locked) = (locked.objects, locked.incomplete);
    }
    count_requests(session, to, &mut report);
    Ok(report)
}

fn count_requests(session: &Session, to: &Root, report: &mut CopyReport) {
    let (from, to) = (session.root.store().traffic(), to.store().traffic());
    report.requests = from.requests() + to.requests();
    report.retries = from.retries() + to.retries();
}

async fn copy_one(
    session: &Session,
    to: &Root,
    request: &CopyRequest,
    source: Source,
) -> Result<CopyReport, BackupError> {
    let Session { root: from, resources, observer, cancel } = session;
    let mut report = CopyReport {
        manifest: source.copied.clone(),
        bases: Vec::new(),
        by_store: 0,
        kept: 0,
        was_there: false,
        locked: 0,
        not_locked: None,
        doubts: source.doubt.iter().cloned().collect(),
        requests: 0,
        retries: 0,
    };
    let mut there = cancel.or(to.stored_manifest(&request.to)).await?;
    let lost = match &there {
        Some(there) if there.digest() == source.digest => {
            cancel.or(lost_of_copy(to, &request.to, &there.manifest)).await?
        }
        _ => None,
    };
    // A manifest that has lost all its objects is no copy.
    let is_whole =
        lost.is_none() && there.as_ref().is_some_and(|there| there.digest() == source.digest);
    if !is_whole && there.is_some() && cancel.or(free_if_vacant(to, &request.to)).await? {
        there = None;
    }
    match there {
        Some(there) if there.digest() == source.digest => {
            let doubt = cancel.or(refuse_damaged_copy(to, &request.to, &there, lost)).await?;
            report.doubts.extend(doubt);
            report.was_there = true;
        }
        Some(_) => {
            return Err(RepoError::Exists { name: request.to.to_string(), state: "" }.into());
        }
        None => {
            cancel.or(refuse_unsealed(session, &request.name, &source.stored, true)).await?;
            cancel.or(base_is_there(to, &source.manifest, request, resources.memory)).await?;
            let copying =
                CopyContext { from, to, request, resources: *resources, source: &source, observer };
            if let Err(error) = copying.all(&mut report, cancel).await {
                return Err(cancel.or(copying.unless_removed(error)).await?);
            }
        }
    }
    // A verification of these bytes also holds for the copy if all of them passed through us. If
    // the copy existed before, its own records may already be newer.
    if source.same_name && !report.was_there && report.by_store == 0 {
        report.doubts.extend(carry_records(from, to, request).await);
    }
    Ok(report)
}

/// Opens a base that is to be copied first. If it is only not verified, it is verified now, as far as a copy demands.
async fn open_base(
    session: &Session,
    to: &Root,
    request: &mut CopyRequest,
    stored: StoredManifest,
) -> Result<Source, BackupError> {
    let (from, memory) = (&session.root, session.resources.memory);
    let refused = match Source::open(from, to, request, stored.clone(), memory).await {
        Err(error @ BackupError::Unverified { .. }) if request.verify_bases.is_some() => error,
        opened => return opened,
    };
    let results = records::results(from, &request.name, &stored.digest(), None).await?.results;
    if Proof::of(&results).failed.is_some() && !records::only_trials_failed(&results) {
        return Err(refused);
    }
    // Its progress would look like that of the copy.
    let session = Session { observer: Observer::default(), ..session.clone() };
    let asked = VerifyRequest {
        name: request.name.clone(),
        level: Level::Checksum,
        keys: std::mem::take(&mut request.keys),
        accept: request.accept,
        record: request.verify_bases.clone(),
    };
    let verified = verify(&session, &asked).await;
    request.keys = asked.keys;
    verified?;
    Source::open(from, to, request, stored, memory).await
}

/// The backups that a restore of the copy needs and that are missing at the destination, the full one
/// first. Adds what is doubtful of the others to `doubts`.
async fn missing_bases(
    from: &Root,
    to: &Root,
    request: &CopyRequest,
    stored: StoredManifest,
    doubts: &mut Vec<String>,
) -> Result<Vec<Link>, BackupError> {
    if request.options.alone || !stored.manifest.is_incremental() {
        return Ok(Vec::new());
    }
    let links = match chain_of(from, &request.name, stored).await {
        Ok(links) => links,
        // The destination may have the objects that are missing here.
        Err(RepoError::Chain { .. }) => return Ok(Vec::new()),
        Err(error) if error.is_of_one_object() => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut missing = Vec::new();
    for link in links.into_iter().filter(|link| link.name != request.name) {
        let Some(there) = to.stored_manifest(&link.name).await? else {
            missing.push(link);
            continue;
        };
        let lost = lost_of_copy(to, &link.name, &there.manifest).await?;
        if lost.is_some() && is_vacant(to, &link.name, &there.manifest).await? {
            missing.push(link);
            continue;
        }
        if there.manifest.run != link.stored.manifest.run {
            let what = format!(
                "its chain has {}, but the destination holds another backup of that name",
                link.name
            );
            return Err(RepoError::Chain { name: request.name.to_string(), what }.into());
        }
        doubts.extend(refuse_damaged_copy(to, &link.name, &there, lost).await?);
    }
    Ok(missing)
}

/// Fails if the backup at the destination has `lost` something, or a verification has found it damaged: it is no copy, and
/// nothing on it can be restored. Returns a doubt about one of which a trial restore has failed: its bytes are those of the source, which another
/// copy would not change, and the host may be the cause. On the heap, as what copies is.
fn refuse_damaged_copy<'a>(
    to: &'a Root,
    name: &'a BackupName,
    there: &'a StoredManifest,
    lost: Option<String>,
) -> BoxFuture<'a, Result<Option<String>, BackupError>> {
    Box::pin(async move {
        if let Some(lost) = lost {
            let what = format!("is not whole: {lost}");
            return Err(BackupError::DamagedCopy { name: name.to_string(), what });
        }
        let results = match records::results(to, name, &there.digest(), None).await {
            Ok(state) => state.results,
            Err(error) if error.is_of_one_object() => {
                return Ok(Some(format!(
                    "it is not known whether a verification of {name} at the destination has found damage: {error}; verify it there"
                )));
            }
            Err(error) => return Err(error.into()),
        };
        match Proof::of(&results).failed {
            None => Ok(None),
            Some(_) if records::only_trials_failed(&results) => {
                Ok(Some(failed_trial(name, "at the destination")))
            }
            Some(level) => Err(BackupError::DamagedCopy {
                name: name.to_string(),
                what: format!("was found damaged at level {level}"),
            }),
        }
    })
}

/// What the copy of a backup has lost at the destination, as a listing shows. Fails if its disk may not be there. On the heap, as
/// what copies is.
fn lost_of_copy<'a>(
    to: &'a Root,
    name: &'a BackupName,
    manifest: &'a Manifest,
) -> BoxFuture<'a, Result<Option<String>, BackupError>> {
    Box::pin(async move {
        let keys = match manifest.layout {
            Layout::Packed => to.run_keys(name, &manifest.run),
            Layout::Classic => to.classic_keys(name),
        };
        let lost = lost_objects(to, &keys, manifest).await?;
        match lost.as_ref().and_then(|_| may_be_away(to, name.as_str())) {
            Some(what) => Err(BackupError::CopyAway { name: name.to_string(), what }),
            None => Ok(lost),
        }
    })
}

/// Fails for an incremental backup whose base is missing at the destination, because it could not
/// be restored there.
async fn base_is_there(
    to: &Root,
    manifest: &Manifest,
    request: &CopyRequest,
    memory: u64,
) -> Result<(), BackupError> {
    if request.options.alone || !manifest.is_incremental() {
        return Ok(());
    }
    let refused = |what: String| {
        Err(BackupError::Repo(RepoError::Chain { name: request.name.to_string(), what }))
    };
    let base = match &manifest.base {
        Some(base) => Some(base.clone()),
        None => {
            let all = manifests(to).await?.sound;
            find_base(all.iter().map(|(name, found)| (name, &found.manifest)), manifest)
        }
    };
    let Some(base) = base else {
        return refused("its base is not at the destination; copy the base first".to_owned());
    };
    let name = BackupName::new(&base.name)?;
    match to.stored_manifest(&name).await? {
        Some(found) if is_vacant(to, &name, &found.manifest).await? => refused(format!(
            "the objects of its base {} are not at the destination; copy the base first",
            base.name
        )),
        Some(found) if found.manifest.run == base.run => match request.keys.is_empty() {
            true => Ok(()),
            false => unlock(to, &name, Some(&found), request.given(memory)).await.map(drop),
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

/// Reads a small object whose content no checksum proves here, until two answers in a row are equal:
/// one may be altered in transit, or say that there is no such object.
async fn read_alike(from: &Root, key: &str) -> Result<Bytes, StoreError> {
    let get = async || match from.store().get(key).await {
        Err(error) if error.kind == StoreErrorKind::NotFound && !from.store().is_folder() => {
            from.store().pause(1).await;
            from.store().get(key).await
        }
        got => got,
    };
    let mut last = get().await?;
    for _ in 0..3 {
        let again = get().await?;
        if again == last {
            return Ok(last);
        }
        last = again;
    }
    let what = "every answer of the store differs from the one before";
    Err(StoreError::new(Operation::Get, key, StoreErrorKind::Altered, what))
}

/// Copies the verification records. Best effort: a failure does not fail the copy. Returns a doubt for each record that is
/// damaged: the copy is without it, because no backup with such a record counts.
async fn carry_records(from: &Root, to: &Root, request: &CopyRequest) -> Vec<String> {
    let mut doubts = Vec::new();
    // The pin, the last of the keys, stays with the source.
    for key in records::verification_keys(&request.name) {
        let Ok(bytes) = read_alike(from, &from.key(&key)).await else { continue };
        if records::is_verification(&bytes) {
            let _ = to.store().create(&to.key(&key), bytes).await;
        } else {
            doubts.push(format!(
                "the verification record {key} cannot be read, and is not copied: it may state that {} is damaged; verify the copy",
                request.name
            ));
        }
    }
    doubts
}

impl CopyContext<'_> {
    async fn all(&self, report: &mut CopyReport, cancel: &CancelToken) -> Result<(), BackupError> {
        let (Self { request, source, .. }, name) = (self, &self.request.to);
        let packed = source.manifest.layout == Layout::Packed;
        let keys_of = |root: &Root, name| match packed {
            true => root.run_keys(name, source.run),
            false => root.classic_keys(name),
        };
        let keys = CopyKeys { from: keys_of(self.from, &request.name), to: keys_of(self.to, name) };
        let (claim, to) = if packed {
            (cancel.or(self.claim_packed()).await?, self.to.clone())
        } else {
            // Starts from an empty folder, as a classic run does.
            cancel.or(claim_emptied(self.to, name, source.run, ForeignObjects::Refuse)).await?
        };
        let copying = CopyContext { to: &to, ..*self };
        let copied = Box::pin(copying.under(&claim, &keys, report, cancel)).await;
        drop(claim);
        copied
    }

    /// Copies under a claim.
    async fn under(
        &self,
        claim: &Claim,
        keys: &CopyKeys,
        report: &mut CopyReport,
        cancel: &CancelToken,
    ) -> Result<(), BackupError> {
        let (Self { from, to, request, source, .. }, name) = (self, &self.request.to);
        let (packed, run) = (source.manifest.layout == Layout::Packed, &source.manifest.run);
        // An earlier copy of the run may be on its way out, with the same keys.
        cancel.or(await_removals(to, name, run)).await?;
        let objects = cancel.or(self.objects()).await?;
        let there = cancel.or(self.there(&keys.to)).await?;
        let known = cancel.or(self.sums()).await?;
        // Only its checksum shows that an existing object is sound, so without checksums none is
        // kept.
        let (of_size, mut missing): (Vec<Object>, Vec<Object>) = objects
            .into_iter()
            .partition(|(key, size)| known.is_some() && there.get(key) == Some(size));
        let wrong = self.compare(&keys.to, &of_size, known.as_ref(), cancel).await?;
        let (kept, bad): (Vec<Object>, Vec<Object>) =
            of_size.into_iter().partition(|(key, _)| !wrong.contains(key));
        missing.extend(bad);
        missing.sort();
        report.kept = kept.len() as u64;
        let beside = self.copy_small(keys, cancel).await?;
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
        self.observer.expect_phases(2);
        self.observer.begin_phase("copy");
        self.observer.expect_bytes(small.iter().chain(&large).map(|(_, size)| size).sum());
        self.have_copied(keys, small, cancel).await?;
        let check = match &known {
            Some(known) => Check::each(known, &large),
            None => Check::whole(report.kept == 0 && report.by_store == 0),
        };
        self.read_and_put(keys, large, check, known.as_ref(), &mut ledger, cancel).await?;
        self.observer.begin_phase("commit");
        let bases = match request.options.alone {
            true => Vec::new(),
            false => cancel.or(bases(to, &source.copied, false)).await?,
        };
        let commit = Commit { root: to, name, run, claim, bases: &bases };
        cancel.or(commit.await_removals()).await?;
        let look = || list_stored(to, &keys.to, &source.copied, &beside);
        if packed {
            cancel.or(look()).await?;
            cancel.or(beside.prove_keys(to, &keys.to)).await?;
        } else {
            cancel.or(self.source_stands()).await?;
            cancel.or(claim.confirm()).await?;
            let listed = cancel.or(look()).await?;
            cancel.or(self.prove_classic(&keys.to, &ledger, listed)).await?;
        }
        if let Some(signal) = cancel.reason() {
            return Err(BackupError::Interrupted(signal));
        }
        commit.write(source.bytes.clone(), look(), BackupError::outage).await
    }

    /// Copies the keys and the checksum list of a packed run, and returns what it wrote.
    async fn copy_small(
        &self,
        keys: &CopyKeys,
        cancel: &CancelToken,
    ) -> Result<CompanionObjects, BackupError> {
        let Self { from, to, request, source, .. } = self;
        let mut beside = CompanionObjects::default();
        let packed = source.manifest.layout == Layout::Packed;
        let sealed = source.manifest.is_sealed();
        for small in [KEYS, SUMS].into_iter().filter(|small| packed && (sealed || *small != KEYS)) {
            let key = keys.from.at(small);
            match cancel.or(read_alike(from, &key)).await {
                Ok(bytes) => {
                    if small == KEYS {
                        parse_keys_object(&bytes, &key, &request.name, &source.manifest)?;
                        beside.keys = Some(bytes.clone());
                        cancel.or(self.put_keys(bytes)).await?;
                    } else {
                        beside.sums = Some(bytes.len() as u64);
                        cancel.or(to.store().put(&keys.to.at(small), bytes.into())).await?;
                    }
                }
                Err(error) if error.is_not_found() && small == SUMS => {}
                Err(error) => return Err(error),
            }
        }
        Ok(beside)
    }

    /// Writes the keys object of the copy. Another copy of the run may be a backup by now, whose key slots
    /// were replaced since; and no request may arrive when those of this copy are.
    async fn put_keys(&self, keys: Bytes) -> Result<(), BackupError> {
        let (to, name) = (self.to, &self.request.to);
        let slots = KeySlotsClaim::new(to, name, self.source.run).await?;
        if to.stored_manifest(name).await?.is_some() {
            slots.end().await;
            return Err(RepoError::Exists { name: name.to_string(), state: "" }.into());
        }
        match slots.put(keys, |_| true).await? {
            GuardedOutcome::Done { .. } => Ok(()),
            _ => Err(BackupError::Bug("any keys object was accepted")),
        }
    }

    /// Claims the folder of the run at the destination, unless the copy would hide existing
    /// objects.
    async fn claim_packed(&self) -> Result<Claim, BackupError> {
        let (to, name) = (self.to, &self.request.to);
        Contents::of(to, name).await?.refuse_taken(name)?;
        Ok(Claim::packed(to, name, self.source.run).await?)
    }

    /// Checks that the objects of a classic copy are those that were sent.
    async fn prove_classic(
        &self,
        keys: &RunKeys,
        ledger: &Ledger,
        listed: Vec<ListedObject>,
    ) -> Result<(), BackupError> {
        // The manifest is that of the source, which may have no digest.
        let mut copied = self.source.copied.clone();
        let stated = copied.object_digest.clone();
        prove_classic(self.to, keys, &mut copied, ledger, listed).await?;
        if stated.is_none() || copied.object_digest == stated {
            return Ok(());
        }
        let what = "the digest of its objects does not match the manifest".to_owned();
        Err(BackupError::Damaged { name: self.request.name.to_string(), what })
    }
}
