//! `binlog receive`, `list` and `verify` on a real server, and what other commands make of an archive.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use xb_testkit::command::{Cmd, Ran, Running, Signal};
use xb_testkit::fault::{Action, Proxy, Rule};
use xb_testkit::mariadb::MariaDb;
use xb_testkit::store::Store;
use xb_testkit::tools::workspace;

const SERVER: &str = "--server=shop";
const KEY: &[u8; 32] = b"0123456789abcdef0123456789abcdef";

struct Archive {
    server: MariaDb,
    store: Store,
    folder: tempfile::TempDir,
}

impl Archive {
    fn new(store: Store) -> Self {
        let server = MariaDb::start_with(&["--log-bin=bin", "--server-id=3", "--sync-binlog=0"]);
        server
            .sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), KEY).unwrap();
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(folder.path().join("key"), private).unwrap();
        let login = format!("[client]\nuser=root\nsocket={}\n", server.socket().display());
        std::fs::write(folder.path().join("login"), login).unwrap();
        Self { server, store, folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn write(&self, number: usize) {
        let rows: String =
            (0..number).map(|n| format!("INSERT INTO d.t (v) VALUES ({n});")).collect();
        self.server.sql(&rows);
    }

    fn cmd(&self, words: &[&str]) -> Cmd {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(words).args(self.store.options())
    }

    fn receive(&self, more: &[&str]) -> Running {
        self.cmd(&["binlog", "receive", &self.store.root_url(), SERVER, "--rpo=1s"])
            .args([
                format!("--login-file={}", self.path("login")),
                format!("--encrypt-key-file={}", self.path("key")),
                format!("--state-dir={}", self.path("state")),
                format!("--binlog-metrics-file={}", self.path("binlog.prom")),
            ])
            .args(more)
            .spawn()
    }

    fn back_up(&self, name: &str) -> Ran {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["backup", SERVER, "--quiet"])
            .args(self.store.options())
            .args([self.store.url(name), "--".to_owned()])
            .args(self.server.backup_command())
            .run()
            .expect(0)
    }

    fn verify(&self) -> Ran {
        self.cmd(&["binlog", "verify", &self.store.root_url(), "--json"])
            .args([
                format!("--encrypt-key-file={}", self.path("key")),
                format!("--state-dir={}", self.path("state")),
            ])
            .run()
    }

    fn list(&self) -> String {
        self.cmd(&["binlog", "list", &self.store.root_url()]).run().expect(0).stdout_text()
    }

    /// Position behind the last stored byte of the newest stream.
    fn stored(&self) -> Option<(String, u64)> {
        let ran = self.cmd(&["binlog", "list", &self.store.root_url(), "--json"]).run();
        let found: Value = serde_json::from_slice(&ran.stdout).ok()?;
        let streams = found["servers"][0]["streams"].as_array()?.iter();
        streams.filter_map(|stream| position(stream["to"].as_str()?)).max()
    }

    /// Waits until a receiver has stored what the server has.
    fn wait(&self, receiver: &mut Running) {
        let status = self.server.sql("SHOW MASTER STATUS");
        let mut columns = status.split('\t');
        let end = (columns.next().unwrap().to_owned(), columns.next().unwrap().parse().unwrap());
        receiver.until("all is stored", || self.stored().is_some_and(|at| at >= end));
    }

    fn catch_up(&self) -> Ran {
        let mut receiver = self.receive(&[]);
        self.wait(&mut receiver);
        receiver.signal(Signal::TERM);
        receiver.wait().expect(0)
    }

    fn metric(&self, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.path("binlog.prom")).ok()?;
        let line =
            text.lines().find(|line| line.starts_with(&format!("xbcloud_binlog_{name}{{")))?;
        line.rsplit_once(' ').map(|(_, value)| value.to_owned())
    }

    /// The files of the archive in a folder, segments only, in the order of their names.
    fn segments(&self) -> Vec<PathBuf> {
        let prefix = self.store.root_url();
        let root = PathBuf::from(prefix.strip_prefix("file://").unwrap());
        let is_number = |name: &str| name.bytes().all(|b| b.is_ascii_digit());
        let keys = self.store.list(".xb-binlog/shop/").into_iter().map(|(key, _)| key);
        let mut keys: Vec<String> =
            keys.filter(|key| is_number(key.rsplit('/').next().unwrap())).collect();
        keys.sort();
        keys.iter().map(|key| root.join(key)).collect()
    }
}

fn json(ran: &Ran) -> Value {
    serde_json::from_slice(&ran.stdout).expect("JSON")
}

fn position(text: &str) -> Option<(String, u64)> {
    let (log, offset) = text.rsplit_once(':')?;
    Some((log.to_owned(), offset.parse().ok()?))
}

#[test]
fn a_receiver_that_is_killed_under_load_leaves_a_whole_archive() {
    let archive = Archive::new(Store::folder());
    let writer = archive.server.start_writing();
    for round in 0..22 {
        let goal = archive.store.list(".xb-binlog/").len() + (round * 7) % 11;
        let mut receiver = archive.receive(&["--quiet"]);
        receiver.until("its objects are there", || archive.store.list(".xb-binlog/").len() >= goal);
        receiver.kill_9();
        let _ = receiver.wait();
        if round % 5 == 0 {
            archive.server.sql("FLUSH BINARY LOGS");
        }
    }
    let rows = writer.stop();
    assert!(rows > 100, "{rows}");
    archive.catch_up();
    let report = json(&archive.verify().expect(0));
    let server = &report["servers"][0];
    assert_eq!((report["format"].as_u64(), server["verified"].as_bool()), (Some(1), Some(true)));
    assert_eq!(server["gaps"].as_array().unwrap().len(), 0, "{server:#}");
    let kinds: Vec<&str> =
        server["streams"].as_array().unwrap().iter().filter_map(|s| s["begins"].as_str()).collect();
    assert!(kinds.len() > 10 && !kinds.contains(&"branch") && !kinds.contains(&"gap"), "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "first").count(), 1, "{kinds:?}");
    // It fits a terminal.
    let list = archive.list();
    assert!(
        list.lines().all(|line| line.chars().count() <= 80) && list.lines().count() < 30,
        "{list}"
    );
}

#[test]
fn a_store_that_is_away_is_reported_and_nothing_is_lost() {
    let archive = Archive::new(Store::bucket());
    let upstream = archive.store.options();
    let endpoint = upstream.iter().find_map(|option| option.strip_prefix("--s3-endpoint=http://"));
    let proxy = Proxy::start(endpoint.unwrap(), Vec::new());
    let through = format!("--s3-endpoint={}", proxy.endpoint());
    let mut receiver = archive.receive(&[&through, "--max-retries=1"]);
    archive.wait(&mut receiver);
    proxy.set_rules(vec![Rule::new("PUT", "", Action::answer(503))]);
    archive.write(10);
    receiver.until("the store is missed", || archive.metric("storing").as_deref() == Some("0"));
    archive.write(10);
    archive.server.sql("FLUSH BINARY LOGS");
    proxy.set_rules(Vec::new());
    archive.wait(&mut receiver);
    receiver.until("the store is back", || archive.metric("storing").as_deref() == Some("1"));
    receiver.signal(Signal::TERM);
    let said = receiver.wait().expect(0).stderr_text();
    assert!(said.contains("the store does not take the log of shop"), "{said}");
    assert!(said.contains("the store is back"), "{said}");
    let report = json(&archive.verify().expect(0));
    assert_eq!(report["servers"][0]["streams"].as_array().unwrap().len(), 1, "{report:#}");
}

/// Requests of a command, with its output.
fn counted(archive: &Archive, words: &[&str]) -> (Ran, usize, usize) {
    let options = archive.store.options();
    let endpoint = options.iter().find_map(|option| option.strip_prefix("--s3-endpoint=http://"));
    let proxy = Proxy::start(endpoint.unwrap(), Vec::new());
    let through = format!("--s3-endpoint={}", proxy.endpoint());
    let ran = archive.cmd(words).arg(through).run();
    let lists = proxy.seen().iter().filter(|seen| seen.path.contains("list-type=2")).count();
    (ran, lists, proxy.seen().len())
}

#[test]
fn roll_ups_save_requests_and_hide_nothing() {
    let archive = Archive::new(Store::bucket());
    let mut receiver = archive.receive(&[]);
    for _ in 0..70 {
        archive.server.sql("INSERT INTO d.t (v) VALUES (1); FLUSH BINARY LOGS");
    }
    archive.wait(&mut receiver);
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    let keys: Vec<String> =
        archive.store.list(".xb-binlog/shop/").into_iter().map(|(key, _)| key).collect();
    let stream = keys[0].rsplit_once('/').unwrap().0.to_owned();
    let rollups: Vec<&String> = keys.iter().filter(|key| key.contains("/.heads-")).collect();
    let small = format!("{stream}/.heads-000000000000-000000000063");
    let rest = rollups.iter().find(|key| ***key != small).unwrap();
    assert!(rollups.len() == 2 && rollups.contains(&&small), "{rollups:?}");
    let root = archive.store.root_url();
    let list = ["binlog", "list", &root, "--json"];
    let stream_of = |ran: &Ran| json(ran)["servers"][0]["streams"][0].clone();
    let (ran, lists, requests) = counted(&archive, &list);
    let whole = stream_of(&ran.expect(0));
    assert!(whole["segments"].as_u64().unwrap() >= 70, "{whole:#}");
    assert!(lists <= 4 && requests <= lists + 6, "{lists} of {requests}");
    // Without it, a smaller one and a few heads.
    let of_rest = archive.store.get(rest).unwrap();
    archive.store.delete(rest);
    let (ran, _, requests) = counted(&archive, &list);
    assert_eq!(stream_of(&ran.expect(0)), whole);
    let left = usize::try_from(whole["segments"].as_u64().unwrap()).unwrap() - 64;
    assert!(requests <= lists + 6 + left, "{requests}");
    // One that is altered, of other segments, or cut: each head is read, and the answer is the same.
    let of_small = archive.store.get(&small).unwrap();
    let mut flipped = of_small.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    for wrong in [&flipped[..], &of_rest, &of_small[..of_small.len() - 1], b""] {
        archive.store.put(&small, wrong);
        let (ran, _, requests) = counted(&archive, &list);
        let mut found = stream_of(&ran.expect(0));
        assert!(found["remarks"][0].as_str().unwrap().contains("is not used"), "{found:#}");
        found["remarks"] = Value::Array(Vec::new());
        assert_eq!(found, whole);
        assert!(requests > 70, "{requests}");
        let _ = archive.verify().expect(0);
    }
    archive.store.put(&small, &of_small);
    archive.store.put(rest, &of_rest);
    // What a roll-up has is no proof of a segment.
    let (third, fourth) = (format!("{stream}/{:012}", 3), format!("{stream}/{:012}", 4));
    let good = archive.store.get(&third).unwrap();
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    archive.store.put(&third, &flipped);
    let text = archive.verify().expect(7).stdout_text();
    assert!(text.contains("segment 3: damaged"), "{text}");
    archive.store.put(&third, &archive.store.get(&fourth).unwrap());
    let text = archive.verify().expect(7).stdout_text();
    assert!(text.contains("segment 4 of stream"), "{text}");
    archive.store.delete(&third);
    let text = archive.verify().expect(7).stdout_text();
    assert!(text.contains("segment 3 is missing"), "{text}");
    assert!(archive.list().contains("segment 3 is missing"), "{}", archive.list());
    archive.store.put(&third, &good);
    let _ = archive.verify().expect(0);
}

#[test]
fn two_receivers_at_once_are_both_whole() {
    let archive = Archive::new(Store::folder());
    let other = format!("--state-dir={}", archive.path("other"));
    let mut one = archive.receive(&[]);
    let mut two = archive.receive(&[&other]);
    for _ in 0..5 {
        archive.write(20);
        archive.server.sql("FLUSH BINARY LOGS");
    }
    archive.wait(&mut one);
    archive.wait(&mut two);
    for receiver in [one, two] {
        receiver.signal(Signal::TERM);
        let said = receiver.wait().expect(0).stderr_text();
        assert!(!said.contains("warning"), "{said}");
    }
    let report = json(&archive.verify().expect(0));
    let streams = report["servers"][0]["streams"].as_array().unwrap();
    let ends: Vec<&Value> = streams.iter().map(|stream| &stream["transactions"]).collect();
    assert_eq!(streams.len(), 2);
    assert_eq!(ends[0], ends[1], "{report:#}");
}

#[test]
fn whatever_is_wrong_with_an_archive_is_named() {
    let archive = Archive::new(Store::folder());
    let mut receiver = archive.receive(&[]);
    for _ in 0..5 {
        archive.write(5);
        archive.server.sql("FLUSH BINARY LOGS");
        archive.wait(&mut receiver);
    }
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    let _ = archive.verify().expect(0);
    let files = archive.segments();
    let contents: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert!(files.len() >= 5);
    let named = |what: &str| {
        let ran = archive.verify().expect(7);
        assert!(ran.stdout_text().contains(what), "{what}: {}", ran.stdout_text());
        assert!(ran.stderr_text().contains("problem"), "{}", ran.stderr_text());
        for (file, content) in files.iter().zip(&contents) {
            std::fs::write(file, content).unwrap();
        }
        let _ = archive.verify().expect(0);
    };
    let mut flipped = contents[1].clone();
    *flipped.last_mut().unwrap() ^= 1;
    std::fs::write(&files[1], flipped).unwrap();
    named("segment 1: damaged");
    std::fs::write(&files[1], &contents[2]).unwrap();
    std::fs::write(&files[2], &contents[1]).unwrap();
    named("segment 2 of stream");
    std::fs::remove_file(&files[3]).unwrap();
    named("segment 3 is missing");
    // The end of the archive, with all that tells of it: only this host remembers.
    let folder = files[0].parent().unwrap();
    for name in ["alive", "end"] {
        std::fs::remove_file(folder.join(name)).unwrap();
    }
    std::fs::remove_file(files.last().unwrap()).unwrap();
    named("ends before what this host remembers");
}

#[test]
fn a_gap_is_an_alarm_wherever_one_looks() {
    let archive = Archive::new(Store::folder());
    archive.write(5);
    archive.catch_up();
    for _ in 0..3 {
        archive.server.sql("FLUSH BINARY LOGS");
        archive.write(5);
    }
    // InnoDB needs a log for a moment.
    let mut left = archive.server.sql("SHOW BINARY LOGS");
    while !left.starts_with("bin.000003") {
        archive.server.sql("PURGE BINARY LOGS TO 'bin.000003'");
        left = archive.server.sql("SHOW BINARY LOGS");
    }
    let said = archive.catch_up().stderr_text();
    assert!(
        said.contains("GAP in the archive of shop") && said.contains("purged bin.000001"),
        "{said}"
    );
    assert_eq!(archive.metric("gaps").as_deref(), Some("1"));
    let verified = archive.verify().expect(7);
    assert!(verified.stderr_text().contains("the archive of shop has a gap"));
    let list = archive.list();
    assert!(list.contains("GAP: the server has purged bin.000001"), "{list}");
    let monitor = archive.cmd(&["monitor", &archive.store.root_url()]).run().expect(2);
    let line = monitor.stdout_text();
    assert!(line.contains("has a gap behind the newest backup"), "{line}");
    // Once a backup lies behind it, it is history.
    archive.back_up("one");
    archive.write(3);
    archive.catch_up();
    let verified = json(&archive.verify().expect(0));
    let server = &verified["servers"][0];
    assert_eq!(server["gaps"].as_array().unwrap().len(), 0, "{server:#}");
    assert_eq!(server["past_gaps"].as_array().unwrap().len(), 1, "{server:#}");
    assert!(archive.list().contains("history that no backup needs"), "{}", archive.list());
}

#[test]
fn a_program_runs_once_for_each_gap() {
    let archive = Archive::new(Store::folder());
    archive.write(5);
    archive.catch_up();
    for _ in 0..3 {
        archive.server.sql("FLUSH BINARY LOGS");
        archive.write(5);
    }
    let mut left = archive.server.sql("SHOW BINARY LOGS");
    while !left.starts_with("bin.000003") {
        archive.server.sql("PURGE BINARY LOGS TO 'bin.000003'");
        left = archive.server.sql("SHOW BINARY LOGS");
    }
    let heard = archive.folder.path().join("heard");
    let hook = format!("--on-gap=tee -a {}", heard.display());
    let mut receiver = archive.receive(&[&hook]);
    archive.wait(&mut receiver);
    receiver.until("the program has run", || {
        std::fs::read_to_string(&heard).is_ok_and(|text| text.ends_with('}'))
    });
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    archive.write(5);
    let mut receiver = archive.receive(&[&hook]);
    archive.wait(&mut receiver);
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    // One document: the gap is not told again.
    let told: Value = serde_json::from_slice(&std::fs::read(&heard).unwrap()).unwrap();
    assert_eq!((told["what"].as_str(), told["server"].as_str()), (Some("gap"), Some("shop")));
    assert!(told["reason"].as_str().unwrap().contains("has purged bin.000001"), "{told}");
    let ran = archive.receive(&["--on-gap='"]).wait();
    assert!(ran.code() != 0 && ran.stderr_text().contains("--on-gap"), "{}", ran.stderr_text());
}

#[test]
fn a_gap_between_two_backups_is_no_history() {
    let archive = Archive::new(Store::folder());
    archive.write(5);
    archive.catch_up();
    archive.back_up("one");
    archive.write(1);
    archive.catch_up();
    for _ in 0..3 {
        archive.server.sql("FLUSH BINARY LOGS");
        archive.write(5);
    }
    let mut left = archive.server.sql("SHOW BINARY LOGS");
    while !left.starts_with("bin.000003") {
        archive.server.sql("PURGE BINARY LOGS TO 'bin.000003'");
        left = archive.server.sql("SHOW BINARY LOGS");
    }
    archive.catch_up();
    archive.back_up("two");
    let verified = json(&archive.verify().expect(7));
    let server = &verified["servers"][0];
    assert_eq!(server["gaps"].as_array().unwrap().len(), 1, "{server:#}");
    assert!(server["backups"][0]["problem"].as_str().unwrap().contains("lost"), "{server:#}");
    assert!(server["backups"][1]["problem"].is_null(), "{server:#}");
}

#[test]
fn a_backup_that_the_archive_does_not_reach_is_reported_at_once() {
    let archive = Archive::new(Store::folder());
    archive.write(5);
    archive.catch_up();
    let said = archive.back_up("one").stderr_text();
    assert!(!said.contains("archived log"), "{said}");
    // The receiver does not run.
    archive.write(5);
    let said = archive.back_up("two").stderr_text();
    assert!(said.contains("the archived log of shop cannot be replayed onto two"), "{said}");
    assert!(said.contains("the archive ends at bin.000001:"), "{said}");
    let root = archive.store.root_url();
    let line = archive.cmd(&["monitor", &root, "--max-age=1h"]).run().expect(2).stdout_text();
    assert!(line.contains("cannot be replayed onto the newest backup two"), "{line}");
    archive.catch_up();
    let line = archive.cmd(&["monitor", &root, "--max-age=1h"]).run().expect(0).stdout_text();
    assert!(!line.contains("cannot be replayed"), "{line}");
    // One that is at work is waited for.
    let mut receiver = archive.receive(&[]);
    archive.wait(&mut receiver);
    archive.write(5);
    let said = archive.back_up("three").stderr_text();
    assert!(!said.contains("archived log"), "{said}");
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    let _ = archive.verify().expect(0);
}

#[test]
fn other_commands_know_the_archive_and_leave_it_alone() {
    let archive = Archive::new(Store::folder());
    let root = archive.store.root_url();
    let check = |more: &[&str]| {
        let login = format!("--login-file={}", archive.path("login"));
        let more: Vec<&str> = [&[login.as_str()], more].concat();
        archive.cmd(&["check", &root, SERVER]).args(more).run().stdout_text()
    };
    let quiet = archive.cmd(&["check", &root, SERVER]).run().stdout_text();
    assert!(!quiet.contains("binlog"), "{quiet}");
    assert!(check(&["--binlog"]).contains("sync_binlog is not 1"));
    archive.write(3);
    archive.catch_up();
    let _ = archive.back_up("one");
    let _ = archive.back_up("two");
    archive.write(3);
    archive.catch_up();
    assert!(check(&[]).contains("sync_binlog is not 1"));
    let list = archive.list();
    assert!(list.contains("RESTORABLE FROM") && !list.contains("not to the end"), "{list}");
    let before = archive.store.list(".xb-binlog/");
    let elsewhere = format!("file://{}/", archive.path("copies"));
    let (one, two) = (archive.store.url("one"), archive.store.url("two"));
    for words in [
        &["gc", &root, "--older-than=24", "--yes"][..],
        &["copy", &one, &elsewhere, "--unverified"],
        &["delete", &one, "--yes"],
        &["prune", &root, "--keep-last=1", "--yes"],
    ] {
        let _ = archive.cmd(words).run().expect(0);
        assert_eq!(archive.store.list(".xb-binlog/"), before, "{words:?}");
    }
    let listed = json(&archive.cmd(&["list", &root, "--json"]).run().expect(0));
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().filter_map(|line| line["name"].as_str()).collect();
    assert_eq!(names, ["two"]);
    let _ = archive.cmd(&["verify", &two]).run().expect(0);
    let _ = archive.verify().expect(0);
    let monitor = archive.cmd(&["monitor", &root, "--max-age=1h"]).run().expect(0).stdout_text();
    assert!(monitor.contains("the archived log of shop ends"), "{monitor}");
    let ignored = ["monitor", &root, "--ignore-server=shop"];
    assert!(!archive.cmd(&ignored).run().stdout_text().contains("archived log"));
}

#[test]
fn the_service_manager_is_told() {
    let archive = Archive::new(Store::folder());
    let socket = archive.folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    archive.write(3);
    let root = archive.store.root_url();
    let mut receiver = archive
        .cmd(&["binlog", "receive", &root, SERVER, "--rpo=1s"])
        .args([
            format!("--login-file={}", archive.path("login")),
            format!("--state-dir={}", archive.path("state")),
        ])
        .env("NOTIFY_SOCKET", &socket)
        .spawn();
    let heard = |wanted: &str| {
        let mut bytes = [0; 4096];
        loop {
            let length = manager.recv(&mut bytes).expect(wanted);
            if String::from_utf8_lossy(&bytes[..length]).contains(wanted) {
                return;
            }
        }
    };
    heard("READY=1");
    heard("WATCHDOG=1");
    heard("STATUS=stored up to bin.0");
    archive.wait(&mut receiver);
    receiver.signal(Signal::TERM);
    heard("STOPPING=1");
    let _ = receiver.wait().expect(0);
}

#[test]
fn what_no_other_try_can_mend_ends_the_receiver() {
    let archive = Archive::new(Store::folder());
    archive.server.sql("SET GLOBAL binlog_checksum = NONE");
    let ran = archive.receive(&[]).wait().expect(1);
    let said = ran.stderr_text();
    assert!(said.contains("without checksums") && said.contains("--accept-no-crc"), "{said}");
    archive
        .server
        .sql("SET GLOBAL binlog_checksum = CRC32; CREATE USER weak@localhost IDENTIFIED BY 'x'");
    let login =
        format!("[client]\nuser=weak\npassword=x\nsocket={}\n", archive.server.socket().display());
    std::fs::write(archive.folder.path().join("login"), login).unwrap();
    let said = archive.receive(&["--accept-no-crc"]).wait().expect(1).stderr_text();
    assert!(said.contains("REPLICATION SLAVE"), "{said}");
    for (option, what) in [
        ("--rpo=5", "5s, 15m"),
        ("--binlog-metrics-file=/tmp/x", ".prom"),
        ("--source=mysql://a:b@c", "password"),
    ] {
        let ran = archive.receive(&[option]).wait();
        assert!(ran.code() != 0 && ran.stderr_text().contains(what), "{}", ran.stderr_text());
    }
    let none = archive.cmd(&["binlog", "list", &archive.store.root_url()]).run().expect(3);
    assert!(none.stderr_text().contains("there is no archive"), "{}", none.stderr_text());
}

/// The names of all fields of a JSON value.
fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(all) => all.iter().for_each(|each| fields(each, found)),
        Value::Object(all) => all.iter().for_each(|(name, each)| {
            found.insert(name.clone());
            fields(each, found);
        }),
        _ => {}
    }
}

#[test]
fn the_page_of_the_format_shows_every_field() {
    let archive = Archive::new(Store::folder());
    archive.write(1);
    archive.catch_up();
    archive.back_up("one");
    archive.catch_up();
    let page = std::fs::read_to_string(workspace().join("docs/reference/json/binlog.md")).unwrap();
    let example = page.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    let example: Value = serde_json::from_str(example).unwrap();
    let (mut written, mut shown) = (BTreeSet::new(), BTreeSet::new());
    fields(&json(&archive.verify().expect(0)), &mut written);
    fields(&example, &mut shown);
    assert_eq!(written, shown);
}

#[test]
fn the_end_of_an_archive_is_found_with_few_requests() {
    let archive = Archive::new(Store::bucket());
    let mut receiver = archive.receive(&[]);
    for _ in 0..3 {
        archive.write(2);
        archive.server.sql("FLUSH BINARY LOGS");
        archive.wait(&mut receiver);
    }
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    let keys = archive.store.list(".xb-binlog/shop/");
    let stream = keys[0].0.rsplit_once('/').unwrap().0.to_owned();
    // More objects than a page of a listing has, as of a month of segments before the last ones.
    for number in 0..1001 {
        archive.store.put(&format!("{stream}/-{number:04}"), b"");
    }
    let options = archive.store.options();
    let endpoint = options.iter().find_map(|option| option.strip_prefix("--s3-endpoint=http://"));
    let proxy = Proxy::start(endpoint.unwrap(), Vec::new());
    let through = format!("--s3-endpoint={}", proxy.endpoint());
    // Without what this host remembers.
    let state = format!("--state-dir={}", archive.path("empty"));
    archive.write(1);
    let mut receiver = archive.receive(&[&through, &state]);
    receiver.until("a stream begins", || proxy.count("PUT", "/head") > 0);
    let asked = proxy.seen().into_iter().take_while(|seen| seen.method != "PUT").count();
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    assert_eq!(proxy.count("GET", "continuation-token"), 0);
    assert!(asked <= 8, "{asked} requests");
}
