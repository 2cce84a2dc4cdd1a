//! A run killed at any moment leaves nothing that looks like a complete backup, and `gc` removes
//! the rest.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::data::Noise;
use xb_testkit::stream::small_backup;

const KILLS: u64 = 100;

fn age(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            age(&path);
        } else {
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(200_000)).unwrap();
        }
    }
}

fn files(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}

#[test]
fn a_hundred_kills_leave_nothing_that_is_not_a_backup() {
    let scratch = Scratch::new();
    let root = scratch.dir("root");
    let stream = small_backup(1, 8 << 20);
    let input = scratch.join("stream");
    std::fs::write(&input, &stream).unwrap();
    let url = |name: &str| format!("file://{}/{name}", root.display());
    let xbcloud = |command: &str, place: &str| {
        Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs")).args([command, "--quiet", place])
    };
    let put = |name: &str| xbcloud("put", &url(name)).arg("--chunk-size=256K").stdin_file(&input);
    let begin = Instant::now();
    let _ = put("whole").run().expect(0);
    let span = u64::try_from(begin.elapsed().as_micros()).unwrap();

    let mut draw = Noise::new(7);
    let (mut killed, mut whole) = (0, 1);
    for n in 0..KILLS {
        let name = format!("n{n}");
        let mut run = put(&name).spawn();
        // Any moment from before the first step to after the last.
        let moment = Instant::now() + Duration::from_micros(draw.below(span * 5 / 4));
        while Instant::now() < moment && !run.has_ended() {}
        run.kill_9();
        let ended_well = run.wait().code() == 0;
        let got = xbcloud("get", &url(&name)).run();
        let is_there = root.join(".xb-catalog").join(&name).exists();
        assert_eq!(got.code() == 0, is_there, "{got:?}");
        assert!(is_there || !ended_well, "it said that all is well");
        if is_there {
            assert!(got.stdout == stream, "{name} is not what was put");
            whole += 1;
        } else {
            killed += 1;
            // The name can be used again at once.
            if n % 10 == 0 {
                let _ = put(&name).run().expect(0);
                whole += 1;
            }
        }
    }
    assert!(killed > 0, "no run was killed in its course");

    age(&root);
    let gc = |options: &[&str]| {
        xbcloud("gc", &format!("file://{}", root.display())).args(options).run().expect(0)
    };
    let before = files(&root);
    assert!(!gc(&[]).stdout.is_empty());
    assert_eq!(files(&root), before, "a dry run");
    let _ = gc(&["--yes"]);
    assert!(gc(&[]).stdout.is_empty());
    // For each backup: its manifest, its claim, its checksum list, and objects of 256 KiB.
    let objects = {
        let store = xbcloud("list", &format!("file://{}", root.display())).arg("--json");
        let listed: serde_json::Value =
            serde_json::from_slice(&store.run().expect(0).stdout).unwrap();
        let lines = listed.as_array().unwrap().clone();
        assert_eq!(lines.len(), whole);
        assert!(lines.iter().all(|line| line["state"] == "complete"), "{lines:?}");
        lines.iter().map(|line| line["objects"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(files(&root) as u64, objects + 3 * whole as u64, "something is left over");
}
