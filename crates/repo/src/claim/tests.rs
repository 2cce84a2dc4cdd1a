//! Runs that are suspended, taken over and resumed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use xb_uploader::{
    Fault, Faults, Location, Operation, Policy, StoreError, StorePlace, StoreSettings,
};

use super::*;

struct Fixture {
    folder: tempfile::TempDir,
    root: Root,
    name: BackupName,
}

impl Fixture {
    fn new() -> Self {
        Self::with(Policy::default())
    }

    fn with(policy: Policy) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
        let location = Location { place: StorePlace::Local, path };
        let settings = StoreSettings::default();
        let root = Root::open(&location, &settings, policy, true).unwrap();
        Self { folder, root, name: BackupName::new("n").unwrap() }
    }

    async fn claim(&self) -> Result<Claim, RepoError> {
        let run = RunId::random().unwrap();
        Ok(Claim::classic(&self.root, &self.name, run).await?.0)
    }

    /// Claims and holds the name.
    async fn run(&self) -> (Claim, Root) {
        let claim = self.claim().await.unwrap();
        let root = claim.hold(&self.root, &self.name).await.unwrap();
        (claim, root)
    }

    /// Makes the claim look as if its run had not refreshed it for two hours.
    fn silence(&self, claim: &Claim) {
        let key = claim.lease.as_ref().unwrap().key();
        let file =
            std::fs::File::options().append(true).open(self.folder.path().join(key)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(7200)).unwrap();
        claim.lease.as_ref().unwrap().expire();
    }
}

fn is_fenced(outcome: Result<(), StoreError>) -> bool {
    outcome.is_err_and(|error| error.kind == StoreErrorKind::Fenced)
}

async fn put(root: &Root, key: &str) -> Result<(), StoreError> {
    root.store().put(&root.key(key), Bytes::from_static(b"x").into()).await
}

#[tokio::test]
async fn a_run_that_was_taken_over_can_change_nothing_any_more() {
    let fixture = Fixture::new();
    let (first, sleeping) = fixture.run().await;
    put(&sleeping, "n/a").await.unwrap();
    fixture.silence(&first);
    let (second, running) = fixture.run().await;
    assert!(is_fenced(put(&sleeping, "n/b").await));
    assert!(is_fenced(sleeping.store().delete(&sleeping.key("n/a")).await));
    assert!(is_fenced(sleeping.store().delete_all(vec![sleeping.key("n/a")]).await));
    assert!(is_fenced(sleeping.store().create(&sleeping.key("m"), Bytes::new()).await));
    assert!(matches!(first.lost().await, RepoError::Store(_)));
    put(&running, "n/b").await.unwrap();
    second.end().await;
    // It stays fenced even though the other run is over.
    assert!(is_fenced(put(&sleeping, "n/b").await));
    assert!(sleeping.store().get(&sleeping.key("n/a")).await.is_ok());
}

/// A run that is told to take over does not wait for the lease.
#[tokio::test]
async fn a_living_run_adds_nothing_to_what_a_run_by_word_has_completed() {
    let fixture = Fixture::new();
    let (first, living) = fixture.run().await;
    put(&living, "n/a").await.unwrap();
    let by_word = fixture.root.taking_over(|_| {});
    let run = RunId::random().unwrap();
    let (second, _) = Claim::classic(&by_word, &fixture.name, run).await.unwrap();
    let running = second.hold(&by_word, &fixture.name).await.unwrap();
    put(&running, "n/b").await.unwrap();
    second.end().await;
    first.lease.as_ref().unwrap().forget_look();
    assert!(is_fenced(put(&living, "n/c").await));
    assert!(is_fenced(living.store().create(&living.key("m"), Bytes::new()).await));
    // The lease itself would have lasted.
    assert!(running.store().get(&running.key("n/b")).await.is_ok());
}

/// One listing that shows no claim at all ends no run.
#[tokio::test]
async fn a_listing_without_the_own_claim_ends_no_run() {
    let fixture = Fixture::new();
    let (first, living) = fixture.run().await;
    let key = fixture.folder.path().join(first.lease.as_ref().unwrap().key());
    let claim = std::fs::read(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    first.lease.as_ref().unwrap().forget_look();
    put(&living, "n/a").await.unwrap();
    std::fs::create_dir_all(key.parent().unwrap()).unwrap();
    std::fs::write(&key, claim).unwrap();
    first.lease.as_ref().unwrap().forget_look();
    put(&living, "n/b").await.unwrap();
}

/// Whether listings fail.
#[derive(Debug, Default)]
struct NoLists(AtomicBool);

impl Faults for NoLists {
    fn next(&self, operation: Operation) -> Option<Fault> {
        let fails = operation == Operation::List && self.0.load(Ordering::SeqCst);
        fails.then_some(Fault::Refused)
    }
}

/// The lease holds without a look. A manifest is not written without one.
#[tokio::test]
async fn a_listing_that_fails_ends_no_run_within_its_lease() {
    let mut policy = Policy::default();
    (policy.max_retries, policy.retry_timeout) = (0, Duration::ZERO);
    let mut fixture = Fixture::with(policy);
    let lists = Arc::new(NoLists::default());
    fixture.root = fixture.root.failing(Arc::clone(&lists) as Arc<dyn Faults>);
    let (first, living) = fixture.run().await;
    let lease = first.lease.as_ref().unwrap();
    lists.0.store(true, Ordering::SeqCst);
    lease.forget_look();
    put(&living, "n/a").await.unwrap();
    lease.expire();
    assert!(put(&living, "n/b").await.is_err(), "the lease is over");
    lists.0.store(false, Ordering::SeqCst);
    put(&living, "n/b").await.unwrap();
    first.confirm().await.unwrap();
    lists.0.store(true, Ordering::SeqCst);
    lease.forget_look();
    assert!(put(&living, "m").await.is_err(), "the manifest needs the look");
}

/// The retries last as long as the lease: a change must wait neither for them nor for a confirmation that has them. Nor does
/// the next one look at once.
#[tokio::test(start_paused = true)]
async fn a_listing_that_fails_holds_up_no_change_within_the_lease() {
    let mut fixture = Fixture::new();
    let lists = Arc::new(NoLists::default());
    fixture.root = fixture.root.failing(Arc::clone(&lists) as Arc<dyn Faults>);
    let (first, living) = fixture.run().await;
    let lease = first.lease.as_ref().unwrap();
    lists.0.store(true, Ordering::SeqCst);
    let timed = async |key: &str| {
        let begun = tokio::time::Instant::now();
        put(&living, key).await.unwrap();
        begun.elapsed()
    };
    lease.forget_look();
    let waited = timed("n/a").await;
    assert!(waited < Duration::from_secs(15), "{waited:?}");
    let waited = timed("n/b").await;
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    lease.forget_look();
    let confirming = async { lease.confirm().await.unwrap() };
    let putting = async {
        tokio::task::yield_now().await;
        let waited = timed("n/c").await;
        lists.0.store(false, Ordering::SeqCst);
        waited
    };
    let ((), waited) = tokio::join!(confirming, putting);
    assert!(waited < Duration::from_secs(15), "{waited:?}");
    put(&living, "n/d").await.unwrap();
}

/// The suspended run's refresh was in flight when the other run removed its claim.
#[tokio::test]
async fn a_claim_that_comes_back_does_not_count() {
    let fixture = Fixture::new();
    let (first, sleeping) = fixture.run().await;
    fixture.silence(&first);
    let note = first.lease.as_ref().unwrap().note().encode();
    let (second, _) = fixture.run().await;
    second.end().await;
    let key = first.lease.as_ref().unwrap().key().to_owned();
    fixture.root.store().put(&key, note.into()).await.unwrap();
    assert!(is_fenced(put(&sleeping, "n/a").await));
    assert!(!first.is_newest().await.unwrap());
}

#[tokio::test]
async fn a_run_that_slept_and_was_not_taken_over_goes_on() {
    let fixture = Fixture::new();
    let (claim, root) = fixture.run().await;
    fixture.silence(&claim);
    put(&root, "n/a").await.unwrap();
    // The run has refreshed its claim again.
    assert!(matches!(fixture.claim().await, Err(RepoError::Running { .. })));
}

/// The refresher sleeps with the machine.
#[tokio::test]
async fn the_claim_of_a_packed_run_is_young_again_once_it_is_confirmed() {
    let fixture = Fixture::new();
    let run = RunId::random().unwrap();
    let claim = Claim::packed(&fixture.root, &fixture.name, run).await.unwrap();
    let key = fixture.folder.path().join(fixture.root.run_keys(&fixture.name, run).claim());
    let old = SystemTime::now() - Duration::from_secs(3 * 86_400);
    std::fs::File::options().append(true).open(&key).unwrap().set_modified(old).unwrap();
    claim.confirm().await.unwrap();
    assert!(key.metadata().unwrap().modified().unwrap() > old + Duration::from_secs(86_400));
}

#[tokio::test]
async fn a_claim_that_was_removed_or_replaced_is_lost() {
    for replaced in [false, true] {
        let fixture = Fixture::new();
        let (claim, root) = fixture.run().await;
        let key = claim.lease.as_ref().unwrap().key().to_owned();
        fixture.root.store().delete(&key).await.unwrap();
        if replaced {
            let other = Note::new(String::new()).unwrap();
            fixture.root.store().put(&key, other.encode().into()).await.unwrap();
        }
        claim.lease.as_ref().unwrap().expire();
        assert!(is_fenced(put(&root, "n/a").await));
        let there = fixture.root.store().get(&key).await;
        assert_eq!(there.is_ok(), replaced, "it must not come back");
    }
}

#[tokio::test]
async fn only_what_holds_or_has_held_owns_what_lies_there() {
    let fixture = Fixture::new();
    let seen = async || {
        let claims = claims(&fixture.root, &fixture.name).await.unwrap();
        standing(&fixture.root, &claims).await.unwrap().seen
    };
    let (first, _) = fixture.run().await;
    fixture.silence(&first);
    let slept = seen().await.unwrap();
    let second = fixture.claim().await.unwrap();
    assert_eq!(seen().await, Some(slept), "one that only looks owns nothing");
    second.hold(&fixture.root, &fixture.name).await.unwrap();
    assert!(seen().await.unwrap() > slept);
    second.end().await;
    assert_eq!(seen().await, None);
    assert_eq!(claims(&fixture.root, &fixture.name).await.unwrap().len(), 1);
}

/// A run that takes over on request does not wait until the lease of the other has ended.
#[tokio::test]
async fn a_run_with_a_fresh_lease_removes_nothing_once_another_took_over() {
    let fixture = Fixture::new();
    let (_first, suspended) = fixture.run().await;
    let taking = fixture.root.taking_over(|_: &str| {});
    let (second, _) =
        Claim::classic(&taking, &fixture.name, RunId::random().unwrap()).await.unwrap();
    let running = second.hold(&taking, &fixture.name).await.unwrap();
    put(&running, "n/a").await.unwrap();
    assert!(is_fenced(suspended.store().delete(&suspended.key("n/a")).await));
    assert!(is_fenced(suspended.store().delete_all(vec![suspended.key("n/a")]).await));
    assert!(running.store().get(&running.key("n/a")).await.is_ok());
}

/// A run whose confirmation was overtaken must not remove the claim that fences it.
#[tokio::test]
async fn a_run_that_begins_to_hold_spares_the_newer_claim() {
    let fixture = Fixture::new();
    let (mut first, root) = fixture.run().await;
    let key = first.lease.as_ref().unwrap().key().to_owned();
    // As if it had the lower number of a claim that another run has replaced since.
    first.number -= 1;
    first.remove_older(&root, &fixture.name).await.unwrap();
    assert!(fixture.root.store().get(&key).await.is_ok());
    first.number += 2;
    first.remove_older(&root, &fixture.name).await.unwrap();
    assert!(fixture.root.store().get(&key).await.is_err());
}

#[tokio::test]
async fn objects_without_a_manifest_are_a_stock_backup_only_if_no_run_can_have_added_some() {
    let object = "n/xtrabackup_info.00000000000000000000";
    let fixture = Fixture::new();
    let unfinished =
        async || snapshot_claim(&fixture.root, &fixture.name).await.unwrap().is_unfinished();
    let listed = async || {
        let mut listed = fixture.root.list_below("n").await.unwrap();
        listed.retain(|listed| of_classic(&listed.key));
        listed
    };
    // Another tool's, where no run of ours ever was.
    put(&fixture.root, object).await.unwrap();
    assert!(!unfinished().await);
    fixture.root.store().delete(&fixture.root.key(object)).await.unwrap();

    // Recorded by the run that left them.
    let (first, root) = fixture.run().await;
    put(&root, object).await.unwrap();
    assert!(unfinished().await, "the run holds the name");
    first.end_leaving(RemainingObjects::of(&listed().await)).await.unwrap();
    let before = snapshot_claim(&fixture.root, &fixture.name).await.unwrap();
    assert!(!before.is_unfinished());
    before.still_holds(&fixture.root, &fixture.name).await.unwrap();
    // A late request of another run adds one.
    put(&fixture.root, "n/late.00000000000000000000").await.unwrap();
    assert!(unfinished().await);
    let changed = before.still_holds(&fixture.root, &fixture.name).await;
    assert!(matches!(changed, Err(RepoError::Replaced { .. })), "{changed:?}");
    for key in [object, "n/late.00000000000000000000"] {
        fixture.root.store().delete(&fixture.root.key(key)).await.unwrap();
    }

    // The next run has no predecessor that could be alive, so what comes later is another tool's.
    let (second, _) = fixture.run().await;
    second.end().await;
    put(&fixture.root, object).await.unwrap();
    assert!(!unfinished().await);
    fixture.root.store().delete(&fixture.root.key(object)).await.unwrap();

    // A run that took over may have left one behind that still writes.
    let (third, _) = fixture.run().await;
    fixture.silence(&third);
    let (fourth, _) = fixture.run().await;
    fourth.end().await;
    put(&fixture.root, object).await.unwrap();
    assert!(unfinished().await);
}

#[test]
fn claims_of_earlier_versions_hold() {
    let note = Note::read(br#"{"run":"r","pid":7,"process_started":"b 1"}"#);
    assert_eq!((note.phase, note.holder.as_str()), (Phase::Holding, ""));
    assert_eq!(Note::read(b"damaged").phase, Phase::Holding);
    let own = Note { phase: Phase::Ended, ..Note::new("r".to_owned()).unwrap() };
    let again = Note::read(&own.encode());
    assert_eq!((again.phase, again.holder), (Phase::Ended, own.holder));
}
