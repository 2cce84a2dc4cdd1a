//! Records of format 1 as they were: today's program reads them, and does not guess at a later format.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sha2::{Digest as _, Sha256};
use xb_repo::names::BackupName;
use xb_repo::records::{
    Accepted, FailedTry, Proof, VerifyResult, accepted, add, add_failed_try, keys, last_number,
    pinned, remove_pin, results,
};
use xb_repo::root::Root;
use xb_repo::verification::{Level, PageReport, VerifyReport};
use xb_uploader::{Fault, Faults, Location, Operation, Policy, StorePlace, StoreSettings};

const VERIFIED: &str = include_str!("../../../fixtures/records/verified-2026-11-27");
const NUMBERED: &str = include_str!("../../../fixtures/records/verified-2026-11-28");
const PIN: &str = include_str!("../../../fixtures/records/pin-2026-11-27");
const ACCEPTED: &str = include_str!("../../../fixtures/records/accepted-2026-11-27");
const ACCEPTED_BASE: &str = include_str!("../../../fixtures/records/accepted-2026-11-30");
const MANIFEST: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A repository with the three records, each with this format.
struct Site(tempfile::TempDir, Root, BackupName);

impl Site {
    fn new(format: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let name = BackupName::new("monday").unwrap();
        let [_, verified, pin, accepted] = keys(&name);
        for (key, record) in [(verified, VERIFIED), (pin, PIN), (accepted, ACCEPTED)] {
            let file = folder.path().join(key);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, of_format(record, format)).unwrap();
        }
        let path = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
        let location = Location { place: StorePlace::Local, path };
        let root =
            Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap();
        Self(folder, root, name)
    }
}

/// The result of a verification that has ended now.
fn result(level: Level, ok: bool) -> VerifyResult {
    let mut report = VerifyReport::new("monday".to_owned(), level);
    report.close(level, String::new());
    let found = VerifyResult::of(&report, "test");
    assert_eq!((found.level, found.ok), (level, true));
    let pages = (level >= Level::Pages).then(PageReport::default);
    VerifyResult { ok, pages, ..found }
}

/// The record with another format and the right check line.
fn of_format(record: &str, format: u32) -> String {
    if format == 1 {
        return record.to_owned();
    }
    let (text, _) = record.rsplit_once("sha256:").unwrap();
    with_digest(&text.replace("\"format\": 1", &format!("\"format\": {format}")))
}

/// The text with its check line.
fn with_digest(text: &str) -> String {
    let digest: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{text}sha256:{digest}\n")
}

#[tokio::test]
async fn records_of_format_1_are_read() {
    let Site(_folder, root, name) = Site::new(1);
    let verified = results(&root, &name, MANIFEST, None).await.unwrap();
    let found: Vec<_> = verified.results.iter().map(|r| (r.level, r.ok, r.problems)).collect();
    assert_eq!(found, [(Level::Checksum, true, 0), (Level::Decrypt, false, 3)]);
    assert_eq!(verified.results[1].unpacked_bytes, Some(7000));
    let failed = verified.failed_try.unwrap();
    assert_eq!((failed.level, failed.why.as_str()), (Level::Pages, "no room"));
    let pin = pinned(&root, &name, Some(MANIFEST)).await.unwrap().unwrap();
    assert_eq!(pin.reason.as_deref(), Some("for the auditors"));
    assert_eq!(pin.since.unwrap().to_string(), "2026-11-27T08:00:00Z");
    let accepted = accepted(&root, &name, MANIFEST).await.unwrap().unwrap();
    assert_eq!(accepted.reason.as_deref(), Some("the archive tables have moved"));
}

/// Those of earlier versions did not state what they are for.
#[tokio::test]
async fn an_acceptance_states_what_it_is_for() {
    let Site(folder, root, name) = Site::new(1);
    let about = async || accepted(&root, &name, MANIFEST).await.unwrap().unwrap().about;
    assert_eq!(about().await, None);
    let [.., file] = keys(&name).map(|key| folder.path().join(key));
    std::fs::write(&file, ACCEPTED_BASE).unwrap();
    assert_eq!(about().await, Some([Accepted::Base].into()));
    // A later program may know other things to accept.
    let (text, _) = ACCEPTED_BASE.rsplit_once("sha256:").unwrap();
    std::fs::write(&file, with_digest(&text.replace("\"base\"", "\"colour\""))).unwrap();
    assert!(accepted(&root, &name, MANIFEST).await.unwrap().is_none());
}

/// With numbers, the order of the results is known.
#[tokio::test]
async fn numbered_records_of_format_1_are_read() {
    let Site(folder, root, name) = Site::new(1);
    let [_, verified, ..] = keys(&name).map(|key| folder.path().join(key));
    std::fs::write(verified, NUMBERED).unwrap();
    let found = results(&root, &name, MANIFEST, None).await.unwrap();
    let numbers: Vec<_> =
        found.results.iter().map(|result| (result.number, result.after)).collect();
    assert_eq!(numbers, [(Some(1), Some(0)), (Some(2), Some(0))]);
    assert_eq!(
        (found.failed_try.unwrap().number, last_number(&root, &name, MANIFEST).await),
        (Some(3), 3)
    );
    assert_eq!(Proof::of(&found.results).failed, Some(Level::Pages));
}

/// A record that accepts does not count if it may mean something else by now. One that protects counts, and so do the faults that
/// a verification record may hold.
#[tokio::test]
async fn of_a_later_format_only_what_protects_counts() {
    let Site(_folder, root, name) = Site::new(2);
    let unread = results(&root, &name, MANIFEST, None).await.unwrap_err();
    assert!(unread.is_of_one_object(), "{unread}");
    assert!(accepted(&root, &name, MANIFEST).await.unwrap().is_none());
    assert!(pinned(&root, &name, Some(MANIFEST)).await.unwrap().is_some());
}

/// A record that was there may have held a fault, which a check of the pages does not find.
#[tokio::test]
async fn a_damaged_record_counts_as_one_that_cannot_be_read_until_the_pages_pass() {
    for length in [0, 400, VERIFIED.len() - 2] {
        let Site(folder, root, name) = Site::new(1);
        let [_, verified, ..] = keys(&name).map(|key| folder.path().join(key));
        std::fs::write(&verified, &VERIFIED[..length]).unwrap();
        let unread = results(&root, &name, MANIFEST, None).await.unwrap_err();
        assert!(unread.is_of_one_object(), "{unread}");
        let passed = |level| add(&root, &name, MANIFEST, result(level, true), None);
        assert!(passed(Level::Decrypt).await.is_err());
        let failed = FailedTry::now(Level::Restore, "test", "no room");
        assert!(add_failed_try(&root, &name, MANIFEST, failed, None).await.is_err());
        assert_eq!(std::fs::read(&verified).unwrap().len(), length, "it was replaced");
        passed(Level::Pages).await.unwrap();
        let found = results(&root, &name, MANIFEST, None).await.unwrap();
        assert_eq!(Proof::of(&found.results).level, Some(Level::Pages));
        let open = found.failed_try.unwrap();
        assert!(open.level == Level::Restore && open.why.contains("may have held"), "{open:?}");
        let after = Some(last_number(&root, &name, MANIFEST).await);
        let trial = VerifyResult { after, ..result(Level::Restore, true) };
        add(&root, &name, MANIFEST, trial, None).await.unwrap();
        let found = results(&root, &name, MANIFEST, None).await.unwrap();
        assert!(Proof::of(&found.results).reaches(Level::Restore) && found.failed_try.is_none());
    }
}

/// One of a later format is not damaged: what it says is unknown, and only a trial answers for all of it.
#[tokio::test]
async fn a_check_of_the_pages_replaces_no_record_of_a_later_format() {
    let Site(_folder, root, name) = Site::new(2);
    assert!(add(&root, &name, MANIFEST, result(Level::Pages, true), None).await.is_err());
    assert!(results(&root, &name, MANIFEST, None).await.is_err());
    add(&root, &name, MANIFEST, result(Level::Restore, true), None).await.unwrap();
    let found = results(&root, &name, MANIFEST, None).await.unwrap();
    assert!(Proof::of(&found.results).reaches(Level::Restore));
}

/// Without its key, a backup cannot be restored: the trial with the key answers for the other record, too.
#[tokio::test]
async fn with_the_key_the_damaged_record_of_those_without_is_replaced() {
    let Site(folder, root, name) = Site::new(1);
    let [_, verified, ..] = keys(&name).map(|key| folder.path().join(key));
    let key = &xb_encryptor::FreshKey::generate().unwrap().key().manifest_key(&[1; 16]);
    std::fs::write(&verified, "{").unwrap();
    add(&root, &name, MANIFEST, result(Level::Decrypt, true), Some(key)).await.unwrap();
    assert!(results(&root, &name, MANIFEST, Some(key)).await.is_err());
    add(&root, &name, MANIFEST, result(Level::Pages, true), Some(key)).await.unwrap();
    let found = results(&root, &name, MANIFEST, Some(key)).await.unwrap();
    assert!(Proof::of(&found.results).reaches(Level::Pages) && found.failed_try.is_some());
    std::fs::write(&verified, "{").unwrap();
    add(&root, &name, MANIFEST, result(Level::Restore, true), Some(key)).await.unwrap();
    let found = results(&root, &name, MANIFEST, Some(key)).await.unwrap();
    assert!(Proof::of(&found.results).reaches(Level::Restore));
    // One that can be read stays.
    add(&root, &name, MANIFEST, result(Level::List, false), None).await.unwrap();
    add(&root, &name, MANIFEST, result(Level::Restore, true), Some(key)).await.unwrap();
    assert!(verified.exists());
}

/// A fault is one whoever found it; only what the key authenticates proves anything.
#[tokio::test]
async fn a_fault_that_was_found_without_the_key_counts_with_it() {
    let Site(folder, root, name) = Site::new(1);
    std::fs::remove_dir_all(folder.path().join(".xb-catalog")).unwrap();
    let key = xb_encryptor::FreshKey::generate().unwrap().key().manifest_key(&[1; 16]);
    let with_key = async || {
        let found = results(&root, &name, MANIFEST, Some(&key)).await.unwrap();
        (Proof::of(&found.results).level, Proof::of(&found.results).failed)
    };
    let now = async || Some(last_number(&root, &name, MANIFEST).await);
    let begun = now().await;
    let held = VerifyResult { after: begun, ..result(Level::Decrypt, true) };
    add(&root, &name, MANIFEST, held, Some(&key)).await.unwrap();
    assert_eq!(with_key().await, (Some(Level::Decrypt), None));
    let bad = VerifyResult { after: now().await, ..result(Level::Checksum, false) };
    add(&root, &name, MANIFEST, bad, None).await.unwrap();
    assert_eq!(with_key().await, (None, Some(Level::Checksum)));
    // Neither one without the key nor one that began before refutes it.
    let plain = VerifyResult { after: now().await, ..result(Level::Pages, true) };
    add(&root, &name, MANIFEST, plain, None).await.unwrap();
    let long = VerifyResult { after: begun, ..result(Level::Pages, true) };
    add(&root, &name, MANIFEST, long, Some(&key)).await.unwrap();
    assert_eq!(with_key().await, (None, Some(Level::Checksum)));
    let later = VerifyResult { after: now().await, ..result(Level::Decrypt, true) };
    add(&root, &name, MANIFEST, later, Some(&key)).await.unwrap();
    assert_eq!(with_key().await, (Some(Level::Decrypt), None));
}

/// The order in which results are recorded counts, not what the clocks of their hosts say.
#[tokio::test]
async fn a_clock_that_is_ahead_hides_no_fault() {
    let Site(folder, root, name) = Site::new(1);
    std::fs::remove_dir_all(folder.path().join(".xb-catalog")).unwrap();
    let hour = jiff::SignedDuration::from_hours(1);
    let held = result(Level::Decrypt, true);
    let held = VerifyResult { finished: held.finished + hour * 2, after: Some(0), ..held };
    add(&root, &name, MANIFEST, held, None).await.unwrap();
    let bad = VerifyResult { after: Some(1), ..result(Level::Checksum, false) };
    add(&root, &name, MANIFEST, bad, None).await.unwrap();
    // Of the same level, it began before the fault was recorded: both stay.
    let long = result(Level::Checksum, true);
    let long = VerifyResult { finished: long.finished + hour, after: Some(1), ..long };
    add(&root, &name, MANIFEST, long, None).await.unwrap();
    let found = results(&root, &name, MANIFEST, None).await.unwrap();
    assert_eq!(Proof::of(&found.results).failed, Some(Level::Checksum));
}

/// The other record may hold a result that began after more results than this host can see.
#[tokio::test]
async fn nothing_in_a_record_that_could_not_be_read_refutes_a_later_fault() {
    let Site(folder, root, name) = Site::new(1);
    let [with_key, without_key, ..] = keys(&name).map(|key| folder.path().join(key));
    std::fs::remove_file(without_key).unwrap();
    let key = xb_encryptor::FreshKey::generate().unwrap().key().manifest_key(&[1; 16]);
    let held = VerifyResult { after: Some(4), ..result(Level::Restore, true) };
    add(&root, &name, MANIFEST, held, Some(&key)).await.unwrap();
    let record = std::fs::read(&with_key).unwrap();
    std::fs::write(&with_key, "{").unwrap();
    add(&root, &name, MANIFEST, result(Level::Checksum, false), None).await.unwrap();
    std::fs::write(&with_key, record).unwrap();
    let failed = async || {
        let found = results(&root, &name, MANIFEST, Some(&key)).await.unwrap();
        Proof::of(&found.results).failed
    };
    assert_eq!(failed().await, Some(Level::Checksum));
    let after = Some(last_number(&root, &name, MANIFEST).await);
    let later = VerifyResult { after, ..result(Level::Restore, true) };
    add(&root, &name, MANIFEST, later, Some(&key)).await.unwrap();
    assert_eq!(failed().await, None);
}

/// Each verification reads the record, adds its result and writes it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn verifications_that_end_at_once_all_count() {
    for _ in 0..20 {
        let Site(folder, root, name) = Site::new(1);
        std::fs::remove_dir_all(folder.path().join(".xb-catalog")).unwrap();
        let levels = [Level::List, Level::Checksum, Level::Decrypt, Level::Pages];
        let ends = levels.map(|level| {
            let (root, name) = (root.clone(), name.clone());
            let after = Some(0);
            let ended = VerifyResult { after, ..result(level, level != Level::Checksum) };
            tokio::spawn(async move { add(&root, &name, MANIFEST, ended, None).await })
        });
        for end in ends {
            end.await.unwrap().unwrap();
        }
        let found = results(&root, &name, MANIFEST, None).await.unwrap();
        let mut numbers: Vec<_> = found.results.iter().map(|result| result.number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [Some(1), Some(2), Some(3), Some(4)], "{found:?}");
        assert_eq!(Proof::of(&found.results).failed, Some(Level::Checksum));
    }
}

/// Fails the first read.
#[derive(Debug)]
struct FirstReadFails(AtomicBool);

impl Faults for FirstReadFails {
    fn next(&self, operation: Operation) -> Option<Fault> {
        let fails = operation == Operation::Get && !self.0.swap(true, Ordering::Relaxed);
        fails.then_some(Fault::Refused)
    }
}

/// By the time of the second read, it may be the pin of another command.
#[tokio::test]
async fn a_pin_that_could_not_be_read_first_stays() {
    let Site(folder, _, name) = Site::new(1);
    let path = folder.path().to_str().unwrap().trim_start_matches('/').to_owned();
    let location = Location { place: StorePlace::Local, path };
    let mut policy = Policy::default();
    (policy.max_retries, policy.retry_timeout) = (0, std::time::Duration::ZERO);
    let root = Root::open(&location, &StoreSettings::default(), policy, true).unwrap();
    let failing = root.failing(Arc::new(FirstReadFails(AtomicBool::new(false))));
    assert!(remove_pin(&failing, &name, Some(MANIFEST)).await.is_err());
    assert!(pinned(&root, &name, Some(MANIFEST)).await.unwrap().is_some());
    assert!(remove_pin(&root, &name, Some(MANIFEST)).await.unwrap().is_some());
    assert!(pinned(&root, &name, Some(MANIFEST)).await.unwrap().is_none());
}
