//! Segments that a receiver has stored, and that the store has no longer: a snapshot was put back, or someone removed them.

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
fn of_newest(archive: &Archive) -> Vec<std::path::PathBuf> {
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
