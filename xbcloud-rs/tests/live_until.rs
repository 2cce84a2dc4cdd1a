//! Backups of a real MariaDB server, restored to transactions of its archived binary log.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use xb_backup::{
    Canceller, KeySlots, Keys, Notice, ReceiveRequest, Resources, Session, cancellation, receive,
    verify_archive,
};
use xb_encryptor::KeyBytes;
use xb_mysql::{Access, Account, Target};
use xb_repo::root::Root;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::Scratch;
use xb_testkit::mariadb::MariaDb;
use xb_uploader::{Location, Place, Policy, StoreSettings};

const KEY: &[u8; 32] = b"0123456789abcdef0123456789abcdef";

struct Shop {
    server: MariaDb,
    scratch: Scratch,
    sealed: bool,
}

/// A receiver in a thread.
struct Receiver {
    canceller: Canceller,
    thread: std::thread::JoinHandle<()>,
    stored: Arc<Mutex<Option<String>>>,
}

impl Receiver {
    fn stop(self) {
        self.canceller.cancel(15);
        self.thread.join().unwrap();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(future)
}

impl Shop {
    fn new() -> Self {
        let server =
            MariaDb::start_with(&["--log-bin=bin", "--server-id=3", "--max-allowed-packet=128M"]);
        server.sql(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT);
             CREATE TABLE d.m (id INT) ENGINE=MyISAM",
        );
        let scratch = Scratch::new();
        std::fs::write(scratch.join("key"), KEY).unwrap();
        std::fs::create_dir(scratch.join("shop")).unwrap();
        Self { server, scratch, sealed: true }
    }

    fn place(&self, name: &str) -> String {
        format!("file://{}/{name}", self.scratch.join("shop").display())
    }

    /// The option that seals, or opens.
    fn key(&self) -> Option<String> {
        self.sealed.then(|| format!("--encrypt-key-file={}", self.scratch.join("key").display()))
    }

    fn session(&self) -> Session {
        let path = self.scratch.join("shop").to_str().unwrap().trim_start_matches('/').to_owned();
        let location = Location { place: Place::Local, path };
        let root = Root::open(&location, &StoreSettings::default(), Policy::default(), true);
        Session::new(root.unwrap(), Resources { memory: 1 << 30, threads: 2, parallel: 4 })
    }

    fn receive(&self) -> Receiver {
        let (canceller, cancel) = cancellation();
        let session = Session { cancel, ..self.session() };
        let mut key_slots = KeySlots::default();
        if self.sealed {
            key_slots = key_slots.with_key(KeyBytes::new(KEY).unwrap());
        }
        let request = ReceiveRequest {
            server: "shop".to_owned(),
            access: Access {
                target: Target::Socket(self.server.socket().to_owned()),
                account: Account { user: b"root".to_vec(), ..Account::default() },
            },
            key_slots,
            compress: "zstd".parse().unwrap(),
            rpo: Duration::from_millis(200),
            state: None,
            accept_no_crc: false,
        };
        let stored = Arc::new(Mutex::new(None));
        let told = Arc::clone(&stored);
        let tell = move |notice| {
            if let Notice::Stored { position, .. } = notice {
                *told.lock().unwrap() = Some(position);
            }
        };
        let thread = std::thread::spawn(move || {
            block_on(receive(&session, &request, tell)).unwrap();
        });
        Receiver { canceller, thread, stored }
    }

    /// Waits until everything that the server has is archived.
    fn wait_for(&self, receiver: &Receiver) {
        let place = |position: &str| {
            let (log, offset) = position.rsplit_once(':').unwrap();
            (log.to_owned(), offset.parse::<u64>().unwrap())
        };
        // The server adds checkpoints at any time.
        let end = place(&self.position());
        for _ in 0..1200 {
            if receiver.stored.lock().unwrap().as_deref().is_some_and(|at| place(at) >= end) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{end:?} is not archived, only {:?}", receiver.stored.lock().unwrap());
    }

    fn back_up(&self, name: &str, options: &[&str]) -> Ran {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["backup", "--quiet", &self.place(name), "--server=shop"])
            .arg(format!("--state-dir={}", self.scratch.join("state").display()))
            .args(self.key())
            .args(options)
            .arg("--")
            .args(self.server.backup_command())
            .run()
            .expect(0)
    }

    fn restore(&self, name: &str, stop: &str, options: &[&str]) -> Cmd {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults", "restore", &self.place(name)])
            .args(self.key())
            .arg(format!("--until={stop}"))
            .args(options)
    }

    /// Restores into a new directory, starts a server there, and returns what it has.
    fn restored(&self, name: &str, stop: &str, options: &[&str]) -> (String, Ran) {
        let target = tempfile::tempdir_in(self.scratch.path()).unwrap();
        let ran = self.restore(name, stop, options).arg(into(target.path())).run().expect(0);
        let server = MariaDb::start_on_with(target.path(), &["--server-id=99"]);
        let rows = server.sql(ROWS);
        server.check_tables("d");
        (rows, ran)
    }

    #[track_caller]
    fn refused(&self, name: &str, stop: &str, options: &[&str]) -> String {
        let target = self.scratch.join("refused");
        let ran = self.restore(name, stop, options).arg(into(&target)).run();
        assert_ne!(ran.code(), 0, "{stop}: {}", ran.stderr_text());
        assert!(!target.exists(), "{stop} has left something: {}", ran.stderr_text());
        ran.stderr_text()
    }

    fn gtid(&self) -> String {
        self.server.sql("SELECT @@GLOBAL.gtid_binlog_pos").trim().to_owned()
    }

    fn position(&self) -> String {
        let status = self.server.sql("SHOW MASTER STATUS");
        let mut columns = status.trim().split('\t');
        format!("{}:{}", columns.next().unwrap(), columns.next().unwrap())
    }

    fn now(&self) -> i64 {
        self.server.sql("SELECT UNIX_TIMESTAMP()").trim().parse().unwrap()
    }

    fn rows(&self) -> String {
        self.server.sql(ROWS)
    }
}

const ROWS: &str = "SELECT id, v FROM d.t ORDER BY id; SELECT id FROM d.m ORDER BY id";

fn into(target: &Path) -> String {
    format!("--target-dir={}", target.display())
}

fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap().to_string()
}

#[test]
fn a_backup_is_restored_to_any_transaction() {
    let shop = Shop::new();
    shop.server.sql("INSERT INTO d.t VALUES (1, 'before the backup')");
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    let after_full = shop.rows();
    // Times of their own, so that nothing has to wait: at most 5 s ahead of the receiver's clock.
    let began = shop.now() + 1;
    shop.server.sql(&format!(
        "SET timestamp = {began}; INSERT INTO d.t VALUES (2, 'two'); INSERT INTO d.m VALUES (2)"
    ));
    let (second, at_second, rows_second) = (shop.gtid(), shop.position(), shop.rows());
    shop.server.sql(&format!(
        "FLUSH BINARY LOGS; SET timestamp = {}; BEGIN; INSERT INTO d.t VALUES (3, 'three');
         UPDATE d.t SET v = 'changed' WHERE id = 1; COMMIT",
        began + 1
    ));
    let (third, rows_third) = (shop.gtid(), shop.rows());
    shop.server.sql(&format!("SET timestamp = {}; DELETE FROM d.t", began + 2));
    let bad = shop.gtid();
    shop.server.sql(&format!("SET timestamp = {}; INSERT INTO d.t VALUES (4, 'four')", began + 3));
    let rows_fourth = shop.rows();
    shop.wait_for(&receiver);
    receiver.stop();
    for (stop, expected) in [
        (format!("before:{bad}"), &rows_third),
        (third.clone(), &rows_third),
        (time(began + 1), &rows_third),
        (second.clone(), &rows_second),
        (at_second.clone(), &rows_second),
        ("latest".to_owned(), &rows_fourth),
    ] {
        let (rows, ran) = shop.restored("latest", &stop, &[]);
        assert_eq!(rows, *expected, "{stop}: {}", ran.stderr_text());
    }
    // Everything but the mistake.
    let (rows, ran) = shop.restored("full", "latest", &[&format!("--exclude-gtid={bad}")]);
    let expected = rows_third.replace("three\n", "three\n4\tfour\n");
    assert_eq!(rows, expected, "{}", ran.stderr_text());
    assert_ne!(after_full, rows_second);
    // Both neighbours of the stop are shown, and nothing is written.
    let dry = shop.restore("latest", &format!("before:{bad}"), &["--dry-run"]).run().expect(0);
    let text = dry.stdout_text();
    for part in ["backup full at bin.0", &format!("last transaction: {third}"), "d.t"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains(&format!("first one behind the stop: {bad}")), "{text}");
    assert!(text.contains("DELETE FROM d.t"), "{text}");

    // What cannot be reached is refused before anything is written.
    let (log, offset) = at_second.rsplit_once(':').unwrap();
    let inside = format!("{log}:{}", offset.parse::<u64>().unwrap() - 10);
    for (stop, part) in [
        ("2026-11-20T14:02:59".to_owned(), "is no stop"),
        ("2099-01-01T00:00:00Z".to_owned(), "does not reach"),
        ("0-3-9999".to_owned(), "does not reach"),
        (inside, "lies within transaction"),
        (time(began - 3600), "before the end of the backup"),
    ] {
        let text = shop.refused("full", &stop, &[]);
        assert!(text.contains(part), "{stop}: {text}");
    }
    let text = shop.refused("full", "latest", &["--exclude-gtid=0-3-9999"]);
    assert!(text.contains("is not on the way"), "{text}");
}

#[test]
fn a_chain_and_a_definition_are_replayed() {
    let shop = Shop::new();
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (1, 'one')");
    let _ = shop.back_up("inc", &["--incremental-from=full"]);
    shop.server.sql(
        "CREATE TABLE d.new (id INT) ENGINE=Aria; INSERT INTO d.new VALUES (1);
         CREATE USER u IDENTIFIED BY 'secret'; GRANT SELECT ON d.* TO u; DROP TABLE d.m",
    );
    let dropped = shop.gtid();
    // A transaction of several segments, which are cut within its events.
    shop.server.sql(
        "BEGIN; INSERT INTO d.t VALUES (2, REPEAT('large', 4 << 20)); UPDATE d.t SET v = UPPER(v);
         COMMIT; INSERT INTO d.new VALUES (2)",
    );
    shop.wait_for(&receiver);
    receiver.stop();
    let text = shop.refused("latest", "latest", &[&format!("--exclude-gtid={dropped}")]);
    assert!(text.contains("--exclude-ddl"), "{text}");
    let target = shop.scratch.join("new");
    let words = [&format!("--exclude-gtid={dropped}"), "--exclude-ddl", &into(&target)];
    let ran = shop.restore("latest", "latest", &words).run().expect(0);
    assert!(ran.stderr_text().contains("backup inc at"), "{}", ran.stderr_text());
    // Run again, it finds that everything is done.
    let ran = shop.restore("latest", "latest", &words).run().expect(0);
    assert!(ran.stderr_text().contains("has finished everything"), "{}", ran.stderr_text());
    let position = std::fs::read_to_string(target.join("xtrabackup_binlog_info")).unwrap();
    assert!(position.contains(&shop.gtid()), "{position}");
    assert!(!target.join("xtrabackup_binlog_pos_innodb").exists());
    let server = MariaDb::start_on_with(&target, &["--server-id=99"]);
    assert_eq!(server.sql("SELECT id FROM d.t; SELECT id FROM d.new"), "1\n2\n1\n2\n");
    assert_eq!(server.checksums("d")["d.t"], shop.server.checksums("d")["d.t"]);
    assert_eq!(server.sql("SELECT COUNT(*) FROM d.m"), "0\n");
    assert!(server.sql("SHOW GRANTS FOR u").contains("`d`"));
    server.check_tables("d");
}

fn segments(shop: &Shop) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for stream in std::fs::read_dir(shop.scratch.join("shop/.xb-binlog/shop")).unwrap() {
        let files = std::fs::read_dir(stream.unwrap().path()).unwrap();
        found.extend(files.map(|file| file.unwrap().path()).filter(|path| {
            path.file_name().unwrap().to_str().unwrap().bytes().all(|b| b.is_ascii_digit())
        }));
    }
    found.sort();
    found
}

#[test]
fn a_damaged_archive_is_refused_before_anything_is_written() {
    let shop = Shop::new();
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    for id in 1..6 {
        shop.server.sql(&format!("INSERT INTO d.t VALUES ({id}, 'x')"));
        shop.wait_for(&receiver);
    }
    receiver.stop();
    let all = segments(&shop);
    assert!(all.len() > 4, "{all:?}");
    let (second, last) = (&all[all.len() - 3], &all[all.len() - 1]);
    let keep = std::fs::read(second).unwrap();
    let mut flipped = keep.clone();
    let end = flipped.len() - 20;
    flipped[end] ^= 1;
    std::fs::write(second, &flipped).unwrap();
    let text = shop.refused("latest", "latest", &[]);
    assert!(text.contains("damaged") && text.contains("segment"), "{text}");
    std::fs::remove_file(second).unwrap();
    let text = shop.refused("latest", "latest", &[]);
    assert!(text.contains("missing"), "{text}");
    // A stop before it can be reached all the same.
    std::fs::write(second, &keep).unwrap();
    std::fs::remove_file(last).unwrap();
    let text = shop.refused("latest", "latest", &[]);
    assert!(text.contains("missing"), "the archive has lost its end: {text}");
    // Another key, and none.
    std::fs::write(shop.scratch.join("key"), [7; 32]).unwrap();
    let _ = shop.refused("latest", "latest", &[]);
}

/// Makes all segments of an unsealed archive older by two hours, as if they had been received then.
fn age(shop: &Shop) {
    use xb_repo::archive::record::{Record, digest, front};
    use xb_repo::archive::segment::SegmentHead;
    use xb_repo::archive::stream::{Alive, End};

    for stream in std::fs::read_dir(shop.scratch.join("shop/.xb-binlog/shop")).unwrap() {
        let folder = stream.unwrap().path();
        let mut previous = digest(&std::fs::read(folder.join("head")).unwrap());
        for number in 0_u64.. {
            let path = folder.join(format!("{number:012}"));
            let Ok(bytes) = std::fs::read(&path) else { break };
            let len = front(&bytes).unwrap();
            let mut head = Record::<SegmentHead>::decode(&bytes[..len]).unwrap().content;
            head.previous = previous;
            head.received = head.received.map(|at| at - jiff::SignedDuration::from_hours(2));
            let text = Record::encode(&head, None).unwrap();
            previous = digest(&text);
            std::fs::write(&path, [&text, &bytes[len..]].concat()).unwrap();
        }
        let alive = folder.join("alive");
        let mut content = Record::<Alive>::decode(&std::fs::read(&alive).unwrap()).unwrap().content;
        content.head.clone_from(&previous);
        std::fs::write(&alive, Record::encode(&content, None).unwrap()).unwrap();
        let end = folder.join("end");
        let mut content = Record::<End>::decode(&std::fs::read(&end).unwrap()).unwrap().content;
        content.head = previous;
        std::fs::write(&end, Record::encode(&content, None).unwrap()).unwrap();
    }
}

#[test]
fn prune_removes_only_what_no_kept_backup_needs() {
    let mut shop = Shop::new();
    shop.sealed = false;
    let receiver = shop.receive();
    let _ = shop.back_up("one", &[]);
    for id in 1..6 {
        shop.server.sql(&format!("INSERT INTO d.t VALUES ({id}, 'x')"));
        shop.wait_for(&receiver);
    }
    shop.server.sql("FLUSH BINARY LOGS; INSERT INTO d.t VALUES (6, 'x')");
    shop.wait_for(&receiver);
    let _ = shop.back_up("two", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (7, 'x')");
    shop.wait_for(&receiver);
    receiver.stop();
    age(&shop);
    let prune = |options: &[&str]| {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults", "prune", shop.place("").trim_end_matches('/')])
            .args(options)
            .run()
            .expect(0)
    };
    let all = segments(&shop);
    let (rows, _) = shop.restored("one", "latest", &[]);
    assert_eq!(rows, shop.rows());
    // As long as the older one is kept, its log is.
    let text = prune(&["--keep-last=2", "--yes"]).stderr_text();
    assert!(!text.contains("binary log"), "{text}");
    let text = prune(&["--keep-last=1"]).stderr_text();
    assert!(text.contains("binary log of shop: would remove"), "{text}");
    assert_eq!(segments(&shop), all);
    let text = prune(&["--keep-last=1", "--yes"]).stderr_text();
    assert!(text.contains("binary log of shop: removed"), "{text}");
    let left = segments(&shop);
    assert!(left.len() + 4 < all.len() && all.ends_with(&left), "{left:?} of {all:?}");
    let (rows, _) = shop.restored("latest", "latest", &[]);
    assert_eq!(rows, shop.rows());
    // The receiver continues behind it, and what is left is whole.
    let receiver = shop.receive();
    shop.server.sql("INSERT INTO d.t VALUES (8, 'x')");
    shop.wait_for(&receiver);
    receiver.stop();
    let (rows, _) = shop.restored("latest", "latest", &[]);
    assert_eq!(rows, shop.rows());
    let report = block_on(verify_archive(&shop.session(), "shop", &Keys::default(), None)).unwrap();
    assert!(report.is_undamaged() && !report.has_gap(), "{report:#?}");
    assert_eq!(report.streams.len(), 2, "{report:#?}");
    // A floor that is too high is no excuse for what a backup needs.
    let needed = &left[0];
    let floor = left[0].parent().unwrap().join("floor-000000000999");
    let below = std::fs::read_dir(left[0].parent().unwrap()).unwrap().map(|e| e.unwrap().path());
    let made = below.filter(|path| path.to_str().unwrap().contains("floor-")).max().unwrap();
    let text = std::fs::read(made).unwrap();
    let mut content =
        xb_repo::archive::record::Record::<xb_repo::archive::stream::Floor>::decode(&text)
            .unwrap()
            .content;
    content.number = 999;
    content.at.offset = 1 << 40;
    let forged = xb_repo::archive::record::Record::encode(&content, None).unwrap();
    std::fs::write(&floor, forged).unwrap();
    std::fs::remove_file(needed).unwrap();
    let text = shop.refused("latest", "latest", &[]);
    assert!(text.contains("was removed"), "{text}");
    let report = block_on(verify_archive(&shop.session(), "shop", &Keys::default(), None)).unwrap();
    assert!(report.has_gap(), "{report:#?}");
}

#[test]
fn a_trial_proves_the_backup_with_its_log() {
    let shop = Shop::new();
    let receiver = shop.receive();
    let _ = shop.back_up("full", &[]);
    shop.server.sql("INSERT INTO d.t VALUES (1, 'one'); CREATE TABLE d.n (id INT) ENGINE=Aria");
    shop.wait_for(&receiver);
    receiver.stop();
    let command = |words: &[&str]| {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults"])
            .args(words)
            .arg(format!("--encrypt-key-file={}", shop.scratch.join("key").display()))
            .run()
    };
    let place = shop.place("full");
    let words = ["verify", &place, "--level=restore", "--until=latest"];
    let count = "--check-sql=SELECT 1 / 0 FROM d.t HAVING COUNT(*) <> 1";
    let ran =
        command(&[&words[..], &["--check-sql=INSERT INTO d.n SELECT id FROM d.t", count]].concat());
    let text = ran.expect(0).stdout_text();
    assert!(text.contains("replayed before: 2 transactions"), "{text}");
    let root = shop.place("");
    let listed = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["--no-defaults", "list", root.trim_end_matches('/'), "--json"])
        .run()
        .expect(0)
        .stdout_text();
    assert!(listed.contains("\"proven_until\""), "{listed}");
    let ran = command(&["verify", &place, "--level=pages", "--until=latest"]);
    assert!(ran.stderr_text().contains("level restore"), "{}", ran.stderr_text());
    assert_ne!(ran.code(), 0);
}
