//! `binlog receive --ack`: commits of a real server that wait until they are stored.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod live_archive;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use live_archive::{Archive, json};
use xb_testkit::command::{Cmd, Running, Signal};
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

/// A receiver for which the server waits.
fn acknowledging(archive: &Archive) -> Running {
    let mut receiver = archive.receive(&["--ack"]);
    receiver.until("the server waits for it", || {
        status(archive, "clients") == 1
            && archive
                .server
                .sql("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_master_status'")
                .contains("ON")
    });
    archive.server.sql("SET GLOBAL rpl_semi_sync_master_timeout=60000");
    receiver
}

/// The last sign of life.
fn alive(archive: &Archive) -> String {
    let keys = archive.store.list(".xb-binlog/shop/").into_iter().map(|(key, _)| key);
    let alive = keys.filter(|key| key.ends_with("/alive")).last();
    alive
        .and_then(|key| archive.store.get(&key))
        .map_or_else(String::new, |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Number of a transaction of domain 0.
fn number(gtids: &str) -> u64 {
    let gtid = gtids.trim().split(',').find(|gtid| gtid.starts_with("0-")).unwrap();
    gtid.rsplit('-').next().unwrap().parse().unwrap()
}

#[test]
fn every_commit_that_a_client_saw_is_archived_when_the_server_is_killed() {
    for round in 0..4_u64 {
        let archive = Archive::with_options(Store::folder(), &SEMI_SYNC);
        let receiver = acknowledging(&archive);
        let (seen, is_over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        let socket = format!("--socket={}", archive.server.socket().display());
        let pid = archive.server.sql("SELECT @@pid_file");
        let pid = std::fs::read_to_string(pid.trim()).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let (seen, is_over, socket) = (&seen, &is_over, &socket);
                scope.spawn(move || {
                    for n in 0.. {
                        let rows = if n % 7 == 3 { "d.seq_1_to_3000" } else { "d.seq_1_to_2" };
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
            while seen.lock().unwrap().len() < goal {
                std::thread::yield_now();
            }
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
    let mut receiver = acknowledging(&archive);
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
    assert_eq!(status(&archive, "no_times"), 1);
    assert!(status(&archive, "yes_tx") >= 20);
    receiver.until("the interval is noted", || alive(&archive).contains("\"acknowledged\":["));
    receiver.signal(Signal::TERM);
    let said = receiver.wait().expect(0).stderr_text();
    assert!(said.contains("every commit of shop waits for the archive since"), "{said}");
}

#[test]
fn what_does_not_wait_is_refused_or_told() {
    let archive = Archive::new(Store::folder());
    let said = archive.receive(&["--ack"]).wait().expect_failure().stderr_text();
    assert!(said.contains("rpl_semi_sync_master_enabled=ON"), "{said}");
    archive.server.sql("SET GLOBAL rpl_semi_sync_master_timeout=100, rpl_semi_sync_master_enabled=1, rpl_semi_sync_master_wait_point='AFTER_COMMIT'");
    let said = archive.receive(&["--ack"]).wait().expect_failure().stderr_text();
    assert!(said.contains("visible before the archive has them"), "{said}");
    assert!(archive.store.list(".xb-binlog/").is_empty());
    // This one waits, but loses commits with its power.
    archive.server.sql("SET GLOBAL rpl_semi_sync_master_wait_point='AFTER_SYNC'");
    let mut receiver = acknowledging(&archive);
    archive.write(3);
    receiver.until("it has asked", || !alive(&archive).is_empty());
    let first = alive(&archive);
    receiver.until("it has asked again", || alive(&archive) != first);
    receiver.signal(Signal::TERM);
    let said = receiver.wait().expect(0).stderr_text();
    assert!(said.contains("may not wait") && !said.contains("every commit"), "{said}");
}
