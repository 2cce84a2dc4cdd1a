//! One name, two histories: a server that went back to a snapshot, and a copy of one that was started beside it.

use std::path::{Path, PathBuf};

use serde_json::Value;
use xb_testkit::command::{Cmd, Ran, Signal};
use xb_testkit::mariadb::MariaDb;
use xb_testkit::store::Store;

use crate::lost_segments::of_newest;
use crate::support::archive::{Archive, SERVER, position};

const OPTIONS: [&str; 3] = ["--log-bin=bin", "--server-id=3", "--sync-binlog=0"];
const ROWS: &str = "SELECT GROUP_CONCAT(v ORDER BY id) FROM d.t";

/// Shuts the server down, copies its data to these places, and starts it again in the first one.
fn move_to(archive: &mut Archive, places: &[&Path]) {
    let next = MariaDb::start();
    let stopped = std::mem::replace(&mut archive.server, next).shut_down();
    for place in places {
        let copied = Cmd::new("cp").arg("-a").arg(stopped.join("data")).arg(place).run();
        let _ = copied.expect(0);
    }
    start(archive, places[0]);
}

/// Takes the server of this data instead.
fn start(archive: &mut Archive, data: &Path) {
    drop(
        std::mem::replace(&mut archive.server, MariaDb::start_on_with(data, &OPTIONS)).shut_down(),
    );
    archive.write_login();
}

fn place(archive: &Archive, name: &str) -> PathBuf {
    archive.folder.path().join(name)
}

fn insert(server: &MariaDb, value: u32) {
    server.sql(&format!("INSERT INTO d.t (v) VALUES ({value})"));
}

fn until(archive: &Archive, name: &str, stop: &str) -> (PathBuf, Ran) {
    let target = tempfile::tempdir_in(archive.folder.path()).unwrap().keep();
    std::fs::remove_dir(&target).unwrap();
    let ran = archive
        .cmd(&["restore", &archive.store.url(name)])
        .arg(format!("--target-dir={}", target.display()))
        .args([format!("--until={stop}"), format!("--encrypt-key-file={}", archive.path("key"))])
        .args(["--accept-unsealed", SERVER])
        .run();
    (target, ran)
}

/// Receives until a branch has what the server has; returns what was said.
fn catch_up_branch(archive: &Archive) -> String {
    let status = archive.server.sql("SHOW MASTER STATUS");
    let mut columns = status.split('\t');
    let end = (columns.next().unwrap().to_owned(), columns.next().unwrap().parse().unwrap());
    let mut receiver = archive.receive(&[]);
    receiver.until("the branch is stored", || {
        let root = archive.store.root_url();
        let ran = archive.cmd(&["binlog", "list", &root, "--json"]).run();
        let found: Value = serde_json::from_slice(&ran.stdout).unwrap_or_default();
        let streams = found["servers"][0]["streams"].as_array().cloned().unwrap_or_default();
        // One that has just begun has nothing yet.
        let has_all = |to: &Value| to.as_str().and_then(position).is_some_and(|to| to >= end);
        streams.iter().any(|stream| stream["begins"] == "branch" && has_all(&stream["to"]))
    });
    receiver.signal(Signal::TERM);
    receiver.wait().expect(0).stderr_text()
}

fn rows(target: &Path) -> String {
    MariaDb::start_on_with(target, &["--server-id=99"]).sql(ROWS)
}

/// A server that went back to a snapshot has logs of the names that the archive has.
#[test]
fn the_logs_of_another_history_fill_no_hole() {
    let mut archive = Archive::new(Store::folder());
    insert(&archive.server, 1);
    let _ = archive.catch_up();
    let (live, snapshot) = (place(&archive, "live"), place(&archive, "snapshot"));
    move_to(&mut archive, &[&live, &snapshot]);
    let next_log = |server: &MariaDb, value: u32| {
        insert(server, value);
        server.sql("FLUSH BINARY LOGS");
    };
    for value in 2..6 {
        next_log(&archive.server, value);
        let _ = archive.catch_up();
    }
    let push = |archive: &Archive| {
        let names = archive.server.sql("SHOW BINARY LOGS");
        let names = names.lines().map(|line| line.split('\t').next().unwrap());
        let logs = names.map(|name| archive.server.datadir().join(name).display().to_string());
        let push = archive.cmd(&["binlog", "push", &archive.store.root_url(), SERVER]);
        let push = push.args(logs.collect::<Vec<_>>());
        let push = push.arg(format!("--encrypt-key-file={}", archive.path("key")));
        push.arg(format!("--state-dir={}", archive.path("state"))).run()
    };
    let segments = archive.segments();
    let hole = &segments[segments.len() - 3];
    std::fs::remove_file(hole).unwrap();
    start(&mut archive, &snapshot);
    for value in 12..20 {
        next_log(&archive.server, value);
    }
    let left = archive.segments();
    let said = push(&archive).expect_failure().stderr_text();
    assert!(said.contains("which have other transactions at bin."), "{said}");
    assert_eq!(archive.segments(), left, "{said}");
    // Those of the right one do.
    start(&mut archive, &live);
    insert(&archive.server, 6);
    let said = push(&archive).expect(0).stderr_text();
    assert!(said.contains(" on is archived again"), "{said}");
    assert!(archive.segments().len() > left.len());
}

/// The logs of a snapshot have the names, lengths and GTIDs of those that were archived since.
#[test]
fn a_branch_begins_where_the_histories_parted_and_mixes_none() {
    let mut archive = Archive::new(Store::folder());
    insert(&archive.server, 1);
    let _ = archive.catch_up();
    let _ = archive.back_up("b");
    insert(&archive.server, 2);
    let (live, snapshot) = (place(&archive, "live"), place(&archive, "snapshot"));
    move_to(&mut archive, &[&live, &snapshot]);
    for value in [3, 4] {
        insert(&archive.server, value);
    }
    archive.server.sql("FLUSH BINARY LOGS");
    for value in [5, 6] {
        insert(&archive.server, value);
    }
    let _ = archive.catch_up();
    let before = archive.server.sql("SELECT @@GLOBAL.gtid_binlog_pos");
    start(&mut archive, &snapshot);
    for value in [13, 14] {
        insert(&archive.server, value);
    }
    archive.server.sql("FLUSH BINARY LOGS");
    insert(&archive.server, 15);
    let said = catch_up_branch(&archive);
    assert!(said.contains("BRANCHES at bin.000001:4"), "{said}");
    // The backup is of the part that both have: its log shows that.
    let (target, ran) = until(&archive, "b", "latest");
    let _ = ran.expect(0);
    assert_eq!(rows(&target), "1,2,13,14,15\n");
    // What was left has its moments.
    let (target, ran) = until(&archive, "b", before.trim());
    let _ = ran.expect(0);
    assert_eq!(rows(&target), "1,2,3,4,5,6\n");
}

/// Both receivers store under one name, and nothing tells the servers apart but what they write. A log that one of them cannot send
/// for the moment is not taken for another one: the branch would begin before it, and wait for it.
#[test]
fn the_log_of_a_copied_server_is_not_replayed_onto_the_backup_of_the_other() {
    let mut archive = Archive::new(Store::folder());
    insert(&archive.server, 1);
    for _ in 0..4 {
        archive.server.sql("FLUSH BINARY LOGS");
    }
    let _ = archive.catch_up();
    let (live, copy) = (place(&archive, "live"), place(&archive, "copy"));
    move_to(&mut archive, &[&live, &copy]);
    // Of the same length in both.
    insert(&archive.server, 10);
    let _ = archive.catch_up();
    let _ = archive.back_up("b");
    start(&mut archive, &copy);
    for value in [20, 21] {
        insert(&archive.server, value);
    }
    std::fs::remove_file(archive.server.datadir().join("bin.000004")).unwrap();
    let said = catch_up_branch(&archive);
    assert!(said.contains("BRANCHES at bin.000005:4"), "{said}");
    let (_, ran) = until(&archive, "b", "latest");
    let said = ran.expect_failure().stderr_text();
    assert!(said.contains("is not that of b") || said.contains("history"), "{said}");
    assert!(!said.contains("not a boundary"), "{said}");
}

/// A copy of a server that was started beside it, and backed up under its name. Its log has a position that the archived one has,
/// too, with the same GTID.
#[test]
fn a_backup_of_a_copied_server_stands_in_for_no_older_one() {
    let mut archive = Archive::new(Store::folder());
    insert(&archive.server, 1);
    let _ = archive.catch_up();
    let _ = archive.back_up("older");
    let (live, copy) = (place(&archive, "live"), place(&archive, "copy"));
    move_to(&mut archive, &[&copy, &live]);
    insert(&archive.server, 20);
    let _ = archive.back_up("of-copy");
    start(&mut archive, &live);
    insert(&archive.server, 10);
    insert(&archive.server, 11);
    let _ = archive.catch_up();
    let said = archive.verify().expect(7).stdout_text();
    assert!(said.contains("backup of-copy: the log bin.000002 in stream"), "{said}");
    assert!(!said.contains("backup older:"), "{said}");
    // The archive is sealed, and who prunes has no key.
    let root = archive.store.root_url();
    let prune = ["prune", &root, "--keep-last=10", "--keep-binlog-within=0h", "--yes"];
    let said = archive.cmd(&prune).run().expect(0).stderr_text();
    assert!(said.contains("the log of an older backup is kept, too"), "{said}");
    assert!(said.contains("whether the log of of-copy is the archived one"), "{said}");
}

/// The same, told at once where the archive can be read: by the key that seals the backup.
#[test]
fn a_backup_of_a_copied_server_is_noticed_when_it_is_taken() {
    let mut archive = Archive::new(Store::folder());
    insert(&archive.server, 1);
    let _ = archive.catch_up();
    let (live, copy) = (place(&archive, "live"), place(&archive, "copy"));
    move_to(&mut archive, &[&live, &copy]);
    // Of the same length in both.
    insert(&archive.server, 10);
    let _ = archive.catch_up();
    let back_up = |archive: &Archive, name: &str, key: Option<String>| {
        archive
            .cmd(&["backup", SERVER, &archive.store.url(name)])
            .args(key)
            .arg("--")
            .args(archive.server.backup_command())
            .run()
            .expect(0)
            .stderr_text()
    };
    let key = Some(format!("--encrypt-key-file={}", archive.path("key")));
    let said = back_up(&archive, "own", key.clone());
    assert!(!said.contains("cannot be replayed"), "{said}");
    start(&mut archive, &copy);
    insert(&archive.server, 20);
    let said = back_up(&archive, "of-copy", key);
    assert!(
        said.contains("cannot be replayed onto of-copy: the log bin.000002 in stream"),
        "{said}"
    );
    assert!(said.contains("is not that of the backup: it has other bytes"), "{said}");
    // Its key is elsewhere.
    let said = back_up(&archive, "sealed", None);
    assert!(!said.contains("cannot be replayed"), "{said}");
}

/// One was restored to a moment of the other one, and each is received again after the other: the log of each is stored again from
/// its beginning, so that the newest history has it.
#[test]
fn a_receiver_that_moves_between_two_servers_and_back_has_the_moments_of_both() {
    const LOGGED: &str = "--log-slave-updates";
    let mut archive = Archive::with_options(Store::folder(), &[LOGGED]);
    let last =
        |archive: &Archive| archive.server.sql("SELECT @@GLOBAL.gtid_binlog_pos").trim().to_owned();
    insert(&archive.server, 1);
    let _ = archive.catch_up();
    let _ = archive.back_up("one");
    insert(&archive.server, 2);
    let moment = last(&archive);
    insert(&archive.server, 3);
    let _ = archive.catch_up();
    let (target, ran) = until(&archive, "one", &moment);
    let _ = ran.expect(0);
    let options = ["--log-bin=bin", "--server-id=4", "--sync-binlog=0", LOGGED];
    let mut other = MariaDb::start_on_with(&target, &options);
    let mut move_on = |archive: &mut Archive| {
        std::mem::swap(&mut archive.server, &mut other);
        archive.write_login();
    };
    move_on(&mut archive);
    insert(&archive.server, 100);
    insert(&archive.server, 101);
    let _ = catch_up_branch(&archive);
    let _ = archive.back_up("two");
    // The positions of both servers are compared below: each stretch reaches further than those before.
    archive.server.sql("FLUSH BINARY LOGS");
    insert(&archive.server, 102);
    let _ = archive.catch_up();
    move_on(&mut archive);
    insert(&archive.server, 4);
    insert(&archive.server, 5);
    let _ = catch_up_branch(&archive);
    archive.server.sql("FLUSH BINARY LOGS; FLUSH BINARY LOGS");
    insert(&archive.server, 6);
    let _ = archive.catch_up();
    let of_first = last(&archive);
    let stops_at = |archive: &Archive, stop: &str, gtid: &str| {
        let ran = archive
            .cmd(&["restore", &archive.store.url(""), SERVER, "--dry-run", "--accept-unsealed"])
            .args([
                format!("--until={stop}"),
                format!("--encrypt-key-file={}", archive.path("key")),
            ])
            .run();
        let shown = ran.expect(0).stdout_text();
        assert!(shown.contains(&format!("last transaction: {gtid} ")), "{stop}: {shown}");
    };
    stops_at(&archive, "latest", &of_first);
    let (target, ran) = until(&archive, "", "latest");
    let _ = ran.expect(0);
    assert_eq!(rows(&target), "1,2,3,4,5,6\n");

    move_on(&mut archive);
    archive.server.sql("FLUSH BINARY LOGS; FLUSH BINARY LOGS");
    insert(&archive.server, 103);
    let _ = catch_up_branch(&archive);
    let of_second = last(&archive);
    for stop in ["latest", &of_second] {
        stops_at(&archive, stop, &of_second);
    }
    stops_at(&archive, &of_first, &of_first);
    let (target, ran) = until(&archive, "", "latest");
    let _ = ran.expect(0);
    assert_eq!(rows(&target), "1,2,100,101,102,103\n");
    let (_, end) = archive.log_end();
    let root = archive.store.root_url();
    let list = archive.cmd(&["binlog", "list", &root, "--json"]).run().expect(0);
    let listed: Value = serde_json::from_slice(&list.stdout).unwrap();
    let verified: Value = serde_json::from_slice(&archive.verify().stdout).unwrap();
    let window = |report: &Value, name: &str| {
        let backups = report["servers"][0]["backups"].as_array().unwrap();
        backups.iter().find(|of| of["backup"] == name).unwrap().clone()
    };
    // By their times they are of what was left, up to its end; only bytes show more.
    for name in ["one", "two"] {
        let window = window(&listed, name);
        let problem = window["problem"].as_str().unwrap();
        assert!(window["to"].is_string(), "{window}");
        assert!(
            name == "one" || problem.contains("it can be restored to the end, bin."),
            "{problem}"
        );
    }
    let shown = window(&verified, "two");
    let problem = shown["problem"].as_str().unwrap();
    let (_, to) = problem.split_once("so it can be restored to the end, ").unwrap();
    assert_eq!(position(to).map(|(_, at)| at), Some(end), "{shown}");
}

/// What the server sends would pass for the segments that are missing: its logs and GTIDs have the names of those.
#[test]
fn what_is_missing_is_not_received_again_from_another_history() {
    let mut archive = Archive::new(Store::folder());
    insert(&archive.server, 1);
    let _ = archive.catch_up();
    let _ = archive.back_up("b");
    let (live, snapshot) = (place(&archive, "live"), place(&archive, "snapshot"));
    move_to(&mut archive, &[&live, &snapshot]);
    let mut receiver = archive.receive(&[]);
    archive.wait(&mut receiver);
    let of_both = of_newest(&archive).len();
    for value in 2..6 {
        insert(&archive.server, value);
        archive.server.sql("FLUSH BINARY LOGS");
        archive.wait(&mut receiver);
    }
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    // The first one of what the snapshot lacks.
    std::fs::remove_file(&of_newest(&archive)[of_both]).unwrap();
    start(&mut archive, &snapshot);
    for value in 12..20 {
        insert(&archive.server, value);
        archive.server.sql("FLUSH BINARY LOGS");
    }
    let said = archive.catch_up().stderr_text();
    assert!(said.contains(" is missing, although segment "), "{said}");
    assert!(said.contains("BRANCHES at bin."), "{said}");
    let verified = archive.verify().expect(7).stdout_text();
    assert!(!verified.contains(" has received again what is missing"), "{verified}");
    let (target, ran) = until(&archive, "b", "latest");
    let _ = ran.expect(0);
    assert_eq!(rows(&target), "1,12,13,14,15,16,17,18,19\n");
}
