//! A transfer that leaves out what the joiner's old data has: both programs, and a backup program that writes a prepared
//! stream.

use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::harness::{Ended, STATE, Scene, Started};
use rustix::fs::FlockOperation;
use rustix::process::Signal;
use xb_testkit::stream::StreamWriter;

const LARGE: &str = "shop/large.ibd";
const MIB: usize = 1 << 20;
const SIZE: usize = 24 * MIB;

/// Bytes without repetition, which no codec shrinks.
fn noise(len: usize) -> Vec<u8> {
    xb_testkit::data::noise(7, len)
}

/// A scene whose backup has a large table, which the joiner has, too, as `change` leaves it.
fn scene(sst: &str, change: impl Fn(&std::fs::File)) -> Scene {
    let scene = Scene::new();
    scene.options(sst);
    put_first(&scene, "stream");
    let old = old_file(&scene);
    std::fs::create_dir_all(old.parent().unwrap()).unwrap();
    std::fs::write(&old, noise(SIZE)).unwrap();
    change(&std::fs::File::options().write(true).open(&old).unwrap());
    scene
}

/// Puts the large table before what the backup program writes.
fn put_first(scene: &Scene, stream: &str) {
    let mut out = StreamWriter::new(Vec::new());
    for (number, piece) in noise(SIZE).chunks(3 * MIB).enumerate() {
        out.payload(LARGE, (number * 3 * MIB) as u64, piece);
    }
    out.end(LARGE);
    let stream = scene.bin().join(stream);
    let rest = std::fs::read(&stream).unwrap();
    std::fs::write(stream, [out.finish(), rest].concat()).unwrap();
}

fn old_file(scene: &Scene) -> PathBuf {
    scene.data("joiner").join(LARGE)
}

/// Asserts that both sides succeeded and the joiner has the backup.
#[track_caller]
fn assert_joined(scene: &Scene, joiner: &Ended, donor: &Ended) {
    assert_eq!(joiner.lines, [format!("{STATE} 7")], "{}\n{}", joiner.log, donor.log);
    assert_eq!(donor.lines, [format!("done {STATE}")], "{}", donor.log);
    let data = scene.data("joiner");
    assert!(std::fs::read(data.join(LARGE)).unwrap() == noise(SIZE), "other bytes");
    assert_eq!(std::fs::read(data.join("shop/orders.ibd")).unwrap(), [9; 300_000]);
    assert_eq!(std::fs::read(data.join("ibdata1")).unwrap(), [7; 70_000]);
}

/// A number in a log, after `before`.
fn number(log: &str, before: &str) -> Option<u64> {
    let (_, rest) = log.split_once(before)?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

const HAS: &str = "of which the joiner has ";
const ASKED: &str = "SST: delta: asked about ";

/// MiB on the wire, by the donor's last line about it.
fn on_the_wire(log: &str) -> u64 {
    let line = log.lines().find(|line| line.contains("sent ") && line.contains(" files")).unwrap();
    number(line, " MiB, ").unwrap()
}

fn start(scene: &Scene) -> (Started, Started) {
    let mut joiner = scene.joiner().start();
    let ready = joiner.ready();
    (joiner, scene.donor(&ready).start())
}

#[test]
fn blocks_equal_in_the_old_data_are_not_sent() {
    // With and without a codec, whose bytes take other ways through the donor.
    for compress in ["none", "zstd:1", "auto"] {
        let scene = scene(&format!("delta=yes\ncompress={compress}"), |_| {});
        let (joiner, donor) = scene.transfer();
        assert_joined(&scene, &joiner, &donor);
        assert_eq!(number(&donor.log, HAS), Some(24), "{}", donor.log);
        assert_eq!(on_the_wire(&donor.log), 0, "{}", donor.log);
        assert!(joiner.log.contains("delta: 24 MiB of the data are copies"), "{}", joiner.log);
        // The old data is as it was.
        let old = scene.data("joiner").join("#sql-xb/.old").join(LARGE);
        assert!(std::fs::read(old).unwrap() == noise(SIZE));
    }
}

#[test]
fn changed_and_missing_old_data_is_sent() {
    let flip = |file: &std::fs::File| {
        // One byte in every other MiB, and the end is missing.
        for number in 0..SIZE / MIB / 2 {
            file.write_all_at(b"!!", (2 * number * MIB + 77) as u64).unwrap();
        }
        file.set_len((SIZE - 4 * MIB) as u64).unwrap();
    };
    let scene = scene("delta=yes\ncompress=none", flip);
    let (joiner, donor) = scene.transfer();
    assert_joined(&scene, &joiner, &donor);
    // Ten blocks of 16 KiB, and 4 MiB.
    assert_eq!(number(&donor.log, HAS), Some(19), "{}", donor.log);
    assert!((4..=5).contains(&on_the_wire(&donor.log)), "{}", donor.log);
}

#[test]
fn old_data_that_is_no_file_is_sent() {
    let scene = scene("delta=yes\ncompress=none", |_| {});
    let (old, away) = (old_file(&scene), scene.scratch.join("away"));
    std::fs::rename(&old, &away).unwrap();
    std::os::unix::fs::symlink(&away, &old).unwrap();
    std::fs::remove_file(scene.data("joiner").join("ibdata1")).unwrap();
    std::fs::create_dir(scene.data("joiner").join("ibdata1")).unwrap();
    let (joiner, donor) = scene.transfer();
    assert_joined(&scene, &joiner, &donor);
    assert_eq!(number(&donor.log, HAS), Some(0), "{}", donor.log);
    assert!(std::fs::read(away).unwrap() == noise(SIZE));
}

#[test]
fn neither_side_has_to_take_part() {
    for (of_joiner, of_donor) in [("no", "yes"), ("yes", "no")] {
        let scene = scene(&format!("delta={of_joiner}"), |_| {});
        let mut joiner = scene.joiner().start();
        let ready = joiner.ready();
        scene.options(&format!("delta={of_donor}"));
        let donor = scene.donor(&ready).start().wait();
        let joiner = joiner.wait();
        assert_joined(&scene, &joiner, &donor);
        for log in [&joiner.log, &donor.log] {
            assert!(!log.contains("delta: "), "{log}");
        }
        assert!(on_the_wire(&donor.log) >= 24, "{}", donor.log);
    }
}

#[test]
fn auto_asks_from_the_beginning() {
    for link in ["rlimit=4M\nconnections=1", ""] {
        let scene = scene(&format!("compress=none\n{link}"), |_| {});
        let (joiner, donor) = scene.transfer();
        assert_joined(&scene, &joiner, &donor);
        assert_eq!(number(&donor.log, HAS), Some(24), "{}", donor.log);
        assert_eq!(on_the_wire(&donor.log), 0, "{}", donor.log);
        assert!(number(&donor.log, ASKED).is_some_and(|asked| asked >= 24), "{}", donor.log);
    }
}

#[test]
fn a_backup_that_is_run_once_more_is_sent_whole() {
    // The first run fails before anything has left, or after a part of its redo log has.
    for redo in [0, 3 * MIB] {
        let scene = scene("delta=yes\ncompress=none", |_| {});
        let stream = scene.bin().join("stream");
        std::fs::copy(&stream, scene.bin().join("next-stream")).unwrap();
        let whole = std::fs::read(&stream).unwrap();
        let mut out = StreamWriter::new(Vec::new());
        if redo > 0 {
            out.payload("ib_logfile0", 0, &noise(redo));
        }
        std::fs::write(&stream, [&out.finish(), &whole[..10 * MIB]].concat()).unwrap();
        scene.backup("once");
        let (joiner, donor) = scene.transfer();
        assert_joined(&scene, &joiner, &donor);
        assert!(donor.log.contains("running it once more"), "{}", donor.log);
        let discards = joiner.log.contains("discarding what was received");
        assert_eq!(discards, redo > 0, "{}", joiner.log);
        assert!(on_the_wire(&donor.log) >= 24, "{}", donor.log);
    }
}

/// A stream that lacks blocks is refused by a joiner that has promised none, and not extracted with holes.
#[test]
fn blocks_that_were_not_promised_are_not_left_out() {
    let cut = |out: &mut StreamWriter<Vec<u8>>| {
        out.flags(1).sparse("shop/holes.ibd", 0, &[(16384, 4)], b"page").flags(0);
        out.end("shop/holes.ibd");
    };
    for has_failed_before in [false, true] {
        let scene = scene("delta=no\ncompress=none", |_| {});
        let stream = scene.bin().join("stream");
        let whole = std::fs::read(&stream).unwrap();
        let mut out = StreamWriter::new(Vec::new());
        cut(&mut out);
        let faulty = [out.finish(), whole.clone()].concat();
        if has_failed_before {
            std::fs::write(&stream, &whole[..10 * MIB]).unwrap();
            std::fs::write(scene.bin().join("next-stream"), faulty).unwrap();
            scene.backup("once");
        } else {
            std::fs::write(&stream, faulty).unwrap();
        }
        let mut joiner = scene.joiner().start();
        let ready = joiner.ready();
        let donor = scene.donor(&ready).start().wait();
        let joiner = joiner.wait();
        assert!(joiner.lines.is_empty() && donor.lines.is_empty(), "{}", joiner.log);
        for log in [&joiner.log, &donor.log] {
            assert!(log.contains("the donor has left out blocks at 0"), "{log}");
        }
        assert!(std::fs::read(old_file(&scene)).unwrap() == noise(SIZE));
        assert_eq!(std::fs::read(scene.data("joiner").join("ibdata1")).unwrap(), b"old");
    }
}

/// A server that runs on a part of the data has locked it, wherever it is.
#[test]
fn data_that_a_server_uses_is_left_alone() {
    for (option, file) in [
        ("", "ibdata1"),
        ("", "aria_log_control"),
        ("innodb_data_home_dir", "ibdata1"),
        ("innodb_undo_directory", "undo001"),
        ("innodb_log_group_home_dir", "ib_logfile0"),
        ("aria_log_dir_path", "aria_log_control"),
    ] {
        let scene = scene("", |_| {});
        let dir = match option {
            "" => scene.data("joiner"),
            _ => scene.scratch.dir("elsewhere"),
        };
        let set = if option.is_empty() { "" } else { &format!("{option}={}", dir.display()) };
        scene.options(&format!("delta=yes\ncompress=none\n[mysqld]\n{set}"));
        let path = dir.join(file);
        std::fs::write(&path, "old").unwrap();
        let server = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        rustix::fs::fcntl_lock(&server, FlockOperation::NonBlockingLockExclusive).unwrap();
        // The journal of an earlier swap that cannot be read hides no server.
        let old = scene.data("joiner").join("#sql-xb/.old");
        std::fs::create_dir_all(&old).unwrap();
        std::fs::write(old.join(".journal"), "damaged").unwrap();
        let joiner = scene.joiner().start().wait();
        assert!(!joiner.status.success() && joiner.lines.is_empty(), "{}", joiner.log);
        let refused = format!("a server has {} in use", path.display());
        assert!(joiner.log.contains(&refused), "{option} {file}: {}", joiner.log);
        assert!(std::fs::read(old_file(&scene)).unwrap() == noise(SIZE));
        drop(server);
        std::fs::remove_dir_all(&old).unwrap();
        let (joiner, _donor) = scene.transfer();
        assert!(joiner.status.success(), "{option} {file}: {}", joiner.log);
    }
}

#[test]
fn a_joiner_that_never_answers_gets_everything() {
    // The donor waits for half of this time.
    let scene = scene("delta=yes\ncompress=none\nsst-idle-timeout=6", |_| {});
    let joiner = xb_wire::Joiner::default();
    let listener = xb_wire::Listener::bind(&"127.0.0.1:0".parse().unwrap(), joiner).unwrap();
    let ready = listener.announcement().text().to_string();
    let donor = scene.donor(&ready).start();
    let offered = listener.accept(Duration::from_secs(60)).unwrap();
    let mut incoming = offered.accept(br#"{"delta":"yes"}"#).unwrap();
    let mut received = 0;
    while let Some(block) = incoming.next_block().unwrap() {
        received += block.len();
    }
    incoming.confirm().unwrap();
    let donor = donor.wait();
    assert_eq!(donor.lines, [format!("done {STATE}")], "{}", donor.log);
    assert!(received >= SIZE, "{received}");
    assert!(donor.log.contains("no longer answers"), "{}", donor.log);
}

/// The reports of both sides say what the delta was good for.
#[test]
fn reports_have_the_bytes_of_the_delta() {
    let scene = scene("", |file| {
        file.write_all_at(b"!!", 5 * MIB as u64).unwrap();
    });
    let dir = scene.scratch.path().display().to_string();
    scene.options(&format!("delta=yes\ncompress=none\nreport-dir={dir}"));
    let (joiner, donor) = scene.transfer();
    assert_joined(&scene, &joiner, &donor);
    for role in ["donor", "joiner"] {
        let text = std::fs::read(scene.scratch.join(format!("xbrs-{role}.json"))).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let delta = &report["sections"][0]["delta"];
        let [asked, kept, sent] =
            ["asked_bytes", "kept_bytes", "sent_bytes"].map(|name| delta[name].as_u64().unwrap());
        // All but one block of the table.
        let size = SIZE as u64;
        assert_eq!(kept, size - 16384, "{report}");
        assert_eq!(asked, kept + sent, "{report}");
        assert!((size + 370_000..size + 500_000).contains(&asked), "{report}");
        let wish = serde_json::json!({"name": "delta", "value": "yes"});
        assert!(report["settings"].as_array().unwrap().contains(&wish), "{report}");
    }
}

#[test]
fn a_side_that_is_killed_in_the_middle_loses_nothing() {
    for who in ["joiner", "donor"] {
        let scene = scene("delta=yes\ncompress=none", |file| {
            file.write_all_at(b"!!", 9 * MIB as u64).unwrap();
        });
        let before = std::fs::read(old_file(&scene)).unwrap();
        scene.backup("hang");
        let (mut joiner, mut donor) = start(&scene);
        donor.wait_for("the end of the stream", || scene.bin().join("hangs").exists());
        if who == "joiner" {
            joiner.child.kill().unwrap();
        } else {
            donor.child.kill().unwrap();
            // The joiner's server would end now.
            joiner.signal(Signal::TERM);
        }
        drop((joiner, donor));
        assert!(std::fs::read(old_file(&scene)).unwrap() == before);
        std::fs::remove_file(scene.bin().join("hang")).unwrap();
        let (joiner, donor) = scene.transfer();
        assert_joined(&scene, &joiner, &donor);
        assert_eq!(number(&donor.log, HAS), Some(23), "{}", donor.log);
    }
}
