//! Classic runs of one name: concurrent, in sequence, and after a run was considered dead.

use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use xb_backup::{BackupError, CancelToken, PutReport, PutRequest, Session, VerifyRequest};
use xb_reader::ChunkWriter;
use xb_repo::error::RepoError;
use xb_repo::list::State;
use xb_repo::manifest::Layout;
use xb_repo::names::BackupName;
use xb_repo::root::Root;
use xb_repo::verification::Level;

use crate::common::{Store, block_on, put_request, session, stream_reader};

/// A stream with fixed files, chunks and sizes, filled with the given byte.
fn stream_of(byte: u8) -> Vec<u8> {
    let mut writer = ChunkWriter::new(Vec::new());
    for file in ["shop/orders.ibd", "shop/items.ibd"] {
        writer.payload(file, 0, &[byte; 700]).unwrap();
        writer.payload(file, 700, &[byte; 200]).unwrap();
        writer.end(file).unwrap();
    }
    writer.payload("xtrabackup_info", 0, b"tool_name = mariadb-backup\n").unwrap();
    writer.end("xtrabackup_info").unwrap();
    writer.finish().unwrap()
}

/// Cancels the run right before it creates its claim.
#[derive(Debug)]
struct CancelAtClaim(CancelToken);

impl xb_uploader::Faults for CancelAtClaim {
    fn next(&self, operation: xb_uploader::Operation) -> Option<xb_uploader::Fault> {
        if operation == xb_uploader::Operation::Create {
            self.0.cancel(15);
        }
        None
    }
}

/// Waits until the claim of a run is held.
fn until_held(claim: &Path) {
    xb_testkit::until("the name is held", || {
        std::fs::read_to_string(claim).is_ok_and(|text| text.contains("holding"))
    });
}

/// The store may carry out the request after the run has ended.
#[test]
fn a_run_that_is_cancelled_while_it_claims_its_name_leaves_nothing() {
    for layout in [Layout::Packed, Layout::Classic] {
        let store = Store::new();
        let cancel = CancelToken::new();
        let canceller = cancel.clone();
        let root = store.root.failing(Arc::new(CancelAtClaim(canceller)));
        let session = Session { cancel, ..session(&root) };
        let request = put_request("n", layout, 500);
        let stopped = block_on(xb_backup::put(&session, &request, stream_reader()));
        assert!(matches!(stopped, Err(BackupError::Interrupted(15))));
        assert_eq!(store.files_but_claims(), Vec::<PathBuf>::new());
        let _ = store.put("n", layout, 500, stream_reader()).unwrap();
    }
}

async fn put_classic(
    root: Root,
    name: String,
    input: impl Read + Send + 'static,
) -> Result<PutReport, BackupError> {
    let request = put_request(&name, Layout::Classic, 500);
    xb_backup::put(&session(&root), &request, input).await
}

fn claims_of(store: &Store, name: &str) -> PathBuf {
    store.folder.path().join("root/.xb-catalog/@claims").join(name)
}

fn object(store: &Store, name: &str, key: &str) -> PathBuf {
    store.folder.path().join("root").join(name).join(key)
}

/// Sets the modification time of a file to `by` ago.
fn age(path: &Path, by: Duration) {
    let file = std::fs::File::options().append(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - by).unwrap();
}

fn verify(store: &Store, name: &str, level: Level) -> xb_repo::verification::VerifyReport {
    let request = VerifyRequest {
        name: BackupName::new(name).unwrap(),
        level,
        keys: xb_backup::Keys::default(),
        accept: xb_backup::Accept::default(),
        record: None,
    };
    block_on(xb_backup::verify(&session(&store.root), &request)).unwrap()
}

#[test]
fn of_several_runs_at_once_exactly_one_wins_and_its_bytes_come_back() {
    let store = Store::new();
    for round in 0..300_u32 {
        let (name, runs) = (format!("n{round}"), 2 + (round % 2) as u8);
        let together = std::sync::Barrier::new(usize::from(runs));
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..runs)
                .map(|n| {
                    let (root, name, together) = (store.root.clone(), name.clone(), &together);
                    scope.spawn(move || {
                        together.wait();
                        let input = std::io::Cursor::new(stream_of(b'a' + n));
                        block_on(put_classic(root, name, input))
                    })
                })
                .collect();
            running.into_iter().map(|run| run.join().unwrap()).collect()
        });
        let winners: Vec<u8> = (0..runs).filter(|n| outcomes[usize::from(*n)].is_ok()).collect();
        let [winner] = winners[..] else { panic!("round {round}: {winners:?}: {outcomes:?}") };
        let files = store.get(&name).unwrap();
        assert_eq!(
            files.iter().filter(|byte| **byte == b'a' + winner).count(),
            1800 + other(b'a' + winner),
            "round {round}"
        );
    }
}

/// Names by a template are those of a second.
#[test]
fn of_several_runs_at_once_with_a_generated_name_each_is_a_backup() {
    for layout in [Layout::Packed, Layout::Classic] {
        let store = Store::new();
        let request = PutRequest { generated: true, ..put_request("n", layout, 500) };
        let together = std::sync::Barrier::new(5);
        let put = |byte| {
            together.wait();
            let input = std::io::Cursor::new(stream_of(byte));
            block_on(xb_backup::put(&session(&store.root), &request, input))
        };
        let stored: Vec<_> = std::thread::scope(|scope| {
            let put = &put;
            let running: Vec<_> = (b'a'..=b'e').map(|n| scope.spawn(move || put(n))).collect();
            running.into_iter().map(|run| run.join().unwrap().unwrap()).collect()
        });
        for (stored, byte) in stored.iter().zip(b'a'..) {
            let name = &stored.manifest.name;
            assert!(name == "n" || (name.starts_with("n-") && name.len() == 6), "{name}");
            let files = store.get(name).unwrap();
            let has = |n: &u8| files.windows(200).any(|at| at.iter().all(|found| found == n));
            assert_eq!((b'a'..=b'e').filter(has).collect::<Vec<_>>(), [byte], "{name}");
        }
    }
}

/// Number of times that a byte occurs in the stream outside the files' contents.
fn other(byte: u8) -> usize {
    let empty = stream_of(0);
    empty.iter().filter(|found| **found == byte).count()
}

/// A sleeping run is considered dead, and wakes up after another run has completed the backup.
#[test]
fn a_run_that_wakes_up_after_it_was_taken_for_dead_changes_nothing() {
    let store = Store::new();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let root = store.root.clone();
    let first = std::thread::spawn(move || block_on(put_classic(root, "n".into(), reader)));
    let sleeping = stream_of(b'a');
    writer.write_all(&sleeping[..1000]).unwrap();
    let claim = claims_of(&store, "n").join("000001");
    until_held(&claim);
    age(&claim, Duration::from_secs(2 * 3600));
    let root = store.root.clone();
    block_on(put_classic(root, "n".into(), std::io::Cursor::new(stream_of(b'b')))).unwrap();
    let whole = store.get("n").unwrap();
    // It may have noticed already, and read no more.
    let _ = writer.write_all(&sleeping[1000..]);
    drop(writer);
    first.join().unwrap().unwrap_err();
    assert_eq!(store.state("n"), Some(State::Complete));
    assert_eq!(store.get("n").unwrap(), whole);
    assert!(verify(&store, "n", Level::Checksum).is_ok());
}

/// The other program stores its objects while ours runs: one beside ours, or one that ours meets.
#[test]
fn a_run_that_fails_leaves_the_objects_of_another_program() {
    static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    xb_uploader::report_warnings(|what| WARNINGS.lock().unwrap().push(what.to_owned()));
    for foreign in ["shop/other.ibd", "shop/items.ibd"] {
        let store = Store::new();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let root = store.root.clone();
        let put = std::thread::spawn(move || block_on(put_classic(root, "n".into(), reader)));
        let stream = stream_of(b'a');
        writer.write_all(&stream[..1000]).unwrap();
        let claim = claims_of(&store, "n").join("000001");
        until_held(&claim);
        let key = format!("{foreign}.00000000000000000000");
        let theirs = object(&store, "n", &key);
        std::fs::create_dir_all(theirs.parent().unwrap()).unwrap();
        std::fs::write(&theirs, "of another program").unwrap();
        let _ = writer.write_all(&stream[1000..]);
        drop(writer);
        put.join().unwrap().unwrap_err();
        assert_eq!(store.files_but_claims(), std::slice::from_ref(&theirs), "{foreign}");
        assert_eq!(std::fs::read(&theirs).unwrap(), b"of another program");
        // It is no remains of ours, which the next run would remove.
        assert_eq!(store.state("n"), Some(State::StockUnproven));
        age(&claim, Duration::from_secs(2 * 3600));
        let next = block_on(put_classic(store.root.clone(), "n".into(), stream_reader()));
        assert!(matches!(next, Err(BackupError::Repo(RepoError::Exists { .. }))), "{next:?}");
        assert!(theirs.exists());
        let said = WARNINGS.lock().unwrap();
        assert!(
            said.iter().any(|what| what.contains("did not store") && what.contains(&key)),
            "{said:?}"
        );
    }
}

/// A run sleeps as above, but the other run has failed: the old claim must not count as the newest again.
#[test]
fn an_older_claim_never_counts_again() {
    let store = Store::new();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let root = store.root.clone();
    let first = std::thread::spawn(move || block_on(put_classic(root, "n".into(), reader)));
    let sleeping = stream_of(b'a');
    writer.write_all(&sleeping[..1000]).unwrap();
    let claim = claims_of(&store, "n").join("000001");
    until_held(&claim);
    let old = std::fs::read(&claim).unwrap();
    age(&claim, Duration::from_secs(2 * 3600));
    block_on(put_classic(
        store.root.clone(),
        "n".into(),
        std::io::Cursor::new(stream_of(b'c')[..1500].to_vec()),
    ))
    .unwrap_err();
    // Like a refresh that arrives late.
    std::fs::write(&claim, old).unwrap();
    block_on(put_classic(store.root.clone(), "n".into(), std::io::Cursor::new(stream_of(b'b'))))
        .unwrap();
    let whole = store.get("n").unwrap();
    // The sleeping run fails, and cleans up.
    drop(writer);
    first.join().unwrap().unwrap_err();
    assert_eq!(store.get("n").unwrap(), whole);
}

#[test]
fn an_object_of_another_run_is_named_by_all_who_read_it() {
    let store = Store::new();
    for (name, byte) in [("n", b'a'), ("m", b'b')] {
        let input = std::io::Cursor::new(stream_of(byte));
        block_on(put_classic(store.root.clone(), name.into(), input)).unwrap();
    }
    let key = "shop/orders.ibd.00000000000000000001";
    std::fs::copy(object(&store, "m", key), object(&store, "n", key)).unwrap();
    let sums = store.folder.path().join("root/.xb-catalog/@sums/n");
    assert_eq!(std::fs::read_dir(&sums).unwrap().count(), 1);
    for whole in [true, false] {
        if !whole {
            // The digest in the manifest shows the same, but not which object differs.
            std::fs::remove_dir_all(&sums).unwrap();
        }
        let error = store.get("n").unwrap_err().to_string();
        assert!(matches!(store.get("n"), Err(BackupError::Damaged { .. })), "{error}");
        assert_eq!(error.contains(key), whole, "{error}");
        let target = store.folder.path().join(format!("out{whole}"));
        assert!(store.restore("n", &target).is_err());
        assert!(
            !whole || !target.join("shop/orders.ibd").exists(),
            "a file of mixed bytes has its name"
        );
        let report = verify(&store, "n", Level::Checksum);
        assert!(!report.is_ok());
        let named =
            report.problems.iter().any(|p| p.object.as_ref().is_some_and(|o| o.ends_with(key)));
        assert_eq!(named, whole, "{:?}", report.problems);
    }
    let copied = Store::new();
    let wanted = xb_backup::CopyRequest {
        verify_bases: None,
        name: BackupName::new("n").unwrap(),
        to: BackupName::new("n").unwrap(),
        options: xb_backup::CopyOptions { unverified: true, alone: true },
        accept: xb_backup::Accept::default(),
        keys: xb_backup::Keys::default(),
        within_store: None,
        lock: None,
    };
    let done = block_on(xb_backup::copy(&session(&store.root), &copied.root, wanted));
    assert!(matches!(done, Err(BackupError::Damaged { .. })), "{done:?}");
    assert_ne!(copied.state("n"), Some(State::Complete));
}

#[test]
fn a_manifest_of_an_earlier_version_is_read_without_sums() {
    let store = Store::new();
    block_on(put_classic(store.root.clone(), "n".into(), stream_reader())).unwrap();
    let whole = store.get("n").unwrap();
    let manifest = store.folder.path().join("root/.xb-catalog/n");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let body: String = text
        .lines()
        .filter(|line| !line.contains("object_digest") && !line.starts_with("sha256:"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_ne!(body.len() + 72, text.len());
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(body.as_bytes());
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(&manifest, format!("{body}sha256:{hex}\n")).unwrap();
    assert_eq!(store.get("n").unwrap(), whole);
    assert!(verify(&store, "n", Level::Checksum).is_ok());
}

#[test]
fn a_claim_is_taken_over_by_word_and_named() {
    let store = Store::new();
    let claims = claims_of(&store, "n");
    std::fs::create_dir_all(&claims).unwrap();
    let claim = r#"{"run":"77","host":"elsewhere","pid":4711,"process_started":"another-boot 1"}"#;
    std::fs::write(claims.join("000007"), claim).unwrap();
    let left = object(&store, "n", "shop/old.ibd.00000000000000000000");
    std::fs::create_dir_all(left.parent().unwrap()).unwrap();
    std::fs::write(&left, "of a dead run").unwrap();
    let put = |root: &Root| block_on(put_classic(root.clone(), "n".into(), stream_reader()));
    assert!(matches!(put(&store.root), Err(BackupError::Repo(RepoError::Running { .. }))));
    let name = BackupName::new("n").unwrap();
    let deleted = block_on(xb_backup::delete(&store.root, &name));
    assert!(matches!(deleted, Err(BackupError::Repo(RepoError::Running { .. }))));
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let root = store.root.taking_over(move |who| telling.lock().unwrap().push(who.to_owned()));
    put(&root).unwrap();
    assert_eq!(*told.lock().unwrap(), ["run 77, host elsewhere, process 4711"]);
    assert!(!left.exists());
    assert_eq!(store.state("n"), Some(State::Complete));
    let names: Vec<_> =
        std::fs::read_dir(&claims).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["000008"]);
    // A run that has ended needs no take-over.
    block_on(xb_backup::delete(&store.root, &name)).unwrap();
    assert_eq!(told.lock().unwrap().len(), 1);
}

/// The remaining claim shows that nothing of our own is left: the objects belong to another tool.
#[test]
fn objects_beside_an_ended_claim_are_a_stock_backup() {
    let store = Store::new();
    block_on(put_classic(store.root.clone(), "n".into(), stream_reader())).unwrap();
    let stock = object(&store, "n", "shop/orders.ibd.00000000000000000000");
    let bytes = std::fs::read(&stock).unwrap();
    block_on(xb_backup::delete(&store.root, &BackupName::new("n").unwrap())).unwrap();
    assert!(!stock.exists());
    assert_eq!(store.state("n"), None);
    std::fs::create_dir_all(stock.parent().unwrap()).unwrap();
    std::fs::write(&stock, bytes).unwrap();
    assert_eq!(store.state("n"), Some(State::StockUnproven));
    let refused = block_on(put_classic(store.root.clone(), "n".into(), stream_reader()));
    assert!(matches!(refused, Err(BackupError::Repo(RepoError::Exists { .. }))), "{refused:?}");
    assert!(stock.exists());
}

/// A multipart upload of a dead run is aborted before the next one begins.
#[test]
fn unfinished_uploads_of_a_dead_run_are_ended() {
    let store = Store::new();
    let claims = claims_of(&store, "n");
    std::fs::create_dir_all(&claims).unwrap();
    std::fs::write(claims.join("000001"), "{}").unwrap();
    age(&claims.join("000001"), Duration::from_secs(2 * 3600));
    let staged = object(&store, "n", "shop/orders.ibd.00000000000000000000#1");
    let run = object(&store, "n", "00112233445566778899aabbccddeeff/000000001#1");
    for path in [&staged, &run] {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "half").unwrap();
    }
    block_on(put_classic(store.root.clone(), "n".into(), stream_reader())).unwrap();
    assert!(!staged.exists() && run.exists());
}
