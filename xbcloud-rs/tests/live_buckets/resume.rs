//! A killed restore is resumed: no proven data is fetched again, and the files are correct.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::*;
use serde_json::Value;
use xb_testkit::command::Cmd;
use xb_testkit::daemon::Scratch;
use xb_testkit::data::{Noise, mixed};
use xb_testkit::files::assert_same_tree;
use xb_testkit::store::Store;
use xb_testkit::stream::StreamWriter;

const KILLS: u64 = 8;

fn restore(store: &Store, name: &str, target: &Path) -> Cmd {
    Cmd::new(env!("CARGO_BIN_EXE_xbcloud-rs"))
        .args(["restore", "--json", "--threads=2", "--parallel=2", "--memory=48M", "--sync=none"])
        .args(store.options())
        .arg("--target-dir")
        .arg(target)
        .arg(store.url(name))
}

/// The event at the end of the run.
fn done(stderr: &str) -> Value {
    let events = stderr.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.into_iter().find(|event| event["event"] == "done").expect("an event at the end")
}

#[test]
fn a_restore_killed_at_any_moment_resumes() {
    let scratch = Scratch::new();
    let store = Store::folder();
    let mut out = StreamWriter::new(Vec::new());
    for (n, size) in [30_usize << 20, 1 << 20, 10 << 20, 3].into_iter().enumerate() {
        let content = mixed(n as u64, size);
        for chunk in 0..size.div_ceil(2 << 20) {
            let from = chunk * (2 << 20);
            out.payload(
                &format!("db/t{n}.ibd"),
                from as u64,
                &content[from..size.min(from + (2 << 20))],
            );
            if n == 0 {
                out.file(&format!("db/small{chunk}.frm"), &content[from..from + 500], 300);
            }
        }
        out.end(&format!("db/t{n}.ibd"));
    }
    out.info();
    let stream = out.finish();
    let file = scratch.join("stream");
    std::fs::write(&file, &stream).unwrap();
    unpack(&file, &scratch.dir("reference"));
    for (name, options) in [
        ("packed", &["--chunk-size=1M", "--compress=zstd:1"][..]),
        ("classic", &["--layout=classic"]),
    ] {
        put_bytes(&store, name, options, &stream);
        let begin = Instant::now();
        let whole = scratch.join(format!("whole-{name}"));
        let ran = restore(&store, name, &whole).run().expect(0);
        let span = u64::try_from(begin.elapsed().as_micros()).unwrap();
        let total = done(&ran.stderr_text())["stored_bytes"].as_u64().unwrap();
        assert_same_tree(&whole, &scratch.join("reference"));

        let mut draw = Noise::new(11);
        let target = scratch.join(name);
        let (mut killed, mut resumed) = (0, 0);
        for _ in 0..KILLS {
            let mut run = restore(&store, name, &target).spawn();
            let moment = Instant::now() + Duration::from_micros(draw.below(span));
            while Instant::now() < moment && !run.has_ended() {}
            run.kill_9();
            let ran = run.wait();
            if ran.code() == 0 {
                assert_same_tree(&target, &scratch.join("reference"));
                std::fs::remove_dir_all(&target).unwrap();
            } else {
                killed += 1;
            }
        }
        // One more run is killed once a good part has certainly been restored.
        if !target.exists() {
            let mut run = restore(&store, name, &target).spawn();
            while !target.join("db/small3.frm").exists() && !run.has_ended() {}
            run.kill_9();
            let _ = run.wait();
        }
        // A run that was killed in its very last step may have completed the restore.
        let journal = target.join(".xb-partial/restore/journal");
        if journal.exists() || !target.join("xtrabackup_info").exists() {
            let ran = restore(&store, name, &target).run().expect(0);
            let text = ran.stderr_text();
            let read = done(&text)["stored_bytes"].as_u64().unwrap();
            assert!(read <= total, "{read} of {total}");
            if text.contains("were already there") {
                resumed += 1;
                assert!(read < total, "{read} of {total}, though some was there");
            }
            assert!(!target.join(".xb-partial").exists());
        }
        assert_same_tree(&target, &scratch.join("reference"));
        assert!(killed + resumed > 0, "no run was killed in its course");
    }
}
