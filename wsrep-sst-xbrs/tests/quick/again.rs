//! A backup program that fails in the middle is run once more, within the same transfer.

use std::path::Path;

use crate::harness::{STATE, Scene, Started, tree};
use rustix::process::Signal;

const STUMBLED: &str = "the server stumbled";

/// A scene in which the first run of the backup program writes this stream and fails, and the second writes a
/// whole backup.
fn fails_once(first: impl Fn(&Scene)) -> Scene {
    let scene = Scene::new();
    let stream = scene.bin().join("stream");
    std::fs::rename(&stream, scene.bin().join("next-stream")).unwrap();
    first(&scene);
    scene.backup("once");
    scene
}

/// A stream that ends in the middle of its second file, too long to wait for a full block.
fn half(scene: &Scene) {
    scene.large_stream();
    let large = std::fs::read(scene.bin().join("stream")).unwrap();
    let mut out = xb_testkit::stream::StreamWriter::new(Vec::new());
    // A table that is dropped before the second run.
    out.payload("shop/dropped.ibd", 0, &[5; 200_000]).end("shop/dropped.ibd");
    std::fs::write(scene.bin().join("stream"), [out.finish(), large].concat()).unwrap();
}

/// A stream that ends, with a table that the second run lacks.
fn whole(scene: &Scene) {
    half(scene);
    let large = std::fs::read(scene.bin().join("stream")).unwrap();
    let mut out = xb_testkit::stream::StreamWriter::new(Vec::new());
    for name in ["ibdata1", "xtrabackup_info"] {
        out.end(name);
    }
    std::fs::write(scene.bin().join("stream"), [large, out.finish()].concat()).unwrap();
}

/// Makes the second run write a file before its backup that fills several blocks.
fn large_second(scene: &Scene) {
    let noise = std::fs::read(scene.bin().join("stream")).unwrap();
    let mut out = xb_testkit::stream::StreamWriter::new(Vec::new());
    for (number, piece) in noise.chunks(1 << 20).enumerate() {
        out.payload("shop/large.ibd", (number as u64) << 20, piece);
    }
    out.end("shop/large.ibd");
    let next = scene.bin().join("next-stream");
    let backup = std::fs::read(&next).unwrap();
    std::fs::write(next, [out.finish(), backup].concat()).unwrap();
}

/// Starts both sides of a transfer.
fn start(scene: &Scene, words: &[&str]) -> (Started, Started) {
    let mut joiner = scene.joiner_with(&[], words).start();
    let ready = joiner.ready();
    (joiner, scene.donor(&ready).start())
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_second_backup_takes_the_place_of_the_first() {
    for first in [half, whole] {
        let scene = fails_once(first);
        let home = scene.scratch.dir("home");
        std::fs::write(home.join("ibdata1"), "old").unwrap();
        let home_dir = format!("--innodb-data-home-dir={}", home.display());
        let (joiner, donor) = start(&scene, &[&home_dir]);
        let (donor, joiner) = (donor.wait(), joiner.wait());
        assert_eq!(joiner.lines, [format!("{STATE} 7")], "{}", joiner.log);
        assert_eq!(donor.lines, [format!("done {STATE}")], "{}", donor.log);
        assert!(donor.log.contains(STUMBLED) && donor.log.contains("once more"), "{}", donor.log);
        assert!(joiner.log.contains("discarding what was received"), "{}", joiner.log);
        let data = scene.data("joiner");
        assert_eq!(std::fs::read(home.join("ibdata1")).unwrap(), [7; 70_000]);
        assert_eq!(read(home.join("#sql-xb/.old/ibdata1")), "old");
        assert_eq!(std::fs::read(data.join("shop/orders.ibd")).unwrap(), [9; 300_000]);
        assert!(!data.join("shop/dropped.ibd").exists());
        // The messages of both runs are there.
        let logs = ["first.log", "log"];
        let [first, second] =
            logs.map(|end| scene.data("donor").join(format!("xbrs.backup.{end}")));
        assert!(read(first).contains(STUMBLED) && !read(second).contains(STUMBLED));
    }
}

#[test]
fn two_failures_end_the_join_and_the_first_is_named_first() {
    // The second run fails, or cannot begin.
    for (how, why) in [("fail", "the server went away"), ("next-none", "cannot start")] {
        let scene = fails_once(half);
        scene.backup(how);
        let (joiner, donor) = scene.transfer();
        for side in [&joiner, &donor] {
            assert!(!side.status.success() && side.lines.is_empty(), "{side:?}");
            let cause = side.log.lines().rfind(|line| line.contains(STUMBLED)).unwrap();
            let (_, second) = cause.split_once(STUMBLED).unwrap();
            let again = "run once more, it failed again";
            assert!(second.contains(again) && second.contains(why), "{cause}");
        }
        scene.assert_untouched();
    }
}

#[test]
fn a_program_that_has_sent_nothing_is_not_run_again() {
    let scene = fails_once(|scene| std::fs::write(scene.bin().join("stream"), "").unwrap());
    let (joiner, donor) = scene.transfer();
    assert!(!donor.status.success() && donor.log.contains(STUMBLED), "{}", donor.log);
    assert!(!donor.log.contains("once more"), "{}", donor.log);
    assert!(joiner.log.contains(STUMBLED), "{}", joiner.log);
    scene.assert_untouched();
}

#[test]
fn a_side_that_is_killed_while_the_stream_begins_again_loses_nothing() {
    let new = |scene: &Scene| scene.data("joiner").join("#sql-xb/.new");
    let has_dropped = |scene: &Scene| new(scene).join("shop/dropped.ibd").exists();
    let is_back = |scene: &Scene| scene.bin().join("hangs").exists();
    for (who, when) in [
        ("joiner", "it has said so"),
        ("joiner", "the first files are gone"),
        ("joiner", "the second backup runs"),
        ("donor", "it has said so"),
        ("donor", "the second backup runs"),
    ] {
        let scene = fails_once(half);
        large_second(&scene);
        scene.backup("next-hang");
        let (mut joiner, mut donor) = start(&scene, &[]);
        let (side, said) = match who {
            "joiner" => (&mut joiner, "discarding what was received"),
            _ => (&mut donor, "running it once more"),
        };
        side.wait_for(when, || side.log().contains(said));
        match when {
            "it has said so" => {}
            "the first files are gone" => side.wait_for(when, || !has_dropped(&scene)),
            _ => side.wait_for(when, || is_back(&scene)),
        }
        side.child.kill().unwrap();
        if who == "donor" {
            // The joiner's server would end now.
            joiner.signal(Signal::TERM);
            assert!(!joiner.wait().status.success());
            scene.assert_untouched();
        } else {
            drop((joiner, donor));
            let mut kept = tree(&scene.data("joiner"));
            kept.retain(|(name, _)| !name.starts_with("#sql-xb") && name != "sst_in_progress");
            let old: Vec<_> = kept.iter().map(|(_, text)| text.as_slice()).collect();
            assert_eq!(old, [&b"kept"[..], b"old", b"old"], "{when}");
        }
        let _ = std::fs::remove_file(scene.bin().join("hang"));
        let (joiner, donor) = start(&scene, &[]);
        let (donor, joiner) = (donor.wait(), joiner.wait());
        assert!(donor.status.success() && joiner.status.success(), "{}{}", donor.log, joiner.log);
        let data = scene.data("joiner");
        assert_eq!(std::fs::read(data.join("ibdata1")).unwrap(), [7; 70_000]);
        assert!(!data.join("shop/dropped.ibd").exists() && !new(&scene).exists());
    }
}
