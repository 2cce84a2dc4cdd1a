//! An archive whose receiver moves to another server of the same data: a replica, a node of a Galera cluster.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod live_archive;

use std::net::TcpListener;
use std::path::Path;

use live_archive::{Archive, SERVER, json};
use serde_json::Value;
use xb_testkit::command::{Cmd, Ran, Running, Signal};
use xb_testkit::galera::Cluster;
use xb_testkit::mariadb::MariaDb;
use xb_testkit::store::Store;
use xb_testkit::tools::find;

const ROWS: &str = "SELECT id, v FROM d.t ORDER BY id; SELECT * FROM d.more ORDER BY 1";

/// A primary with an archive, and its replica.
struct Pair {
    archive: Archive,
    replica: MariaDb,
}

impl Pair {
    fn new() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let options = [
            "--skip-networking=0".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--port={port}"),
        ];
        let archive = Archive::with_options(Store::folder(), &options.each_ref().map(|o| &**o));
        archive.server.sql(
            "CREATE TABLE d.more (v LONGTEXT) ENGINE=MyISAM;
             CREATE USER r@'%' IDENTIFIED BY 'r'; GRANT REPLICATION SLAVE ON *.* TO r@'%'",
        );
        let replica = MariaDb::start_with(&[
            "--log-bin=bin",
            "--server-id=4",
            "--log-slave-updates=1",
            "--slave-parallel-threads=2",
        ]);
        // Its logs have another layout.
        replica.sql("FLUSH BINARY LOGS");
        replica.sql(&format!(
            "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='r',
             MASTER_PASSWORD='r', MASTER_USE_GTID=slave_pos; START SLAVE"
        ));
        Self { archive, replica }
    }

    fn catch_up(&self) {
        let gtid = self.archive.server.sql("SELECT @@GLOBAL.gtid_binlog_pos");
        let waited = self.replica.sql(&format!("SELECT MASTER_GTID_WAIT('{}', 60)", gtid.trim()));
        assert_eq!(waited, "0\n", "{}", self.replica.sql("SHOW ALL SLAVES STATUS"));
    }

    fn promote(&self) {
        self.replica.sql("STOP SLAVE; RESET SLAVE ALL");
    }

    fn from_replica(&self) -> String {
        let login = format!("[client]\nuser=root\nsocket={}\n", self.replica.socket().display());
        std::fs::write(self.archive.path("replica"), login).unwrap();
        format!("--login-file={}", self.archive.path("replica"))
    }

    /// A receiver whose messages can be read while it runs.
    fn receive_from_replica(&self) -> Running {
        let archive = &self.archive;
        Cmd::new(find("sh"))
            .args([
                "-c",
                "log=$1; shift; exec \"$0\" \"$@\" 2>\"$log\"",
                env!("CARGO_BIN_EXE_xbcloud-rs"),
            ])
            .arg(archive.path("said"))
            .args(["binlog", "receive", &archive.store.root_url(), SERVER, "--rpo=1s"])
            .arg(self.from_replica())
            .arg(format!("--encrypt-key-file={}", archive.path("key")))
            .arg(format!("--state-dir={}", archive.path("state")))
            .args(archive.store.options())
            .spawn()
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.archive.path("said")).unwrap_or_default()
    }

    /// Receives from the replica until all that it has is stored; what was said.
    fn catch_up_from_replica(&self) -> String {
        let mut receiver = self.archive.receive(&[&self.from_replica()]);
        wait_for(
            &self.archive,
            &mut receiver,
            &self.replica.sql("SELECT @@GLOBAL.gtid_binlog_pos"),
        );
        receiver.signal(Signal::TERM);
        receiver.wait().expect(0).stderr_text()
    }
}

/// GTIDs in one order.
fn sorted(gtids: &str) -> Vec<&str> {
    let mut gtids: Vec<&str> = gtids.trim().split(',').collect();
    gtids.sort_unstable();
    gtids
}

/// Waits until a stream of the archive ends with these GTIDs.
fn wait_for(archive: &Archive, receiver: &mut Running, gtids: &str) {
    receiver.until("all is stored", || {
        let ran = archive.cmd(&["binlog", "list", &archive.store.root_url(), "--json"]).run();
        let Ok(found) = serde_json::from_slice::<Value>(&ran.stdout) else { return false };
        let streams = found["servers"][0]["streams"].as_array().cloned().unwrap_or_default();
        let ends = streams.iter().filter_map(|stream| stream["gtids"].as_str());
        ends.map(sorted).any(|end| end == sorted(gtids))
    });
}

fn kinds(archive: &Archive, status: i32) -> Vec<String> {
    let report = json(&archive.verify().expect(status));
    let streams = report["servers"][0]["streams"].as_array().unwrap();
    streams.iter().filter_map(|s| s["begins"].as_str().map(str::to_owned)).collect()
}

fn restore(archive: &Archive, name: &str, stop: &str, target: &Path) -> Ran {
    archive
        .cmd(&["restore", &archive.store.url(name), &format!("--until={stop}")])
        .arg("--accept-unsealed")
        .arg(format!("--encrypt-key-file={}", archive.path("key")))
        .arg(format!("--state-dir={}", archive.path("state")))
        .arg(format!("--target-dir={}", target.display()))
        .run()
}

/// What a restore to a stop has.
fn restored(archive: &Archive, name: &str, stop: &str) -> String {
    let target = tempfile::tempdir_in(archive.folder.path()).unwrap();
    let _ = restore(archive, name, stop, target.path()).expect(0);
    MariaDb::start_on_with(target.path(), &["--server-id=99"]).sql(ROWS)
}

fn back_up_of(archive: &Archive, server: &MariaDb, name: &str) {
    let _ = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["backup", SERVER, "--quiet"])
        .args(archive.store.options())
        .args([archive.store.url(name), "--".to_owned()])
        .args(server.backup_command())
        .run()
        .expect(0);
}

#[test]
fn an_archive_continues_on_a_replica_that_has_everything() {
    let pair = Pair::new();
    let archive = &pair.archive;
    archive.write(5);
    archive.catch_up();
    let _ = archive.back_up("one");
    archive.write(20);
    archive.server.sql(
        "INSERT INTO d.t (v) SELECT seq FROM d.seq_1_to_20000; INSERT INTO d.more VALUES (REPEAT('x', 400000));
         ALTER TABLE d.t ADD COLUMN w INT",
    );
    archive.catch_up();
    let between = archive.server.sql("SELECT @@GLOBAL.gtid_binlog_pos").trim().to_owned();
    let rows_between = archive.server.sql(ROWS);
    // A replica that is behind is waited for.
    pair.replica.sql("STOP SLAVE");
    archive.server.sql("SET SESSION gtid_domain_id=7; INSERT INTO d.more VALUES ('other domain')");
    archive.write(3);
    archive.catch_up();
    let mut receiver = pair.receive_from_replica();
    receiver.until("it is told", || pair.said().contains("behind the archive"));
    pair.replica.sql("START SLAVE");
    archive.write(4);
    pair.catch_up();
    let gtids = pair.replica.sql("SELECT @@GLOBAL.gtid_binlog_pos");
    wait_for(archive, &mut receiver, &gtids);
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    assert!(!pair.said().contains("BRANCH"), "{}", pair.said());
    let mut seen = kinds(archive, 0);
    assert_eq!(seen.pop().as_deref(), Some("continues"), "{seen:?}");
    // The primary is gone.
    pair.promote();
    pair.replica.sql("INSERT INTO d.t (v) VALUES (777); FLUSH BINARY LOGS; DELETE FROM d.more WHERE v LIKE 'other%'");
    let said = pair.catch_up_from_replica();
    assert!(!said.contains("warning"), "{said}");
    assert!(kinds(archive, 0).iter().all(|kind| kind == "first" || kind == "continues"));
    let rows = pair.replica.sql(ROWS);
    assert_eq!(restored(archive, "one", "latest"), rows);
    assert_eq!(restored(archive, "one", &between), rows_between);
    // A backup of the new server belongs to the same archive.
    back_up_of(archive, &pair.replica, "two");
    pair.replica.sql("INSERT INTO d.t (v) VALUES (778)");
    let _ = pair.catch_up_from_replica();
    for name in ["one", "two"] {
        assert_eq!(restored(archive, name, "latest"), pair.replica.sql(ROWS), "{name}");
    }
    let target = archive.folder.path().join("refused");
    let refused = restore(archive, "two", &between, &target).expect_failure().stderr_text();
    assert!(refused.contains("before the end of the backup") && !target.exists(), "{refused}");
}

#[test]
fn a_transaction_that_only_the_old_primary_had_is_a_branch() {
    let pair = Pair::new();
    let archive = &pair.archive;
    archive.write(5);
    archive.catch_up();
    let _ = archive.back_up("one");
    archive.write(5);
    pair.catch_up();
    pair.replica.sql("STOP SLAVE");
    archive.server.sql("INSERT INTO d.t (v) VALUES (666)");
    archive.catch_up();
    let lost = archive.server.sql(ROWS);
    pair.promote();
    let mut receiver = pair.receive_from_replica();
    receiver.until("it is told", || pair.said().contains("behind the archive"));
    // With the same number.
    pair.replica.sql("INSERT INTO d.t (v) VALUES (667)");
    wait_for(archive, &mut receiver, &pair.replica.sql("SELECT @@GLOBAL.gtid_binlog_pos"));
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    let said = pair.said();
    assert!(
        said.contains("BRANCHES") && said.contains("which is not stored, in place of"),
        "{said}"
    );
    let seen = kinds(archive, 0);
    assert_eq!(seen.last().map(String::as_str), Some("branch"), "{seen:?}");
    // What the old primary had is not mixed into the new history.
    let target = archive.folder.path().join("refused");
    let refused = restore(archive, "one", "latest", &target).expect_failure().stderr_text();
    assert!(!target.exists(), "{refused}");
    back_up_of(archive, &pair.replica, "two");
    pair.replica.sql("INSERT INTO d.t (v) VALUES (668)");
    let _ = pair.catch_up_from_replica();
    let rows = restored(archive, "two", "latest");
    assert_eq!(rows, pair.replica.sql(ROWS));
    assert!(lost.contains("666") && !rows.contains("666"), "{rows}");
}

/// A cluster whose nodes write binary logs, and an archive that gets the log of any of them.
struct Nodes {
    cluster: Cluster,
    store: Store,
    folder: tempfile::TempDir,
}

impl Nodes {
    fn new(size: u8, gtid_mode: &str) -> Self {
        let mut cluster = Cluster::new(size, &[]);
        for node in 1..=size {
            let server = format!(
                "wsrep-sst-method=mariabackup\nlog-bin=bin\nlog-slave-updates=ON\nserver-id=5\n\
                 wsrep-gtid-mode={gtid_mode}\nwsrep-gtid-domain-id=7\ngtid-domain-id={node}\n"
            );
            cluster.configure(node, "", &server);
        }
        cluster.bootstrap();
        for node in 2..=size {
            cluster.start(node);
            cluster.wait_synced(node);
        }
        let folder = tempfile::tempdir().unwrap();
        Self { cluster, store: Store::folder(), folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn cmd(&self, words: &[&str]) -> Cmd {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(words).args(self.store.options())
    }

    fn receive(&self, node: u8) -> Running {
        let login = self.path(&format!("login{node}"));
        let socket = self.cluster.socket(node);
        let text = format!("[client]\nuser=root\nsocket={}\n", socket.display());
        std::fs::write(&login, text).unwrap();
        self.cmd(&["binlog", "receive", &self.store.root_url(), SERVER, "--rpo=1s"])
            .arg(format!("--login-file={login}"))
            .arg(format!("--state-dir={}", self.path("state")))
            .spawn()
    }

    fn gtids(&self, node: u8) -> String {
        self.cluster.sql(node, "SET wsrep_sync_wait=1; SELECT 1 FROM shop.orders LIMIT 0; SELECT @@GLOBAL.gtid_binlog_pos")
    }

    /// Archives what a node has; what was said.
    fn catch_up(&self, node: u8) -> String {
        let mut receiver = self.receive(node);
        let gtids = self.gtids(node);
        receiver.until("all is stored", || {
            let ran = self.cmd(&["binlog", "list", &self.store.root_url(), "--json"]).run();
            let Ok(found) = serde_json::from_slice::<Value>(&ran.stdout) else { return false };
            let streams = found["servers"][0]["streams"].as_array().cloned().unwrap_or_default();
            streams.iter().any(|stream| stream["gtids"].as_str() == Some(gtids.trim()))
        });
        receiver.signal(Signal::TERM);
        receiver.wait().expect(0).stderr_text()
    }
}

#[test]
fn an_archive_does_not_move_between_nodes_with_gtids_of_their_own() {
    let nodes = Nodes::new(2, "OFF");
    let _ = nodes.catch_up(1);
    nodes.cluster.sql(1, "CREATE TABLE live.x (id INT PRIMARY KEY)");
    // On the same node it continues.
    let said = nodes.catch_up(1);
    assert!(!said.contains("warning"), "{said}");
    let before = nodes.store.list(".xb-binlog/");
    let said = nodes.receive(2).wait().expect_failure().stderr_text();
    assert!(said.contains("set wsrep_gtid_mode=ON") && said.contains("node2"), "{said}");
    assert_eq!(nodes.store.list(".xb-binlog/"), before);
}
