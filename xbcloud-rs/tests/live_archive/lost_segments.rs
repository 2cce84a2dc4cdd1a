//! Segments that a receiver has stored, and that the store has no longer: a snapshot was put back, or someone removed them.

use xb_testkit::command::Ran;
use xb_testkit::store::Store;

use crate::support::archive::{Archive, SERVER};

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
    receiver.signal(xb_testkit::command::Signal::TERM);
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
