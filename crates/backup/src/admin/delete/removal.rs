//! Carries out deletions: the manifest first, then the objects.
//!
//! An incremental run looks for its base once more after it has committed its own manifest; see
//! [`settle_base`](crate::write::settle_base). A removal does the opposite: it removes the manifest,
//! and then looks for new backups that depend on it. So at least one of the two sees the other.

use bytes::Bytes;
use futures::future::join_all;

use crate::admin::delete::plan::{DeletionPlan, refuse_changed};
use crate::catalog::chain::refuse_dependents;
use crate::catalog::manifest::{Manifest, StoredManifest};
use crate::catalog::names::{BackupName, RunId};
use crate::catalog::resolve::Known;
use crate::catalog::root::Root;
use crate::claim::Claim;
use crate::error::BackupError;

/// Result of a delete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Number of removed objects, without the manifest.
    pub objects: u64,
    /// Objects of packed runs that stay, because a damaged manifest does not show whose they are.
    pub left: u64,
}

/// The removal of one backup.
pub(crate) struct Removal {
    name: BackupName,
    plan: DeletionPlan,
    /// ROOT for changes.
    root: Root,
    /// Of a backup that has objects without a RUN.
    claim: Option<Claim>,
}

impl Removal {
    /// Checks that the manifest is the planned one, and claims the name if necessary.
    ///
    /// # Errors
    /// [`BackupError::Changed`]; those of the claim.
    pub(super) async fn begin(root: &Root, plan: DeletionPlan) -> Result<Self, BackupError> {
        let name = BackupName::new(&plan.name)?;
        if !plan.how.claimed {
            refuse_changed(root, &name, &plan).await?;
            return Ok(Self { name, plan, root: root.clone(), claim: None });
        }
        let (claim, _) = Claim::classic(root, &name, RunId::random()?).await?;
        // Another run or delete may have ended between the plan and the claim.
        if let Err(changed) = refuse_changed(root, &name, &plan).await {
            claim.withdraw().await;
            return Err(changed);
        }
        let root = claim.hold(root, &name).await?;
        Ok(Self { name, plan, root, claim: Some(claim) })
    }

    /// Removes exactly what is planned.
    ///
    /// # Errors
    /// [`BackupError::Store`].
    pub(super) async fn remove(self) -> Result<Deleted, BackupError> {
        if let Some(key) = &self.plan.manifest {
            self.root.store().delete(key).await?;
        }
        self.remove_objects().await
    }

    /// Removes the manifest, and returns it.
    async fn remove_manifest(self) -> Result<WithoutManifest, BackupError> {
        let manifest = match &self.plan.manifest {
            None => None,
            Some(key) => {
                let saved = self.root.store().get(key).await?;
                self.root.store().delete(key).await?;
                Some(saved)
            }
        };
        Ok(WithoutManifest { removal: self, manifest })
    }

    async fn remove_objects(self) -> Result<Deleted, BackupError> {
        let Self { plan, root, claim, .. } = self;
        let keys = plan.objects.iter().map(|object| object.key.clone()).collect();
        root.store().delete_all(keys).await?;
        end(claim).await;
        Ok(Deleted { objects: plan.objects.len() as u64, left: plan.how.left })
    }
}

/// A removal that has removed the manifest, if there was one, and no object.
struct WithoutManifest {
    removal: Removal,
    manifest: Option<Bytes>,
}

impl WithoutManifest {
    /// Fails if a `known` backup depends on this one. In that case this one is known, too: what it
    /// depends on must stay as well.
    fn refuse_dependents(&self, known: &mut Known) -> Result<(), BackupError> {
        let stored = self.manifest.as_ref().and_then(|saved| Manifest::decode(saved).ok());
        let Some(StoredManifest { manifest, .. }) = stored else { return Ok(()) };
        let name = &self.removal.name;
        refuse_dependents(name, &manifest.run, known).inspect_err(|_| known.add(name, manifest))
    }

    async fn put_back(self) -> Result<(), BackupError> {
        let Removal { plan, root, claim, .. } = self.removal;
        if let Some((key, manifest)) = plan.manifest.as_ref().zip(self.manifest) {
            root.store().create(key, manifest).await?;
        }
        end(claim).await;
        Ok(())
    }
}

/// Gives the name free. After an error the claim stays: the objects that are left have no RUN.
async fn end(claim: Option<Claim>) {
    if let Some(claim) = claim {
        claim.end().await;
    }
}

/// Carries out removals that have begun, of which those come first that depend on others. Tells
/// `done` the outcome of each at once: [`BackupError::Needed`] if a backup was put back because
/// another one depends on it by now.
///
/// All manifests are removed before the catalogue is listed: with many backups, a listing costs more
/// than a removal.
///
/// # Errors
/// The first error of the store. Later backups are put back, as far as the store allows.
pub(crate) async fn remove_unless_needed(
    root: &Root,
    begun: Vec<Removal>,
    known: &mut Known,
    mut done: impl FnMut(&BackupName, Result<Deleted, BackupError>),
) -> Result<(), BackupError> {
    let mut failed = None;
    let mut without_manifest = Vec::new();
    for removal in begun {
        if failed.is_some() {
            end(removal.claim).await;
            continue;
        }
        match removal.remove_manifest().await {
            Ok(removal) => without_manifest.push(removal),
            Err(error) => failed = Some(error),
        }
    }
    if let Err(error) = known.refresh(root).await {
        put_back(without_manifest).await;
        return Err(failed.unwrap_or(error));
    }
    let mut left = without_manifest.into_iter();
    for next in left.by_ref() {
        let name = next.removal.name.clone();
        let outcome = match next.refuse_dependents(known) {
            Ok(()) => next.removal.remove_objects().await,
            Err(needed) => next.put_back().await.and(Err(needed)),
        };
        match outcome {
            Ok(_) | Err(BackupError::Needed { .. }) => done(&name, outcome),
            Err(error) => {
                failed.get_or_insert(error);
                break;
            }
        }
    }
    put_back(left).await;
    failed.map_or(Ok(()), Err)
}

/// Puts backups back after an error, which is reported. What cannot be put back looks like an
/// interrupted delete.
async fn put_back(all: impl IntoIterator<Item = WithoutManifest>) {
    join_all(all.into_iter().map(WithoutManifest::put_back)).await;
}
