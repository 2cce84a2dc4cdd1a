//! The binary log of a real MySQL: archived, searched, verified, and replayed onto a clone.
//!
//! Few systems have MySQL: `scripts/on-release sid mysql` runs these tests in a chroot. Elsewhere they
//! do nothing, and say so.

use std::path::PathBuf;

use serde_json::Value;
use xb_testkit::command::{Cmd, Ran, Running, Signal};
use xb_testkit::daemon::Scratch;
use xb_testkit::mysql::{MySql, is_installed};
use xb_testkit::ports::free_port;

const KEY: &[u8; 32] = b"0123456789abcdef0123456789abcdef";
/// A checksum of each table with rows that change.
const SUMS: &str = "CHECKSUM TABLE d.t, d.u, d.big, d.made";
const OWN: [&str; 3] = ["--log-bin=bin", "--gtid-mode=ON", "--enforce-gtid-consistency=ON"];

fn skipped() -> bool {
    let missing = !is_installed();
    if missing {
        xb_testkit::skipped("this system has no MySQL; see scripts/on-release");
    }
    missing
}

struct Shop {
    server: MySql,
    port: u16,
    scratch: Scratch,
}

impl Shop {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(options: &[&str]) -> Self {
        let port = free_port();
        let port_option = format!("--port={port}");
        let network = ["--skip-networking=OFF", "--bind-address=127.0.0.1", &port_option];
        let server = MySql::start_with(&[&OWN[..], &network, &["--server-id=3"], options].concat());
        server.sql(
            "INSTALL PLUGIN clone SONAME 'mysql_clone.so';
             CREATE USER xb@'%' IDENTIFIED BY 'secret' REQUIRE SSL;
             GRANT BACKUP_ADMIN, REFERENCES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO xb@'%';
             CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v LONGTEXT);
             CREATE TABLE u (id INT PRIMARY KEY, v INT); CREATE TABLE big (id INT, v LONGTEXT);
             CREATE TABLE made (id INT); INSERT INTO t (v) VALUES ('before the backup')",
        );
        let scratch = Scratch::new();
        std::fs::write(scratch.join("key"), KEY).unwrap();
        std::fs::create_dir(scratch.join("root")).unwrap();
        let shop = Self { server, port, scratch };
        shop.trust();
        shop
    }

    /// Notes the fingerprint of the server's certificate.
    fn trust(&self) {
        let login = self.path("login");
        let _ = std::fs::remove_file(&login);
        let text =
            self.cmd(&["backup", &self.place("x")]).args(self.source("from")).run().expect(2);
        let text = text.stderr_text();
        let (_, found) = text.split_once("set ssl-fp = ").unwrap_or_else(|| panic!("{text}"));
        let text = format!("[client]\nuser=xb\npassword=secret\nssl-fp={}\n", &found[..64]);
        std::fs::write(login, text).unwrap();
    }

    fn place(&self, name: &str) -> String {
        format!("file://{}/{name}", self.scratch.join("root").display())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    fn cmd(&self, words: &[&str]) -> Cmd {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args(words).env("HOME", self.scratch.path())
    }

    fn key(&self) -> String {
        format!("--encrypt-key-file={}", self.path("key").display())
    }

    fn state(&self) -> String {
        format!("--state-dir={}", self.path("state").display())
    }

    fn source(&self, option: &str) -> Vec<String> {
        let mut words = vec![format!("--{option}=mysql://xb@127.0.0.1:{}", self.port)];
        if self.path("login").exists() {
            words.push(format!("--login-file={}", self.path("login").display()));
        }
        words
    }

    fn receive(&self, more: &[&str]) -> Running {
        let mut receiver = self
            .cmd(&["binlog", "receive", &self.place(""), "--server=shop", "--rpo=1s"])
            .args(self.source("source"))
            .args([self.key(), self.state()])
            .args(more)
            .spawn();
        receiver.until_handled(Signal::TERM);
        receiver
    }

    fn stored(&self) -> Option<(String, u64)> {
        let ran = self.cmd(&["binlog", "list", &self.place(""), "--json"]).run();
        let found: Value = serde_json::from_slice(&ran.stdout).ok()?;
        let streams = found["servers"][0]["streams"].as_array()?.iter();
        let ends = streams.filter_map(|stream| stream["to"].as_str()?.rsplit_once(':'));
        ends.filter_map(|(log, offset)| Some((log.to_owned(), offset.parse().ok()?))).max()
    }

    /// Waits until a receiver has stored what the server has.
    fn wait(&self, receiver: &mut Running) {
        let status = self.server.sql("SHOW BINARY LOG STATUS");
        let mut columns = status.split('\t');
        let end = (columns.next().unwrap().to_owned(), columns.next().unwrap().parse().unwrap());
        receiver.until("all is stored", || self.stored().is_some_and(|at| at >= end));
    }

    fn catch_up(&self) -> String {
        let mut receiver = self.receive(&[]);
        self.wait(&mut receiver);
        receiver.signal(Signal::TERM);
        receiver.wait().expect(0).stderr_text()
    }

    /// Archives what its log files have.
    fn push(&self) -> Ran {
        let files = std::fs::read_dir(self.server.datadir()).unwrap().flatten();
        let is_log = |name: &str| {
            name.strip_prefix("bin.").is_some_and(|n| n.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let files = files.filter(|file| is_log(&file.file_name().to_string_lossy()));
        let files: Vec<String> = files.map(|file| file.path().display().to_string()).collect();
        self.cmd(&["binlog", "push", &self.place(""), "--server=shop", &self.key(), &self.state()])
            .args(files)
            .run()
    }

    fn verify(&self) -> Ran {
        self.cmd(&["binlog", "verify", &self.place(""), "--json", &self.key(), &self.state()]).run()
    }

    fn show(&self, more: &[&str]) -> String {
        let words = ["binlog", "show", &self.place(""), &self.key()];
        self.cmd(&[&words[..], more].concat()).run().expect(0).stdout_text()
    }

    fn back_up(&self, name: &str) -> Ran {
        self.cmd(&["backup", "--quiet", "--server=shop", &self.place(name), &self.key()])
            .args(self.source("from"))
            .arg(self.state())
            .run()
            .expect(0)
    }

    fn restore(&self, stop: &str, target: &str, options: &[&str]) -> Ran {
        let into = format!("--target-dir={}", self.path(target).display());
        let until = format!("--until={stop}");
        let words = ["restore", &self.place("latest"), &until, &into, &self.key()];
        self.cmd(&[&words[..], options].concat()).run()
    }

    /// A server on what was restored.
    fn started(&self, target: &str) -> MySql {
        let data = self.path(target);
        assert!(!data.join("auto.cnf").exists(), "the identity of the private server is left");
        MySql::start_on(&data, &[&OWN[..], &["--server-id=9"]].concat())
    }
}

fn json(ran: &Ran) -> Value {
    serde_json::from_slice(&ran.stdout).expect("JSON")
}

/// Every kind of transaction.
const WORK: &str = "USE d; INSERT INTO t (v) VALUES ('one');
    SET SESSION binlog_transaction_compression = ON; INSERT INTO u VALUES (1, 1), (2, 2);
    INSERT INTO big SELECT id, REPEAT('compressed', 20000) FROM t; SET SESSION binlog_transaction_compression = OFF;
    XA START 'one'; INSERT INTO t (v) VALUES ('xa'); XA END 'one'; XA PREPARE 'one'; XA COMMIT 'one';
    XA START 'two'; INSERT INTO t (v) VALUES ('never'); XA END 'two'; XA PREPARE 'two'; XA ROLLBACK 'two';
    CREATE TEMPORARY TABLE tmp (id INT); INSERT INTO tmp VALUES (7); INSERT INTO u SELECT id, 7 FROM tmp; DROP TEMPORARY TABLE tmp;
    SET SESSION gtid_next = 'AUTOMATIC:audit'; INSERT INTO t (v) VALUES ('tagged'); SET SESSION gtid_next = AUTOMATIC;
    CREATE TABLE copied AS SELECT * FROM t; ALTER TABLE copied ADD COLUMN w INT DEFAULT 7; DROP TABLE copied;
    CREATE USER IF NOT EXISTS bob IDENTIFIED BY 'x'; GRANT SELECT ON d.* TO bob;";

#[test]
fn a_receiver_that_is_killed_under_load_leaves_a_whole_archive() {
    if skipped() {
        return;
    }
    let shop = Shop::new();
    for round in 0..8 {
        let goal = shop.stored();
        let mut receiver = shop.receive(&["--quiet"]);
        shop.server.sql(
            "INSERT INTO d.t (v) VALUES (REPEAT('x', 1000)); DELETE FROM d.u; DELETE FROM d.big",
        );
        shop.server.sql(WORK);
        if round % 3 == 0 {
            shop.server.sql("FLUSH BINARY LOGS");
        }
        receiver.until("something is stored", || shop.stored() > goal);
        receiver.kill_9();
        let _ = receiver.wait();
    }
    shop.catch_up();
    let report = json(&shop.verify().expect(0));
    let server = &report["servers"][0];
    let streams = server["streams"].as_array().unwrap();
    let kinds: Vec<&str> = streams.iter().filter_map(|s| s["begins"].as_str()).collect();
    assert!(kinds.len() > 4 && !kinds.contains(&"branch") && !kinds.contains(&"gap"), "{server:#}");
    let last = streams.last().unwrap()["gtids"].as_str().unwrap();
    assert_eq!(last, shop.server.gtids());
    // A compressed transaction shows its tables; a tag is part of a GTID.
    let shown = shop.show(&["--table=d.big"]);
    assert!(shown.matches("d.big").count() >= 8, "{shown}");
    let shown = shop.show(&["--ddl", "--match=drop table"]);
    assert!(shown.contains("copied") && !shown.contains("XA "), "{shown}");
    assert!(shop.show(&[]).contains(":audit:1"));
    // Logs that begin anew are another history.
    shop.server.sql("RESET BINARY LOGS AND GTIDS; INSERT INTO d.t (v) VALUES ('anew')");
    let mut receiver = shop.receive(&[]);
    receiver.until("the new log is stored", || {
        let ran = shop.cmd(&["binlog", "list", &shop.place(""), "--json"]).run();
        let found: Value = serde_json::from_slice(&ran.stdout).unwrap_or_default();
        let streams = found["servers"][0]["streams"].as_array().cloned().unwrap_or_default();
        streams.iter().any(|stream| stream["begins"] == "branch" && !stream["to"].is_null())
    });
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
}

#[test]
fn transactions_without_gtids_are_refused() {
    if skipped() {
        return;
    }
    let shop = Shop::new();
    shop.server.sql(
        "SET GLOBAL gtid_mode = ON_PERMISSIVE; SET SESSION gtid_next = 'ANONYMOUS'; INSERT INTO d.u VALUES (5, 5); SET SESSION gtid_next = AUTOMATIC",
    );
    let said = shop.receive(&[]).wait().expect(1).stderr_text();
    assert!(
        said.contains("gtid_mode=ON_PERMISSIVE") && said.contains("ON_PERMISSIVE and ON"),
        "{said}"
    );
    let check = ["check", &shop.place(""), "--server=shop", "--binlog"];
    let said = shop.cmd(&check).args(shop.source("source")).run().stdout_text();
    assert!(said.contains("gtid_mode is ON_PERMISSIVE"), "{said}");
    // Logs behind them are archived, and the gap is history once a backup lies behind it.
    shop.server.sql("SET GLOBAL gtid_mode = ON; INSERT INTO d.u VALUES (6, 6)");
    let said = shop.catch_up();
    assert!(said.contains("GAP") && said.contains("anonymous transaction"), "{said}");
    let said = shop.verify().expect(7).stderr_text();
    assert!(said.contains("gap"), "{said}");
    shop.back_up("one");
    shop.catch_up();
    let report = json(&shop.verify().expect(0));
    let streams = report["servers"][0]["streams"].as_array().unwrap();
    assert!(streams.iter().any(|stream| stream["begins"] == "gap"), "{report:#}");
}

/// The applier of MySQL ends there, too, and goes on.
#[test]
fn settings_that_are_changed_while_the_log_is_received_are_changed_by_the_replay() {
    if skipped() {
        return;
    }
    let shop = Shop::new();
    let mut receiver = shop.receive(&[]);
    shop.back_up("one");
    shop.server.sql(WORK);
    let streams = || {
        let ran = shop.cmd(&["binlog", "list", &shop.place(""), "--json"]).run();
        let found: Value = serde_json::from_slice(&ran.stdout).unwrap_or_default();
        found["servers"][0]["streams"].as_array().map_or(0, Vec::len)
    };
    for (n, engine) in ["MyISAM", "InnoDB", "MEMORY"].into_iter().enumerate() {
        shop.server.sql(&format!("CREATE TABLE d.before{n} (id INT)"));
        shop.wait(&mut receiver);
        shop.server.sql(&format!("SET GLOBAL default_storage_engine = {engine}"));
        receiver.until("another stream begins", || streams() == n + 2);
        shop.server.sql(&format!(
            "CREATE TABLE d.behind{n} (id INT); INSERT INTO d.t (v) VALUES ('behind')"
        ));
    }
    shop.wait(&mut receiver);
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    let engines = "SELECT table_name, engine FROM information_schema.tables WHERE table_schema = 'd' ORDER BY 1";
    let expected = (shop.server.sql(SUMS), shop.server.gtids(), shop.server.sql(engines));
    let ran = shop.restore("latest", "a", &[&shop.state()]).expect(0);
    let copy = shop.started("a");
    let found = (copy.sql(SUMS), copy.gtids(), copy.sql(engines));
    assert_eq!(found, expected, "{}", ran.stderr_text());
}

/// An event runs its one time, and an engine is refused, without a word in the log.
#[test]
fn no_event_runs_twice_and_a_disabled_engine_stays_disabled() {
    if skipped() {
        return;
    }
    let shop = Shop::with(&["--disabled-storage-engines=MyISAM,MEMORY", "--sql-mode="]);
    // The one time of the event lies in the past at once, and no scheduler notes whether it came.
    shop.server.sql(
        "SET GLOBAL event_scheduler = OFF; CREATE USER w@'10.%'; SET NAMES latin1; SET time_zone = '+05:00';
         SET timestamp = UNIX_TIMESTAMP() - 100;
         CREATE DEFINER = w@'10.%' EVENT d.`one``time` ON SCHEDULE AT NOW() + INTERVAL 1 SECOND
         ON COMPLETION PRESERVE DO INSERT INTO d.u VALUES (7, 7);
         SET timestamp = DEFAULT;
         CREATE EVENT d.later ON SCHEDULE AT NOW() + INTERVAL 1 DAY ON COMPLETION PRESERVE DO DO 0",
    );
    let mut receiver = shop.receive(&[]);
    shop.back_up("one");
    shop.server.sql("CREATE TABLE d.e (id INT) ENGINE = MEMORY; INSERT INTO d.e VALUES (1)");
    shop.wait(&mut receiver);
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    let state = "SELECT engine FROM information_schema.tables WHERE table_schema = 'd' AND table_name = 'e'; SELECT * FROM d.e;
         SELECT event_name, definer, time_zone, execute_at, character_set_client, collation_connection FROM information_schema.events ORDER BY 1";
    let expected = shop.server.sql(state);
    assert!(expected.contains("latin1"), "{expected}");
    let said = shop.restore("latest", "a", &[&shop.state()]).expect(0).stderr_text();
    assert!(said.contains("the server may have run them: d.one`time\n"), "{said}");
    let copy = shop.started("a");
    assert_eq!(copy.sql("SELECT @@event_scheduler"), "ON\n");
    assert_eq!(copy.sql(state), expected, "{said}");
    let status = "SELECT event_name FROM information_schema.events WHERE status = 'ENABLED'";
    assert_eq!(copy.sql(status), "later\n");
    assert_eq!(copy.sql("SELECT COUNT(*) FROM d.u"), "0\n");
}

/// As after the import of a dump, or on a server that was set up from a backup: no log ever has these transactions.
#[test]
fn a_server_with_transactions_outside_its_log_is_restored() {
    if skipped() {
        return;
    }
    let shop = Shop::new();
    shop.catch_up();
    shop.back_up("old");
    shop.server.sql("INSERT INTO d.u VALUES (1, 1)");
    shop.catch_up();
    shop.server.sql(
        "SET sql_log_bin = OFF; INSERT INTO d.u VALUES (2, 2);
         SET GLOBAL gtid_purged = '+bbbbbbbb-cccc-dddd-eeee-ffffffffffff:1-10'; SET sql_log_bin = ON;
         FLUSH BINARY LOGS; INSERT INTO d.u VALUES (3, 3)",
    );
    shop.catch_up();
    // What the old backup lacks is in no log.
    let said = shop.restore("latest", "lost", &["--dry-run", &shop.state()]).expect_failure();
    let said = said.stderr_text();
    assert!(said.contains("barrier") && said.contains("bbbbbbbb-cccc-dddd-eeee"), "{said}");
    let said = shop.back_up("one").stderr_text();
    assert!(!said.contains("cannot be replayed"), "{said}");
    shop.server.sql("INSERT INTO d.u VALUES (4, 4)");
    shop.catch_up();
    let expected = (shop.server.sql(SUMS), shop.server.gtids());
    assert!(expected.1.contains("bbbbbbbb"), "{expected:?}");
    let said = shop.restore("latest", "a", &[&shop.state()]).expect(0).stderr_text();
    let copy = shop.started("a");
    assert_eq!((copy.sql(SUMS), copy.gtids()), expected, "{said}");
    // It names the old one.
    let report = json(&shop.verify().expect(7));
    let backups = &report["servers"][0]["backups"];
    assert!(backups[0]["problem"].is_string() && backups[1]["problem"].is_null(), "{report:#}");
}

#[test]
fn a_dropped_table_comes_back_and_later_work_stays() {
    if skipped() {
        return;
    }
    let shop = Shop::new();
    let mut receiver = shop.receive(&[]);
    // It was a replica once, which the restored data is not.
    shop.server.sql(
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST='none', SOURCE_USER='none';
         CHANGE REPLICATION SOURCE TO SOURCE_HOST='none', SOURCE_USER='none' FOR CHANNEL 'other'",
    );
    // Transactions while the clone is taken.
    let writer = shop.server.start_sql(WORK);
    shop.back_up("one");
    let _ = writer.wait().expect(0);
    // One that is larger than a segment.
    shop.server.sql(
        "DELETE FROM d.u; INSERT INTO d.made VALUES (1);
         INSERT INTO d.big SELECT n.n, REPEAT(SHA2(n.n, 256), 20000) FROM
         (SELECT 1 n UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5) n
         JOIN (SELECT 1 m UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5) m",
    );
    // Twice: the replay may begin behind what was written while the clone was taken.
    shop.server.sql(WORK);
    shop.server.sql("DELETE FROM d.u");
    shop.server.sql(WORK);
    let before = (shop.server.sql(SUMS), shop.server.gtids());
    shop.server.sql("DROP TABLE d.t");
    shop.server.sql("INSERT INTO d.made VALUES (2)");
    // Transactions that stay prepared.
    shop.server.sql(
        "USE d; XA START 'left'; INSERT INTO made VALUES (3); XA END 'left'; XA PREPARE 'left'",
    );
    shop.wait(&mut receiver);
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    // The part that the receiver has missed is on the disk.
    shop.server.sql("INSERT INTO d.made VALUES (4)");
    let end = shop.server.gtids();
    shop.server.kill();
    let _ = shop.push().expect(0);
    let report = json(&shop.verify().expect(0));
    let window = &report["servers"][0]["backups"][0];
    assert!(window["problem"].is_null() && window["until"].is_string(), "{report:#}");

    let shown = shop.show(&["--ddl", "--match=DROP TABLE `d`.`t`", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let dropped = shown["transactions"][0]["gtid"].as_str().unwrap().to_owned();
    let stop = format!("before:{dropped}");
    let ran = shop.restore(&stop, "dry", &["--dry-run"]).expect(0);
    assert!(ran.stdout_text().contains(&dropped) || ran.stderr_text().contains(&dropped));
    assert!(!shop.path("dry").exists());
    let ran = shop.restore(&stop, "a", &[]).expect(0);
    let copy = shop.started("a");
    assert_eq!((copy.sql(SUMS), copy.gtids()), before, "{}", ran.stderr_text());
    assert_eq!(copy.sql("SELECT user FROM mysql.user WHERE user LIKE 'xb-private%'"), "");
    assert_eq!(copy.sql("SELECT user FROM mysql.user WHERE user = 'bob'"), "bob\n");
    assert_eq!(copy.sql("SHOW REPLICA STATUS"), "");
    drop(copy);
    // So, the server cuts the relay log off where the name of an XA transaction is used again.
    let recover = "--mysqld-opts=--relay-log-recovery=OFF";
    let said = shop.restore(&stop, "cut", &[recover]).expect_failure().stderr_text();
    assert!(said.contains("the private server truncated it to"), "{said}");
    // Whatever fails would count as applied.
    let lenient = "--mysqld-opts=--replica-skip-errors=all";
    let said = shop.restore(&stop, "lenient", &[lenient]).expect_failure().stderr_text();
    assert!(
        said.contains("replica_skip_errors=all") && said.contains("remove that option"),
        "{said}"
    );
    let filter = "--mysqld-opts=--replicate-ignore-table=d.u";
    let said = shop.restore(&stop, "filtered", &[filter]).expect(0).stderr_text();
    assert!(said.contains("which it counts as applied: replicate_ignore_table=d.u"), "{said}");

    // Past it, without it.
    let exclude = format!("--exclude-gtid={dropped}");
    let said =
        shop.restore("latest", "b", &[&exclude, &shop.state()]).expect_failure().stderr_text();
    assert!(said.contains("changes the definition"), "{said}");
    let ran = shop.restore("latest", "b", &[&exclude, "--exclude-ddl", &shop.state()]).expect(0);
    assert!(ran.stderr_text().contains("XA"), "{}", ran.stderr_text());
    let copy = shop.started("b");
    assert_eq!(copy.gtids(), end);
    assert_eq!(copy.sql("SELECT COUNT(*) FROM d.made WHERE id IN (2, 4)"), "2\n");
    let rows = copy.sql("CHECKSUM TABLE d.t");
    assert!(before.0.contains(rows.trim()), "{rows} is not in {}", before.0);
    assert_eq!(copy.sql("XA RECOVER").lines().count(), 1);
    copy.sql("XA COMMIT 'left'");
    assert_eq!(copy.sql("SELECT COUNT(*) FROM d.made WHERE id = 3"), "1\n");
    drop(copy);

    // What cannot be restored is refused before anything is written.
    let said = shop.restore("latest", "refused", &["--galera", &shop.state()]).expect_failure();
    assert!(said.stderr_text().contains("with --galera is for MariaDB"), "{}", said.stderr_text());
    let (uuid, _) = end.split_once(':').unwrap();
    let exclude = format!("--exclude-gtid={uuid}:2");
    let said = shop.restore("latest", "refused", &[&exclude, &shop.state()]).expect_failure();
    assert!(said.stderr_text().contains("one may have it"), "{}", said.stderr_text());
    for (stop, what) in [
        (format!("{uuid}:1"), "is before all backups of shop"),
        (format!("{uuid}:999999"), "999999"),
        ("bin.000001:5".to_owned(), "bin.000001:5"),
        ("2026-01-01T00:00:00".to_owned(), "is not a stop"),
    ] {
        let said = shop.restore(&stop, "refused", &[]).expect_failure().stderr_text();
        assert!(said.contains(what), "{stop}: {said}");
        assert!(!shop.path("refused").exists(), "{stop}");
    }
}

#[test]
fn a_commit_waits_until_it_is_stored() {
    if skipped() {
        return;
    }
    let shop = Shop::new();
    let status = |name: &str| {
        let sql = format!("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_source_{name}'");
        shop.server.sql(&sql).split_whitespace().nth(1).unwrap().to_owned()
    };
    shop.server.sql(
        "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so';
         SET GLOBAL rpl_semi_sync_source_timeout = 100",
    );
    let said = shop.receive(&["--ack"]).wait().expect_failure().stderr_text();
    assert!(said.contains("no commit waits for a replica"), "{said}");
    shop.server.sql("SET GLOBAL rpl_semi_sync_source_enabled = ON");
    let mut receiver = shop.receive(&["--ack"]);
    receiver
        .until("the server waits for it", || status("clients") == "1" && status("status") == "ON");
    shop.server.sql("SET GLOBAL rpl_semi_sync_source_timeout = 60000");
    let (waited, given_up) = (status("yes_tx"), status("no_times"));
    for n in 0..10 {
        let sql =
            if n % 2 == 0 { WORK } else { "INSERT INTO d.t (v) VALUES (REPEAT('x', 300000))" };
        shop.server.sql(sql);
        // Without any wait: what the client has seen is there.
        let ran = shop.cmd(&["binlog", "list", &shop.place(""), "--json"]).run().expect(0);
        let streams = json(&ran)["servers"][0]["streams"].clone();
        let ends = streams.as_array().unwrap().iter().filter_map(|stream| stream["gtids"].as_str());
        let ends: Vec<String> = ends.map(str::to_owned).collect();
        assert!(ends.contains(&shop.server.gtids()), "{ends:?}");
        shop.server.sql("DELETE FROM d.u");
    }
    assert_eq!(status("no_times"), given_up);
    assert!(status("yes_tx").parse::<u64>().unwrap() > waited.parse::<u64>().unwrap() + 50);
    receiver.signal(Signal::TERM);
    let said = receiver.wait().expect(0).stderr_text();
    // MySQL does not count what would show that, and is not asked.
    assert!(!said.contains("waits for the archive"), "{said}");
    let _ = shop.verify().expect(0);
}

/// Its events have no marks. A gap would be worse than commits that do not wait.
#[test]
fn a_server_that_has_lost_its_plugin_is_archived_with_a_warning() {
    if skipped() {
        return;
    }
    let shop = Shop::new();
    shop.catch_up();
    shop.server.sql("INSERT INTO d.u VALUES (77, 77)");
    let mut receiver = shop.receive(&["--ack"]);
    shop.wait(&mut receiver);
    receiver.signal(Signal::TERM);
    let said = receiver.wait().expect(0).stderr_text();
    assert!(said.contains("do not wait for the archive"), "{said}");
    let _ = shop.verify().expect(0);
}

#[test]
fn a_clone_is_covered_by_a_stream_that_begins_later_with_older_logs() {
    if skipped() {
        return;
    }
    let shop = Shop::new();
    // The archive begins with a transaction of the clone.
    shop.server.sql("FLUSH BINARY LOGS");
    shop.back_up("one");
    shop.server.sql("INSERT INTO d.u VALUES (5, 5); FLUSH BINARY LOGS");
    shop.server.sql("INSERT INTO d.u VALUES (6, 6)");
    shop.catch_up();
    let ran = shop.cmd(&["monitor", &shop.place("")]).run();
    let said = ran.stdout_text() + &ran.stderr_text();
    assert!(said.contains("shop") && !said.contains("began after it"), "{said}");
    let _ = shop.restore("latest", "dry", &["--dry-run", &shop.state()]).expect(0);
}

/// What a server was built with is in none of its logs, and in the list of none; its clones have it.
#[test]
fn a_server_that_was_restored_is_archived_and_restored_again() {
    if skipped() {
        return;
    }
    let mut shop = Shop::new();
    let receiver = shop.receive(&[]);
    shop.back_up("one");
    shop.server.sql("INSERT INTO d.u VALUES (1, 1); INSERT INTO d.u VALUES (2, 2)");
    drop(receiver);
    shop.catch_up();
    shop.server.kill();
    let _ = shop.restore("latest", "a", &[&shop.state()]).expect(0);
    let port = format!("--port={}", shop.port);
    let network = ["--skip-networking=OFF", "--bind-address=127.0.0.1", &*port, "--server-id=9"];
    shop.server = MySql::start_on(&shop.path("a"), &[&OWN[..], &network].concat());
    shop.trust();
    // Logs of later names than those that are stored.
    shop.server.sql("FLUSH BINARY LOGS; FLUSH BINARY LOGS; INSERT INTO d.u VALUES (3, 3)");
    let said = shop.catch_up();
    assert!(said.contains("GAP"), "{said}");
    let said = shop.back_up("two").stderr_text();
    assert!(!said.contains("cannot be replayed"), "{said}");
    shop.server
        .sql("INSERT INTO d.u VALUES (4, 4); FLUSH BINARY LOGS; INSERT INTO d.u VALUES (5, 5)");
    shop.catch_up();
    let all = (shop.server.sql(SUMS), shop.server.gtids());
    let _ = shop.restore("latest", "b", &[&shop.state()]).expect(0);
    let copy = shop.started("b");
    assert_eq!((copy.sql(SUMS), copy.gtids()), all);
}
