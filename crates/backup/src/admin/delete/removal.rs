//! Carries out deletions: the manifest first, then the objects.
//!
//! The name is marked first ([`xb_repo::claim::mark`]). Under the mark it is decided whether the backup may
//! go; until then nothing changes, so a backup that stays, or whose removal is interrupted, is whole.

use std::time::Duration;

use futures::future::join_all;
use xb_repo::chain::refuse_dependents;
use xb_repo::claim::Claim;
use xb_repo::claim::mark::{Mark, Removed};
use xb_repo::error::RepoError;
use xb_repo::names::{BackupName, RunId};
use xb_repo::records;
use xb_repo::resolve::KnownManifests;
use xb_repo::root::Root;

use crate::admin::delete::plan::{DeletionPlan, refuse_changed, refuse_pinned};
use crate::error::BackupError;
use crate::objects::remove::remove_objects;

/// Time limit for freeing the names of backups that stay. After it, their marks count for an hour.
const GIVE_UP: Duration = Duration::from_secs(10);

/// Result of a delete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Number of removed objects, without the manifest.
    pub objects: u64,
    /// Objects of packed runs that stay, because a damaged manifest does not show whose they are.
    pub left: u64,
}

/// A removal that has begun: the name is marked, and nothing is removed.
pub(crate) struct Removal {
    name: BackupName,
    plan: DeletionPlan,
    /// ROOT; with a claim, for changes under it.
    root: Root,
    held: NameHold,
}

/// Object that keeps other runs away from the name.
enum NameHold {
    /// The mark of the backup.
    Marked(Box<Mark>),
    /// A claim, if there is no manifest.
    Claimed(Claim),
}

impl Removal {
    /// Marks the name, and checks that its manifest is the planned one.
    ///
    /// # Errors
    /// [`RepoError::Changed`]; those of the claim.
    pub(super) async fn begin(root: &Root, plan: DeletionPlan) -> Result<Self, BackupError> {
        let name = BackupName::new(&plan.name)?;
        if plan.manifest.is_some() {
            let (run, digest) = (plan.how.run.as_deref(), plan.how.digest.clone());
            let mark = Mark::set(root, &name, run, digest).await?;
            return Ok(Self {
                name,
                plan,
                root: root.clone(),
                held: NameHold::Marked(Box::new(mark)),
            });
        }
        let (claim, _) = Claim::classic(root, &name, RunId::random()?).await?;
        // Another run or delete may have ended between the plan and the claim.
        if let Err(changed) = refuse_changed(root, &name, &plan).await {
            claim.withdraw().await;
            return Err(changed);
        }
        let root = claim.hold(root, &name).await?;
        Ok(Self { name, plan, root, held: NameHold::Claimed(claim) })
    }

    /// RUN of the backup; `None` if its manifest is missing or damaged.
    pub(crate) fn run(&self) -> Option<&str> {
        self.plan.how.run.as_deref()
    }

    /// Fails if the manifest may be an old one of its name: see [`DeleteConditions::refuse_old`].
    pub(crate) fn refuse_old(&self, known: &KnownManifests) -> Result<(), RepoError> {
        self.plan.how.refuse_old(&self.name, known)
    }

    /// Number of objects to remove.
    pub(crate) fn objects(&self) -> usize {
        self.plan.objects.len()
    }

    /// Leaves the backup as it is.
    pub(crate) async fn give_up(self) {
        match self.held {
            NameHold::Marked(mark) => mark.withdraw().await,
            NameHold::Claimed(claim) => claim.end().await,
        }
    }

    /// Gives up if the backup was pinned since the plan.
    ///
    /// # Errors
    /// [`BackupError::Pinned`].
    pub(super) async fn unless_pinned(self) -> Result<Self, BackupError> {
        let looked =
            async { self.refuse_pinned(&self.root.knowing(&self.root.catalogue().await?)).await };
        match looked.await {
            Ok(()) => Ok(self),
            Err(pinned) => {
                self.give_up().await;
                Err(pinned)
            }
        }
    }

    /// Fails if the backup was pinned since the plan.
    async fn refuse_pinned(&self, root: &Root) -> Result<(), BackupError> {
        refuse_pinned(root, &self.name, self.plan.how.digest.as_deref()).await
    }

    /// Fails if `known` backups depend on this one.
    async fn refuse_dependents(&self, known: &KnownManifests) -> Result<(), BackupError> {
        match known.manifest(&self.name) {
            Some(manifest) => Ok(refuse_dependents(&self.root, &self.name, manifest, known).await?),
            None => Ok(()),
        }
    }

    /// Removes the manifest, whether others depend on the backup or not. From here on there is no
    /// such backup; its objects are still there.
    ///
    /// # Errors
    /// [`RepoError::Changed`]; [`RepoError::Store`].
    pub(super) async fn remove_manifest(self) -> Result<WithoutManifest, BackupError> {
        let Self { name, plan, root, held } = self;
        let removed = match held {
            NameHold::Claimed(claim) => {
                return Ok(WithoutManifest {
                    name,
                    plan,
                    root,
                    held: HoldAfterManifest::Claimed(claim),
                });
            }
            NameHold::Marked(mark) => mark.remove_manifest().await?,
        };
        if plan.how.claimed {
            let (claim, root) = removed.hold().await?;
            return Ok(WithoutManifest {
                name,
                plan,
                root,
                held: HoldAfterManifest::Claimed(claim),
            });
        }
        Ok(WithoutManifest { name, plan, root, held: HoldAfterManifest::Marked(Box::new(removed)) })
    }
}

/// Object that keeps other runs away once the manifest is gone.
enum HoldAfterManifest {
    /// The mark of a packed run: a copy of it has the same keys.
    Marked(Box<Removed>),
    /// A claim, if the objects have no RUN.
    Claimed(Claim),
}

/// A removal whose manifest is gone, if there was one, and whose objects are still there.
pub(crate) struct WithoutManifest {
    name: BackupName,
    plan: DeletionPlan,
    /// ROOT for changes.
    root: Root,
    held: HoldAfterManifest,
}

impl WithoutManifest {
    /// Name of the backup.
    pub(crate) fn name(&self) -> &BackupName {
        &self.name
    }

    /// Removes the objects.
    ///
    /// # Errors
    /// [`RepoError::Store`]. What is left can be deleted again, or by `gc`. The claim or mark does not
    /// end, because requests may still arrive.
    pub(crate) async fn remove_objects(self) -> Result<Deleted, BackupError> {
        let Self { name, plan, root, held } = self;
        let root = match &held {
            HoldAfterManifest::Marked(removed) => removed.clear().await?,
            HoldAfterManifest::Claimed(_) => root,
        };
        let objects = plan.objects.len() as u64;
        // The records went with the manifest, and there may be new ones of a new backup.
        let records = records::keys(&name).map(|key| root.key(&key));
        let keys = plan.objects.into_iter().map(|object| object.key);
        let keys: Vec<String> = keys.filter(|key| !records.contains(key)).collect();
        remove_objects(&root, name.as_str(), keys).await?;
        match held {
            HoldAfterManifest::Marked(removed) => removed.free().await,
            HoldAfterManifest::Claimed(claim) => claim.end().await,
        }
        Ok(Deleted { objects, left: plan.how.left })
    }

    /// Leaves the objects of a packed run to `gc`.
    pub(crate) async fn leave_objects(self) {
        if let HoldAfterManifest::Marked(removed) = self.held {
            removed.free().await;
        }
    }
}

/// Removals whose manifests are gone, and what became of the others.
#[derive(Default)]
pub(crate) struct RemovedManifests {
    /// Their objects can be removed.
    pub(crate) gone: Vec<WithoutManifest>,
    /// The backups that stay, and why.
    pub(crate) kept: Vec<(BackupName, BackupError)>,
    /// The first error of the store. The manifests of the other backups are still there, but for that
    /// of the request that failed.
    pub(crate) failed: Option<BackupError>,
}

/// A backup that stays, and that is the reason why others may go: its name and run.
pub(crate) type RemainingBackup = (BackupName, String);

/// Removes the manifests, but for those of backups that were pinned since, or on which others depend.
/// A backup that was replaced or removed since is left out. In `begun`, a backup must come before its
/// base. If one of `instead` is gone by now, or another command may remove it, nothing is removed: that can also be
/// an increment whose run has not yet noticed that its base goes.
///
/// With many backups, listing the catalogue costs more than a removal, so it is done once per batch,
/// after all marks are set.
pub(crate) async fn remove_manifests(
    root: &Root,
    begun: Vec<Removal>,
    known: &mut KnownManifests,
    instead: &[RemainingBackup],
) -> RemovedManifests {
    let mut removed = RemovedManifests::default();
    begun.iter().for_each(|removal| known.expect(&removal.name));
    removed.failed = known.refresh(root).await.err().map(BackupError::from);
    let seen = known.seen_in(root);
    let mut overtaken = None;
    if removed.failed.is_none() {
        match leaving(&seen, known, instead).await {
            Ok(by) => overtaken = by,
            Err(error) => removed.failed = Some(error.into()),
        }
    }
    let pinned = join_all(begun.iter().map(|removal| removal.refuse_pinned(&seen))).await;
    let mut staying = Vec::new();
    for (removal, pinned) in begun.into_iter().zip(pinned) {
        if removed.failed.is_some() {
            staying.push(removal);
            continue;
        }
        let may_go = match (pinned, overtaken) {
            (Ok(()), None) => removal.refuse_dependents(known).await,
            (Ok(()), Some(by)) => {
                let (name, by) = (removal.name.to_string(), by.to_string());
                Err(RepoError::Overtaken { name, by }.into())
            }
            (pinned, _) => pinned,
        };
        match may_go {
            Ok(()) => {}
            Err(error @ BackupError::Repo(RepoError::Store(_))) => {
                removed.failed = Some(error);
                staying.push(removal);
                continue;
            }
            Err(why) => {
                removed.kept.push((removal.name.clone(), why));
                staying.push(removal);
                continue;
            }
        }
        let name = removal.name.clone();
        match removal.remove_manifest().await {
            Ok(gone) => {
                known.forget(&name);
                removed.gone.push(gone);
            }
            Err(BackupError::Repo(RepoError::Changed { .. })) => {}
            Err(error) => removed.failed = Some(error),
        }
    }
    let freeing = join_all(staying.into_iter().map(Removal::give_up));
    let _ = tokio::time::timeout(GIVE_UP, freeing).await;
    removed
}

/// The first of these backups that is gone, or that another command may remove.
async fn leaving<'k>(
    root: &Root,
    known: &KnownManifests,
    kept: &'k [RemainingBackup],
) -> Result<Option<&'k BackupName>, RepoError> {
    for (name, run) in kept {
        if !known.stands(root, name, run).await? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::delete::plan::plan;
    use xb_repo::manifest::{Base, Manifest, sample};
    use xb_uploader::{Fault, Faults, Operation};

    fn empty() -> (tempfile::TempDir, Root) {
        use xb_uploader::{Location, Policy, StorePlace, StoreSettings};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
        let location = Location { place: StorePlace::Local, path };
        let root =
            Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap();
        (folder, root)
    }

    /// A ROOT with the backup `old`, whose removal has begun.
    async fn begun() -> (tempfile::TempDir, Root, Removal, KnownManifests) {
        let (folder, root) = empty();
        commit(&root, "old", |old| old.source.to_lsn = Some(20)).await;
        let known = KnownManifests::of(&root).await.unwrap();
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

    fn marks(folder: &tempfile::TempDir) -> usize {
        let marks = std::fs::read_dir(folder.path().join(".xb-catalog/@claims/old"));
        marks.map_or(0, Iterator::count)
    }

    #[tokio::test]
    async fn the_planned_manifest_goes() {
        let (folder, root, removal, mut known) = begun().await;
        assert_eq!(marks(&folder), 1);
        let removed = remove_manifests(&root, vec![removal], &mut known, &[]).await;
        assert_eq!((removed.gone.len(), removed.kept.len()), (1, 0));
        assert!(removed.failed.is_none() && !is_there(&root, &sample().run).await);
        assert_eq!(marks(&folder), 1, "its objects are still there");
        for removed in removed.gone {
            let _ = removed.remove_objects().await.unwrap();
        }
        assert_eq!(marks(&folder), 0, "the name is free");
    }

    /// Notes what the mark of `old` says at each removal.
    #[derive(Debug)]
    struct MarkWatch(std::path::PathBuf, std::sync::Mutex<Vec<bool>>);

    impl Faults for MarkWatch {
        fn next(&self, operation: Operation) -> Option<Fault> {
            if operation == Operation::Delete {
                let marks = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
                let mut texts = marks.filter_map(|mark| std::fs::read_to_string(mark.path()).ok());
                self.1.lock().unwrap().push(texts.any(|text| text.contains("\"clearing\"")));
            }
            None
        }
    }

    /// Whoever makes a new backup of the name need not wait for them, and whoever copies the run must.
    #[tokio::test]
    async fn while_objects_are_removed_the_mark_is_about_them_alone() {
        let (folder, root) = empty();
        let marks = folder.path().join(".xb-catalog/@claims/old");
        let watch = std::sync::Arc::new(MarkWatch(marks, std::sync::Mutex::default()));
        commit(&root, "old", |_| ()).await;
        let object = root.run_keys(&name("old"), &*sample().run).data(0);
        root.store().put(&object, "content".into()).await.unwrap();
        let root = root.failing(watch.clone());
        let planned = plan(&root, &name("old")).await.unwrap();
        let removal = Removal::begin(&root, planned).await.unwrap();
        let mut known = KnownManifests::of(&root).await.unwrap();
        let mut removed = remove_manifests(&root, vec![removal], &mut known, &[]).await;
        let of_manifest = watch.1.lock().unwrap().len();
        let _ = removed.gone.pop().unwrap().remove_objects().await.unwrap();
        let clearing = watch.1.lock().unwrap();
        assert!(of_manifest > 0 && clearing.len() > of_manifest);
        assert!(clearing.iter().enumerate().all(|(n, clearing)| *clearing == (n >= of_manifest)));
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
            let removed = remove_manifests(&root, vec![removal], &mut known, &[]).await;
            assert_eq!((removed.gone.len(), removed.kept.len()), (0, 0));
            assert!(removed.failed.is_none());
            assert_eq!(is_there(&root, &run).await, replaced);
        }
    }

    /// Between the plan and the claim, a run may have completed a backup that had no manifest.
    #[tokio::test]
    async fn objects_that_have_become_a_backup_stay() {
        let (folder, root) = empty();
        let object = root.key("old/xtrabackup_info.00000000000000000000");
        root.store().put(&object, "content".into()).await.unwrap();
        let planned = plan(&root, &name("old")).await.unwrap();
        commit(&root, "old", |_| ()).await;
        let begun = Removal::begin(&root, planned).await;
        assert!(matches!(begun, Err(BackupError::Repo(RepoError::Changed { .. }))));
        assert!(is_there(&root, &sample().run).await);
        assert_eq!(marks(&folder), 0, "the name is free");
    }

    /// They have the same keys as those of the backup that went.
    #[tokio::test]
    async fn records_of_a_new_backup_of_the_name_stay() {
        let (_folder, root) = empty();
        commit(&root, "old", |_| ()).await;
        let keys = records::keys(&name("old")).map(|key| root.key(&key));
        let record = keys.first().unwrap();
        root.store().put(record, "of the old one".into()).await.unwrap();
        let mut known = KnownManifests::of(&root).await.unwrap();
        let planned = plan(&root, &name("old")).await.unwrap();
        assert!(planned.objects.iter().any(|object| object.key == *record));
        let removal = Removal::begin(&root, planned).await.unwrap();
        let mut removed = remove_manifests(&root, vec![removal], &mut known, &[]).await;
        root.store().put(record, "of the new one".into()).await.unwrap();
        let _ = removed.gone.pop().unwrap().remove_objects().await.unwrap();
        assert!(root.store().size(record).await.unwrap().is_some());
    }

    /// A backup goes only because another one stays.
    #[tokio::test]
    async fn a_backup_stays_if_the_one_that_was_to_stay_is_gone() {
        let (_folder, root, removal, mut known) = begun().await;
        let instead = [(name("newer"), "f".repeat(32))];
        let mut removed = remove_manifests(&root, vec![removal], &mut known, &instead).await;
        assert!(removed.gone.is_empty() && removed.failed.is_none());
        let why = removed.kept.pop().unwrap().1;
        assert!(matches!(why, BackupError::Repo(RepoError::Overtaken { .. })));
        assert!(is_there(&root, &sample().run).await);
    }

    /// Settles a removal of a backup that must stay, and returns why it stays. Its manifest is never
    /// away, not even for a moment.
    async fn stays(
        (folder, root, removal, mut known): (tempfile::TempDir, Root, Removal, KnownManifests),
    ) -> BackupError {
        use std::os::unix::fs::MetadataExt as _;
        let inode = || std::fs::metadata(folder.path().join(".xb-catalog/old")).unwrap().ino();
        let before = inode();
        let mut removed = remove_manifests(&root, vec![removal], &mut known, &[]).await;
        assert!(removed.gone.is_empty() && removed.failed.is_none());
        assert_eq!((inode(), marks(&folder)), (before, 0));
        removed.kept.pop().unwrap().1
    }

    /// Makes the manifest that of an increment of `old`.
    type Increment = fn(&mut Manifest);

    #[tokio::test]
    async fn a_backup_that_is_needed_by_now_stays() {
        let by_name: Increment =
            |late| late.base = Some(Base { name: "old".into(), run: sample().run });
        let by_position: Increment = |late| {
            late.source.backup_type = Some("incremental".into());
            late.source.from_lsn = Some(20);
        };
        for increment in [by_name, by_position] {
            let begun = begun().await;
            commit(&begun.1, "late", |late| {
                late.run = "f".repeat(32);
                increment(late);
            })
            .await;
            assert!(matches!(stays(begun).await, BackupError::Repo(RepoError::Needed { .. })));
        }
    }

    #[tokio::test]
    async fn a_backup_that_is_pinned_by_now_stays() {
        let begun = begun().await;
        let manifest = begun.1.stored_manifest(&name("old")).await.unwrap().unwrap().digest();
        records::write_pin(&begun.1, &name("old"), manifest, None).await.unwrap();
        assert!(matches!(stays(begun).await, BackupError::Pinned { .. }));
    }

    /// A delete that does not look for dependants looks for pins all the same.
    #[tokio::test]
    async fn a_forced_removal_spares_a_backup_that_is_pinned_by_now() {
        let (folder, root, removal, _) = begun().await;
        let manifest = root.stored_manifest(&name("old")).await.unwrap().unwrap().digest();
        records::write_pin(&root, &name("old"), manifest, None).await.unwrap();
        assert!(matches!(removal.unless_pinned().await, Err(BackupError::Pinned { .. })));
        assert!(is_there(&root, &sample().run).await);
        assert_eq!(marks(&folder), 0);
    }

    /// In one batch, an increment that turns out to be pinned keeps its base.
    #[tokio::test]
    async fn a_kept_backup_keeps_its_base() {
        let (_folder, root, of_base, _) = begun().await;
        commit(&root, "late", |late| {
            late.run = "f".repeat(32);
            late.base = Some(Base { name: "old".into(), run: sample().run });
        })
        .await;
        let mut known = KnownManifests::of(&root).await.unwrap();
        let planned = plan(&root, &name("late")).await.unwrap();
        let of_late = Removal::begin(&root, planned).await.unwrap();
        [name("old"), name("late")].iter().for_each(|name| known.leave_out(name));
        let manifest = root.stored_manifest(&name("late")).await.unwrap().unwrap().digest();
        records::write_pin(&root, &name("late"), manifest, None).await.unwrap();
        let removed = remove_manifests(&root, vec![of_late, of_base], &mut known, &[]).await;
        assert!(removed.gone.is_empty() && removed.failed.is_none());
        let why: Vec<&BackupError> = removed.kept.iter().map(|(_, why)| why).collect();
        assert!(matches!(
            why[..],
            [BackupError::Pinned { .. }, BackupError::Repo(RepoError::Needed { .. })]
        ));
    }
}
