//! Claims: how a run shows that it is alive, and how one classic run at a time has a name.
//!
//! The objects of two classic runs of one name have the same keys. So a run claims the name first:
//! claims are numbered, and the highest number counts. A claim is
//!
//! 1. `claiming` while its run looks whether it may have the name: nothing is written or removed yet;
//! 2. `holding` from the moment it removes what a dead run has left, until the run is over;
//! 3. `ended` when nothing of the run is left but a complete backup, or nothing at all.
//!
//! The highest claim is never removed, but by `gc` when it is old, or by its own run while it is still
//! `claiming`. So no older claim counts again, however late its run wakes up.

mod alive;
mod lease;
mod note;
mod standing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use xb_uploader::{Gate, StoreErrorKind};

use self::lease::Lease;
use self::note::{Note, Phase};
use self::standing::refuse_unless_taken;
pub(crate) use self::standing::{
    DEAD, FORGOTTEN, Numbered, claims, is_unfinished, may_be_its_own, refuse_living, standing,
};
use crate::catalog::names::{BackupName, CLAIM, RunId, claims_folder, of_classic, run_folder};
use crate::catalog::root::Root;
use crate::error::BackupError;

/// How often a claim is refreshed while its run goes on.
const REFRESH: Duration = Duration::from_secs(600);

/// A claim of ours, refreshed in the background until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    lease: Option<Arc<Lease>>,
    refresher: JoinHandle<()>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.refresher.abort();
    }
}

impl Claim {
    /// Claims the folder of a packed run. No other run has the same, so there is nothing to win.
    pub(crate) async fn packed(
        root: &Root,
        name: &BackupName,
        run: RunId,
    ) -> Result<Self, BackupError> {
        let key = root.key(&format!("{}/{CLAIM}", run_folder(name, run)));
        let note = Note { phase: Phase::Holding, ..Note::new(run)? };
        root.store().put(&key, note.encode().into()).await?;
        let root = root.clone();
        let refresher = tokio::spawn(async move {
            loop {
                tokio::time::sleep(REFRESH).await;
                // A refresh that fails is tried again at the next turn: three may fail in a row.
                let _ = root.store().put(&key, note.encode().into()).await;
            }
        });
        Ok(Self { lease: None, refresher })
    }

    /// Claims the name for a classic run, or for one that removes classic objects. The claim is
    /// [`Phase::Claiming`]: until [`Claim::hold`] nothing may be written or removed.
    ///
    /// Also gives when the dead run whose claim was taken over gave its last sign of life, seconds
    /// since 1970.
    ///
    /// # Errors
    /// [`BackupError::Running`] while another one has the name.
    pub(crate) async fn classic(
        root: &Root,
        name: &BackupName,
        run: RunId,
    ) -> Result<(Self, Option<i64>), BackupError> {
        let before = claims(root, name).await?;
        let standing = standing(root, &before).await?;
        let taken = refuse_unless_taken(root, name, &standing)?;
        let number = before.last().map_or(0, |newest| newest.number).saturating_add(1);
        let note = Note::new(run)?;
        let folder = root.key(&claims_folder(name));
        // Where a store cannot refuse a key that is there, two must not share one.
        let key = match root.store().has_conditions() {
            true => format!("{folder}/{number:06}"),
            false => format!("{folder}/{number:06}-{}", note.holder),
        };
        let running =
            |claim: String| BackupError::Running { name: name.to_string(), claim, seconds: 0 };
        let content = note.encode();
        let lease = Lease::new(root, name, key.clone(), note);
        match root.store().create(&key, content).await {
            Err(error) if error.kind == StoreErrorKind::AlreadyExists => return Err(running(key)),
            other => other?,
        }
        let claim = Self::refreshed(lease);
        // The other one may have given a sign of life since it was judged, or have come at the same time.
        let after = claims(root, name).await?;
        let rival = after.iter().rev().find(|other| {
            let was_there = taken || before.contains(other);
            other.key != key && (other.number >= number || !was_there)
        });
        if let Some(rival) = rival {
            claim.withdraw().await;
            return Err(running(rival.key.clone()));
        }
        if taken && let (Some(take_over), Some(holder)) = (root.take_over(), &standing.holder) {
            take_over.tell(holder);
        }
        Ok((claim, standing.seen))
    }

    fn refreshed(lease: Arc<Lease>) -> Self {
        let renewed = Arc::clone(&lease);
        let refresher = tokio::spawn(async move {
            loop {
                tokio::time::sleep(REFRESH).await;
                // What fails is tried again at the next turn, or by a request that needs it.
                if let Err(error) = renewed.confirm().await
                    && error.kind == StoreErrorKind::Fenced
                {
                    return;
                }
            }
        });
        Self { lease: Some(lease), refresher }
    }

    /// Takes the name: from here on objects may be written and removed. Gives the ROOT to do it with,
    /// whose store refuses when the claim is lost.
    pub(crate) async fn hold(&self, root: &Root, name: &BackupName) -> Result<Root, BackupError> {
        let Some(lease) = &self.lease else { return Ok(root.clone()) };
        lease.enter(Phase::Holding);
        lease.confirm().await?;
        let root = root.gated(Arc::clone(lease) as Arc<dyn Gate>);
        // Now that it says what all of them said, older ones are not needed any more.
        let older = claims(&root, name).await?.into_iter().map(|claim| claim.key);
        let older = older.filter(|key| key != lease.key()).collect();
        root.store().delete_all(older).await?;
        end_uploads(&root, name).await?;
        Ok(root)
    }

    /// Makes sure that no later run has taken this claim's place.
    ///
    /// # Errors
    /// When one has, or when that cannot be found out.
    pub(crate) async fn confirm(&self) -> Result<(), BackupError> {
        match &self.lease {
            Some(lease) => Ok(lease.confirm().await?),
            None => Ok(()),
        }
    }

    /// Whether it is the newest claim. Of a packed run it always is.
    pub(crate) async fn is_newest(&self) -> Result<bool, BackupError> {
        match &self.lease {
            Some(lease) => Ok(lease.is_newest().await?),
            None => Ok(true),
        }
    }

    /// Waits until the claim is lost, and says why. The claim of a packed run never is.
    pub(crate) async fn lost(&self) -> BackupError {
        match &self.lease {
            Some(lease) => lease.lost().await.into(),
            None => std::future::pending().await,
        }
    }

    /// Makes the name free for the next run: nothing is left that it would have to remove.
    pub(crate) async fn end(&self) {
        let Some(lease) = &self.lease else { return };
        self.refresher.abort();
        lease.enter(Phase::Ended);
        // A claim that cannot be written holds nobody up for long.
        let _ = lease.confirm().await;
    }

    /// Gives up a claim under which nothing has been done.
    pub(crate) async fn withdraw(&self) {
        let Some(lease) = &self.lease else { return };
        self.refresher.abort();
        let _ = lease.withdraw().await;
    }
}

/// Ends uploads in parts that a dead run has begun below `name`: it could complete them when it wakes up.
async fn end_uploads(root: &Root, name: &BackupName) -> Result<(), BackupError> {
    let folder = root.key(&format!("{name}/"));
    let uploads = match root.store().unfinished_uploads(&folder).await {
        // Not every store lists them, and not every key may ask.
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
