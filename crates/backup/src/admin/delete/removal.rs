//! Carries out deletions: the manifest first, then the objects.
//!
//! An incremental run looks for its base once more after it has committed its own manifest; see
//! [`settle_base`](crate::write::settle_base). A removal does the opposite: it removes the manifest,
//! and then looks for new backups that depend on it. So at least one of the two sees the other.

use bytes::Bytes;
use futures::future::join_all;
use xb_uploader::StoreErrorKind;

use crate::admin::delete::plan::{DeletionPlan, refuse_changed, refuse_pinned};
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

/// A removal that has begun: nothing is removed yet.
pub(crate) struct Removal {
    name: BackupName,
    plan: DeletionPlan,
    /// ROOT for changes.
    root: Root,
    /// Claim of a backup that has objects without a RUN.
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

    /// RUN of the backup; `None` if its manifest is missing or damaged.
    pub(crate) fn run(&self) -> Option<&str> {
        self.plan.how.run.as_deref()
    }

    /// Number of objects to remove.
    pub(crate) fn objects(&self) -> usize {
        self.plan.objects.len()
    }

    /// Removes the backup, whether others depend on it or not.
    ///
    /// # Errors
    /// [`BackupError::Store`].
    pub(super) async fn remove(self) -> Result<Deleted, BackupError> {
        if let Some(key) = &self.plan.manifest {
            self.root.store().delete(key).await?;
        }
        WithoutManifest { removal: self, manifest: None }.remove_objects().await
    }

    /// Leaves the backup as it is.
    pub(crate) async fn give_up(self) {
        end(self.claim).await;
    }

    /// Removes the manifest, unless it has been replaced or removed: then the removal is over. Also
    /// returns the error, if any.
    async fn take_manifest(self) -> (Option<WithoutManifest>, Option<BackupError>) {
        let Some(key) = &self.plan.manifest else {
            return (Some(WithoutManifest { removal: self, manifest: None }), None);
        };
        let manifest = match self.root.store().get(key).await {
            Ok(manifest) => manifest,
            Err(error) if error.kind == StoreErrorKind::NotFound => {
                return (None, None);
            }
            Err(error) => return (None, Some(error.into())),
        };
        let digest = Manifest::decode(&manifest).ok().map(|stored| stored.digest());
        if digest != self.plan.how.digest {
            return (None, None);
        }
        // After an error, it may be gone all the same.
        let error = self.root.store().delete(key).await.err().map(BackupError::from);
        (Some(WithoutManifest { removal: self, manifest: Some(manifest) }), error)
    }
}

/// A removal that has removed the manifest, if there was one, and no object.
pub(crate) struct WithoutManifest {
    removal: Removal,
    manifest: Option<Bytes>,
}

impl WithoutManifest {
    /// Name of the backup.
    pub(crate) fn name(&self) -> &BackupName {
        &self.removal.name
    }

    fn decoded(&self) -> Option<Manifest> {
        let stored = Manifest::decode(self.manifest.as_ref()?).ok();
        stored.map(|StoredManifest { manifest, .. }| manifest)
    }

    /// Fails if the backup was pinned since the plan.
    async fn refuse_pinned(&self) -> Result<(), BackupError> {
        let Removal { name, plan, root, .. } = &self.removal;
        refuse_pinned(root, name, plan.how.digest.as_deref()).await
    }

    /// Fails if `known` backups depend on this one.
    async fn refuse_dependents(&self, known: &Known) -> Result<(), BackupError> {
        let Some(manifest) = self.decoded() else { return Ok(()) };
        refuse_dependents(&self.removal.root, self.name(), &manifest, known).await
    }

    /// Puts the manifest back.
    async fn put_back(self) -> Result<(), BackupError> {
        let Removal { plan, root, claim, .. } = self.removal;
        if let Some((key, manifest)) = plan.manifest.as_ref().zip(self.manifest) {
            match root.store().create(key, manifest.clone()).await {
                // The store had not removed it.
                Err(error)
                    if error.kind == StoreErrorKind::AlreadyExists
                        && root.store().get(key).await? == manifest => {}
                outcome => outcome?,
            }
        }
        end(claim).await;
        Ok(())
    }

    /// Removes the objects.
    ///
    /// # Errors
    /// [`BackupError::Store`]. What is left can be deleted again, or by `gc`.
    pub(crate) async fn remove_objects(self) -> Result<Deleted, BackupError> {
        let Removal { plan, root, claim, .. } = self.removal;
        let objects = plan.objects.len() as u64;
        let keys = plan.objects.into_iter().map(|object| object.key).collect();
        root.store().delete_all(keys).await?;
        end(claim).await;
        Ok(Deleted { objects, left: plan.how.left })
    }
}

/// Frees the name. After an error the claim stays: the objects that are left have no RUN.
async fn end(claim: Option<Claim>) {
    if let Some(claim) = claim {
        claim.end().await;
    }
}

/// Removals whose manifests are gone for good, and what became of the others.
#[derive(Default)]
pub(crate) struct Settled {
    /// Their objects can be removed.
    pub(crate) unneeded: Vec<WithoutManifest>,
    /// The backups that stay, and why.
    pub(crate) kept: Vec<(BackupName, BackupError)>,
    /// The first error of the store. The backups concerned stay.
    pub(crate) failed: Option<BackupError>,
    /// The first error of putting one back, which leaves it without its manifest.
    pub(crate) lost: Option<BackupError>,
}

/// Removes the manifests, and puts back those of backups that were pinned since, or on which others
/// depend now. A backup that was replaced or removed since is left out. In `begun`, a backup must come
/// before its base.
///
/// With many backups, listing the catalogue costs more than a removal, so it is done once per batch. If
/// this is interrupted, manifests may be missing on which new backups depend.
pub(crate) async fn settle(root: &Root, begun: Vec<Removal>, known: &mut Known) -> Settled {
    let (mut without, mut back) = (Vec::new(), Vec::new());
    let mut failed = None;
    for taken in join_all(begun.into_iter().map(Removal::take_manifest)).await {
        match taken {
            (Some(removal), None) => without.push(removal),
            (Some(mut removal), error) => {
                // The claim does not end: the request may still take effect after the return.
                drop(removal.removal.claim.take());
                back.push((removal, None));
                failed = failed.or(error);
            }
            // The claim does not end: the objects may have no manifest now.
            (None, error) => failed = failed.or(error),
        }
    }
    if without.is_empty() && back.is_empty() {
        return Settled { failed, ..Settled::default() };
    }
    let pinned = join_all(without.iter().map(WithoutManifest::refuse_pinned)).await;
    let listed = known.refresh(root).await;
    for (removal, _) in &back {
        known.add(removal.name(), removal.decoded());
    }
    let mut unneeded = Vec::new();
    for (removal, pinned) in without.into_iter().zip(pinned) {
        let why = match (&listed, pinned) {
            (Err(_), _) => None,
            (Ok(()), Err(pinned)) => Some(pinned),
            (Ok(()), Ok(())) => match removal.refuse_dependents(known).await {
                Ok(()) => {
                    unneeded.push(removal);
                    continue;
                }
                Err(needed) => Some(needed),
            },
        };
        // What it depends on must stay, too.
        known.add(removal.name(), removal.decoded());
        let why = match why {
            Some(BackupError::Store(_)) | None => {
                failed = failed.or(why);
                None
            }
            Some(why) => Some((removal.name().clone(), why)),
        };
        back.push((removal, why));
    }
    let mut settled = Settled { unneeded, failed: failed.or(listed.err()), ..Settled::default() };
    let back = back.into_iter().map(|(removal, why)| async { (removal.put_back().await, why) });
    for (outcome, why) in join_all(back).await {
        match outcome {
            Ok(()) => settled.kept.extend(why),
            Err(error) => settled.lost = settled.lost.or(Some(error)),
        }
    }
    settled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::delete::plan::plan;
    use crate::admin::pin::pin;
    use crate::catalog::manifest::{Base, sample};

    /// A ROOT with the backup `old`, whose removal has begun.
    async fn begun() -> (tempfile::TempDir, Root, Removal, Known) {
        use xb_uploader::{Location, Place, Policy, StoreSettings};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
        let location = Location { place: Place::Local, path };
        let root =
            Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap();
        commit(&root, "old", |old| old.source.to_lsn = Some(20)).await;
        let known = Known::of(&root).await.unwrap();
        let planned = plan(&root, &name("old")).await.unwrap();
        let removal = Removal::begin(&root, planned).await.unwrap();
        (folder, root, removal, known)
    }

    fn name(of: &str) -> BackupName {
        BackupName::new(of).unwrap()
    }

    async fn commit(root: &Root, of: &str, change: impl FnOnce(&mut Manifest)) {
        let mut manifest = sample();
        manifest.name = of.to_owned();
        change(&mut manifest);
        root.commit(&name(of), &manifest, None).await.unwrap();
    }

    async fn is_there(root: &Root, run: &str) -> bool {
        root.manifest(&name("old")).await.unwrap().is_some_and(|manifest| manifest.run == run)
    }

    #[tokio::test]
    async fn the_planned_manifest_goes() {
        let (_folder, root, removal, mut known) = begun().await;
        let settled = settle(&root, vec![removal], &mut known).await;
        assert_eq!((settled.unneeded.len(), settled.kept.len()), (1, 0));
        assert!(settled.failed.or(settled.lost).is_none() && !is_there(&root, &sample().run).await);
    }

    #[tokio::test]
    async fn a_manifest_that_was_replaced_or_removed_since_stays_as_it_is() {
        for replaced in [true, false] {
            let (folder, root, removal, mut known) = begun().await;
            std::fs::remove_file(folder.path().join(".xb-catalog/old")).unwrap();
            let run = "f".repeat(32);
            if replaced {
                commit(&root, "old", |manifest| manifest.run.clone_from(&run)).await;
            }
            let settled = settle(&root, vec![removal], &mut known).await;
            assert_eq!((settled.unneeded.len(), settled.kept.len()), (0, 0));
            assert!(settled.failed.or(settled.lost).is_none());
            assert_eq!(is_there(&root, &run).await, replaced);
        }
    }

    /// Makes the manifest that of an increment of `old`.
    type Increment = fn(&mut Manifest);

    #[tokio::test]
    async fn what_is_needed_by_now_is_put_back() {
        let by_name: Increment =
            |late| late.base = Some(Base { name: "old".into(), run: sample().run });
        let by_position: Increment = |late| {
            late.source.backup_type = Some("incremental".into());
            late.source.from_lsn = Some(20);
        };
        for increment in [by_name, by_position] {
            let (_folder, root, removal, mut known) = begun().await;
            commit(&root, "late", |late| {
                late.run = "f".repeat(32);
                increment(late);
            })
            .await;
            let settled = settle(&root, vec![removal], &mut known).await;
            assert!(settled.unneeded.is_empty() && settled.failed.or(settled.lost).is_none());
            assert!(matches!(settled.kept[..], [(_, BackupError::Needed { .. })]));
            assert!(is_there(&root, &sample().run).await);
        }
    }

    #[tokio::test]
    async fn what_is_pinned_by_now_is_put_back() {
        let (_folder, root, removal, mut known) = begun().await;
        pin(&root, &name("old"), None).await.unwrap();
        let settled = settle(&root, vec![removal], &mut known).await;
        assert!(settled.unneeded.is_empty() && settled.failed.or(settled.lost).is_none());
        assert!(matches!(settled.kept[..], [(_, BackupError::Pinned { .. })]));
        assert!(is_there(&root, &sample().run).await);
    }
}
