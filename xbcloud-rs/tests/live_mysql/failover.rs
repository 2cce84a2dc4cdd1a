//! An archive of a server of MySQL that dies, and that continues on a promoted replica.
//!
//! Few systems have MySQL: `scripts/on-release sid mysql` runs these tests in a chroot. Elsewhere they
//! do nothing, and say so.

use serde_json::Value;
use xb_backup::Notice;
use xb_repo::archive::stream::StreamOrigin;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::daemon::Scratch;
use xb_testkit::mysql::{MySql, is_installed};
use xb_testkit::ports::free_port;

use crate::support::logged_shop::{KEY, Receiver, into, wait_until};

/// Everything that the tests write.
const TABLES: &str = "SELECT * FROM d.t ORDER BY id; SELECT * FROM d.e ORDER BY id";

fn skipped() -> bool {
    let missing = !is_installed();
    if missing {
        xb_testkit::skipped("this system has no MySQL; see scripts/on-release");
    }
    missing
}

/// A server that is archived, and a replica of it, which cannot be written to.
struct Pair {
    server: MySql,
    replica: MySql,
    scratch: Scratch,
}

fn start(id: u32, port: u16, more: &[&str]) -> MySql {
    let plain = [
        "--log-bin=bin",
        "--gtid-mode=ON",
        "--enforce-gtid-consistency=ON",
        "--skip-networking=OFF",
        "--bind-address=127.0.0.1",
        "--replica-parallel-workers=4",
    ];
    let own = [format!("--server-id={id}"), format!("--port={port}")];
    MySql::start_with(&[&plain[..], more, &own.each_ref().map(String::as_str)].concat())
}

fn end(server: &MySql) -> String {
    let status = server.sql("SHOW BINARY LOG STATUS");
    let mut columns = status.trim().split('\t');
    format!("{}:{}", columns.next().unwrap(), columns.next().unwrap())
}

impl Pair {
    fn new(of_server: &[&str]) -> Self {
        let ports = [free_port(), free_port()];
        let (server, replica) = (start(3, ports[0], of_server), start(4, ports[1], &[]));
        server.sql(
            "CREATE USER r@'%' IDENTIFIED BY 'x'; GRANT REPLICATION SLAVE ON *.* TO r@'%';
             INSTALL PLUGIN clone SONAME 'mysql_clone.so';
             CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT);
             INSERT INTO d.t VALUES (1, 'one');
             CREATE TABLE d.e (id INT PRIMARY KEY, n INT, j JSON); INSERT INTO d.e VALUES (1, 0, '{}')",
        );
        // Neither server has a log with a name of the other's; the plugin is no transaction.
        replica.sql(&format!(
            "FLUSH BINARY LOGS; FLUSH BINARY LOGS; FLUSH BINARY LOGS; FLUSH BINARY LOGS; INSTALL PLUGIN clone SONAME 'mysql_clone.so'; SET GLOBAL super_read_only = ON;
             CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={}, SOURCE_USER='r',
             SOURCE_PASSWORD='x', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1; START REPLICA",
            ports[0]
        ));
        let scratch = Scratch::new();
        std::fs::write(scratch.join("key"), KEY).unwrap();
        std::fs::create_dir(scratch.join("shop")).unwrap();
        let pair = Self { server, replica, scratch };
        pair.catch_up();
        pair
    }

    /// Waits until the replica has everything.
    fn catch_up(&self) {
        let gtids = self.server.gtids();
        let waited = self.replica.sql(&format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', 60)"));
        assert_eq!(waited.trim(), "0", "{}", self.replica.sql("SHOW REPLICA STATUS"));
    }

    /// The server dies, and the replica is promoted.
    fn fail_over(&self) {
        self.server.kill();
        self.promote();
    }

    fn promote(&self) {
        self.replica.sql("STOP REPLICA; RESET REPLICA ALL; SET GLOBAL read_only = OFF");
    }

    /// Receives from whichever is the primary.
    fn receive(&self) -> Receiver {
        Receiver::start(&self.scratch, &[self.server.socket(), self.replica.socket()], true)
    }

    fn cmd(&self, words: &[&str]) -> Cmd {
        let key = format!("--encrypt-key-file={}", self.scratch.join("key").display());
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(words)
            .arg(key)
            .env("HOME", self.scratch.path())
    }

    fn place(&self, name: &str) -> String {
        format!("file://{}/{name}", self.scratch.join("shop").display())
    }

    fn back_up(&self, name: &str, server: &MySql) {
        let from = format!("--from=mysql://root@{}", server.socket().display());
        let state = format!("--state-dir={}", self.scratch.join("state").display());
        let words = ["backup", "--quiet", "--server=shop", &self.place(name), &from, &state];
        let _ = self.cmd(&words).run().expect(0);
    }

    fn restore(&self, name: &str, stop: &str, target: &str) -> Ran {
        let until = format!("--until={stop}");
        let target = into(&self.scratch.join(target));
        self.cmd(&["restore", &self.place(name), &until, &target]).run()
    }

    /// Restores to a stop, and returns what a server has then, with its transactions.
    fn restored(&self, name: &str, stop: &str) -> (String, String) {
        let ran = self.restore(name, stop, "restored").expect(0);
        let data = self.scratch.join("restored");
        let options = ["--log-bin=bin", "--gtid-mode=ON", "--enforce-gtid-consistency=ON"];
        let server = MySql::start_on(&data, &[&options[..], &["--server-id=9"]].concat());
        let found = (server.sql(TABLES), server.gtids());
        drop(server);
        std::fs::remove_dir_all(&data).unwrap();
        assert!(!found.1.is_empty(), "{}", ran.stderr_text());
        found
    }

    fn list(&self) -> Vec<Value> {
        let root = self.place("");
        let ran = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["binlog", "list", &root, "--json"])
            .run()
            .expect(0);
        let found: Value = serde_json::from_slice(&ran.stdout).unwrap();
        found["servers"][0]["streams"].as_array().unwrap().clone()
    }
}

fn state(server: &MySql) -> (String, String) {
    (server.sql(TABLES), server.gtids())
}

/// How the last stream of a receiver begins, once one begins as `is_right` says.
fn begins(receiver: &Receiver, is_right: impl Fn(&StreamOrigin) -> bool) -> StreamOrigin {
    receiver.wait_to_tell(|notice| match notice {
        Notice::Begins { begins, .. } if is_right(&begins) => Some(begins),
        _ => None,
    })
}

fn takes_over(begins: &StreamOrigin) -> bool {
    matches!(begins, StreamOrigin::Continues { at: Some(_), .. })
}

/// Every kind of transaction that both servers write in one form.
const WORK: &str = "USE d; UPDATE e SET n = n + 1;
    SET SESSION binlog_transaction_compression = ON;
    INSERT INTO t SELECT MAX(id) + 1, REPEAT('compressed', 3000) FROM t;
    BEGIN; UPDATE e SET n = n * 3; UPDATE t SET v = CONCAT(LEFT(v, 3), id) WHERE id = 1; COMMIT;
    SET SESSION binlog_transaction_compression = OFF;
    XA START 'one'; INSERT INTO t SELECT MAX(id) + 1, 'xa' FROM t x; XA END 'one'; XA PREPARE 'one'; XA COMMIT 'one';
    SET SESSION gtid_next = 'AUTOMATIC:audit'; UPDATE e SET n = n + 7; SET SESSION gtid_next = AUTOMATIC;
    CREATE TABLE copied AS SELECT * FROM t; ALTER TABLE copied ADD COLUMN w INT DEFAULT 7; DROP TABLE copied;
    UPDATE e SET n = n + 1;";

/// The last transaction without a tag that a server has committed itself, if that began at 1.
fn gtid(server: &MySql) -> String {
    let (uuid, gtids) = (server.sql("SELECT @@server_uuid"), server.gtids());
    let (_, own) = gtids.split_once(uuid.trim()).unwrap();
    let numbers = own.trim_start_matches(':').split([':', ',']).next().unwrap();
    format!("{}:{}", uuid.trim(), numbers.rsplit('-').next().unwrap())
}

#[test]
fn the_archive_of_mysql_continues_on_a_promoted_replica() {
    if skipped() {
        return;
    }
    let pair = Pair::new(&[]);
    let receiver = pair.receive();
    pair.back_up("full", &pair.server);
    pair.server.sql(WORK);
    let before = state(&pair.server);
    let last_before = gtid(&pair.server);
    pair.server.sql(WORK);
    wait_until(&receiver, &end(&pair.server));
    // Transactions that the replica still gets from the server, but the archive does not.
    receiver.stop();
    pair.server.sql(WORK);
    pair.catch_up();
    let unarchived = state(&pair.server);
    pair.fail_over();
    let receiver = pair.receive();
    pair.replica.sql(WORK);
    let after = state(&pair.replica);
    let last_after = gtid(&pair.replica);
    pair.replica.sql(WORK);
    begins(&receiver, takes_over);
    wait_until(&receiver, &end(&pair.replica));
    receiver.stop();
    // Again on the same server, by its bytes; a backup of the new server belongs to its logs.
    let receiver = pair.receive();
    pair.back_up("second", &pair.replica);
    pair.replica.sql("INSERT INTO d.t VALUES (5000, 'last')");
    wait_until(&receiver, &end(&pair.replica));
    begins(&receiver, |begins| matches!(begins, StreamOrigin::Continues { at: None, .. }));
    receiver.stop();
    let latest = state(&pair.replica);
    assert_eq!(pair.restored("full", &last_before), before);
    assert_eq!(pair.restored("full", &last_after), after);
    assert_eq!(pair.restored("full", "latest"), latest);
    assert_eq!(pair.restored("second", "latest"), latest);
    assert_ne!(unarchived, after);
    let _ = pair.cmd(&["binlog", "verify", &pair.place("")]).run().expect(0);
    let streams = pair.list();
    let kinds: Vec<&str> = streams.iter().filter_map(|s| s["begins"].as_str()).collect();
    assert!(!kinds.contains(&"gap") && !kinds.contains(&"branch"), "{streams:#?}");
}

#[test]
fn a_transaction_of_mysql_that_the_replica_never_got_makes_a_branch() {
    if skipped() {
        return;
    }
    let pair = Pair::new(&[]);
    let receiver = pair.receive();
    pair.back_up("full", &pair.server);
    pair.server.sql(WORK);
    pair.catch_up();
    pair.replica.sql("STOP REPLICA");
    pair.server.sql("INSERT INTO d.t VALUES (900, 'lost')");
    wait_until(&receiver, &end(&pair.server));
    pair.fail_over();
    // It may still be a replica that is behind.
    let what = receiver.wait_to_tell(|notice| match notice {
        Notice::Behind(what) => Some(what),
        _ => None,
    });
    assert!(what.contains("lacks transactions of the archive"), "{what}");
    pair.replica.sql("INSERT INTO d.t VALUES (901, 'other')");
    let begins = begins(&receiver, |begins| matches!(begins, StreamOrigin::Branch { .. }));
    let StreamOrigin::Branch { reason, .. } = begins else { panic!("{begins:?}") };
    assert!(reason.contains("and it has committed"), "{reason}");
    wait_until(&receiver, &end(&pair.replica));
    receiver.stop();
    // The backup from before is not restored into the other history.
    let said = pair.restore("full", "latest", "refused").expect_failure().stderr_text();
    assert!(said.contains("starts over") || said.contains("does not have"), "{said}");
    pair.back_up("new", &pair.replica);
    pair.replica.sql("INSERT INTO d.t VALUES (902, 'behind the backup')");
    let receiver = pair.receive();
    wait_until(&receiver, &end(&pair.replica));
    receiver.stop();
    assert_eq!(pair.restored("new", "latest"), state(&pair.replica));
}

/// A transaction that was committed on the replica itself is not in the archive, which would lack it for ever.
#[test]
fn a_transaction_that_was_committed_on_the_replica_is_a_branch() {
    if skipped() {
        return;
    }
    let pair = Pair::new(&[]);
    let receiver = pair.receive();
    pair.server.sql(WORK);
    pair.catch_up();
    pair.replica.sql("SET GLOBAL super_read_only = OFF; CREATE TABLE d.errant (id INT)");
    pair.server.sql(WORK);
    pair.catch_up();
    wait_until(&receiver, &end(&pair.server));
    pair.fail_over();
    let begins = begins(&receiver, |begins| !matches!(begins, StreamOrigin::First));
    let StreamOrigin::Branch { reason, .. } = begins else { panic!("{begins:?}") };
    assert!(reason.contains("committed itself before it got"), "{reason}");
    receiver.stop();
}

/// Equality cannot be shown where the servers write one change in two forms.
#[test]
fn other_forms_of_mysql_are_never_a_continuation() {
    if skipped() {
        return;
    }
    for setting in ["--binlog-row-image=MINIMAL", "--binlog-row-value-options=PARTIAL_JSON"] {
        let pair = Pair::new(&[setting]);
        let receiver = pair.receive();
        pair.server.sql(
            "UPDATE d.e SET j = JSON_SET('{}', '$.a', REPEAT('x', 500));
             UPDATE d.e SET j = JSON_SET(j, '$.b', 3)",
        );
        pair.catch_up();
        wait_until(&receiver, &end(&pair.server));
        pair.fail_over();
        let begins = begins(&receiver, |begins| !matches!(begins, StreamOrigin::First));
        let StreamOrigin::Gap { reason, .. } = begins else { panic!("{setting}: {begins:?}") };
        assert!(
            reason.contains("a different form") && reason.contains("on all servers"),
            "{reason}"
        );
        receiver.stop();
    }
}
