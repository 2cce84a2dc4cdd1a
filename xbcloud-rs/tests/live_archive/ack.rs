//! `binlog receive --ack`: commits of a real server that wait until they are stored.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::archive::{Archive, SERVER, json};
use xb_testkit::command::{Cmd, Running, Signal};
use xb_testkit::fault::{Action, Proxy, Rule};
use xb_testkit::store::Store;
use xb_testkit::tools::find;

const SEMI_SYNC: [&str; 5] = [
    "--rpl-semi-sync-master-enabled=1",
    "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
    // Until the receiver is there.
    "--rpl-semi-sync-master-timeout=100",
    "--sync-binlog=1",
    "--innodb-flush-log-at-trx-commit=1",
];

fn status(archive: &Archive, name: &str) -> u64 {
    let row = archive.server.sql(&format!("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_master_{name}'"));
    row.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Returns whether the server waits.
fn waits(archive: &Archive) -> bool {
    let row = archive.server.sql("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_master_status'");
    row.contains("ON")
}

/// A receiver for which the server waits.
fn acknowledging(archive: &Archive, more: &[&str]) -> Running {
    let mut receiver = archive.receive(&[&["--ack"], more].concat());
    receiver.until("the server waits for it", || status(archive, "clients") == 1 && waits(archive));
    archive.server.sql("SET GLOBAL rpl_semi_sync_master_timeout=60000");
    receiver
}

/// The newest sign of life.
fn alive(archive: &Archive) -> String {
    let keys = archive.store.list(".xb-binlog/shop/").into_iter().map(|(key, _)| key);
    let alive = keys.filter(|key| key.ends_with("/alive"));
    let texts = alive.filter_map(|key| archive.store.get(&key));
    let texts = texts.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    texts
        .max_by_key(|text| text.split_once("\"written\":").map(|(_, rest)| rest.to_owned()))
        .unwrap_or_default()
}

/// Since when every commit waits, as the newest sign of life says.
fn since(archive: &Archive) -> Option<String> {
    let alive = alive(archive);
    let (_, rest) = alive.split_once("\"acknowledged\":[\"")?;
    Some(rest.split_once('"')?.0.to_owned())
}

/// Number of a transaction of domain 0.
fn number(gtids: &str) -> u64 {
    let gtid = gtids.trim().split(',').find(|gtid| gtid.starts_with("0-")).unwrap();
    gtid.rsplit('-').next().unwrap().parse().unwrap()
}

#[test]
fn every_commit_that_a_client_saw_is_archived_when_the_server_is_killed() {
    for round in 0..6_u64 {
        let archive = Archive::with_options(Store::folder(), &SEMI_SYNC);
        let receiver = acknowledging(&archive, &[]);
        let (seen, is_over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        let socket = format!("--socket={}", archive.server.socket().display());
        let pid = archive.server.sql("SELECT @@pid_file");
        let pid = std::fs::read_to_string(pid.trim()).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..5 {
                let (seen, is_over, socket) = (&seen, &is_over, &socket);
                scope.spawn(move || {
                    for n in 0.. {
                        // Some are larger than what is received at once.
                        let rows = match (n + writer) % 7 {
                            3 => "d.seq_1_to_20000",
                            5 => "d.seq_1_to_3000",
                            _ => "d.seq_1_to_2",
                        };
                        let ran = Cmd::new(find("mariadb"))
                            .args(["--no-defaults", "--user=root", "--batch", "--skip-column-names"])
                            .arg(socket)
                            .stdin_bytes(format!(
                                "INSERT INTO d.t (v) SELECT {writer} FROM {rows}; SELECT @@last_gtid"
                            ))
                            .run();
                        if ran.code() != 0 || is_over.load(Ordering::Relaxed) {
                            return;
                        }
                        seen.lock().unwrap().push(number(&ran.stdout_text()));
                    }
                });
            }
            let goal = usize::try_from(10 + round * 7).unwrap();
            xb_testkit::until("rows are committed", || seen.lock().unwrap().len() >= goal);
            let _ = Cmd::new(find("kill")).args(["-9", pid.trim()]).run().expect(0);
            is_over.store(true, Ordering::Relaxed);
        });
        receiver.signal(Signal::TERM);
        let _ = receiver.wait().expect(0);
        let report = json(&archive.verify().expect(0));
        let streams = report["servers"][0]["streams"].as_array().unwrap();
        let stored = streams.iter().filter_map(|s| s["gtids"].as_str()).map(number).max().unwrap();
        let seen = seen.into_inner().unwrap();
        let last = *seen.iter().max().unwrap();
        assert!(seen.len() >= 10 && stored >= last, "{last} was seen, {stored} is stored");
    }
}

#[test]
fn a_commit_waits_until_it_is_stored() {
    let archive = Archive::with_options(Store::folder(), &SEMI_SYNC);
    let mut receiver = acknowledging(&archive, &[]);
    let given_up = status(&archive, "no_times");
    for n in 0..20 {
        archive.server.sql(&format!("INSERT INTO d.t (v) VALUES ({n})"));
        // Without any wait: what the client has seen is there.
        let gtids = archive.server.sql("SELECT @@GLOBAL.gtid_binlog_pos");
        let list =
            archive.cmd(&["binlog", "list", &archive.store.root_url(), "--json"]).run().expect(0);
        let report = json(&list);
        let stored = report["servers"][0]["streams"][0]["gtids"].as_str().unwrap().to_owned();
        assert_eq!(number(&stored), number(&gtids));
    }
    // Nothing waited in vain.
    assert_eq!(status(&archive, "no_times"), given_up);
    assert!(status(&archive, "yes_tx") >= 20);
    receiver.until("the interval is noted", || since(&archive).is_some());
    let first = since(&archive);
    let aborted = || archive.server.sql("SHOW GLOBAL STATUS LIKE 'Aborted_clients'");
    let were_aborted = aborted();
    // Counters that no longer show it end the interval, though nothing else has changed.
    archive.server.sql("SET GLOBAL rpl_semi_sync_master_enabled=0");
    archive.server.sql("SET GLOBAL rpl_semi_sync_master_enabled=1");
    archive.write(1);
    receiver.until("another one is noted", || {
        since(&archive).is_some_and(|since| Some(since) != first)
    });
    // Whoever asked has said goodbye.
    assert_eq!(aborted(), were_aborted);
    receiver.signal(Signal::TERM);
    let said = receiver.wait().expect(0).stderr_text();
    assert!(said.contains("every commit of shop waits for the archive since"), "{said}");
    assert!(
        said.contains("not every commit of shop waited") || said.contains("it is unknown whether"),
        "{said}"
    );
}

/// Nothing that the server writes into its log passes without a wait, whatever it is.
#[test]
fn every_kind_of_commit_waits() {
    let archive = Archive::with_options(Store::folder(), &SEMI_SYNC);
    let receiver = acknowledging(&archive, &[]);
    let counts = || {
        let gtids = archive.server.sql("SELECT @@GLOBAL.gtid_binlog_pos");
        (number(&gtids), status(&archive, "yes_tx"))
    };
    for sql in [
        "INSERT INTO d.t (v) VALUES (1)",
        "BEGIN; INSERT INTO d.t (v) VALUES (1); DELETE FROM d.t; COMMIT",
        "CREATE TABLE d.m (id INT) ENGINE=MyISAM",
        "INSERT INTO d.m VALUES (1)",
        "BEGIN; INSERT INTO d.m VALUES (2); INSERT INTO d.t (v) VALUES (2); ROLLBACK",
        "CREATE TABLE d.a (id INT) ENGINE=Aria; INSERT INTO d.a VALUES (1)",
        "ALTER TABLE d.t ADD COLUMN w INT",
        "CREATE TABLE d.c AS SELECT * FROM d.t",
        "DROP TABLE d.c",
        "XA START 'x'; INSERT INTO d.t (v) VALUES (3); XA END 'x'; XA COMMIT 'x' ONE PHASE",
        "XA START 'x'; INSERT INTO d.t (v) VALUES (3); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'",
        "XA START 'x'; INSERT INTO d.t (v) VALUES (3); XA END 'x'; XA PREPARE 'x'; XA ROLLBACK 'x'",
        "CREATE USER bob IDENTIFIED BY 'x'; GRANT SELECT ON d.* TO bob; CREATE ROLE r; DROP USER bob",
        // Dropped explicitly: the server would drop it once the client has ended, and no statement waits for that.
        "CREATE TEMPORARY TABLE d.p (id INT); INSERT INTO d.p VALUES (7); INSERT INTO d.t (v) SELECT id FROM d.p;
         DROP TEMPORARY TABLE d.p",
        "CREATE SEQUENCE d.s; SELECT NEXTVAL(d.s)",
        "ANALYZE TABLE d.t; OPTIMIZE TABLE d.t; FLUSH TABLES",
        "TRUNCATE TABLE d.t",
    ] {
        let (written, waited) = counts();
        archive.server.sql(sql);
        let now = counts();
        assert!(now.0 > written, "{sql}");
        assert_eq!(now.1 - waited, now.0 - written, "{sql}");
    }
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
}

#[test]
fn a_store_that_is_away_lets_commits_wait_for_the_servers_timeout_only() {
    let (archive, proxy, through) = behind_proxy();
    let mut receiver = acknowledging(&archive, &[&through, "--max-retries=1"]);
    receiver.until("the interval is noted", || since(&archive).is_some());
    let first = since(&archive);
    archive.server.sql("SET GLOBAL rpl_semi_sync_master_timeout=300");
    let given_up = status(&archive, "no_times");
    proxy.set_rules(vec![Rule::new("PUT", "", Action::answer(503))]);
    // The first one waits for the timeout, the others do not wait.
    archive.write(10);
    assert_eq!(status(&archive, "no_times"), given_up + 1);
    assert!(!waits(&archive));
    proxy.set_rules(Vec::new());
    archive.wait(&mut receiver);
    receiver.until("the server waits again", || {
        archive.write(1);
        waits(&archive)
    });
    receiver.until("another interval is noted", || {
        since(&archive).is_some_and(|since| Some(since) != first)
    });
    receiver.signal(Signal::TERM);
    let said = receiver.wait().expect(0).stderr_text();
    assert!(
        said.contains("not every commit of shop waited") || said.contains("it is unknown whether"),
        "{said}"
    );
}

#[test]
fn a_server_that_does_not_wait_is_refused_or_reported() {
    let archive = Archive::new(Store::folder());
    let said = archive.receive(&["--ack"]).wait().expect_failure().stderr_text();
    assert!(said.contains("rpl_semi_sync_master_enabled=ON"), "{said}");
    archive.server.sql("SET GLOBAL rpl_semi_sync_master_timeout=100, rpl_semi_sync_master_enabled=1, rpl_semi_sync_master_wait_point='AFTER_COMMIT'");
    let said = archive.receive(&["--ack"]).wait().expect_failure().stderr_text();
    assert!(said.contains("visible before the archive has them"), "{said}");
    assert!(archive.store.list(".xb-binlog/").is_empty());
    // This one waits, but loses commits with its power.
    archive.server.sql("SET GLOBAL rpl_semi_sync_master_wait_point='AFTER_SYNC'");
    let mut receiver = acknowledging(&archive, &[]);
    archive.write(3);
    receiver.until("it has asked", || !alive(&archive).is_empty());
    let first = alive(&archive);
    receiver.until("it has asked again", || alive(&archive) != first);
    assert_eq!(since(&archive), None);
    receiver.signal(Signal::TERM);
    let said = receiver.wait().expect(0).stderr_text();
    assert!(
        said.contains("it is unknown whether") && !said.contains("waits for the archive since"),
        "{said}"
    );
    // A gap would be worse than commits that do not wait.
    archive.server.sql("SET GLOBAL rpl_semi_sync_master_enabled=0");
    archive.write(3);
    let mut receiver = archive.receive(&["--ack"]);
    archive.wait(&mut receiver);
    receiver.signal(Signal::TERM);
    let said = receiver.wait().expect(0).stderr_text();
    assert!(said.contains("no commit waits for a replica"), "{said}");
}

/// A bucket behind a proxy, and the option that leads there.
fn behind_proxy() -> (Archive, Proxy, String) {
    let archive = Archive::with_options(Store::bucket(), &SEMI_SYNC);
    let upstream = archive.store.options();
    let endpoint = upstream.iter().find_map(|option| option.strip_prefix("--s3-endpoint=http://"));
    let proxy = Proxy::start(endpoint.unwrap(), Vec::new());
    let through = format!("--s3-endpoint={}", proxy.endpoint());
    (archive, proxy, through)
}

#[test]
fn a_commit_on_its_way_is_acknowledged_when_the_receiver_is_stopped() {
    let (archive, proxy, through) = behind_proxy();
    let mut receiver = acknowledging(&archive, &[&through]);
    let given_up = status(&archive, "no_times");
    proxy.set_rules(vec![Rule::new("PUT", "/0000000", Action::Hold)]);
    let commit = Cmd::new(find("mariadb"))
        .args(["--no-defaults", "--user=root"])
        .arg(format!("--socket={}", archive.server.socket().display()))
        .stdin_bytes("INSERT INTO d.t (v) VALUES (1)")
        .spawn();
    receiver.until("its segment is on its way", || proxy.held() > 0);
    receiver.signal(Signal::TERM);
    // The signal has time to arrive.
    let _ = archive.list();
    proxy.release();
    let _ = commit.wait().expect(0);
    let _ = receiver.wait().expect(0);
    assert_eq!(status(&archive, "no_times"), given_up);
}

#[test]
fn a_roll_up_that_is_not_stored_holds_up_no_commit() {
    let (archive, proxy, through) = behind_proxy();
    let mut receiver = acknowledging(&archive, &[&through]);
    let given_up = status(&archive, "no_times");
    proxy.set_rules(vec![Rule::new("PUT", "/.heads-", Action::Stall)]);
    for _ in 0..80 {
        archive.write(1);
    }
    receiver.until("a roll-up is on its way", || proxy.count("PUT", "/.heads-") > 0);
    assert_eq!(status(&archive, "no_times"), given_up);
    proxy.set_rules(Vec::new());
    proxy.release();
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
}

#[test]
fn signs_of_life_do_not_wait_for_a_server_that_is_slow_to_answer() {
    let archive = Archive::with_options(Store::folder(), &SEMI_SYNC);
    archive.server.sql(
        "CREATE USER slow@localhost; GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO slow@localhost",
    );
    let login = format!("[client]\nuser=slow\nsocket={}\n", archive.server.socket().display());
    std::fs::write(archive.path("login"), login).unwrap();
    let mut receiver = acknowledging(&archive, &[]);
    receiver.until("the interval is noted", || since(&archive).is_some());
    // Longer than the receiver waits before it asks again. Accounts with all privileges do not run it.
    archive.server.sql("SET GLOBAL init_connect='DO SLEEP(8)'");
    for _ in 0..4 {
        archive.write(1);
        let last = alive(&archive);
        receiver.until("another sign of life", || alive(&archive) != last);
    }
    assert!(since(&archive).is_some());
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
}

#[test]
fn nothing_is_claimed_beside_another_replica_that_acknowledges() {
    let archive = Archive::with_options(Store::folder(), &SEMI_SYNC);
    let mut receiver = acknowledging(&archive, &[]);
    receiver.until("the interval is noted", || since(&archive).is_some());
    let first = since(&archive);
    let root = tempfile::tempdir().unwrap();
    let other = archive
        .cmd(&["binlog", "receive", &format!("file://{}", root.path().display()), SERVER, "--ack"])
        .arg(format!("--login-file={}", archive.path("login")))
        .spawn();
    receiver.until("it has come", || status(&archive, "clients") == 2);
    receiver.until("nothing is claimed", || since(&archive).is_none());
    other.signal(Signal::TERM);
    let _ = other.wait().expect(0);
    archive.write(1);
    receiver.until("another interval is noted", || {
        since(&archive).is_some_and(|since| Some(since) != first)
    });
    receiver.signal(Signal::TERM);
    let said = receiver.wait().expect(0).stderr_text();
    assert!(said.contains("it is unknown whether"), "{said}");
}
