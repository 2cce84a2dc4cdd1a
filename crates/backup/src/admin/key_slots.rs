//! Writes the keys object of a run whose name may be in use: the stored key slots decide which keys open
//! the backup.

use bytes::Bytes;
use xb_repo::claim::Claim;
use xb_repo::error::RepoError;
use xb_repo::names::{BackupName, RunId};
use xb_repo::root::Root;
use xb_uploader::{GuardedOutcome, PresentState};

use crate::error::BackupError;

/// The right to write the keys object of a run. The name is claimed meanwhile, so that two commands do not
/// replace each other's key slots.
pub(super) struct KeySlotsClaim {
    claim: Claim,
    /// Its store refuses to write once the claim is lost.
    held: Root,
    key: String,
}

impl KeySlotsClaim {
    /// Claims the name of the run.
    ///
    /// # Errors
    /// [`RepoError::Running`] while another command holds the name.
    pub(super) async fn new(root: &Root, name: &BackupName, run: RunId) -> Result<Self, RepoError> {
        let (claim, _) = Claim::classic(root, name, run).await?;
        // Older claims go, and this one stays at its end: that of a command that has slept since it
        // compared must not count again.
        let held = claim.hold(root, name).await?;
        Ok(Self { claim, held, key: root.run_keys(name, run).keys() })
    }

    /// Writes the keys object while `expected` accepts what is there, and reads it back.
    ///
    /// # Errors
    /// Any error of [`put_expected`](xb_uploader::Store::put_expected).
    pub(super) async fn put(
        self,
        new: Bytes,
        expected: impl Fn(PresentState<'_>) -> bool,
    ) -> Result<GuardedOutcome, BackupError> {
        let written = self.held.store().put_expected(&self.key, new, expected).await?;
        // After an error the request may still arrive, so the claim stays until it is old.
        if written != (GuardedOutcome::Done { late: true }) {
            self.claim.end().await;
        }
        Ok(written)
    }

    /// Releases the claim; nothing was changed under it.
    pub(super) async fn end(self) {
        self.claim.end().await;
    }
}
