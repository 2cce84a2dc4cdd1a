//! Claims: how a run shows that it is alive, and how a name is reserved for one classic run at a
//! time.
//!
//! The objects of two classic runs of one name have the same keys. So a run claims the name first:
//! claims are numbered, and the highest number counts. A claim is
//!
//! 1. `claiming` while its run checks whether the name is free: nothing is written or removed yet;
//! 2. `holding` from the moment its run removes what a dead run left, until its run is over;
//! 3. `removing` instead, while a command removes the manifest of a backup: the mark shows others that
//!    the backup may be gone in a moment ([`mark`]); then `clearing`, while it removes the objects of a
//!    packed run;
//! 4. `ended` when the run leaves a complete backup, nothing, or recorded objects as the stock tool
//!    leaves them.
//!
//! The highest claim is removed only by `gc` when it is old, or by its own run while it is still
//! `claiming`. So no older claim counts again, however late its run resumes.

mod alive;
mod claim_state;
pub mod commit;
mod earlier;
mod lease;
mod left;
pub mod mark;
mod note;
mod read_again;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use xb_uploader::{Fence, StoreError, StoreErrorKind};

use self::claim_state::SKEW;
pub use self::claim_state::{
    ClaimSnapshot, DEAD, FORGOTTEN, NumberedClaim, Removing, belongs_to_run, claims, numbered,
    refuse_living, snapshot_claim, standing,
};
use self::claim_state::{outdated, refuse_unless_taken};
pub(crate) use self::earlier::is_of_dead_process;
pub use self::earlier::refuse_earlier;
use self::lease::{ClockReading, Lease};
pub use self::left::RemainingObjects;
use self::note::{Note, Phase};
use self::read_again::read_again;
use crate::error::RepoError;
use crate::names::{BackupName, RunId, claims_folder, of_classic};
use crate::root::Root;

/// Interval at which a running backup refreshes its claim.
const REFRESH: Duration = Duration::from_secs(600);

/// Claim of the current run, refreshed in the background until it is dropped.
#[derive(Debug)]
pub struct Claim {
    lease: Option<Arc<Lease>>,
    /// The claim of a packed run, which has no lease.
    packed: Option<Arc<PackedClaim>>,
    /// Number of the claim; 0 for a packed run.
    number: u64,
    refresher: JoinHandle<()>,
}

/// The claim in the folder of a packed run.
#[derive(Debug)]
struct PackedClaim {
    root: Root,
    /// Full key.
    key: String,
    note: Note,
}

impl PackedClaim {
    async fn write(&self) -> Result<(), StoreError> {
        self.root.store().put(&self.key, self.note.encode().into()).await
    }

    async fn confirm(&self) -> Result<(), StoreError> {
        self.write().await?;
        // Another copy of the run writes the same claim.
        let is_own = |bytes: &Bytes| Note::read(bytes).run == self.note.run;
        match read_again(self.root.store(), &self.key, is_own).await {
            Ok(bytes) if is_own(&bytes) => Ok(()),
            Err(error) if error.kind != StoreErrorKind::NotFound => Err(error),
            _ => Err(StoreError::not_kept(&self.key)),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.refresher.abort();
    }
}

impl Claim {
    /// Claims the folder of a packed run. No other run uses the same folder, so there is no
    /// conflict. The claim is created as the manifest will be, so that a store which cannot create
    /// an object only if it is absent is noticed before anything is stored.
    pub async fn packed(root: &Root, name: &BackupName, run: RunId) -> Result<Self, RepoError> {
        let key = root.run_keys(name, run).claim();
        let note = Note { phase: Phase::Holding, ..Note::new(run.to_string())? };
        match root.store().create(&key, note.encode()).await {
            // A copy resumes the run of its source, and its claim exists.
            Err(error) if error.kind == StoreErrorKind::AlreadyExists => {
                root.store().put(&key, note.encode().into()).await?;
            }
            created => created?,
        }
        // If the store ignores the condition, the claim has that content.
        obeys_conditions(root, &key, &note).await?;
        let packed = Arc::new(PackedClaim { root: root.clone(), key, note });
        let renewed = Arc::clone(&packed);
        let refresher = tokio::spawn(async move {
            loop {
                tokio::time::sleep(REFRESH).await;
                // A failed refresh is retried at the next interval: three may fail in a row.
                let _ = renewed.write().await;
            }
        });
        Ok(Self { lease: None, packed: Some(packed), number: 0, refresher })
    }

    /// Claims the name for a classic run, or for a command that removes classic objects. The claim
    /// is [`Phase::Claiming`]: until [`Claim::hold`], nothing may be written or removed.
    ///
    /// Also returns when the dead run whose claim was taken over last refreshed it, in seconds
    /// since 1970.
    ///
    /// # Errors
    /// [`RepoError::Running`] while another run holds the name.
    pub async fn classic(
        root: &Root,
        name: &BackupName,
        run: RunId,
    ) -> Result<(Self, Option<i64>), RepoError> {
        Self::numbered(root, name, Note::new(run.to_string())?).await
    }

    /// Marks `name`: the manifest of `run` is about to be removed. The mark holds for the time of one
    /// lease and is not renewed.
    ///
    /// # Errors
    /// [`RepoError::Running`] while another run or removal holds the name.
    async fn removing(root: &Root, name: &BackupName, run: String) -> Result<Self, RepoError> {
        let note = Note { phase: Phase::Removing, ..Note::new(run)? };
        Ok(Self::numbered(root, name, note).await?.0)
    }

    /// Claims the name in order to remove the objects of a packed run without a manifest: a copy of it,
    /// which has the same keys, waits. Also returns ROOT for the removal, whose store refuses it once the
    /// claim is lost, or the run has become a backup.
    ///
    /// # Errors
    /// [`RepoError::Running`] while another run or removal holds the name.
    pub async fn clearing(
        root: &Root,
        name: &BackupName,
        run: &str,
    ) -> Result<(Self, Root), RepoError> {
        let note = Note { phase: Phase::Clearing, ..Note::new(run.to_owned())? };
        let claim = Self::numbered(root, name, note).await?.0;
        let root = claim.fenced(root);
        Ok((claim, root))
    }

    /// Says that the manifest is gone and the objects follow. Until then the claim is that of a removal.
    async fn clear(&self) -> Result<(), RepoError> {
        let Some(lease) = &self.lease else { return Ok(()) };
        lease.enter(Phase::Clearing);
        Ok(lease.confirm().await?)
    }

    /// Creates the next claim of `name`.
    async fn numbered(
        root: &Root,
        name: &BackupName,
        note: Note,
    ) -> Result<(Self, Option<i64>), RepoError> {
        let begun = ClockReading::now();
        let before = claims(root, name).await?;
        let mut standing = standing(root, &before).await?;
        let mut taken = refuse_unless_taken(root, name, &standing)?;
        let number = before.last().map_or(0, |newest| newest.number).saturating_add(1);
        let late = standing.has_late(root.store().now());
        let note = Note { late, ..note };
        let folder = root.key(&claims_folder(name));
        let running =
            |claim: String| RepoError::Running { name: name.to_string(), claim, seconds: 0 };
        let create = async |key: String| match root.store().create(&key, note.encode()).await {
            Err(error) if error.kind == StoreErrorKind::AlreadyExists => Err(running(key)),
            other => Ok(other.map(|()| key)?),
        };
        // If the store cannot refuse an existing key, two runs must not use the same one.
        let own = || format!("{folder}/{number:06}-{}", note.holder);
        let mut key = match root.store().has_conditions() {
            true => create(format!("{folder}/{number:06}")).await?,
            false => create(own()).await?,
        };
        if root.store().has_conditions() && !obeys_conditions(root, &key, &note).await? {
            let shared = std::mem::replace(&mut key, create(own()).await?);
            match root.store().get(&shared).await {
                Ok(there) if Note::read(&there).holder == note.holder => {
                    root.store().delete(&shared).await?;
                }
                Err(error) if error.kind != StoreErrorKind::NotFound => return Err(error.into()),
                // A run that took the same number wrote it, or has removed it.
                _ => {}
            }
        }
        let lease = Lease::new(root, name, key.clone(), note);
        let claim = Self::refreshed(lease, number);
        // The other run may have refreshed its claim since the check, or claimed the name
        // concurrently.
        let after = claims(root, name).await?;
        let rival = after.iter().rev().find(|other| {
            let was_there = taken || before.contains(other);
            other.key != key && (other.number >= number || !was_there)
        });
        if let Some(rival) = rival {
            claim.withdraw().await;
            return Err(running(rival.key.clone()));
        }
        // The claim itself has shown the store's clock better than responses do: a run that looked dead may be alive.
        if root.store().now() < standing.as_of.saturating_sub(SKEW) {
            standing = self::standing(root, &before).await?;
            match refuse_unless_taken(root, name, &standing) {
                Ok(from_living) => taken |= from_living,
                Err(alive) => {
                    claim.withdraw().await;
                    return Err(alive);
                }
            }
            if let Some(lease) = &claim.lease
                && standing.has_late(root.store().now())
            {
                lease.expect_late();
            }
        }
        if taken && let (Some(take_over), Some(holder)) = (root.take_over(), &standing.holder) {
            take_over.tell(holder);
        }
        if let Some(lease) = &claim.lease {
            lease.start(begun);
        }
        Ok((claim, standing.seen))
    }

    /// ROOT for changes under this claim: its store refuses them once the claim is lost.
    pub fn fenced(&self, root: &Root) -> Root {
        match &self.lease {
            Some(lease) => root.fenced(Arc::clone(lease) as Arc<dyn Fence>),
            None => root.clone(),
        }
    }

    fn refreshed(lease: Arc<Lease>, number: u64) -> Self {
        let renewed = Arc::clone(&lease);
        let refresher = tokio::spawn(async move {
            loop {
                tokio::time::sleep(REFRESH).await;
                // A failed refresh is retried at the next interval, or by a request that needs the
                // claim.
                if let Err(error) = renewed.confirm().await
                    && error.kind == StoreErrorKind::Fenced
                {
                    return;
                }
            }
        });
        Self { lease: Some(lease), packed: None, number, refresher }
    }

    /// Holds the name: from here on objects may be written and removed. Returns the ROOT to use for
    /// it, whose store refuses changes once the claim is lost.
    pub async fn hold(&self, root: &Root, name: &BackupName) -> Result<Root, RepoError> {
        let Some(lease) = &self.lease else { return Ok(root.clone()) };
        lease.enter(Phase::Holding);
        lease.confirm().await?;
        let root = self.fenced(root);
        self.remove_older(&root, name).await?;
        end_uploads(&root, name).await?;
        Ok(root)
    }

    /// Removes the claims before this one, which covers everything that they recorded. A newer one is
    /// that of a run that takes over, and must stay: it fences this run.
    async fn remove_older(&self, root: &Root, name: &BackupName) -> Result<(), RepoError> {
        let mut older = claims(root, name).await?;
        older.retain(|claim| claim.number < self.number);
        root.store().delete_all(outdated(root, older).await?).await?;
        Ok(())
    }

    /// Rewrites the claim, and checks that no later run has replaced it. The refresher does not run while the machine is
    /// suspended, so the claim may be old although its run lives. Whoever takes a packed run for dead looks at its claim
    /// under a mark: so it sees this claim, or who looks for marks afterwards sees that one.
    ///
    /// # Errors
    /// If one has, or if that cannot be determined.
    pub async fn confirm(&self) -> Result<(), RepoError> {
        match (&self.lease, &self.packed) {
            (Some(lease), _) => Ok(lease.decide().await?),
            (None, Some(packed)) => Ok(packed.confirm().await?),
            (None, None) => Ok(()),
        }
    }

    /// Returns whether this is a numbered claim, which holds the name.
    pub fn holds_name(&self) -> bool {
        self.lease.is_some()
    }

    /// Returns whether this is the newest claim. Always true for a packed run.
    pub async fn is_newest(&self) -> Result<bool, RepoError> {
        match &self.lease {
            Some(lease) => Ok(lease.is_newest().await?),
            None => Ok(true),
        }
    }

    /// Returns whether a run before this one may have been alive, so that its objects may still arrive.
    #[must_use]
    pub fn has_predecessor(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.has_predecessor())
    }

    /// Waits until the claim is lost, and returns the reason. The claim of a packed run is never
    /// lost.
    pub async fn lost(&self) -> RepoError {
        match &self.lease {
            Some(lease) => lease.lost().await.into(),
            None => std::future::pending().await,
        }
    }

    /// Frees the name for the next run, once no object remains that the next run would have to
    /// remove.
    pub async fn end(&self) {
        let Some(lease) = &self.lease else { return };
        self.refresher.abort();
        lease.enter(Phase::Ended);
        // A claim that cannot be written delays other runs only for a short time.
        let _ = lease.confirm().await;
    }

    /// Ends a run whose objects stay without a manifest, as the stock tool leaves them.
    ///
    /// # Errors
    /// If the claim cannot record them: then they count as objects of a failed run.
    pub async fn end_leaving(&self, left: RemainingObjects) -> Result<(), RepoError> {
        let Some(lease) = &self.lease else { return Ok(()) };
        self.refresher.abort();
        lease.leave(left);
        lease.enter(Phase::Ended);
        Ok(lease.confirm().await?)
    }

    /// Says that the objects without a manifest are a stock backup: if the command that removes some of them dies, the
    /// others are not what a dead run left.
    ///
    /// # Errors
    /// If the claim cannot record it.
    pub async fn leave_stock(&self) -> Result<(), RepoError> {
        let Some(lease) = &self.lease else { return Ok(()) };
        lease.leave_stock();
        Ok(lease.write().await?)
    }

    /// Gives up a claim under which nothing was done.
    pub async fn withdraw(&self) {
        let Some(lease) = &self.lease else { return };
        self.refresher.abort();
        let _ = lease.withdraw().await;
    }
}

/// Returns whether the store refuses to create the claim `key` of `note` again. The same claim, encoded
/// again, has other bytes; so whatever the store does, the claim is right.
async fn obeys_conditions(root: &Root, key: &str, note: &Note) -> Result<bool, RepoError> {
    // Links of a file system do not need this.
    Ok(root.store().is_folder() || root.store().refuses_existing(key, note.encode()).await?)
}

/// Returns whether bytes are a claim that states its phase. Reads every field, for fuzzing.
#[doc(hidden)]
pub fn has_claim_phase(bytes: &[u8]) -> bool {
    let note = Note::read(bytes);
    let _ = (note.describe(), alive::is_proven_dead(&note.mark));
    note.phase != Phase::Holding
}

/// Aborts multipart uploads that a dead run began below `name`: if the run resumed, it could
/// complete them.
async fn end_uploads(root: &Root, name: &BackupName) -> Result<(), RepoError> {
    let folder = root.key(&format!("{name}/"));
    let uploads = match root.store().unfinished_uploads(&folder).await {
        // Not every store can list uploads, and not every account may.
        Err(error) if matches!(error.kind, StoreErrorKind::Denied | StoreErrorKind::Rejected) => {
            return Ok(());
        }
        uploads => uploads?,
    };
    for upload in uploads {
        if upload.key.strip_prefix(&folder).is_some_and(of_classic) {
            root.store().abort(&upload).await?;
        }
    }
    Ok(())
}
