//! The mark of a removal, and the only place that removes a manifest.
//!
//! Whoever removes a manifest marks the name first, with a numbered claim in the phase
//! [`Phase::Removing`](super::Phase::Removing), and only then looks for dependants and pins. Whoever
//! relies on a backup (a pin, an increment of it) or commits a new one of that name writes first and
//! then looks for a mark. So at least one of the two sees the other, and a crash at any moment leaves
//! the manifest where it was: nothing is ever put back.
//!
//! A manifest is removed only while it is the expected one. Its request is not repeated blindly: a
//! store may have carried out a request that it answered with an error, and another run may have taken
//! the name since.

use bytes::Bytes;
use jiff::Timestamp;
use xb_uploader::{GuardedOutcome, Operation, PresentState, StoreError, StoreErrorKind};

use super::read_again::read_again;
use super::{Claim, Removing, claims, standing};
use crate::error::RepoError;
use crate::manifest::Manifest;
use crate::names::BackupName;
use crate::records;
use crate::root::Root;

/// The manifest that is to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ExpectedManifest {
    /// A sound one, by its digest.
    Sound(String),
    /// A damaged one, by its bytes.
    Damaged(Bytes),
    /// One that cannot be read.
    Unreadable,
}

impl ExpectedManifest {
    fn is(&self, there: PresentState<'_>) -> bool {
        match (self, there) {
            (Self::Sound(digest), PresentState::Content(bytes)) => {
                Manifest::decode(bytes).is_ok_and(|stored| stored.digest() == *digest)
            }
            (Self::Damaged(damaged), PresentState::Content(bytes)) => damaged == bytes,
            (Self::Unreadable, PresentState::Unreadable) => true,
            _ => false,
        }
    }
}

/// A name whose backup is about to be removed.
#[derive(Debug)]
pub struct Mark {
    claim: Claim,
    name: BackupName,
    expected: ExpectedManifest,
    /// ROOT for the removal: each request looks for newer claims first.
    root: Root,
    /// ROOT without the mark.
    open: Root,
}

impl Mark {
    /// Marks `name`, whose manifest has this `run` and `digest`, both `None` if it is damaged or cannot
    /// be read.
    ///
    /// # Errors
    /// [`RepoError::Changed`] if the name has another manifest or none, [`RepoError::Running`]
    /// while another run or removal holds the name; [`RepoError::Store`].
    pub async fn set(
        root: &Root,
        name: &BackupName,
        run: Option<&str>,
        digest: Option<String>,
    ) -> Result<Self, RepoError> {
        let claim = Claim::removing(root, name, run.unwrap_or_default().to_owned()).await?;
        let fenced = claim.fenced(root);
        let expected = match digest {
            Some(digest) => Ok(ExpectedManifest::Sound(digest)),
            None => damaged(root, name).await,
        };
        let expected = match expected {
            Ok(expected) => expected,
            Err(error) => {
                claim.withdraw().await;
                return Err(error);
            }
        };
        let mark = Self { claim, name: name.clone(), expected, root: fenced, open: root.clone() };
        match mark.still_there().await {
            Ok(()) => Ok(mark),
            Err(error) => {
                mark.withdraw().await;
                Err(error)
            }
        }
    }

    async fn still_there(&self) -> Result<(), RepoError> {
        if self.expected == ExpectedManifest::Unreadable {
            return Ok(());
        }
        let is_expected = |bytes: &Bytes| self.expected.is(PresentState::Content(bytes));
        match read_again(self.open.store(), &self.key(), is_expected).await {
            Ok(bytes) if is_expected(&bytes) => Ok(()),
            Err(error) if error.kind != StoreErrorKind::NotFound => Err(error.into()),
            _ => Err(self.changed()),
        }
    }

    fn key(&self) -> String {
        self.open.manifest_key(&self.name)
    }

    fn changed(&self) -> RepoError {
        RepoError::Changed { name: self.name.to_string() }
    }

    /// Removes the manifest and the records beside it.
    ///
    /// # Errors
    /// [`RepoError::Changed`] if the manifest is another one by now: nothing was removed.
    /// [`RepoError::Store`]: the manifest may be gone.
    pub async fn remove_manifest(self) -> Result<Removed, RepoError> {
        let expected = |there: PresentState<'_>| self.expected.is(there);
        let late = match self.root.store().delete_expected(&self.key(), expected).await {
            Ok(GuardedOutcome::Done { late }) => late,
            Ok(_) => {
                self.withdraw().await;
                return Err(self.changed());
            }
            Err(error) => {
                // A request that was refused for certain is not on its way.
                if error.kind != StoreErrorKind::Unavailable && error.attempts == 1 {
                    self.withdraw().await;
                }
                return Err(error.into());
            }
        };
        let records = records::keys(&self.name).iter().map(|key| self.root.key(key)).collect();
        self.root.store().delete_all(records).await?;
        Ok(Removed { mark: self, late })
    }

    /// Says that the objects count as a stock backup once the manifest is gone, whatever becomes of this process.
    ///
    /// # Errors
    /// If the mark cannot record it.
    pub async fn leave_stock(&self) -> Result<(), RepoError> {
        self.claim.leave_stock().await
    }

    /// Leaves the backup as it is.
    pub async fn withdraw(&self) {
        self.claim.withdraw().await;
    }
}

/// A name whose manifest and records are gone, and which is still marked.
#[derive(Debug)]
pub struct Removed {
    mark: Mark,
    /// A request to remove the manifest may still take effect.
    late: bool,
}

impl Removed {
    /// Frees the name for new backups, unless a request may still arrive: then the mark stays until it
    /// counts as that of a dead process.
    pub async fn free(self) {
        if !self.late {
            self.mark.claim.withdraw().await;
        }
    }

    /// Keeps copies of the run away while its objects are removed, and returns ROOT for that. Afterwards,
    /// [`Removed::free`] is called, unless a request may still arrive.
    ///
    /// # Errors
    /// [`RepoError::Store`]: the objects must stay, for `gc`.
    pub async fn clear(&self) -> Result<Root, RepoError> {
        // As long as a request to remove the manifest may arrive, no new backup may have the name.
        if !self.late {
            self.mark.claim.clear().await?;
        }
        Ok(self.mark.root.clone())
    }

    /// Holds the name while objects without a RUN are removed. Returns the claim, and ROOT for it.
    ///
    /// # Errors
    /// If another run has taken the name over.
    pub async fn hold(self) -> Result<(Claim, Root), RepoError> {
        let Mark { claim, name, open, .. } = self.mark;
        let root = claim.hold(&open, &name).await?;
        Ok((claim, root))
    }
}

/// Reads a manifest that is damaged or cannot be read.
async fn damaged(root: &Root, name: &BackupName) -> Result<ExpectedManifest, RepoError> {
    match root.store().get(&root.manifest_key(name)).await.map_err(RepoError::from) {
        Ok(bytes) => Ok(ExpectedManifest::Damaged(bytes)),
        Err(error) if error.is_of_one_object() => Ok(ExpectedManifest::Unreadable),
        Err(error) => Err(error),
    }
}

/// Removes the manifest that this run has just written, because the run has no backup after all. `own` is
/// the claim of the run.
///
/// # Errors
/// [`RepoError::InDoubt`] if the manifest may still exist: the objects that it names must stay.
pub(crate) async fn take_back(
    root: &Root,
    name: &BackupName,
    run: &str,
    own: &Claim,
) -> Result<(), RepoError> {
    let in_doubt = |source| RepoError::InDoubt { name: name.to_string(), source };
    let taken = match own.holds_name() {
        // The name cannot be marked beside the run's own claim, and need not be.
        true => take_back_unmarked(root, name, run).await,
        false => take_back_marked(root, name, run).await,
    };
    match taken {
        Ok(()) | Err(RepoError::Changed { .. }) => {}
        Err(RepoError::Store(error)) => return Err(in_doubt(error)),
        Err(other) => {
            let what = format!("the manifest could not be removed again: {other}");
            let key = root.manifest_key(name);
            return Err(in_doubt(StoreError::new(
                Operation::Delete,
                key,
                StoreErrorKind::Rejected,
                what,
            )));
        }
    }
    Ok(())
}

async fn take_back_marked(root: &Root, name: &BackupName, run: &str) -> Result<(), RepoError> {
    let known = root.knowing(&root.catalogue().await?);
    let Some(stored) = known.stored_manifest(name).await?.filter(|s| s.manifest.run == run) else {
        return Ok(());
    };
    let mark = Mark::set(root, name, Some(run), Some(stored.digest())).await?;
    mark.remove_manifest().await?.free().await;
    Ok(())
}

/// Removes the manifest that this run has just written, although it does not mark the name: it holds the
/// name itself, or another run took its claim over.
///
/// # Errors
/// [`RepoError::Store`]: it may still exist.
pub(crate) async fn take_back_unmarked(
    root: &Root,
    name: &BackupName,
    run: &str,
) -> Result<(), RepoError> {
    // The run that took over may have deleted the backup, and another one committed its own.
    let ours = |there: PresentState<'_>| match there {
        PresentState::Content(bytes) => {
            Manifest::decode(bytes).is_ok_and(|stored| stored.manifest.run == run)
        }
        _ => false,
    };
    root.store().unfenced().delete_expected(&root.manifest_key(name), ours).await?;
    Ok(())
}

/// Waits until no removal can harm a backup of `name` that `run` has made: neither its manifest nor its
/// objects are being removed, and no request of a removal can take effect late.
///
/// A removal takes seconds. If its process died where nothing proves that, its mark counts for an hour;
/// if that is proven, for [`LATE`](super::claim_state::LATE) seconds.
///
/// # Errors
/// [`RepoError::Store`].
pub async fn await_removals(root: &Root, name: &BackupName, run: &str) -> Result<(), RepoError> {
    let mut looks = 0;
    while let Some(of) = removing(root, name, run).await? {
        looks += 1;
        let until = Timestamp::from_second(of.until).unwrap_or_default();
        let what = format!(
            "waiting until another command has finished removing {name} ({}); if that command is dead, the wait ends at {until}",
            of.by
        );
        let why = StoreError::new(Operation::Claim, of.claim, StoreErrorKind::Unavailable, what);
        root.store().pause_after(&why, looks).await;
    }
    Ok(())
}

/// The removal in progress that can harm a backup of `name` that `run` has made, if there is one.
///
/// # Errors
/// [`RepoError::Store`].
pub async fn removing(
    root: &Root,
    name: &BackupName,
    run: &str,
) -> Result<Option<Removing>, RepoError> {
    let removals = standing(root, &claims(root, name).await?).await?.removals;
    Ok(removals.into_iter().find(|of| of.concerns(run)))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use tokio::sync::Notify;
    use xb_uploader::{Fault, Faults, Location, Policy, StorePlace, StoreSettings};

    use super::*;
    use crate::claim::commit::{commit, recheck_bases};
    use crate::manifest::{Base, sample};
    use crate::names::RunId;
    use crate::pin::pin;

    /// A ROOT with the backup `old`.
    struct Fixture {
        folder: tempfile::TempDir,
        root: Root,
        digest: String,
    }

    fn name(of: &str) -> BackupName {
        BackupName::new(of).unwrap()
    }

    fn manifest(of: &str, run: &str) -> Manifest {
        Manifest { name: of.to_owned(), run: run.to_owned(), ..sample() }
    }

    /// An increment of `base`, which it names. The samples end at 20.
    fn increment(of: &str, run: &str, base: &str, of_base: &str) -> Manifest {
        let mut increment = manifest(of, run);
        increment.base = Some(Base { name: base.to_owned(), run: of_base.to_owned() });
        increment.source.backup_type = Some("incremental".to_owned());
        increment
    }

    /// Stores the first object of a run.
    async fn put_object(root: &Root, of: &str, run: &str) {
        let key = root.run_keys(&name(of), run).data(0);
        root.store().put(&key, "content".into()).await.unwrap();
    }

    const NEW: &str = "ffffffffffffffffffffffffffffffff";

    impl Fixture {
        async fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
            let location = Location { place: StorePlace::Local, path };
            let policy = Policy::default().with_max_backoff(Duration::from_millis(1));
            let root = Root::open(&location, &StoreSettings::default(), policy, true).unwrap();
            root.commit(&name("old"), &sample_of_old(), None).await.unwrap();
            put_object(&root, "old", &sample().run).await;
            let digest = root.stored_manifest(&name("old")).await.unwrap().unwrap().digest();
            Self { folder, root, digest }
        }

        async fn mark(&self, root: &Root) -> Mark {
            let digest = Some(self.digest.clone());
            Mark::set(root, &name("old"), Some(&sample().run), digest).await.unwrap()
        }

        /// The run whose manifest `of` has.
        async fn run(&self, of: &str) -> Option<String> {
            self.root.manifest(&name(of)).await.unwrap().map(|manifest| manifest.run)
        }

        fn file(&self, of: &str) -> PathBuf {
            self.folder.path().join(".xb-catalog").join(of)
        }
    }

    fn sample_of_old() -> Manifest {
        manifest("old", &sample().run)
    }

    /// The store removes an object and its answer is lost; then another host's backup takes the name.
    #[derive(Debug)]
    struct Taken {
        file: PathBuf,
        new: Vec<u8>,
        deletes: AtomicU32,
    }

    impl Faults for Taken {
        fn next(&self, operation: Operation) -> Option<Fault> {
            match operation {
                Operation::Delete if self.deletes.fetch_add(1, Ordering::Relaxed) == 0 => {
                    Some(Fault::AnswerLost)
                }
                Operation::Get if self.deletes.load(Ordering::Relaxed) == 1 => {
                    std::fs::write(&self.file, &self.new).unwrap();
                    None
                }
                _ => None,
            }
        }
    }

    #[tokio::test]
    async fn a_repeated_removal_spares_the_next_backup_of_the_name() {
        let fixture = Fixture::new().await;
        let new = manifest("old", NEW).encode(None).unwrap();
        let (file, deletes) = (fixture.file("old"), AtomicU32::new(0));
        let root = fixture.root.failing(Arc::new(Taken { file, new, deletes }));
        let mark = fixture.mark(&root).await;
        assert!(matches!(mark.remove_manifest().await, Err(RepoError::Changed { .. })));
        assert_eq!(fixture.run("old").await.as_deref(), Some(NEW));
    }

    /// The store removes the object, and answers with an error.
    #[derive(Debug)]
    struct FirstAnswerLost(AtomicU32);

    impl Faults for FirstAnswerLost {
        fn next(&self, operation: Operation) -> Option<Fault> {
            let first =
                operation == Operation::Delete && self.0.fetch_add(1, Ordering::Relaxed) == 0;
            first.then_some(Fault::AnswerLost)
        }
    }

    #[tokio::test]
    async fn a_name_with_a_late_request_is_not_free() {
        let fixture = Fixture::new().await;
        let root = fixture.root.failing(Arc::new(FirstAnswerLost(AtomicU32::new(0))));
        let removed = fixture.mark(&root).await.remove_manifest().await.unwrap();
        assert_eq!(fixture.run("old").await, None);
        removed.free().await;
        assert!(removing(&fixture.root, &name("old"), NEW).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_mark_whose_lease_is_over_removes_nothing() {
        let fixture = Fixture::new().await;
        let mark = fixture.mark(&fixture.root).await;
        mark.claim.lease.as_ref().unwrap().expire();
        let outcome = mark.remove_manifest().await;
        assert!(
            matches!(&outcome, Err(RepoError::Store(e)) if e.kind == StoreErrorKind::Fenced),
            "{outcome:?}"
        );
        assert!(fixture.run("old").await.is_some());
    }

    #[tokio::test]
    async fn one_name_is_marked_once() {
        let fixture = Fixture::new().await;
        let mark = fixture.mark(&fixture.root).await;
        let digest = Some(fixture.digest.clone());
        let again = Mark::set(&fixture.root, &name("old"), None, digest).await;
        assert!(matches!(again, Err(RepoError::Running { .. })));
        mark.withdraw().await;
        fixture.mark(&fixture.root).await;
    }

    #[tokio::test]
    async fn a_damaged_manifest_goes_only_as_it_was() {
        for altered in [false, true] {
            let fixture = Fixture::new().await;
            std::fs::write(fixture.file("old"), b"damaged").unwrap();
            let mark = Mark::set(&fixture.root, &name("old"), None, None).await.unwrap();
            if altered {
                std::fs::write(fixture.file("old"), b"damaged in another way").unwrap();
            }
            assert_eq!(mark.remove_manifest().await.is_ok(), !altered);
            assert_eq!(fixture.file("old").exists(), altered);
        }
    }

    /// The objects that a manifest names must stay if it could not be removed.
    #[tokio::test]
    async fn a_manifest_that_another_command_holds_is_in_doubt() {
        let fixture = Fixture::new().await;
        let (of, run) = (name("old"), RunId::random().unwrap());
        let own = Claim::packed(&fixture.root, &of, run).await.unwrap();
        let mark = fixture.mark(&fixture.root).await;
        let taken = take_back(&fixture.root, &name("old"), &sample().run, &own).await;
        assert!(matches!(taken, Err(RepoError::InDoubt { .. })), "{taken:?}");
        assert!(fixture.run("old").await.is_some());
        mark.withdraw().await;
    }

    /// Counts the looks at claims, and reports the third.
    #[derive(Debug, Default)]
    struct Looks {
        seen: AtomicU32,
        third: Notify,
    }

    impl Faults for Looks {
        fn next(&self, operation: Operation) -> Option<Fault> {
            if operation == Operation::List && self.seen.fetch_add(1, Ordering::Relaxed) == 2 {
                self.third.notify_one();
            }
            None
        }
    }

    /// Runs `waiting` until it has looked at the claims three times, then `then`, and returns the
    /// result of `waiting`.
    async fn while_waiting<T: Send + 'static>(
        root: &Root,
        waiting: impl AsyncFnOnce(Root) -> T + 'static,
        then: impl Future<Output = ()>,
    ) -> T {
        let looks = Arc::new(Looks::default());
        let root = root.failing(Arc::clone(&looks) as Arc<dyn Faults>);
        let set = tokio::task::LocalSet::new();
        let task = set.spawn_local(async move { waiting(root).await });
        set.run_until(async move {
            looks.third.notified().await;
            assert!(!task.is_finished());
            then.await;
            task.await.unwrap()
        })
        .await
    }

    /// A removal whose process died may be waited for for an hour, and each look is a listing and a read.
    #[tokio::test(start_paused = true)]
    async fn a_long_wait_for_a_removal_takes_few_requests() {
        let fixture = Fixture::new().await;
        let _mark = fixture.mark(&fixture.root).await;
        let looks = Arc::new(Looks::default());
        let root = fixture.root.failing(Arc::clone(&looks) as Arc<dyn Faults>);
        let old = name("old");
        let waiting = await_removals(&root, &old, NEW);
        assert!(tokio::time::timeout(Duration::from_secs(600), waiting).await.is_err());
        let looks = looks.seen.load(Ordering::Relaxed);
        assert!((60..=85).contains(&looks), "{looks}");
    }

    /// The clock of the host that began the removal was ahead, and it was switched off.
    #[tokio::test(start_paused = true)]
    async fn a_removal_that_is_dated_in_the_future_is_waited_for_for_an_hour() {
        let fixture = Fixture::new().await;
        let mark = fixture.mark(&fixture.root).await;
        let key = fixture.folder.path().join(mark.claim.lease.as_ref().unwrap().key());
        let ahead = std::time::SystemTime::now() + Duration::from_secs(365 * 86_400);
        std::fs::File::options().append(true).open(key).unwrap().set_modified(ahead).unwrap();
        let old = name("old");
        let waited = |seconds| {
            tokio::time::timeout(
                Duration::from_secs(seconds),
                await_removals(&fixture.root, &old, NEW),
            )
        };
        assert!(waited(3000).await.is_err());
        waited(700).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_commit_waits_for_the_removal_of_its_name() {
        let fixture = Fixture::new().await;
        let removed = fixture.mark(&fixture.root).await.remove_manifest().await.unwrap();
        let new = Bytes::from(manifest("old", NEW).encode(None).unwrap());
        let committing = async move |root: Root| {
            await_removals(&root, &name("old"), NEW).await?;
            commit(&root, &name("old"), NEW, new).await
        };
        let file = fixture.file("old");
        while_waiting(&fixture.root, committing, async move {
            assert!(!file.exists());
            removed.free().await;
        })
        .await
        .unwrap();
        assert_eq!(fixture.run("old").await.as_deref(), Some(NEW));
    }

    #[tokio::test]
    async fn an_increment_waits_for_what_becomes_of_its_base() {
        for removed in [false, true] {
            let fixture = Fixture::new().await;
            let mark = fixture.mark(&fixture.root).await;
            let late = increment("late", NEW, "old", &sample().run);
            let needed = [late.base.clone().unwrap()];
            fixture.root.commit(&name("late"), &late, None).await.unwrap();
            let settling = async move |root: Root| {
                let run = RunId::random().unwrap();
                let own = Claim::packed(&root, &name("late"), run).await.unwrap();
                recheck_bases(&root, &name("late"), NEW, &needed, &own).await
            };
            let settled = while_waiting(&fixture.root, settling, async move {
                match removed {
                    true => mark.remove_manifest().await.unwrap().free().await,
                    false => mark.withdraw().await,
                }
            });
            let settled = settled.await;
            assert_eq!(matches!(settled, Err(RepoError::Chain { .. })), removed, "{settled:?}");
            assert_eq!(fixture.run("late").await.is_none(), removed);
        }
    }

    /// Another command removes the base, and then a late request of the base's own commit takes effect.
    #[tokio::test]
    async fn a_base_whose_manifest_came_back_without_objects_is_gone() {
        for gone in [false, true] {
            let fixture = Fixture::new().await;
            let late = increment("late", NEW, "old", &sample().run);
            fixture.root.commit(&name("late"), &late, None).await.unwrap();
            if gone {
                std::fs::remove_dir_all(fixture.folder.path().join("old")).unwrap();
            }
            let (run, needed) = (RunId::random().unwrap(), [late.base.clone().unwrap()]);
            let own = Claim::packed(&fixture.root, &name("late"), run).await.unwrap();
            let checked = recheck_bases(&fixture.root, &name("late"), NEW, &needed, &own).await;
            assert_eq!(matches!(checked, Err(RepoError::Chain { .. })), gone, "{checked:?}");
            assert_eq!(fixture.run("late").await.is_none(), gone);
        }
    }

    /// The removal has looked for dependants before the increment in between was committed, whose run died then.
    #[tokio::test]
    async fn an_increment_of_an_increment_waits_for_what_becomes_of_its_full_backup() {
        for removed in [false, true] {
            let fixture = Fixture::new().await;
            let mark = fixture.mark(&fixture.root).await;
            let middle = increment("middle", &"e".repeat(32), "old", &sample().run);
            fixture.root.commit(&name("middle"), &middle, None).await.unwrap();
            put_object(&fixture.root, "middle", &middle.run).await;
            let late = increment("late", NEW, "middle", &middle.run);
            let needed = [&late, &middle].map(|link| link.base.clone().unwrap());
            fixture.root.commit(&name("late"), &late, None).await.unwrap();
            let settling = async move |root: Root| {
                let run = RunId::random().unwrap();
                let own = Claim::packed(&root, &name("late"), run).await.unwrap();
                recheck_bases(&root, &name("late"), NEW, &needed, &own).await
            };
            let settled = while_waiting(&fixture.root, settling, async move {
                match removed {
                    true => mark.remove_manifest().await.unwrap().free().await,
                    false => mark.withdraw().await,
                }
            });
            let settled = settled.await;
            assert_eq!(matches!(settled, Err(RepoError::Chain { .. })), removed, "{settled:?}");
            assert_eq!(fixture.run("late").await.is_none(), removed);
        }
    }

    #[tokio::test]
    async fn a_pin_waits_for_what_becomes_of_its_backup() {
        for removed in [false, true] {
            let fixture = Fixture::new().await;
            let mark = fixture.mark(&fixture.root).await;
            let pinning = async move |root: Root| pin(&root, &name("old"), None).await;
            let pinned = while_waiting(&fixture.root, pinning, async move {
                match removed {
                    true => mark.remove_manifest().await.unwrap().free().await,
                    false => mark.withdraw().await,
                }
            });
            assert_eq!(pinned.await.is_err(), removed);
        }
    }

    #[tokio::test]
    async fn a_run_takes_back_only_its_own_manifest() {
        for classic in [false, true] {
            let fixture = Fixture::new().await;
            let run = RunId::random().unwrap();
            let own = match classic {
                true => Claim::classic(&fixture.root, &name("old"), run).await.unwrap().0,
                false => Claim::packed(&fixture.root, &name("old"), run).await.unwrap(),
            };
            take_back(&fixture.root, &name("old"), NEW, &own).await.unwrap();
            assert!(fixture.run("old").await.is_some());
            take_back(&fixture.root, &name("old"), &sample().run, &own).await.unwrap();
            assert!(fixture.run("old").await.is_none());
        }
    }
}
