//! Segments that a receiver has stored, and that the store has no longer: a snapshot was put back, or someone removed them.

use std::path::PathBuf;

use xb_testkit::command::{Ran, Signal};
use xb_testkit::store::Store;

use crate::support::archive::{Archive, SERVER, json};

fn monitor(archive: &Archive) -> Ran {
    archive.cmd(&["monitor", &archive.store.root_url(), SERVER]).run()
}

/// An archive of six segments and more, and a backup at its beginning.
fn archive() -> Archive {
    let archive = Archive::new(Store::folder());
    let mut receiver = archive.receive(&[]);
    archive.wait(&mut receiver);
    let _ = archive.back_up("one");
    for _ in 0..6 {
        archive.next_log(1);
        archive.wait(&mut receiver);
    }
    receiver.signal(Signal::TERM);
    let _ = receiver.wait().expect(0);
    archive
}

#[test]
fn segments_that_are_missing_at_the_end_are_critical() {
    let archive = archive();
    let fine = monitor(&archive).expect(0).stdout_text();
    assert!(!fine.contains("missing"), "{fine}");
    let segments = archive.segments();
    // In front of later ones, or the last ones.
    let (hole, end) = (segments.len() - 3, segments.len() - 1);
    for number in [hole, end] {
        std::fs::remove_file(&segments[number]).unwrap();
        let shown = monitor(&archive).expect(2).stdout_text();
        let what = match number == hole {
            true => format!("segment {hole} of stream "),
            false => "2 segments of stream ".to_owned(),
        };
        assert!(shown.contains(&what) && shown.contains("restart its receiver"), "{shown}");
        assert!(!shown.contains("cannot be replayed"), "{shown}");
    }
}

/// The segments of the newest stream.
pub(crate) fn of_newest(archive: &Archive) -> Vec<PathBuf> {
    let list = ["binlog", "list", &archive.store.root_url(), "--json"];
    let report = json(&archive.cmd(&list).run().expect(0));
    let streams = report["servers"][0]["streams"].as_array().unwrap();
    let newest = streams.last().unwrap()["stream"].as_str().unwrap();
    let mut segments = archive.segments();
    segments.retain(|path| path.parent().unwrap().ends_with(newest));
    segments
}

#[test]
fn segments_that_are_missing_are_received_again() {
    let archive = archive();
    let state = ["state".to_owned(), "none".to_owned()];
    for (round, state) in state.iter().enumerate() {
        let segments = of_newest(&archive);
        std::fs::remove_file(&segments[segments.len() - 3]).unwrap();
        let _ = archive.verify().expect(7);
        let state = format!("--state-dir={}", archive.path(state));
        let mut receiver = archive
            .cmd(&["binlog", "receive", &archive.store.root_url(), SERVER, "--rpo=1s", &state])
            .args([
                format!("--login-file={}", archive.path("login")),
                format!("--encrypt-key-file={}", archive.path("key")),
            ])
            .spawn();
        receiver.until_handled(Signal::TERM);
        archive.write(1);
        archive.wait(&mut receiver);
        receiver.signal(Signal::TERM);
        let said = receiver.wait().expect(0).stderr_text();
        assert!(said.contains(" is missing, although segment "), "{round}: {said}");
        let verified = archive.verify().expect(0).stdout_text();
        assert!(verified.contains(" has received again what is missing"), "{round}: {verified}");
        let fine = monitor(&archive).expect(0).stdout_text();
        assert!(!fine.contains("missing"), "{fine}");
        let restored = archive
            .cmd(&["restore", &archive.store.url("one"), "--dry-run", "--accept-unsealed"])
            .args([
                "--until=latest".to_owned(),
                format!("--encrypt-key-file={}", archive.path("key")),
            ])
            .run()
            .expect(0)
            .stdout_text();
        let last = archive.server.sql("SELECT @@gtid_binlog_pos");
        let shown = format!("last transaction: {}", last.trim());
        assert!(restored.contains(&shown), "{restored}");
        // The next one has a stream of several segments to lose one of.
        let mut receiver = archive.receive(&[]);
        for _ in 0..4 {
            archive.next_log(1);
            archive.wait(&mut receiver);
        }
        receiver.signal(Signal::TERM);
        let _ = receiver.wait().expect(0);
    }
}

/// The ROOT's folder, and a place to which it goes.
fn root_and_away(archive: &Archive) -> [PathBuf; 2] {
    let root = PathBuf::from(archive.store.root_url().strip_prefix("file://").unwrap());
    let away = root.with_extension("away");
    [root, away]
}

/// As where a disk is not mounted: ROOT is an empty folder then.
#[test]
fn an_archive_of_which_nothing_is_left_does_not_begin_anew() {
    let archive = Archive::new(Store::folder());
    archive.write(1);
    let _ = archive.catch_up();
    let [root, away] = root_and_away(&archive);
    let state = format!("--state-dir={}", archive.path("state"));
    let log = archive.server.datadir().join("bin.000001").display().to_string();
    let push = |more: &[&str]| {
        let words = ["binlog", "push", &archive.store.root_url(), &log, SERVER, &state];
        let key = format!("--encrypt-key-file={}", archive.path("key"));
        archive.cmd(&words).args(more).arg(key).run()
    };
    let accept =
        || archive.cmd(&["accept", &archive.store.root_url(), "--begun-anew", &state]).run();
    let is_gone = |ran: Ran| {
        let said = ran.expect(1).stderr_text();
        assert!(
            said.contains("the archive of shop is gone: this host has stored it up to bin."),
            "{said}"
        );
        assert!(said.contains("is its disk mounted?") && said.contains("--begun-anew"), "{said}");
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0, "{said}");
    };
    std::fs::rename(&root, &away).unwrap();
    std::fs::create_dir(&root).unwrap();
    is_gone(archive.receive(&[]).wait());
    is_gone(push(&[]));
    // A backup is taken all the same.
    let said = archive
        .cmd(&["backup", SERVER, &archive.store.url("one"), &state, "--"])
        .args(archive.server.backup_command())
        .run()
        .expect(0)
        .stderr_text();
    assert!(said.contains("the archive is gone, which this host has stored here up to"), "{said}");
    // The disk is back.
    std::fs::remove_dir_all(&root).unwrap();
    std::fs::rename(&away, &root).unwrap();
    archive.write(1);
    let _ = archive.catch_up();
    let _ = archive.verify().expect(0);
    // It is gone for good.
    std::fs::remove_dir_all(&root).unwrap();
    std::fs::create_dir(&root).unwrap();
    is_gone(archive.receive(&[]).wait());
    let said = accept().expect(0).stderr_text();
    assert!(said.contains("a receiver may begin a new archive"), "{said}");
    let _ = accept().expect(1);
    let _ = archive.catch_up();
    let _ = archive.verify().expect(0);
    // So says the word of `push`, too.
    std::fs::remove_dir_all(&root).unwrap();
    std::fs::create_dir(&root).unwrap();
    let _ = push(&["--new-archive"]).expect(0);
    let _ = archive.verify().expect(0);
}

#[test]
fn log_files_fill_a_hole_that_they_have() {
    let archive = archive();
    let segments = archive.segments();
    std::fs::remove_file(&segments[segments.len() - 3]).unwrap();
    let _ = archive.verify().expect(7);
    archive.next_log(1);
    let logs = archive.server.sql("SHOW BINARY LOGS");
    let logs: Vec<String> = logs
        .lines()
        .map(|line| archive.server.datadir().join(line.split('\t').next().unwrap()))
        .map(|path| path.display().to_string())
        .collect();
    let push = |logs: &[String]| {
        archive
            .cmd(&["binlog", "push", &archive.store.root_url(), SERVER])
            .args(logs)
            .arg(format!("--encrypt-key-file={}", archive.path("key")))
            .arg(format!("--state-dir={}", archive.path("state")))
            .run()
            .expect(0)
            .stderr_text()
    };
    // The log in which the archive ends, and the next one.
    let said = push(&logs[logs.len() - 2..]);
    assert!(said.contains("the archive of shop has a hole: segment "), "{said}");
    assert!(said.contains(": give all files from bin."), "{said}");
    let _ = archive.verify().expect(7);
    archive.write(1);
    let said = push(&logs);
    assert!(said.contains(" on is archived again"), "{said}");
    let verified = archive.verify().expect(0).stdout_text();
    assert!(verified.contains(" has received again what is missing"), "{verified}");
    let restored = archive
        .cmd(&["restore", &archive.store.url("one"), "--dry-run", "--accept-unsealed"])
        .args(["--until=latest".to_owned(), format!("--encrypt-key-file={}", archive.path("key"))])
        .run()
        .expect(0)
        .stdout_text();
    let last = archive.server.sql("SELECT @@gtid_binlog_pos");
    assert!(restored.contains(&format!("last transaction: {}", last.trim())), "{restored}");
}
