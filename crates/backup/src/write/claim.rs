//! The name of a backup and the folder of its objects: claimed for a run, and given up after a failure.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use xb_repo::claim::{Claim, RemainingObjects, belongs_to_run, refuse_earlier};
use xb_repo::contents::Contents;
use xb_repo::error::RepoError;
use xb_repo::keys::RunKeys;
use xb_repo::manifest::Layout;
use xb_repo::names::{BackupName, RunId, of_classic, sums_folder};
use xb_repo::root::Root;
use xb_uploader::StoreErrorKind;

use super::lost_objects::{free_if_vacant, is_vacant};
use super::request::{PutLayout, PutRequest};
use crate::error::BackupError;
use crate::objects::classic::remove_classic_objects;
use crate::objects::ledger::{Ledger, Owner};
use crate::session::Session;

/// Number of names that are tried before the last one, if the name is generated.
const GENERATED_NAMES: u32 = 5;

/// Time limit of the cleanup after a failure, which may itself be caused by the store.
const CLEAN_UP: Duration = Duration::from_secs(60);
/// Time that a claim on its way has to arrive after a request to cancel.
const CLAIM_ARRIVAL: Duration = Duration::from_secs(5);

/// Refuses a name that has a backup, before the input is read; not one that was generated, because
/// the run can take another one. Returns whether the name has a manifest of a backup that has lost
/// all its objects.
pub(crate) async fn refuse_taken(root: &Root, request: &PutRequest) -> Result<bool, BackupError> {
    let name = &request.name;
    if request.generated {
        return Ok(false);
    }
    let Some(manifest) = root.manifest(name).await? else { return Ok(false) };
    if !is_vacant(root, name, &manifest).await? {
        let state = if manifest.layout == Layout::Packed { "" } else { " (classic layout)" };
        return Err(RepoError::Exists { name: name.to_string(), state }.into());
    }
    Ok(true)
}

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
    /// Claims a folder for the run. After a request to cancel, the claim that is on its way is given back.
    pub(super) async fn claim(
        session: &Session,
        request: &PutRequest,
        taken: bool,
    ) -> Result<Self, BackupError> {
        let mut claiming = Box::pin(Self::claim_a_name(&session.root, request, taken));
        let signal = tokio::select! {
            claimed = &mut claiming => return claimed,
            signal = session.cancel.cancelled() => signal,
        };
        let interrupted = BackupError::Interrupted(signal);
        // Dropped, the request may arrive after the run, and leave its claim.
        if let Ok(Ok(folder)) = tokio::time::timeout(CLAIM_ARRIVAL, claiming).await {
            folder.give_up(request, &interrupted).await;
        }
        Err(interrupted)
    }

    /// Claims the name of the request, or one made from it if that was generated. If the future is dropped, the
    /// remaining claim delays other runs only for a short time.
    async fn claim_a_name(
        root: &Root,
        request: &PutRequest,
        taken: bool,
    ) -> Result<Self, BackupError> {
        if taken && !free_if_vacant(root, &request.name).await? {
            return Err(RepoError::Exists { name: request.name.to_string(), state: "" }.into());
        }
        let mut name = request.name.clone();
        for _ in 0..GENERATED_NAMES {
            match Self::claim_name(root, request, name).await {
                Err(BackupError::Repo(RepoError::Exists { .. } | RepoError::Running { .. }))
                    if request.generated => {}
                outcome => return outcome,
            }
            // Random: runs that begin together would count up together.
            let digits: String = RunId::random()?.to_string().chars().take(4).collect();
            name = BackupName::new(&format!("{}-{digits}", request.name))?;
        }
        Self::claim_name(root, request, name).await
    }

    async fn claim_name(
        root: &Root,
        request: &PutRequest,
        name: BackupName,
    ) -> Result<Self, BackupError> {
        root.refuse_links(&name)?;
        let run = RunId::random()?;
        match request.layout.kind() {
            Layout::Packed => {
                let claim = Claim::packed(root, &name, run).await?;
                let keys = root.run_keys(&name, run);
                let (root, sent) = (root.clone(), Mutex::default());
                let folder = Self { run, name, keys, claim, root, sent };
                if let Err(taken) = folder.refuse_rivals(request.generated).await {
                    let _ = folder.clean_up(request, false).await;
                    return Err(taken);
                }
                Ok(folder)
            }
            Layout::Classic => {
                let (claim, root) = claim_emptied(root, &name, run, ForeignObjects::Refuse).await?;
                let (keys, sent) = (root.classic_keys(&name), Mutex::default());
                Ok(Self { run, name, keys, claim, root, sent })
            }
        }
    }

    /// Refuses a name whose objects our manifest would hide, or for which another packed run that
    /// began earlier may be alive: only one of two can commit.
    async fn refuse_rivals(&self, generated: bool) -> Result<(), BackupError> {
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

    /// Removes what the failed run wrote. The result does not matter: the first cause is known, and
    /// remaining objects belong to an abandoned run, not to a backup. But if a manifest may have been
    /// written, its objects must stay.
    pub(super) async fn give_up(&self, request: &PutRequest, error: &BackupError) {
        let met = match error {
            BackupError::Repo(RepoError::InDoubt { .. }) => return,
            // Its objects stay, as the stock tool leaves them.
            BackupError::Incomplete { .. } if request.layout.kind() == Layout::Classic => return,
            BackupError::Repo(RepoError::Store(source)) => {
                source.kind == StoreErrorKind::AlreadyExists
            }
            _ => false,
        };
        let _ = tokio::time::timeout(CLEAN_UP, self.clean_up(request, met)).await;
    }

    /// Removes the objects that the failed run wrote, and frees the name.
    ///
    /// `met` says that the run met an object of another one. If that object may belong to a live
    /// run of this program, the claim is kept and marked as dead, so that its objects are not mistaken for a stock backup.
    async fn clean_up(&self, request: &PutRequest, met: bool) -> Result<(), BackupError> {
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
