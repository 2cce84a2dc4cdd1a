//! Trial restores of a real MariaDB and its log, compared with its replica at the same GTIDs.

use std::path::Path;

use serde_json::Value;
use xb_testkit::command::{Cmd, Ran, Running, Signal};
use xb_testkit::mariadb::MariaDb;
use xb_testkit::ports::free_port;
use xb_testkit::tools::find;

use crate::support::logged_shop::Shop;

/// A source with its archive, and a replica of it.
struct Pair {
    shop: Shop,
    replica: MariaDb,
}

/// Tables of all kinds, in which only their content is of interest.
const KINDS: &str = "
    CREATE TABLE d.kinds (
        id INT AUTO_INCREMENT PRIMARY KEY, f FLOAT, g DOUBLE, n DECIMAL(30,10), b BIT(9), j JSON, p POINT,
        t TIMESTAMP(6) NULL, e ENUM('o', 'ä'), s SET('x', 'y'), l VARCHAR(20) CHARACTER SET latin1,
        w VARCHAR(20) CHARACTER SET ucs2, r BLOB, v INT AS (f * 2) VIRTUAL, w2 INT AS (f * 3) PERSISTENT
    );
    CREATE TABLE d.parts (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 3;
    CREATE TABLE d.versions (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING;
    CREATE TABLE d.aria (id INT, v TEXT) ENGINE=Aria;
    CREATE TABLE d.memory (id INT) ENGINE=MEMORY;
    CREATE TABLE d.`odd ``name.x` (`a``b` INT);
    CREATE SEQUENCE d.numbers;
    CREATE VIEW d.shown AS SELECT id, f FROM d.kinds;
    CREATE TABLE d.log (id INT);
    CREATE TRIGGER d.noted AFTER INSERT ON d.aria FOR EACH ROW INSERT INTO d.log VALUES (NEW.id);
    CREATE FUNCTION d.twice(a INT) RETURNS INT DETERMINISTIC RETURN a * 2;
    CREATE EVENT d.tick ON SCHEDULE EVERY 1 YEAR DO DELETE FROM d.log;
    INSERT INTO d.kinds (f, g, n, b, j, p, t, e, s, l, w, r) VALUES
        (0.1, 0.1, 1.5, b'101', '{\"a\": 1}', POINT(1, 2), '2020-01-01 00:00:00.5', 'ä', 'x,y', 'ä', 'ж', X'00ff27'),
        (16777217, 1e300, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    INSERT INTO d.parts VALUES (1); INSERT INTO d.versions VALUES (1, 1); UPDATE d.versions SET v = 2; DELETE FROM d.versions;
    INSERT INTO d.aria VALUES (1, 'secret'); DO NEXTVAL(d.numbers); INSERT INTO d.`odd ``name.x` VALUES (1);
    BEGIN; INSERT INTO d.kinds (f) VALUES (7); ROLLBACK; INSERT INTO d.m VALUES (1)";

impl Pair {
    /// A pair with a backup, whose replica is ahead of the archive, as usual.
    fn ahead() -> Self {
        let pair = Self::new();
        let receiver = pair.shop.receive();
        let _ = pair.shop.back_up("full", &[]);
        pair.write(1);
        pair.shop.wait_for(&receiver);
        receiver.stop();
        pair.write(2);
        pair.caught_up();
        pair
    }

    fn new() -> Self {
        Self::with_replica(&[])
    }

    fn with_replica(options: &[&str]) -> Self {
        let port = free_port();
        let shop = Shop::with_options(&[
            "--skip-networking=0",
            "--bind-address=127.0.0.1",
            &format!("--port={port}"),
        ]);
        shop.server
            .sql("CREATE USER r@'%' IDENTIFIED BY 'r'; GRANT REPLICATION SLAVE ON *.* TO r@'%'");
        shop.server.sql(KINDS);
        let own = ["--server-id=4", "--log-bin=own", "--slave-parallel-threads=4"];
        let replica = MariaDb::start_with(&[&own, options].concat());
        replica.sql(&format!(
            "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='r', \
             MASTER_PASSWORD='r', MASTER_USE_GTID=slave_pos; START SLAVE"
        ));
        let pair = Self { shop, replica };
        pair.caught_up();
        pair
    }

    /// Waits until the replica has everything.
    fn caught_up(&self) {
        let all = self.shop.gtid();
        let waited = self.replica.sql(&format!("SELECT MASTER_GTID_WAIT('{all}', 60)"));
        assert_eq!(waited, "0\n", "{}", self.replica.sql("SHOW ALL SLAVES STATUS"));
    }

    /// Writes in two domains.
    fn write(&self, id: u32) {
        self.shop.server.sql(&format!(
            "SET gtid_domain_id = 7; INSERT INTO d.t VALUES ({id}, 'seven');
             SET gtid_domain_id = 0; INSERT INTO d.t VALUES ({}, 'zero')",
            id + 1000
        ));
    }

    /// Returns whether the receiving thread and the applier run, and the applier's stop.
    fn threads(&self) -> [String; 3] {
        let status = self.replica.sql("SHOW ALL SLAVES STATUS");
        let columns: Vec<&str> = status.split('\t').collect();
        [12, 13, 25].map(|column| columns[column].to_owned())
    }

    fn verify(&self, server: &Path, stop: &str, options: &[&str]) -> Cmd {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults", "verify", &self.shop.place("full"), "--level=restore"])
            .env("STATE_DIRECTORY", self.shop.scratch.join("nothing"))
            .args(self.shop.key())
            .arg(format!("--until={stop}"))
            .arg(format!("--compare-with={}", server.display()))
            .arg(format!("--login-file={}", self.login().display()))
            .args(options)
    }

    fn held(&self, stop: &str) -> Cmd {
        self.verify(self.replica.socket(), stop, &["--hold-replica"])
    }

    fn login(&self) -> std::path::PathBuf {
        let file = self.shop.scratch.join("login");
        std::fs::write(&file, "[xbcloud-compare]\nuser=root\n").unwrap();
        file
    }

    /// A trial that waits, with the applier held, for transactions that the archive does not have.
    fn waiting(&self) -> Running {
        let mut running = self.held("latest").spawn();
        running.until("the applier is held", || self.threads()[1] == "No");
        running
    }
}

const RUNS: [&str; 3] = ["Yes", "Yes", "None"];

fn json(ran: &Ran) -> Value {
    serde_json::from_slice(&ran.stdout).expect("JSON")
}

#[test]
fn a_trial_is_equal_to_its_replica_and_to_its_source() {
    let pair = Pair::ahead();
    // The replica is held where it is, until the archive has caught up.
    let mut running = pair.held("latest").arg("--json").spawn();
    running.until("the applier is held", || pair.threads()[1] == "No");
    assert_eq!(pair.threads()[0], "Yes");
    pair.write(3);
    let receiver = pair.shop.receive();
    pair.shop.wait_for(&receiver);
    // Transactions behind the stop are not compared.
    let ran = running.wait().expect(0);
    let text = ran.stderr_text();
    assert!(text.contains("STOP SLAVE SQL_THREAD; START SLAVE SQL_THREAD"), "{text}");
    let report = json(&ran);
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("rows not compared: 1 table (MEMORY)"), "{warnings}");
    let compared = &report["restore"]["compared_with"];
    assert_eq!(compared["server"], pair.replica.socket().display().to_string());
    assert_eq!(compared["gtids"], report["restore"]["replayed"]["gtids"]);
    assert_eq!(compared["differing"], 0);
    assert_eq!(compared["not_compared"], serde_json::json!({"MEMORY": 1}));
    // kinds, parts, versions, aria, the odd one, numbers, log, t and m.
    assert_eq!(compared["tables"], 9, "{compared}");
    // Two of kinds, two of the history of versions, one of each other, and all of t.
    assert!(compared["rows"].as_u64().unwrap() >= 2 + 2 + 6 + 4, "{compared}");
    assert_eq!(pair.threads(), RUNS);
    pair.caught_up();
    // The source itself, which nothing writes to.
    pair.shop.wait_for(&receiver);
    let ran = pair.verify(pair.shop.server.socket(), "latest", &["--json"]).run().expect(0);
    assert_eq!(json(&ran)["restore"]["compared_with"]["rows"], 2 + 2 + 6 + 6);
    receiver.stop();
}

#[test]
fn differences_are_named_without_a_value_and_the_applier_put_back() {
    let pair = Pair::new();
    let receiver = pair.shop.receive();
    let _ = pair.shop.back_up("full", &[]);
    pair.write(1);
    pair.caught_up();
    pair.replica.sql("STOP SLAVE SQL_THREAD");
    pair.write(2);
    let stop = pair.shop.position();
    pair.shop.wait_for(&receiver);
    receiver.stop();
    pair.replica.sql(
        "SET sql_log_bin = 0; UPDATE d.aria SET v = 'hidden'; DROP TABLE d.m; CREATE TABLE d.more (id INT);
         INSERT INTO d.log VALUES (2); DROP FUNCTION d.twice; UPDATE d.kinds SET f = 0.10000001 WHERE id = 1;
         CREATE FUNCTION d.twice(a INT) RETURNS INT DETERMINISTIC RETURN a * 3;
         CREATE INDEX i ON d.parts (id)",
    );
    let ran = pair.held(&stop).arg("--json").run();
    let text = ran.stderr_text();
    assert_eq!(ran.code(), 7, "{text}");
    let server = pair.replica.socket().display().to_string();
    let report = json(&ran);
    let found: Vec<&str> =
        report["failed_checks"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    assert_eq!(
        found,
        [
            "table d.aria: 1 row in both, with other values".to_owned(),
            "table d.kinds: 2 rows in both, with other values".to_owned(),
            format!("table d.log: 1 row restored, 2 rows on {server}"),
            format!("table d.m: {server} does not have it"),
            "table d.parts: its definition differs".to_owned(),
            "function d.twice: its definition differs".to_owned(),
            format!("table d.more: only {server} has it"),
        ]
    );
    assert!(text.contains("7 differences from"), "{text}");
    assert!(!text.contains("hidden") && !ran.stdout_text().contains("hidden"), "{text}");
    // It is not proven, and the record says why.
    assert_eq!(report["restore"]["compared_with"]["differing"], 7);
    assert_ne!(report["reached"], "restore");
    let record = pair.shop.scratch.join("shop/.xb-catalog/@verified/full/with-key");
    let record = std::fs::read_to_string(record).unwrap();
    assert!(record.contains("\"differing\": 7") && record.contains("d.aria: 1 row"), "{record}");
    // The applier was led to the stop, and stands there as it had stood before.
    assert_eq!(pair.threads()[..2], ["Yes", "No"]);
    let at = pair.replica.sql("SELECT @@gtid_slave_pos");
    assert_eq!(at.trim(), pair.shop.gtid(), "{text}");
}

#[test]
fn servers_that_cannot_be_compared_are_refused_before_any_change() {
    let pair = Pair::new();
    let receiver = pair.shop.receive();
    let _ = pair.shop.back_up("full", &[]);
    pair.write(1);
    let early = pair.shop.position();
    pair.write(2);
    pair.shop.wait_for(&receiver);
    receiver.stop();
    pair.caught_up();
    let refused = |cmd: Cmd, part: &str| {
        let ran = cmd.run();
        let text = ran.stderr_text();
        assert!(ran.code() == 1 && text.contains(part), "{part}: {} {text}", ran.code());
        assert_eq!(pair.threads(), RUNS, "{part}");
    };
    refused(pair.held(&early), "is beyond the end of the replay");
    let replica = pair.replica.socket();
    refused(pair.verify(replica, &early, &[]), "add --hold-replica");
    let source = pair.shop.server.socket();
    refused(pair.verify(source, "latest", &["--hold-replica"]), "is not a replica");
    refused(pair.verify(source, &early, &[]), "stop all writes there");
    refused(pair.verify(Path::new("/nowhere/sock"), "latest", &[]), "cannot be asked");
    // An account that does not see everything, and one that may not stop an applier.
    pair.replica.sql(
        "SET sql_log_bin = 0; CREATE USER weak@localhost;
         GRANT SELECT, SHOW VIEW, EVENT, SLAVE MONITOR ON *.* TO weak@localhost",
    );
    let weak = |words: &[&str]| {
        let login = pair.shop.scratch.join("weak");
        std::fs::write(&login, "[client]\nuser=weak\n").unwrap();
        let login = format!("--login-file={}", login.display());
        let cmd = Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
            .args(["--no-defaults", "verify", &pair.shop.place("full"), "--level=restore"])
            .args(pair.shop.key());
        let with = format!("--compare-with={}", replica.display());
        cmd.args(["--until=latest", &with, &login]).args(words)
    };
    refused(weak(&[]), "lacks TRIGGER");
    pair.replica.sql("SET sql_log_bin = 0; GRANT TRIGGER ON *.* TO weak@localhost");
    refused(weak(&["--hold-replica"]), "Access denied");
    // The same numbers, given by another server.
    let other = pair.shop.gtid().replace("0-3-", "0-9-");
    pair.replica.sql(&format!("STOP SLAVE; SET GLOBAL gtid_slave_pos = '{other}'"));
    let ran = pair.held("latest").run();
    assert!(ran.stderr_text().contains("has another history"), "{}", ran.stderr_text());
}

/// Makes a certificate authority, and a server's certificate of it for 127.0.0.1.
fn certify(folder: &Path, name: &str) {
    let at = |file: &str| folder.join(format!("{name}-{file}")).display().to_string();
    let openssl = |args: &[&str]| {
        let _ = Cmd::new(find("openssl")).args(args).cwd(folder).run().expect(0);
    };
    std::fs::write(at("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    openssl(&[
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=authority",
        "-keyout",
        &at("ca.key"),
        "-out",
        &at("ca.pem"),
    ]);
    openssl(&[
        "req",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=replica",
        "-keyout",
        &at("key.pem"),
        "-out",
        &at("request.pem"),
    ]);
    openssl(&[
        "x509",
        "-req",
        "-days",
        "2",
        "-in",
        &at("request.pem"),
        "-CA",
        &at("ca.pem"),
        "-CAkey",
        &at("ca.key"),
        "-CAcreateserial",
        "-extfile",
        &at("names"),
        "-out",
        &at("cert.pem"),
    ]);
}

#[test]
fn a_delayed_replica_is_compared_over_tls_at_an_earlier_stop() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path(), "own");
    certify(folder.path(), "other");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let port = free_port();
    let pair = Pair::with_replica(&[
        "--skip-networking=0",
        "--bind-address=127.0.0.1",
        &format!("--port={port}"),
        &format!("--ssl-ca={}", file("own-ca.pem")),
        &format!("--ssl-cert={}", file("own-cert.pem")),
        &format!("--ssl-key={}", file("own-key.pem")),
    ]);
    pair.replica.sql(
        "SET sql_log_bin = 0; CREATE USER compare@'%' IDENTIFIED BY 'secret' REQUIRE SSL;
         GRANT SELECT, SHOW VIEW, TRIGGER, EVENT, SLAVE MONITOR, REPLICATION SLAVE ADMIN ON *.* TO compare@'%'",
    );
    let receiver = pair.shop.receive();
    let _ = pair.shop.back_up("full", &[]);
    pair.write(1);
    pair.caught_up();
    pair.replica.sql("STOP SLAVE; CHANGE MASTER TO MASTER_DELAY = 20; START SLAVE");
    pair.write(2);
    let stop = pair.shop.position();
    let at_stop = pair.shop.gtid();
    pair.write(3);
    pair.shop.wait_for(&receiver);
    receiver.stop();
    let server = format!("mysql://compare@127.0.0.1:{port}");
    let held = |authority: &str| {
        let login = pair.shop.scratch.join("secured");
        let text = format!("[xbcloud-compare]\npassword=secret\nssl-ca={}\n", file(authority));
        std::fs::write(&login, text).unwrap();
        let login = format!("--login-file={}", login.display());
        pair.verify(Path::new(&server), &stop, &["--hold-replica", "--json"]).args([login]).run()
    };
    let ran = held("other-ca.pem");
    let text = ran.stderr_text();
    assert!(ran.code() == 1 && text.contains("certificate"), "{} {text}", ran.code());
    let ran = held("own-ca.pem").expect(0);
    let compared = &json(&ran)["restore"]["compared_with"];
    assert_eq!(compared["differing"], 0, "{compared}");
    assert_eq!(compared["server"], server);
    let gtids = compared["gtids"].to_string();
    assert!(at_stop.split(',').all(|gtid| gtids.contains(gtid.trim())), "{gtids}: {at_stop}");
    assert!(!ran.stderr_text().contains("secret"));
    assert_eq!(pair.threads()[..2], ["Yes", "Yes"]);
}

#[test]
fn an_applier_that_was_held_runs_again_after_a_signal_and_a_lost_connection() {
    let pair = Pair::ahead();
    let running = pair.waiting();
    running.signal(Signal::INT);
    let ran = running.wait();
    assert_eq!(ran.code(), 130, "{}", ran.stderr_text());
    assert_eq!(pair.threads(), RUNS);
    // The connection is lost while the archive is waited for.
    let running = pair.waiting();
    let others =
        "SELECT id FROM information_schema.processlist WHERE command = 'Sleep' AND user = 'root'";
    for id in pair.replica.sql(others).lines() {
        pair.replica.sql(&format!("KILL {id}"));
    }
    let receiver = pair.shop.receive();
    pair.shop.wait_for(&receiver);
    receiver.stop();
    let ran = running.wait();
    let text = ran.stderr_text();
    assert!(ran.code() == 1 && text.contains("cannot be asked"), "{text}");
    assert_eq!(pair.threads(), RUNS);
    pair.write(3);
    pair.caught_up();
}
