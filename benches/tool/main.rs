//! Tools for the benches of whole programs: data, and a store that discards it.
//!
//! ```text
//! xb-bench stream --size 2G [--files 16] [--seed 1] [--kind mixed|pages|thin] > stream.xbs
//! xb-bench sink [ADDRESS:PORT]
//! ```
//!
//! `stream` writes an xbstream whose files hold SIZE bytes in all. The same options produce the same
//! bytes everywhere. `mixed` is half table pages, half incompressible, in runs of 64 KiB to 4 MiB;
//! `pages` is table pages alone; `thin` is pages with little content, which shrink to almost nothing.
//!
//! `sink` prints the address of a store that accepts everything and keeps almost nothing. For each
//! line on its standard input, it prints the number of requests since the last line as JSON. It ends
//! with its standard input.

#![allow(clippy::expect_used, missing_docs)]

mod rows;

use std::io::{BufRead, BufWriter, Write};
use std::time::Duration;

use xb_reader::ChunkWriter;
use xb_testkit::data::Noise;
use xb_testkit::sink::Sink;

const MIB: usize = 1 << 20;
/// Payload of a chunk, as the stock producers write it.
const CHUNK: usize = 10 * MIB;
/// Length of the data that chunks are windows of.
const TABLE: usize = 128 * MIB;
/// Number of files that grow in parallel.
const PARALLEL: u64 = 16;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("stream") => stream(&Wanted::read(&words[1..])),
        Some("sink") => sink(words.get(1).map_or("127.0.0.1:0", String::as_str)),
        _ => refuse("say `stream` or `sink`"),
    }
}

fn refuse(what: &str) -> ! {
    eprintln!("xb-bench: {what}; see the head of benches/tool/main.rs");
    std::process::exit(2)
}

struct Wanted {
    size: u64,
    files: u64,
    seed: u64,
    kind: String,
}

impl Wanted {
    fn read(words: &[String]) -> Self {
        let mut wanted = Self { size: 0, files: PARALLEL, seed: 1, kind: "mixed".to_owned() };
        for pair in words.chunks(2) {
            let [option, value] = pair else { refuse(&format!("{} needs a value", pair[0])) };
            match option.as_str() {
                "--size" => wanted.size = number(value),
                "--files" => wanted.files = number(value).max(1),
                "--seed" => wanted.seed = number(value),
                "--kind" => wanted.kind.clone_from(value),
                _ => refuse(&format!("unknown option {option}")),
            }
        }
        wanted
    }
}

/// Returns a number with an optional unit K, M, G or T.
fn number(text: &str) -> u64 {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => refuse(&format!("{text} is no size")),
    };
    let number: u64 = digits.parse().unwrap_or_else(|_| refuse(&format!("{text} is no size")));
    number.checked_mul(1 << shift).unwrap_or_else(|| refuse(&format!("{text} is too large")))
}

fn table(wanted: &Wanted) -> Vec<u8> {
    let mut draw = Noise::new(wanted.seed);
    // Little data needs only a short table; a chunk must fit behind every start of a window.
    let len = usize::try_from(wanted.size).map_or(TABLE, |size| size.clamp(2 * CHUNK, TABLE));
    let mut out = Vec::with_capacity(len + 4 * MIB);
    let (mut noise, mut all) = (0, 0);
    while out.len() < len {
        let run = (64 << 10) << draw.below(7);
        let random = match wanted.kind.as_str() {
            "mixed" => 2 * noise < all,
            "pages" | "thin" => false,
            other => refuse(&format!("unknown kind {other}")),
        };
        let start = out.len();
        out.resize(start + run, 0);
        match random {
            true => draw.fill(&mut out[start..]),
            false => rows::fill(&mut draw, &mut out[start..], wanted.kind == "thin"),
        }
        all += run;
        noise += if random { run } else { 0 };
    }
    out.truncate(len);
    out
}

/// Writes the files in groups that grow in parallel; the last one is the file that a producer writes
/// last.
fn stream(wanted: &Wanted) {
    let table = table(wanted);
    let room = (table.len() - CHUNK) as u64;
    let mut writer = ChunkWriter::new(BufWriter::with_capacity(MIB, std::io::stdout().lock()));
    let size_of =
        |file: u64| wanted.size / wanted.files + u64::from(file < wanted.size % wanted.files);
    let mut chunk = 0_u64;
    let mut group = 0;
    while group < wanted.files {
        let files: Vec<u64> = (group..wanted.files.min(group + PARALLEL)).collect();
        let longest = files.iter().map(|file| size_of(*file)).max().unwrap_or(0);
        for offset in (0..longest).step_by(CHUNK) {
            for file in &files {
                let left = size_of(*file).saturating_sub(offset);
                let len = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
                if len == 0 {
                    continue;
                }
                // A prime step: windows repeat only after many chunks.
                let from = usize::try_from(chunk.wrapping_mul(48_271 * 16_411) % room).unwrap_or(0);
                chunk += 1;
                let payload = &table[from..from + len];
                if writer.payload(name(*file), offset, payload).is_err() {
                    return; // The reader has ended and reports why.
                }
            }
        }
        for file in &files {
            let _ = writer.end(name(*file));
        }
        group += PARALLEL;
    }
    let info = b"tool_name = mariadb-backup\n";
    let _ = writer.payload("xtrabackup_info", 0, info);
    let _ = writer.end("xtrabackup_info");
    let _ = writer.finish().map(|mut out| out.flush());
}

fn name(file: u64) -> String {
    format!("db{}/t{file}.ibd", file / 1000)
}

fn sink(address: &str) {
    let sink = Sink::listen(address, Duration::ZERO);
    println!("{}", sink.endpoint());
    for line in std::io::stdin().lock().lines() {
        if line.is_err() {
            return;
        }
        let counts: Vec<String> =
            sink.take_requests().iter().map(|(name, n)| format!("\"{name}\": {n}")).collect();
        println!("{{{}}}", counts.join(", "));
    }
}
