//! The archive of a real MariaDB server: received, killed, damaged, verified.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use xb_backup::{
    ArchiveFacts, ArchiveReport, ArchiveSettings, BackupError, CancelToken, KeySlots, Keys, Notice,
    ReceiveRequest, Resources, Session, fetch_segment, receive, verify_archive,
};
use xb_binlog::{History, LogPosition, Reader};
use xb_encryptor::{KeyBytes, KeysObject};
use xb_mysql::{Access, Account, Target};
use xb_repo::archive::authority::Keyless;
use xb_repo::archive::base::Base;
use xb_repo::archive::listing::streams;
use xb_repo::archive::plan::{Histories, Stream};
use xb_repo::archive::stop::RestoreStop;
use xb_repo::resolve::KnownManifests;
use xb_repo::root::Root;
use xb_testkit::mariadb::MariaDb;
use xb_uploader::{Fault, Faults, Location, Operation, Policy, StorePlace, StoreSettings};

/// Type of the event by which MariaDB says which logs a recovery needs.
const CHECKPOINT: u8 = 161;
const SERVER: &str = "shop";
const KEY: &[u8; 32] = b"0123456789abcdef0123456789abcdef";
/// A child of this program receives from this socket into this folder.
const CHILD: [&str; 2] = ["XB_TEST_BINLOG_SOCKET", "XB_TEST_BINLOG_FOLDER"];

struct Archive {
    server: MariaDb,
    folder: tempfile::TempDir,
}

impl Archive {
    fn new() -> Self {
        let server = start_server(&[]);
        server.sql(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, v LONGTEXT)",
        );
        Self { server, folder: tempfile::tempdir().unwrap() }
    }

    fn write(&self, number: usize) {
        let rows: String =
            (0..number).map(|n| format!("INSERT INTO d.t (v) VALUES ('{n}');")).collect();
        self.server.sql(&rows);
    }

    fn session(&self) -> Session {
        session(&root(self.folder.path()))
    }

    /// Receives until everything that the server has is stored; what was told.
    fn catch_up(&self) -> Vec<Notice> {
        let (receiver, told) = Receiver::start(self.server.socket(), &self.session());
        self.wait_for(&told);
        receiver.stop();
        let told = told.lock().unwrap();
        told.clone()
    }

    /// Waits until everything that the server has is stored.
    fn wait_for(&self, told: &Notices) {
        let status = self.server.sql("SHOW MASTER STATUS");
        let mut columns = status.split('\t');
        let position = |log: &str, offset: &str| {
            LogPosition::new(log, offset.trim().parse().unwrap()).unwrap()
        };
        let end = position(columns.next().unwrap(), columns.next().unwrap());
        let is_stored = |notice: &Notice| match notice {
            Notice::Stored { position: stored, .. } => {
                let (log, offset) = stored.split_once(':').unwrap();
                position(log, offset) >= end
            }
            _ => false,
        };
        until(|| told.lock().unwrap().iter().any(is_stored));
    }

    fn verify(&self) -> ArchiveReport {
        verified(self, facts(&keys(), None)).unwrap()
    }

    fn streams(&self) -> Vec<(Stream, Option<KeysObject>)> {
        let found = block_on(streams(&root(self.folder.path()), SERVER, &Keyless)).unwrap();
        found.into_iter().filter_map(|found| Some((found.stream?, found.keys))).collect()
    }

    /// Where the last transaction of the archive ends.
    fn last_transaction(&self) -> LogPosition {
        let streams: Vec<Stream> = self.streams().into_iter().map(|(stream, _)| stream).collect();
        let first = streams[0].head.content.start.position().unwrap();
        let taken = jiff::Timestamp::now();
        let position = first.clone();
        let base = Base { position, gtids: None, at_most: None, taken, is_shown_by_bytes: false };
        let plan = Histories::new(&streams).plan(&base, &RestoreStop::Latest).unwrap();
        plan.end(&first).unwrap().0
    }

    /// The bytes of each log in the archive's newest history.
    fn logs(&self) -> BTreeMap<String, Vec<u8>> {
        let session = self.session();
        let (streams, keys_objects): (Vec<_>, Vec<_>) = self.streams().into_iter().unzip();
        let first = streams[0].head.content.start.position().unwrap();
        // Its position is that of the beginning of a log, which a branch repeats.
        let base = Base {
            position: first,
            gtids: None,
            at_most: None,
            taken: jiff::Timestamp::now(),
            is_shown_by_bytes: false,
        };
        let plan = Histories::new(&streams).plan(&base, &RestoreStop::Latest).unwrap();
        let mut logs: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for piece in plan.pieces {
            let head = piece.segment;
            let number = streams.iter().position(|s| s.id() == piece.stream).unwrap();
            let slots = keys_objects[number].as_ref().unwrap();
            let key = keys().open(slots, 1 << 30).unwrap().unwrap();
            let fetched = block_on(fetch_segment(&session, SERVER, piece.segment));
            let read = fetched.unwrap().unwrap().read(&session, Some(&key), Vec::new());
            let (bytes, whole) = block_on(read).unwrap();
            whole.unwrap();
            let wanted = usize::try_from(piece.until - head.from.offset).unwrap();
            let log = logs.entry(head.from.log.to_string()).or_default();
            assert_eq!(log.len() as u64 + 4, head.from.offset, "a hole or a double");
            log.extend_from_slice(&bytes[..wanted]);
        }
        logs
    }

    /// Checks that the archive has what the server has, and that it verifies.
    fn assert_equal(&self) {
        self.assert_bytes();
        let report = self.verify();
        assert!(report.is_undamaged() && !report.has_gap(), "{report:#?}");
    }

    fn assert_bytes(&self) {
        let logs = self.logs();
        let names = self.server.sql("SHOW BINARY LOGS");
        for name in names.lines().filter_map(|line| line.split('\t').next()) {
            let mut file = std::fs::read(self.server.datadir().join(name)).unwrap();
            // The mark of a log in use is not sent.
            file[4 + 17] &= !1;
            let log = &logs[name];
            assert!(file[4..].starts_with(log), "{name} differs");
            // The server adds checkpoints at any time.
            let rest = &file[4 + log.len()..];
            assert!(
                rest.is_empty() || rest[4] == CHECKPOINT,
                "{name}: {} bytes are missing",
                rest.len()
            );
        }
    }

    /// The objects of the newest stream, without those that are written again.
    fn segments(&self) -> Vec<PathBuf> {
        let streams = self.streams();
        let id = streams.last().unwrap().0.id().to_owned();
        self.segments_of(&id)
    }

    fn segments_of(&self, id: &str) -> Vec<PathBuf> {
        let folder = self.folder.path().join("root/.xb-binlog").join(SERVER).join(id);
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let is_segment = |path: &PathBuf| {
            path.file_name().unwrap().to_str().unwrap().bytes().all(|b| b.is_ascii_digit())
        };
        let mut files: Vec<PathBuf> = files.filter(is_segment).collect();
        files.sort();
        files
    }
}

fn start_server(options: &[&str]) -> MariaDb {
    let mut all =
        vec!["--log-bin=bin", "--server-id=3", "--max-allowed-packet=128M", "--binlog-format=ROW"];
    all.extend(options);
    MariaDb::start_with(&all)
}

fn root(folder: &Path) -> Root {
    let path = folder.join("root").to_str().unwrap().trim_start_matches('/').to_owned();
    let location = Location { place: StorePlace::Local, path };
    Root::open(&location, &StoreSettings::default(), Policy::default(), true).unwrap()
}

fn session(root: &Root) -> Session {
    Session::new(root.clone(), Resources { memory: 1 << 30, threads: 2, parallel: 4 })
}

fn keys() -> Keys {
    Keys { key: Some(KeyBytes::new(KEY).unwrap()), ..Keys::default() }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(future)
}

/// What is found in the archive by these facts.
fn verified(archive: &Archive, facts: ArchiveFacts<'_>) -> Result<ArchiveReport, BackupError> {
    let mut known = KnownManifests::default();
    block_on(verify_archive(&archive.session(), SERVER, facts, &mut known))
}

/// The facts against which an archive is verified.
fn facts<'a>(keys: &'a Keys, state: Option<&'a Path>) -> ArchiveFacts<'a> {
    ArchiveFacts { keys, state, kept_within: None }
}

fn request(socket: &Path, state: Option<PathBuf>) -> ReceiveRequest {
    ReceiveRequest {
        servers: vec![Access {
            target: Target::Socket(socket.to_owned()),
            account: Account { user: b"root".to_vec(), ..Account::default() },
        }],
        patience: Duration::ZERO,
        archive: ArchiveSettings {
            server: SERVER.to_owned(),
            key_slots: KeySlots { key: Some(KeyBytes::new(KEY).unwrap()), ..KeySlots::default() },
            compress: "zstd".parse().unwrap(),
            rpo: Duration::from_millis(200),
            state,
            accept_no_crc: true,
        },
        acknowledge: None,
    }
}

/// Waits for something that happens.
fn until(is: impl FnMut() -> bool) {
    xb_testkit::until("it happens", is);
}

type Notices = Arc<Mutex<Vec<Notice>>>;

/// A receiver in a thread.
struct Receiver {
    canceller: CancelToken,
    thread: std::thread::JoinHandle<()>,
}

impl Receiver {
    fn start(socket: &Path, session: &Session) -> (Self, Notices) {
        Self::start_with(request(socket, None), session)
    }

    fn start_with(request: ReceiveRequest, session: &Session) -> (Self, Notices) {
        let told = Notices::default();
        let cancel = CancelToken::new();
        let canceller = cancel.clone();
        let session = Session { cancel, ..session.clone() };
        let list = Arc::clone(&told);
        let tell = move |notice| {
            eprintln!("{notice:?}");
            list.lock().unwrap().push(notice);
        };
        let thread = std::thread::spawn(move || {
            block_on(receive(&session, &request, tell)).unwrap();
        });
        (Self { canceller, thread }, told)
    }

    fn stop(self) {
        self.canceller.cancel(15);
        self.thread.join().unwrap();
    }
}

fn begins(told: &[Notice]) -> String {
    let begun = told.iter().rev().find_map(|notice| match notice {
        Notice::Begins { begins, .. } => Some(format!("{begins:?}")),
        _ => None,
    });
    begun.unwrap().split([' ', '{']).next().unwrap().to_owned()
}

#[test]
fn the_archive_has_the_bytes_of_the_servers_logs() {
    let archive = Archive::new();
    archive.write(30);
    // A row event of 20 MiB, and a transaction of several segments.
    archive.server.sql(
        "SET GLOBAL max_allowed_packet = 134217728; FLUSH BINARY LOGS;
         USE d; CREATE TABLE big (v LONGTEXT)",
    );
    archive.server.sql(
        "USE d; BEGIN; INSERT INTO big VALUES (REPEAT('large', 4194304));
         INSERT INTO big SELECT CONCAT(v, '1') FROM big; COMMIT; INSERT INTO t (v) VALUES ('after');
         SET GLOBAL binlog_checksum = NONE; INSERT INTO t (v) VALUES ('without');
         SET GLOBAL binlog_checksum = CRC32; XA START 'x'; DELETE FROM t WHERE id = 1; XA END 'x';
         XA PREPARE 'x'; XA COMMIT 'x'; INSERT INTO t (v) VALUES ('end')",
    );
    assert_eq!(begins(&archive.catch_up()), "First");
    archive.assert_equal();
    let streams = archive.streams();
    let inside = streams[0].0.segments.values().filter(|segment| segment.ends_inside);
    assert!(inside.count() >= 2);
    let largest = archive.segments().iter().map(|path| path.metadata().unwrap().len()).max();
    assert!(largest.unwrap() < 20 << 20);
    // Started again, it continues behind the same transaction, although that is the large one's successor.
    archive.write(3);
    assert_eq!(begins(&archive.catch_up()), "Continues");
    archive.assert_equal();
    assert_eq!(archive.streams().len(), 2);
    // Nothing new: the stream is empty, and the next one continues all the same.
    let (receiver, told) = Receiver::start(archive.server.socket(), &archive.session());
    until(|| told.lock().unwrap().iter().any(|notice| matches!(notice, Notice::Begins { .. })));
    receiver.stop();
    archive.write(1);
    assert_eq!(begins(&archive.catch_up()), "Continues");
    archive.assert_equal();
}

/// The child processes run this; alone it does nothing.
#[test]
fn child() {
    let [Some(socket), Some(folder)] = CHILD.map(std::env::var_os) else { return };
    let session = session(&root(Path::new(&folder)));
    let request = request(Path::new(&socket), Some(folder.into()));
    block_on(receive(&session, &request, |notice| eprintln!("{notice:?}"))).unwrap();
}

fn spawn(archive: &Archive) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD[0], archive.server.socket())
        .env(CHILD[1], archive.folder.path())
        .spawn()
        .unwrap()
}

#[test]
fn a_receiver_that_is_killed_loses_and_doubles_nothing() {
    let archive = Archive::new();
    for round in 0..20_u32 {
        let mut child = spawn(&archive);
        // Somewhere between its first instruction and its tenth segment, which no clock decides.
        let goal = count(&archive) + (round as usize * 7) % 11;
        let mut writes = 0;
        until(|| {
            writes += 1;
            archive.write(1 + (writes * 13) % 40);
            if writes % 17 == 0 {
                archive.server.sql("FLUSH BINARY LOGS");
            }
            count(&archive) >= goal || writes > 120
        });
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "round {round}: {status}");
    }
    assert!(archive.streams().len() >= 10);
    archive.catch_up();
    archive.assert_equal();
}

fn count(archive: &Archive) -> usize {
    let mut found = 0;
    let mut folders = vec![archive.folder.path().join("root")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found += 1 }
        }
    }
    found
}

#[test]
fn two_receivers_at_once_do_not_disturb_each_other() {
    let archive = Archive::new();
    let (one, one_told) = Receiver::start(archive.server.socket(), &archive.session());
    let (two, two_told) = Receiver::start(archive.server.socket(), &archive.session());
    // One that begins when the other has stored all has nothing to store.
    let begins = |notice: &Notice| matches!(notice, Notice::Begins { .. });
    until(|| [&one_told, &two_told].iter().all(|told| told.lock().unwrap().iter().any(begins)));
    for _ in 0..20 {
        archive.write(20);
    }
    archive.server.sql("FLUSH BINARY LOGS");
    archive.write(5);
    archive.wait_for(&one_told);
    archive.wait_for(&two_told);
    for told in [&one_told, &two_told] {
        let told = told.lock().unwrap();
        assert!(!told.iter().any(|notice| matches!(notice, Notice::Disconnected(_))), "{told:?}");
    }
    one.stop();
    two.stop();
    archive.assert_equal();
    archive.write(5);
    archive.catch_up();
    archive.assert_equal();
}

/// Refuses the first object twice, which is all its tries, and then loses every other answer.
#[derive(Debug)]
struct UnreachableStore(AtomicUsize);

impl Faults for UnreachableStore {
    fn next(&self, operation: Operation) -> Option<Fault> {
        let is_write = matches!(operation, Operation::Create | Operation::Put);
        let left = self.0.load(Ordering::SeqCst);
        if !is_write || left == 0 {
            return None;
        }
        self.0.store(left - 1, Ordering::SeqCst);
        let is_refused = left > 9 || left.is_multiple_of(2);
        Some(if is_refused { Fault::Refused } else { Fault::AnswerLost })
    }
}

#[test]
fn a_store_that_is_away_stops_the_reading_and_loses_nothing() {
    let archive = Archive::new();
    archive.write(50);
    let mut policy = Policy::default();
    policy.max_retries = 1;
    policy.retry_timeout = Duration::ZERO;
    policy.reach = Duration::ZERO;
    policy.max_backoff = Duration::from_millis(10);
    let path = archive.folder.path().join("root");
    let path = path.to_str().unwrap().trim_start_matches('/').to_owned();
    let location = Location { place: StorePlace::Local, path };
    let root = Root::open(&location, &StoreSettings::default(), policy, true).unwrap();
    let away = Arc::new(UnreachableStore(AtomicUsize::new(11)));
    let (receiver, told) = Receiver::start(archive.server.socket(), &session(&root.failing(away)));
    archive.wait_for(&told);
    receiver.stop();
    let told = told.lock().unwrap().clone();
    assert!(told.iter().any(|notice| matches!(notice, Notice::StoreAway(_))), "{told:?}");
    archive.assert_equal();
}

/// What is stored in the mount point of a disk that is away is missing once the disk is back.
#[test]
fn a_folder_that_is_unmounted_beneath_the_receiver_takes_nothing() {
    let archive = Archive::new();
    let root = archive.folder.path().join("root");
    let (receiver, told) = Receiver::start(archive.server.socket(), &archive.session());
    archive.write(5);
    archive.wait_for(&told);
    let disk = archive.folder.path().join("disk");
    std::fs::rename(&root, &disk).unwrap();
    std::fs::create_dir(&root).unwrap();
    archive.write(5);
    let is_told =
        |notice: &Notice| matches!(notice, Notice::StoreAway(what) if what.contains("unmounted"));
    until(|| told.lock().unwrap().iter().any(is_told));
    std::fs::remove_dir(&root).unwrap();
    std::fs::rename(&disk, &root).unwrap();
    archive.write(1);
    archive.wait_for(&told);
    receiver.stop();
    let report = archive.verify();
    assert!(report.is_undamaged() && report.streams.len() == 1, "{report:#?}");
}

/// Fails every write while it is set.
#[derive(Debug, Default)]
struct Switch(AtomicBool);

impl Faults for Switch {
    fn next(&self, operation: Operation) -> Option<Fault> {
        let is_write = matches!(operation, Operation::Create | Operation::Put);
        (is_write && self.0.load(Ordering::SeqCst)).then_some(Fault::Refused)
    }
}

/// A session whose writes fail while the switch is on, without many tries.
fn session_with(archive: &Archive, switch: &Arc<Switch>) -> Session {
    let mut policy = Policy::default();
    policy.max_retries = 1;
    policy.retry_timeout = Duration::ZERO;
    policy.reach = Duration::ZERO;
    policy.max_backoff = Duration::from_millis(10);
    let path = archive.folder.path().join("root");
    let path = path.to_str().unwrap().trim_start_matches('/').to_owned();
    let location = Location { place: StorePlace::Local, path };
    let root = Root::open(&location, &StoreSettings::default(), policy, true).unwrap();
    session(&root.failing(Arc::clone(switch) as Arc<dyn Faults>))
}

#[test]
fn a_receiver_that_is_stopped_stores_what_it_has_received() {
    let archive = Archive::new();
    let switch = Arc::new(Switch::default());
    let (receiver, told) =
        Receiver::start(archive.server.socket(), &session_with(&archive, &switch));
    let has = |wanted: fn(&Notice) -> bool| told.lock().unwrap().iter().any(wanted);
    until(|| has(|notice| matches!(notice, Notice::Begins { .. })));
    switch.0.store(true, Ordering::SeqCst);
    archive.write(20);
    until(|| has(|notice| matches!(notice, Notice::StoreAway(_))));
    // The next try comes a second later, unless it is stopped, and then it has to find the store.
    switch.0.store(false, Ordering::SeqCst);
    receiver.canceller.cancel(15);
    receiver.thread.join().unwrap();
    archive.assert_equal();
    let (stream, _) = archive.streams().pop().unwrap();
    let segments = archive.segments();
    assert!(!segments.is_empty());
    assert_eq!(stream.stated, segments.len() as u64);
    assert!(segments[0].parent().unwrap().join("end").is_file());
}

/// Offset of the middle of a log's last event.
fn within_the_last_event(log: &[u8]) -> u64 {
    let (mut reader, mut input, mut last) = (Reader::new(), log, 0..0);
    while let Some(entry) = reader.next(&mut input).unwrap() {
        last = entry.begin..entry.end;
    }
    last.start.midpoint(last.end)
}

/// Kills the server, cuts the log that it was writing where `place` says, as a power loss may, and starts the
/// server again.
fn crash(archive: Archive, log: &str, place: fn(&[u8]) -> u64) -> Archive {
    let Archive { server, folder } = archive;
    let datadir = server.datadir().to_owned();
    let scratch = server.kill();
    let path = datadir.join(log);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(place(&std::fs::read(&path).unwrap())).unwrap();
    drop(file);
    let options = ["--log-bin=bin", "--server-id=3", "--binlog-format=ROW"];
    let server = MariaDb::start_on_with(&datadir, &options);
    // The folder lives as long as the process.
    std::mem::forget(scratch);
    Archive { server, folder }
}

#[test]
fn a_log_that_ends_within_an_event_is_a_gap_with_a_name() {
    let archive = Archive::new();
    archive.write(5);
    archive.catch_up();
    archive.write(10);
    let archive = crash(archive, "bin.000001", within_the_last_event);
    archive.write(5);
    let told = archive.catch_up();
    let gaps = |told: &[Notice]| told.iter().filter(|n| format!("{n:?}").contains("Gap {")).count();
    assert_eq!((begins(&told), gaps(&told)), ("Gap".to_owned(), 1), "{told:?}");
    assert!(archive.streams().len() <= 4, "{told:?}");
    let report = archive.verify();
    assert!(report.is_undamaged() && report.gaps.len() == 1, "{report:#?}");
    assert!(report.gaps[0].contains("bin.000001"), "{:?}", report.gaps);
    // Every whole transaction before the gap is there.
    let before: u64 = report.streams.iter().rev().skip(1).map(|stream| stream.transactions).sum();
    assert_eq!(before, 2 + 5 + 9, "{report:#?}");
    archive.write(5);
    let told = archive.catch_up();
    assert_eq!((begins(&told), gaps(&told)), ("Continues".to_owned(), 0), "{told:?}");
    assert_eq!(archive.verify().gaps.len(), 1);
}

#[test]
fn logs_that_a_server_purges_while_nobody_writes_are_no_gap() {
    let archive = Archive::new();
    archive.write(5);
    archive.server.sql("FLUSH BINARY LOGS; FLUSH BINARY LOGS");
    archive.catch_up();
    let purge = || {
        archive.server.sql("PURGE BINARY LOGS TO 'bin.000003'");
        archive.server.sql("SHOW BINARY LOGS").starts_with("bin.000003")
    };
    // InnoDB needs a log for a moment.
    until(purge);
    for rows in [0, 3, 3] {
        archive.write(rows);
        let told = archive.catch_up();
        assert_eq!(begins(&told), "Continues", "{told:?}");
        let report = archive.verify();
        assert!(report.is_undamaged() && report.gaps.is_empty(), "{report:#?}");
        // Without a transaction, the new stream ends nothing.
        let log = if rows == 0 { "bin.000001" } else { "bin.000003" };
        assert_eq!(archive.last_transaction().log(), log);
    }
    assert!(archive.logs()["bin.000003"].len() > 500);
}

/// Behind RESET MASTER, GTIDs and names of logs come again.
#[test]
fn a_log_that_was_begun_anew_is_no_idle_one_whatever_its_gtids() {
    let archive = Archive::new();
    archive.write(5);
    archive.server.sql("FLUSH BINARY LOGS; FLUSH BINARY LOGS");
    archive.catch_up();
    let gtids = archive.server.sql("SELECT @@gtid_binlog_pos");
    archive.server.sql("RESET MASTER");
    while archive.server.sql("SELECT @@gtid_binlog_pos") != gtids {
        archive.write(1);
    }
    archive
        .server
        .sql("SET timestamp = UNIX_TIMESTAMP() + 60; FLUSH BINARY LOGS; FLUSH BINARY LOGS");
    until(|| {
        archive.server.sql("PURGE BINARY LOGS TO 'bin.000003'");
        archive.server.sql("SHOW BINARY LOGS").starts_with("bin.000003")
    });
    let told = archive.catch_up();
    assert_eq!(begins(&told), "Gap", "{told:?}");
    assert!(format!("{told:?}").contains("created at a different time"), "{told:?}");
}

/// Nothing in its log says that another one follows, and nothing more of it is sent.
#[test]
fn a_crash_behind_the_last_stored_transaction_breaks_no_archive() {
    let mut archive = Archive::new();
    archive.write(5);
    archive.catch_up();
    for (log, rows) in [("bin.000001", 0), ("bin.000002", 5), ("bin.000003", 5)] {
        archive = crash(archive, log, |log| log.len() as u64);
        archive.write(rows);
        let told = archive.catch_up();
        assert_eq!(begins(&told), "Continues", "{told:?}");
        let report = archive.verify();
        assert!(report.is_undamaged() && report.gaps.is_empty(), "{log}: {report:#?}");
    }
    archive.assert_bytes();
    let transactions: u64 = archive.verify().streams.iter().map(|stream| stream.transactions).sum();
    assert_eq!(transactions, 2 + 5 + 5 + 5);
}

#[test]
fn the_same_gtids_with_other_content_are_a_branch() {
    let archive = Archive::new();
    archive.write(20);
    archive.catch_up();
    let gtids =
        |archive: &Archive| archive.streams().pop().unwrap().0.segments.pop_last().unwrap().1;
    let old = gtids(&archive).gtids_after.clone().unwrap();
    let archive = crash(archive, "bin.000001", tenth_last_transaction);
    archive.write(50);
    let told = archive.catch_up();
    let stored = gtids(&archive).gtids_after.clone().unwrap();
    let number = |gtids: &str| gtids.rsplit('-').next().unwrap().parse::<u64>().unwrap();
    // The server has given the ten GTIDs again.
    assert_eq!(number(&stored), number(&old) - 10 + 50, "{old} {stored}");
    assert_eq!(begins(&told), "Branch", "{told:?}");
    archive.assert_bytes();
    assert!(archive.verify().is_undamaged());
}

#[test]
fn a_server_without_checksums_is_refused() {
    let archive = Archive::new();
    archive.write(1);
    archive.server.sql("SET GLOBAL binlog_checksum = NONE");
    let refused = |archive: &Archive| {
        let mut request = request(archive.server.socket(), None);
        request.archive.accept_no_crc = false;
        block_on(receive(&archive.session(), &request, |_| ())).unwrap_err().to_string()
    };
    assert!(refused(&archive).contains("binlog_checksum"));
    // A log from that time is left.
    archive.server.sql("INSERT INTO d.t (v) VALUES ('1'); SET GLOBAL binlog_checksum = CRC32");
    assert!(refused(&archive).contains("bin.000002"));
    archive.write(1);
}

#[test]
fn a_large_transaction_needs_little_memory() {
    let archive = Archive::new();
    archive.server.sql(
        "SET GLOBAL max_allowed_packet = 134217728; USE d; CREATE TABLE big (v LONGTEXT);
         FLUSH BINARY LOGS",
    );
    let mut child = spawn(&archive);
    // Random bytes, so that compression does not hide a copy.
    archive.server.sql(
        "USE d; BEGIN; INSERT INTO big SELECT CONCAT(seq, REPEAT(SHA2(seq, 512), 8192)) FROM seq_1_to_300;
         COMMIT; INSERT INTO t (v) VALUES ('end'); FLUSH BINARY LOGS",
    );
    let size = |archive: &Archive| {
        archive
            .streams()
            .iter()
            .flat_map(|(stream, _)| stream.segments.values())
            .map(|s| s.to.offset - s.from.offset)
            .sum::<u64>()
    };
    until(|| size(&archive) > 300 << 20);
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(peak < 200 << 10, "{peak} KiB");
    archive.catch_up();
    archive.assert_equal();
}

#[test]
fn logs_that_the_server_has_purged_are_a_gap_with_a_name() {
    let archive = Archive::new();
    archive.write(5);
    archive.catch_up();
    let names = |archive: &Archive| archive.server.sql("SHOW BINARY LOGS");
    for _ in 0..3 {
        archive.server.sql("FLUSH BINARY LOGS");
        archive.write(5);
    }
    until(|| {
        archive.server.sql("PURGE BINARY LOGS TO 'bin.000003'");
        names(&archive).starts_with("bin.000003")
    });
    let told = archive.catch_up();
    assert_eq!(begins(&told), "Gap");
    let report = archive.verify();
    assert!(report.is_undamaged() && report.has_gap(), "{report:#?}");
    assert!(report.gaps[0].contains("purged bin.000001"), "{:?}", report.gaps);
}

/// A log that is in the server's index and not on its disk would be asked for again and again, until those behind it are
/// purged: a gap with a name begins behind it, once it has been so for a while.
#[test]
fn a_log_that_is_gone_from_the_servers_disk_is_named() {
    let archive = Archive::new();
    archive.write(3);
    let _ = archive.catch_up();
    for _ in 0..3 {
        archive.server.sql("FLUSH BINARY LOGS");
        archive.write(1);
    }
    let log = |back: usize| {
        let logs = archive.server.sql("SHOW BINARY LOGS");
        let names: Vec<&str> = logs.lines().map(|line| line.split('\t').next().unwrap()).collect();
        names[names.len() - 1 - back].to_owned()
    };
    // That behind the log with the archive's end, then that log.
    for missing in [log(2), log(3)] {
        std::fs::remove_file(archive.server.datadir().join(&missing)).unwrap();
        let (receiver, told) = Receiver::start(archive.server.socket(), &archive.session());
        let expected = format!("cannot read {missing}: ");
        until(|| {
            told.lock().unwrap().iter().any(
                |notice| matches!(notice, Notice::Disconnected(why) if why.contains(&expected)),
            )
        });
        receiver.stop();
    }
}

#[test]
fn a_log_that_was_cut_or_written_again_is_a_branch() {
    let archive = Archive::new();
    archive.write(20);
    archive.catch_up();
    // The server lost its last transactions, and writes others.
    let Archive { server, folder } = archive;
    let scratch = server.shut_down();
    let datadir = scratch.join("data");
    let log = datadir.join("bin.000001");
    let file = std::fs::OpenOptions::new().write(true).open(&log).unwrap();
    file.set_len(tenth_last_transaction(&std::fs::read(&log).unwrap())).unwrap();
    drop(file);
    let options = ["--log-bin=bin", "--server-id=3", "--binlog-format=ROW"];
    let server = MariaDb::start_on_with(&datadir, &options);
    let archive = Archive { server, folder };
    archive.write(50);
    let told = archive.catch_up();
    assert!(format!("{told:?}").contains("Branch"), "{told:?}");
    // It also knows GTIDs that its logs no longer have: that is a hole in them.
    assert_eq!(begins(&told), "Gap", "{told:?}");
    assert!(archive.verify().has_gap());
    // Its logs begin anew; then the same log again, longer, with other transactions.
    for (number, reason) in
        [(100, "no longer has log bin.000002"), (400, "differs from the stored one")]
    {
        archive.server.sql("RESET MASTER");
        archive.write(number);
        let told = archive.catch_up();
        assert_eq!(begins(&told), "Branch", "{told:?}");
        assert!(format!("{told:?}").contains(reason), "{told:?}");
    }
    archive.assert_bytes();
    assert_eq!(begins(&archive.catch_up_after_write()), "Continues");
    archive.assert_bytes();
}

/// The server writes to another log of the same name, and the connection waits for more of the old one.
#[test]
fn logs_that_begin_anew_beside_a_receiver_are_a_branch() {
    let archive = Archive::new();
    archive.write(20);
    let (receiver, told) = Receiver::start(archive.server.socket(), &archive.session());
    archive.wait_for(&told);
    archive.server.sql("RESET MASTER");
    // The receiver may have seen it by now.
    let earlier = std::mem::take(&mut *told.lock().unwrap());
    archive.write(5);
    archive.wait_for(&told);
    receiver.stop();
    assert_eq!(begins(&[earlier, told.lock().unwrap().clone()].concat()), "Branch");
    archive.assert_bytes();
}

/// Offset at which the tenth last transaction of a log begins.
fn tenth_last_transaction(log: &[u8]) -> u64 {
    let (mut reader, mut history) = (Reader::new(), History::new("bin.000001", None));
    let (mut input, mut begins) = (log, Vec::new());
    while let Some(entry) = reader.next(&mut input).unwrap() {
        begins.extend(history.push(&entry).unwrap().ended.map(|ended| ended.begin));
    }
    begins[begins.len() - 10]
}

impl Archive {
    fn catch_up_after_write(&self) -> Vec<Notice> {
        self.write(1);
        self.catch_up()
    }
}

#[test]
fn every_change_in_the_archive_is_named() {
    let archive = Archive::new();
    let (receiver, told) = Receiver::start(archive.server.socket(), &archive.session());
    for _ in 0..6 {
        archive.write(10);
        archive.server.sql("FLUSH BINARY LOGS");
        archive.wait_for(&told);
    }
    receiver.stop();
    archive.assert_equal();
    let files = archive.segments();
    assert!(files.len() >= 6);
    let contents: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    let problem = |what: &str| {
        let report = archive.verify();
        let all = format!("{:?}", report.streams[0].problems);
        assert!(!report.is_undamaged() && all.contains(what), "{what}: {report:#?}");
        for (file, content) in files.iter().zip(&contents) {
            std::fs::write(file, content).unwrap();
        }
        assert!(archive.verify().is_undamaged());
    };
    // A bit of the body, and one of the head.
    for (at, what) in [(contents[2].len() - 100, "segment 2: damaged"), (40, "segment 2: ")] {
        let mut bytes = contents[2].clone();
        bytes[at] ^= 1;
        std::fs::write(&files[2], bytes).unwrap();
        problem(what);
    }
    std::fs::write(&files[2], &contents[2][..contents[2].len() - 1]).unwrap();
    problem("segment 2: ");
    // Swapped.
    std::fs::write(&files[2], &contents[3]).unwrap();
    std::fs::write(&files[3], &contents[2]).unwrap();
    problem("segment 2 is segment 3 of stream");
    // Missing, in the middle and at the end.
    std::fs::remove_file(&files[2]).unwrap();
    problem("segment 2 is missing");
    let last = files.len() - 1;
    for file in &files[last - 1..] {
        std::fs::remove_file(file).unwrap();
    }
    problem(&format!("segment {last} is missing"));
    // Of another stream, under its name.
    let other = Archive::new();
    other.write(10);
    other.catch_up();
    std::fs::copy(&other.segments()[0], &files[0]).unwrap();
    problem("it was moved here");
    // Written without the key, with all digests right.
    let head_end = xb_repo::archive::record::front(&contents[last]).unwrap();
    let text = std::str::from_utf8(&contents[last][..head_end]).unwrap();
    let json = text.lines().next().unwrap().replace("\"number\"", "\"number\" ");
    let forged = format!("{json}\n");
    let sum = xb_repo::archive::record::digest(forged.as_bytes());
    let mac = text.lines().nth(2).unwrap();
    let mut bytes = format!("{forged}sha256:{sum}\n{mac}\n").into_bytes();
    bytes.write_all(&contents[last][head_end..]).unwrap();
    std::fs::write(&files[last], bytes).unwrap();
    problem("not authentic");
    // Another key, and none.
    let wrong = Keys {
        key: Some(KeyBytes::new(b"another key of 32 bytes, exactly").unwrap()),
        ..Keys::default()
    };
    for keys in [wrong, Keys::default()] {
        let refused = verified(&archive, facts(&keys, None)).unwrap_err();
        assert!(matches!(refused, BackupError::Keys(_)), "{refused}");
    }
}

#[test]
fn a_tail_that_was_removed_is_missed_by_what_the_host_remembers() {
    let archive = Archive::new();
    let state = archive.folder.path().to_owned();
    let start = || {
        let request = request(archive.server.socket(), Some(state.clone()));
        Receiver::start_with(request, &archive.session())
    };
    let (receiver, told) = start();
    for _ in 0..3 {
        archive.write(10);
        archive.server.sql("FLUSH BINARY LOGS");
        archive.wait_for(&told);
    }
    receiver.stop();
    let verify = || verified(&archive, facts(&keys(), Some(&state))).unwrap();
    assert!(verify().is_undamaged());
    // The last segment, with all records that tell of it.
    let files = archive.segments();
    let folder = files[0].parent().unwrap();
    std::fs::remove_file(files.last().unwrap()).unwrap();
    std::fs::remove_file(folder.join("end")).unwrap();
    std::fs::remove_file(folder.join("alive")).unwrap();
    let report = verify();
    assert!(
        report.problems[0].contains("ends before the last segment that this host stored"),
        "{report:#?}"
    );
    // The next stream receives again what is missing.
    archive.write(1);
    let (receiver, told) = start();
    archive.wait_for(&told);
    receiver.stop();
    assert!(told.lock().unwrap().iter().any(|notice| matches!(notice, Notice::Lost(_))));
    archive.assert_equal();
    assert!(verify().is_undamaged());
}
