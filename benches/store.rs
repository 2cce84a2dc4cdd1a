//! The whole program in front of a store: how fast, and within what memory.
//!
//! ```text
//! cargo build --release -p xbcloud-rs
//! cargo bench --bench store -- memory          peak memory at chunk sizes from 10M to 5G
//! cargo bench --bench store -- speed [GIB [OPTION...]]  put into a real S3 server, chunk size by chunk size
//! ```
//!
//! Streams are made as they are sent: table files of 16 copying threads, in chunks of 10 MiB.

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
/// Payload of a chunk, as the stock producers have it.
const CHUNK: usize = 10 << 20;
/// Files that grow side by side.
const FILES: usize = 16;
/// What a run may take beside its buffers.
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

/// The release build, which lies beside this one's folder.
fn program() -> PathBuf {
    let here = std::env::current_exe().expect("a path");
    let path = here.ancestors().nth(2).expect("a target folder").join("xbcloud-rs");
    assert!(path.exists(), "cargo build --release -p xbcloud-rs");
    path
}

/// A stream of about `bytes`, in which no two chunks of a file are alike: windows of `table`, which
/// has four times the length of a chunk.
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
                    return; // The program has failed and says why.
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

fn memory() {
    let dir = tempfile::tempdir().expect("a folder");
    let key = dir.path().join("key");
    std::fs::write(&key, [7; 32]).expect("a key");
    let key = format!("--encrypt-key-file={}", key.display());
    let layouts: [(&str, &[&str]); 4] = [
        ("packed", &[]),
        ("packed, zstd and seal", &["--compress=zstd:1", &key]),
        ("classic", &["--layout=classic"]),
        (
            "classic, zstd and AES256",
            &["--layout=classic", "--compress=zstd", "--encrypt=AES256", &key],
        ),
    ];
    let sinks =
        [("quick", Sink::start(Duration::ZERO)), ("slow", Sink::start(Duration::from_millis(400)))];
    println!(
        "peak memory of put, MiB; 16 files side by side; allowed: --memory and {} MiB",
        BESIDE / MIB
    );
    println!(
        "{:26} {:6} {:>6} {:>8} {:>6} {:>6}",
        "layout", "store", "chunk", "--memory", "peak", "s"
    );
    for (what, layout) in layouts {
        for (chunk, budget) in [("10M", 128), ("10M", 512), ("200M", 512), ("1G", 512), ("5G", 512)]
        {
            for (store, sink) in &sinks {
                let (memory, size) =
                    (format!("--memory={budget}M"), format!("--chunk-size={chunk}"));
                let mut options = vec![&*memory];
                options.extend(layout);
                options.push(&size);
                let bytes = if chunk == "5G" { 6 * GIB } else { 2 * GIB };
                let place = format!("s3://b/{}-{chunk}-{budget}", what.replace([' ', ','], ""));
                let ran = put(&sink.endpoint(), &place, bytes, data::pages(7, 4 * CHUNK), &options);
                let peak = ran.peak_rss;
                let verdict = if peak <= budget * MIB + BESIDE { "" } else { "  TOO MUCH" };
                println!(
                    "{what:26} {store:6} {chunk:>6} {budget:>8} {:>6} {:>6.1}{verdict}",
                    peak / MIB,
                    ran.wall.as_secs_f64()
                );
            }
        }
    }
}

/// Alternating, so that a slow moment of the machine meets all of them, and each has its turn to be
/// the first: the server still clears away what the one before has left.
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
            // Nothing that shrinks, as backups arrive: this server looks at the first bytes of every
            // 8 MiB that it gets and compresses some, so that speed would hang on where pieces begin.
            let table = data::noise(7, 4 * CHUNK);
            let mut options = vec![&*size];
            options.extend(more.iter().map(String::as_str));
            let ran = put(&bucket.endpoint(), &place, gib * GIB, table, &options);
            let seconds = ran.wall.as_secs_f64();
            #[allow(clippy::cast_precision_loss)]
            let rate = (gib * 1024) as f64 / seconds;
            cells[column] = format!("{seconds:.1} ({rate:.0})");
            let _ = Cmd::new(program())
                .args(["delete", "--quiet"])
                .args(options_for(&bucket.endpoint()))
                .arg(&place)
                .run()
                .expect(0);
        }
        println!("{gib:>5} {:>20} {:>20} {:>20}", cells[0], cells[1], cells[2]);
    }
}
