//! The whole program with a store: its speed and its peak memory.
//!
//! ```text
//! cargo build --release -p xbcloud-rs
//! cargo bench --bench store -- memory          peak memory at chunk sizes from 10M to 5G
//! cargo bench --bench store -- speed [GIB [OPTION...]]  put into a real S3 server, chunk size by chunk size
//! ```
//!
//! Streams are generated as they are sent: table files of 16 copying threads, in chunks of 10 MiB.

#![allow(clippy::expect_used, missing_docs)]

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use xb_reader::ChunkWriter;
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::data;
use xb_testkit::s3::{bucket, options_for};
use xb_testkit::sink::Sink;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Payload of a chunk, as the stock producers write it.
const CHUNK: usize = 10 << 20;
/// Number of files that grow in parallel.
const FILES: usize = 16;
/// Memory that a run may use in addition to its buffers.
const BESIDE: u64 = 64 * MIB;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    match words.first().map(String::as_str) {
        Some("memory") => memory(),
        Some("speed") => {
            let gib = words.get(1).and_then(|gib| gib.parse().ok()).unwrap_or(8);
            speed(gib, words.get(2..).unwrap_or_default());
        }
        _ => println!("say `memory` or `speed [GIB]`; both take minutes"),
    }
}

/// Path of the release build, beside the folder of this program.
fn program() -> PathBuf {
    let here = std::env::current_exe().expect("a path");
    let path = here.ancestors().nth(2).expect("a target folder").join("xbcloud-rs");
    assert!(path.exists(), "cargo build --release -p xbcloud-rs");
    path
}

/// A stream of about `bytes` in which no two chunks of a file are equal: windows of `table`, whose
/// length is four chunks.
fn stream(bytes: u64, table: Vec<u8>) -> impl FnOnce(&mut dyn Write) + Send {
    move |out| {
        let mut writer = ChunkWriter::new(out);
        let names: Vec<String> = (0..FILES).map(|n| format!("db/t{n}.ibd")).collect();
        let rounds = bytes.div_ceil((FILES * CHUNK) as u64);
        for round in 0..rounds {
            for (n, name) in names.iter().enumerate() {
                let from = (n * 4099 + usize::try_from(round).unwrap_or(0) * 77_773) % (3 * CHUNK);
                let payload = &table[from..from + CHUNK];
                if writer.payload(name, round * CHUNK as u64, payload).is_err() {
                    return; // The program has failed and reports why.
                }
            }
        }
        for name in names.iter().map(String::as_str).chain(["xtrabackup_info"]) {
            let _ = writer.end(name);
        }
    }
}

fn put(endpoint: &str, place: &str, bytes: u64, table: Vec<u8>, options: &[&str]) -> Ran {
    Cmd::new(program())
        .args(["put", "--no-progress"])
        .args(options_for(endpoint))
        .args(options)
        .arg(place)
        .stdin_feed(stream(bytes, table))
        .limit(Duration::from_secs(3600))
        .run()
        .expect(0)
}

const LAYOUTS: [(&str, &[&str]); 4] = [
    ("packed", &[]),
    ("packed, zstd and seal", &["--compress=zstd:1", SEAL]),
    ("classic", &["--layout=classic"]),
    (
        "classic, zstd and AES256",
        &["--layout=classic", "--compress=zstd", "--encrypt=AES256", SEAL],
    ),
];
/// Placeholder for the option that names the key file.
const SEAL: &str = "KEY";

/// The key file, and the option that names it.
struct Key {
    dir: tempfile::TempDir,
    option: String,
}

impl Key {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("key");
        std::fs::write(&path, [7; 32]).expect("a key");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, private).expect("a key of our own");
        let option = format!("--encrypt-key-file={}", path.display());
        Self { dir, option }
    }

    fn named<'a>(&'a self, options: &[&'a str]) -> Vec<&'a str> {
        options.iter().map(|option| if *option == SEAL { &*self.option } else { option }).collect()
    }
}

fn memory() {
    println!("peak memory, MiB; 16 files side by side; allowed: --memory and {} MiB", BESIDE / MIB);
    let widths = ["what", "layout", "store", "chunk", "--memory", "peak", "s"];
    let [what, layout, store, chunk, budget, peak, s] = widths;
    println!("{what:8} {layout:26} {store:6} {chunk:>6} {budget:>8} {peak:>6} {s:>6}");
    memory_up();
    memory_down();
}

fn row(what: &str, layout: &str, store: &str, chunk: &str, budget: u64, ran: &Ran) {
    let verdict = if ran.peak_rss <= budget * MIB + BESIDE { "" } else { "  TOO MUCH" };
    println!(
        "{what:8} {layout:26} {store:6} {chunk:>6} {budget:>8} {:>6} {:>6.1}{verdict}",
        ran.peak_rss / MIB,
        ran.wall.as_secs_f64()
    );
}

/// Uploads into a store that accepts everything, immediately or 0.4 s late.
fn memory_up() {
    let key = Key::new();
    let sinks =
        [("quick", Sink::start(Duration::ZERO)), ("slow", Sink::start(Duration::from_millis(400)))];
    for (what, layout) in LAYOUTS {
        for (chunk, budget) in [("10M", 128), ("10M", 512), ("200M", 512), ("1G", 512), ("5G", 512)]
        {
            for (store, sink) in &sinks {
                let (memory, size) =
                    (format!("--memory={budget}M"), format!("--chunk-size={chunk}"));
                let mut options = vec![&*memory, &*size];
                options.extend(key.named(layout));
                let bytes = if chunk == "5G" { 6 * GIB } else { 2 * GIB };
                let place = format!("s3://b/{}-{chunk}-{budget}", what.replace([' ', ','], ""));
                let ran = put(&sink.endpoint(), &place, bytes, data::pages(7, 4 * CHUNK), &options);
                row("put", what, store, chunk, budget, &ran);
            }
        }
    }
}

/// Downloads 1 GiB from a folder, as a stream and into files.
fn memory_down() {
    let key = Key::new();
    let place = format!("file://{}/store/b", key.dir.path().display());
    let target = key.dir.path().join("files");
    for (what, layout) in LAYOUTS {
        for chunk in ["10M", "200M", "1G"] {
            let size = format!("--chunk-size={chunk}");
            let run = |command: &str, more: &[&str]| {
                Cmd::new(program())
                    .args([command, "--quiet"])
                    .args(more)
                    .arg(&place)
                    .limit(Duration::from_secs(600))
            };
            let mut options = vec![&*size];
            options.extend(key.named(layout));
            let _ = run("put", &options)
                .stdin_feed(stream(GIB, data::pages(7, 4 * CHUNK)))
                .run()
                .expect(0);
            let sealed = layout.contains(&SEAL);
            // `get` does not decrypt files that were encrypted individually.
            let streamed = sealed && !layout.contains(&"--layout=classic");
            let opening = |sealed| key.named(if sealed { &[SEAL] } else { &[] });
            for budget in [64, 512] {
                let memory = format!("--memory={budget}M");
                let mut options = opening(streamed);
                options.push(&memory);
                let ran = run("get", &options).stdout_into(std::io::sink()).run().expect(0);
                row("get", what, "folder", chunk, budget, &ran);
                let into = format!("--target-dir={}", target.display());
                let mut options = opening(sealed);
                options.extend([&*memory, &*into]);
                if sealed && !streamed {
                    // Files that are encrypted one by one are not authenticated.
                    options.push("--accept-unsealed");
                }
                let ran = run("restore", &options).run().expect(0);
                row("restore", what, "folder", chunk, budget, &ran);
                std::fs::remove_dir_all(&target).expect("the files removed");
            }
            let _ = run("delete", &["--yes"]).run().expect(0);
        }
    }
}

/// Measures the sizes in turn, so that a slow moment of the machine affects all of them. Each size
/// is first in some round, because the server is still cleaning up after the previous one.
fn speed(gib: u64, more: &[String]) {
    const CHUNKS: [&str; 3] = ["10M", "200M", "1G"];
    let bucket = bucket();
    println!("put into an S3 server on this machine, seconds (MiB/s)");
    println!("{:>5} {:>20} {:>20} {:>20}", "GiB", CHUNKS[0], CHUNKS[1], CHUNKS[2]);
    for (round, gib) in [gib, 1, 1, 1].into_iter().enumerate() {
        let mut cells = [const { String::new() }; CHUNKS.len()];
        for turn in 0..CHUNKS.len() {
            let column = (turn + round) % CHUNKS.len();
            let chunk = CHUNKS[column];
            let place = bucket.url(&format!("backups/{round}-{chunk}"));
            let size = format!("--chunk-size={chunk}");
            // Data that does not shrink, as backups arrive. This server looks at the first bytes of
            // every 8 MiB and compresses some, so that speed would depend on where parts begin.
            let table = data::noise(7, 4 * CHUNK);
            let mut options = vec![&*size];
            options.extend(more.iter().map(String::as_str));
            let ran = put(&bucket.endpoint(), &place, gib * GIB, table, &options);
            let seconds = ran.wall.as_secs_f64();
            #[allow(clippy::cast_precision_loss)]
            let rate = (gib * 1024) as f64 / seconds;
            cells[column] = format!("{seconds:.1} ({rate:.0})");
            let _ = Cmd::new(program())
                .args(["delete", "--quiet", "--yes"])
                .args(options_for(&bucket.endpoint()))
                .arg(&place)
                .run()
                .expect(0);
        }
        println!("{gib:>5} {:>20} {:>20} {:>20}", cells[0], cells[1], cells[2]);
    }
}
