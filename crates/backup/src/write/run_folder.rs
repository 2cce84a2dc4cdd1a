//! The folder of a run's objects: claimed before the run, compared with the sent objects after it,
//! and cleared after a failure.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use xb_repo::claim::{Claim, RemainingObjects, belongs_to_run, refuse_earlier};
use xb_repo::contents::Contents;
use xb_repo::error::RepoError;
use xb_repo::keys::RunKeys;
use xb_repo::manifest::{Layout, Manifest};
use xb_repo::names::{BackupName, RunId, SUMS, is_data_object, of_classic, sums_folder};
use xb_repo::root::Root;
use xb_uploader::{ListedObject, StoreError};

use super::request::{PutLayout, PutRequest};
use crate::error::BackupError;
use crate::hints::REMOVERS;
use crate::objects::classic::{ClassicFiles, remove_classic_objects};
use crate::objects::classic_checksums;
use crate::objects::ledger::{Ledger, Owner};

/// The claimed folder of a run's objects.
pub(super) struct RunFolder {
    pub(super) run: RunId,
    /// Name of the backup; it may differ from that of the request if that was generated.
    pub(super) name: BackupName,
    /// Keys of the objects.
    pub(super) keys: RunKeys,
    pub(super) claim: Claim,
    /// ROOT for the run's changes; its store refuses them once the claim is lost.
    pub(super) root: Root,
    /// Objects that a failed run has sent, in the classic layout.
    sent: Mutex<Option<Ledger>>,
}

impl RunFolder {
    pub(super) async fn claim(
        root: &Root,
        request: &PutRequest,
        name: BackupName,
        run: RunId,
    ) -> Result<Self, BackupError> {
        root.refuse_links(&name)?;
        match request.layout.kind() {
            Layout::Packed => {
                let keys = root.run_keys(&name, run);
                let claim = Claim::packed(root, &name, run).await?;
                let (root, sent) = (root.clone(), Mutex::default());
                let place = Self { run, name, keys, claim, root, sent };
                if let Err(taken) = place.refuse_taken(request.generated).await {
                    let _ = place.clean_up(request, false).await;
                    return Err(taken);
                }
                Ok(place)
            }
            Layout::Classic => {
                let (claim, root) = claim_emptied(root, &name, run, ForeignObjects::Refuse).await?;
                let (keys, sent) = (root.classic_keys(&name), Mutex::default());
                Ok(Self { run, keys, name, claim, root, sent })
            }
        }
    }

    /// Refuses a name whose objects our manifest would hide, or for which another packed run that
    /// began earlier may be alive: only one of two can commit.
    async fn refuse_taken(&self, generated: bool) -> Result<(), BackupError> {
        let (root, name) = (&self.root, &self.name);
        let found = Contents::of(root, name).await?;
        found.refuse_taken(name)?;
        refuse_earlier(root, name, self.run, &found.packed, generated).await?;
        // A run that has ended by now is not alive, but may have committed.
        let is_taken = match generated {
            true => match root.manifest(name).await {
                // Damaged, or of a host that is not trusted: another name will do.
                Err(error) if error.is_of_one_object() => true,
                found => found?.is_some(),
            },
            false => false,
        };
        match is_taken {
            true => Err(RepoError::Exists { name: name.to_string(), state: "" }.into()),
            false => Ok(()),
        }
    }

    /// Checks that the objects in the store are those that this run sent, and writes the checksums
    /// of a classic run.
    pub(super) async fn prove(
        &self,
        manifest: &mut Manifest,
        beside: &CompanionObjects,
        ledger: Option<&Ledger>,
    ) -> Result<(), BackupError> {
        // The claim of a packed run has no lease that may have ended while a removal was waited for.
        if self.claim.holds_name() {
            self.claim.confirm().await?;
        }
        let mut listed = self.list(manifest, beside).await?;
        beside.prove_keys(&self.root, &self.keys).await?;
        let Some(ledger) = ledger else { return Ok(()) };
        listed.retain(|object| of_classic(&object.key));
        prove_classic(&self.root, &self.keys, manifest, ledger, &listed).await
    }

    /// Lists the objects of the run, all of which must be there.
    pub(super) async fn list(
        &self,
        manifest: &Manifest,
        beside: &CompanionObjects,
    ) -> Result<Vec<ListedObject>, BackupError> {
        list_stored(&self.root, &self.keys, manifest, beside).await
    }

    /// Ends a classic run of an incomplete stream, whose objects stay as the stock tool leaves them.
    ///
    /// # Errors
    /// If other objects exist, or if that cannot be determined: then the name stays that of a
    /// failed run.
    pub(super) async fn leave(&self, ledger: &Ledger) -> Result<(), BackupError> {
        self.claim.confirm().await?;
        let mut listed = self.root.list_below(self.keys.folder()).await?;
        listed.retain(|object| of_classic(&object.key));
        ledger.agrees_with(&self.root, &self.keys, self.name.as_str(), &listed).await?;
        Ok(self.claim.end_leaving(RemainingObjects::of(&listed)).await?)
    }

    /// Records the objects that the run has sent, for its removal.
    pub(super) fn has_sent(&self, ledger: Option<Ledger>) {
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner) = ledger;
    }

    /// Removes the objects that the failed run wrote, and frees the name.
    ///
    /// `met` says that the run met an object of another one. If that object may belong to a live
    /// run of this program, the claim is kept and marked as dead, so that its objects are not mistaken for a stock backup.
    pub(super) async fn clean_up(
        &self,
        request: &PutRequest,
        met: bool,
    ) -> Result<(), BackupError> {
        let (root, name) = (&self.root, &self.name);
        match request.layout.kind() {
            // The claim is in the same folder.
            Layout::Packed => drop(root.remove_below(self.keys.folder()).await?),
            Layout::Classic => {
                // Another run may have taken over, and the folder would then be its own.
                self.claim.confirm().await?;
                // If a manifest exists, whichever run wrote it, the objects that it may name must
                // stay.
                match root.knowing(&root.catalogue().await?).manifest(name).await {
                    Ok(None) => {
                        let has_left = self.remove_own(met).await?;
                        if matches!(request.layout, PutLayout::Classic { md5: true, .. }) {
                            root.store().delete(&root.md5_key(name)).await?;
                        }
                        root.remove_below(&sums_folder(name)).await?;
                        if self.claim.has_predecessor() && (met || has_left) {
                            return Ok(());
                        }
                    }
                    Err(error) if !error.is_of_one_object() => return Err(error.into()),
                    Ok(Some(_)) | Err(_) if met => return Ok(()),
                    Ok(Some(_)) | Err(_) => {}
                }
                self.claim.end().await;
            }
        }
        Ok(())
    }

    /// Removes the objects that this run has stored in the classic layout. Another program may have stored its backup
    /// under the same name meanwhile, whose objects stay. Returns whether there are any.
    async fn remove_own(&self, met: bool) -> Result<bool, BackupError> {
        let Self { root, keys, name, .. } = self;
        let Some(ledger) = self.sent.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(false);
        };
        let mut listed = root.list_below(keys.folder()).await?;
        listed.retain(|object| of_classic(&object.key));
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for object in &listed {
            let is_own = match ledger.owner(root, keys, object).await? {
                Owner::ThisRun => true,
                Owner::Unknown => !met,
                Owner::Other => false,
            };
            if is_own { own.push(keys.at(&object.key)) } else { others.push(&object.key) }
        }
        root.store().delete_all(own).await?;
        if let Some(key) = others.first() {
            let number = others.len();
            xb_uploader::warn(&format!(
                "objects in {name} that this run did not store were left: {number}, such as {key}"
            ));
        }
        Ok(!others.is_empty())
    }
}

/// Objects that a packed run stores beside its data, and that its manifest relies on.
#[derive(Debug, Default)]
pub(crate) struct CompanionObjects {
    /// Content of the keys object of a sealed backup: without it, no key opens the backup.
    pub(crate) keys: Option<Bytes>,
    /// Size of the checksum list, if there is one.
    pub(crate) sums: Option<u64>,
}

impl CompanionObjects {
    /// Reads the keys object of a run back.
    pub(crate) async fn prove_keys(&self, root: &Root, run: &RunKeys) -> Result<(), BackupError> {
        let Some(keys) = &self.keys else { return Ok(()) };
        Ok(root.store().confirm_content(&run.keys(), keys).await?)
    }

    /// Returns whether a listing of the run's folder shows the whole checksum list.
    fn lists_sums(&self, listed: &[ListedObject]) -> bool {
        let shows = |size| listed.iter().any(|object| object.key == SUMS && object.size == size);
        self.sums.is_none_or(shows)
    }

    /// Fails unless a listing of the run's folder shows the whole checksum list.
    pub(crate) fn prove_sums(
        &self,
        run: &RunKeys,
        listed: &[ListedObject],
    ) -> Result<(), BackupError> {
        match self.lists_sums(listed) {
            true => Ok(()),
            false => Err(StoreError::not_kept(run.sums()).into()),
        }
    }
}

/// Treatment of other programs' objects beside those of a dead run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForeignObjects {
    /// Do not claim the name: a new backup must not mix with them.
    Refuse,
    /// Leave them: remove only what the dead run left.
    Leave,
}

/// Claims a name for objects without a RUN, and removes what a dead run left there. Returns the
/// ROOT to use for changes.
pub(crate) async fn claim_emptied(
    root: &Root,
    name: &BackupName,
    run: RunId,
    foreign: ForeignObjects,
) -> Result<(Claim, Root), BackupError> {
    let (claim, dead) = Claim::classic(root, name, run).await?;
    let left = match has_orphaned(root, name, dead, foreign).await {
        Ok(left) => left,
        Err(error) => {
            claim.withdraw().await;
            return Err(error);
        }
    };
    let root = claim.hold(root, name).await?;
    if left {
        remove_classic_objects(&root, name).await?;
        root.remove_below(&sums_folder(name)).await?;
    }
    Ok((claim, root))
}

/// Returns whether a dead run, which last refreshed its claim at `dead`, left objects; fails if the objects
/// may not be its own.
async fn has_orphaned(
    root: &Root,
    name: &BackupName,
    dead: Option<i64>,
    foreign: ForeignObjects,
) -> Result<bool, BackupError> {
    // Check this only under the claim: a run that has finished since wrote its manifest before it
    // ended its claim.
    if root.manifest(name).await?.is_some() {
        return Err(RepoError::Exists { name: name.to_string(), state: "" }.into());
    }
    let found = Contents::of(root, name).await?;
    match (found.classic.iter().map(|listed| listed.modified).max(), dead) {
        // The dead run began in an empty folder and ended soon after its last refresh. A newer
        // object belongs to another program, and then all of the objects may.
        (Some(newest), Some(seen)) if belongs_to_run(newest, seen) => {
            if foreign == ForeignObjects::Refuse {
                found.refuse_foreign(name)?;
            }
            // One answer is not enough to remove objects that may be a backup.
            match root.knowing(&root.catalogue().await?).manifest(name).await? {
                Some(_) => {
                    Err(BackupError::Repo(RepoError::Exists { name: name.to_string(), state: "" }))
                }
                None => Ok(true),
            }
        }
        _ => {
            found.refuse_taken(name)?;
            Ok(false)
        }
    }
}

/// Checks that the classic objects `listed` match the ledger, writes their checksums, and sets
/// their digest in the manifest.
pub(crate) async fn prove_classic(
    root: &Root,
    keys: &RunKeys,
    manifest: &mut Manifest,
    ledger: &Ledger,
    listed: &[ListedObject],
) -> Result<(), BackupError> {
    ledger.agrees_with(root, keys, &manifest.name, listed).await?;
    let files = ClassicFiles::of(listed);
    if let Some((digest, sums)) = classic_checksums::of_ledger(&files, ledger) {
        let name = BackupName::new(&manifest.name)?;
        classic_checksums::write(root, &name, &manifest.run, &files, &sums).await?;
        manifest.object_digest = Some(digest);
    }
    Ok(())
}

/// Maximum number of repeated listings if objects are missing. With the usual pauses this takes a
/// minute.
const LISTINGS: u32 = 5;

/// Lists a run's folder and compares it with the run's manifest. A run that was suspended for long
/// may have been considered dead, and its objects removed. A listing may also lag behind the
/// objects, so one that lacks some is repeated.
async fn list_stored(
    root: &Root,
    keys: &RunKeys,
    manifest: &Manifest,
    beside: &CompanionObjects,
) -> Result<Vec<ListedObject>, BackupError> {
    let mut listed = root.list_below(keys.folder()).await?;
    for retry in 1..=LISTINGS {
        if totals(manifest, &listed).0 >= manifest.objects && beside.lists_sums(&listed) {
            break;
        }
        root.store().pause(retry).await;
        listed = root.list_below(keys.folder()).await?;
    }
    all_are_there(manifest, &listed)?;
    beside.prove_sums(keys, &listed)?;
    Ok(listed)
}

/// Number and total size of the listed data objects.
fn totals(manifest: &Manifest, listed: &[ListedObject]) -> (u64, u64) {
    let of_it = |object: &&ListedObject| match manifest.layout {
        Layout::Packed => is_data_object(&object.key),
        Layout::Classic => of_classic(&object.key),
    };
    let add = |(objects, bytes), object: &ListedObject| (objects + 1, bytes + object.size);
    listed.iter().filter(of_it).fold((0, 0), add)
}

pub(crate) fn all_are_there(
    manifest: &Manifest,
    listed: &[ListedObject],
) -> Result<(), BackupError> {
    let (objects, bytes) = totals(manifest, listed);
    if (objects, bytes) == (manifest.objects, manifest.stored_bytes) {
        return Ok(());
    }
    let what = format!(
        "{} objects with {} bytes were stored, but {objects} with {bytes} are there: {REMOVERS} removed or replaced some",
        manifest.objects, manifest.stored_bytes
    );
    Err(BackupError::Damaged { name: manifest.name.clone(), what })
}
