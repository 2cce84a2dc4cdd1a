//! Decompressing and decrypting while extracting: every vector, damage in every layer, and both
//! directions with the original programs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::{Cage, Files, xbstream};
use xb_testkit::command::{Cmd, Ran};
use xb_testkit::data::{mixed, noise};
use xb_testkit::stream::{StreamWriter, scan};
use xb_testkit::{tools, vectors};

const KEY: &str = "fedcba9876543210FEDCBA9876543210";

fn decoding(cage: &Cage, key: Option<&str>, more: &[&str], stream: &[u8]) -> Ran {
    let mut cmd = xbstream().args(["-x", "--decompress", "-C"]).arg(&cage.inner).args(more);
    if let Some(key) = key {
        let file = cage.outer.path().join("../key-of-").with_extension(
            cage.outer.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.'),
        );
        fs::write(&file, key).unwrap();
        cmd = cmd.arg("--decrypt=AES256").arg("-f").arg(&file);
        let ran = cmd.stdin_bytes(stream).run();
        fs::remove_file(file).unwrap();
        return ran;
    }
    cmd.stdin_bytes(stream).run()
}

struct Vector {
    name: String,
    key: Option<String>,
    plain: Files,
    bytes: Vec<u8>,
}

/// The chains in the repository, and those of the collection if it is present beside the checkout.
fn chains() -> Vec<Vector> {
    let list = String::from_utf8(vectors::read("pipeline/vectors.jsonl")).unwrap();
    let mut all: Vec<Vector> = list
        .lines()
        .map(|line| {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap();
            let name = entry["file"].as_str().unwrap().to_owned();
            let fact = |facts: &serde_json::Value| {
                (facts["size"].as_u64().unwrap(), facts["sha256"].as_str().unwrap().to_owned())
            };
            let plain = entry["plain"].as_object().unwrap().iter();
            Vector {
                key: entry["key"].as_str().map(Into::into),
                plain: plain.map(|(name, facts)| (name.clone(), fact(facts))).collect(),
                bytes: vectors::read(&format!("pipeline/{name}")),
                name,
            }
        })
        .collect();
    assert!(all.len() >= 5, "vectors are missing");
    all.extend(vectors::collection("pipeline").into_iter().map(|vector| Vector {
        key: vector.name.contains("aes256").then(|| KEY.into()),
        bytes: vector.bytes(),
        plain: vector.plain.unwrap().into_iter().map(|(n, size, sum)| (n, (size, sum))).collect(),
        name: vector.name,
    }));
    all
}

#[test]
fn every_chain_is_undone_by_one_command() {
    for vector in chains() {
        for more in [&["--parallel=1"][..], &["--parallel=4", "--decompress-threads=3"]] {
            let cage = Cage::new();
            let ran = decoding(&cage, vector.key.as_deref(), more, &vector.bytes);
            assert_eq!(ran.code(), 0, "{}: {ran:?}", vector.name);
            assert_eq!(cage.files(), vector.plain, "{}", vector.name);
        }
        // Without the options everything is extracted unchanged.
        if vector.name.contains("sparse") {
            continue;
        }
        let cage = Cage::new();
        let _ = crate::support::extract(&cage.inner, &vector.bytes, 2).expect(0);
        let names: std::collections::BTreeSet<String> =
            scan(&vector.bytes).into_iter().map(|chunk| chunk.path).collect();
        assert_eq!(cage.files().into_keys().collect::<std::collections::BTreeSet<_>>(), names);
    }
}

#[test]
fn the_smallest_memory_is_enough_and_large_windows_wait_on_disk() {
    for vector in chains() {
        let cage = Cage::new();
        let ran = decoding(&cage, vector.key.as_deref(), &["--memory=1"], &vector.bytes);
        assert_eq!(ran.code(), 0, "{}: {ran:?}", vector.name);
        assert_eq!(cage.files(), vector.plain, "{}", vector.name);
    }
}

#[test]
fn members_of_all_makers_are_undone_or_refused() {
    for (name, bytes) in [".qp", ".lz4", ".zst"].iter().flat_map(|e| vectors::all("compress", e)) {
        let mut stream = StreamWriter::new(Vec::new());
        let stored = format!("d/{name}");
        stream.file(&stored, &bytes, 7001).file("other", b"here", 10);
        let stream = stream.finish();
        let cage = Cage::new();
        let ran = decoding(&cage, None, &[], &stream).expect(0);
        let plain = Path::new(&stored).with_extension("");
        let files = cage.files();
        assert_eq!(files.len(), 2, "{name}: {ran:?}");
        let list = String::from_utf8(vectors::read("compress/vectors.jsonl")).unwrap();
        let entry = list
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .find(|entry| entry["file"] == name.as_str())
            .unwrap();
        let facts = entry["plain"].as_object().unwrap().values().next().unwrap();
        let got = &files[plain.to_str().unwrap()];
        assert_eq!(got.0, facts["size"].as_u64().unwrap(), "{name}");
        assert_eq!(got.1, facts["sha256"].as_str().unwrap(), "{name}");
    }
    for vector in vectors::collection("compress").iter().filter(|vector| vector.plain.is_none()) {
        let file = vector.name.rsplit('/').next().unwrap();
        let mut stream = StreamWriter::new(Vec::new());
        stream.file("other", b"here", 10).file(file, &vector.bytes(), 7001);
        let cage = Cage::new();
        let ran = decoding(&cage, None, &[], &stream.finish()).expect(1);
        assert!(ran.stderr_text().contains(file), "{ran:?}");
        assert_eq!(cage.files().into_keys().collect::<Vec<_>>(), ["other"]);
    }
}

#[test]
fn a_wrong_key_is_one_clear_error_and_no_encrypted_file_has_a_name() {
    for vector in chains().into_iter().filter(|vector| vector.key.is_some()) {
        let cage = Cage::new();
        let ran = decoding(&cage, Some("0123456789abcdef0123456789abcdef"), &[], &vector.bytes);
        let said = ran.expect(1).stderr_text();
        assert_eq!(said.matches("wrong key").count(), 1, "{}: {said}", vector.name);
        assert!(said.contains("hint: give the key"), "{said}");
        // Only the files that were not encrypted.
        for name in cage.files().keys() {
            assert_eq!(name, "xtrabackup_checkpoints", "{}", vector.name);
        }
    }
}

#[test]
fn undecrypted_files_stay_with_a_warning() {
    let bytes = vectors::read("pipeline/pxb-8.0-retyped-lz4-aes256.xbs");
    let cage = Cage::new();
    let ran = decoding(&cage, None, &[], &bytes).expect(0);
    assert!(
        ran.stderr_text()
            .contains("encrypted files (.xbcrypt) neither decrypted nor decompressed: 6"),
        "{ran:?}"
    );
    assert!(cage.files().contains_key("golf/small.ibd.lz4.xbcrypt"));
    // Decryption only: the compressed files are extracted.
    let cage = Cage::new();
    let cmd = xbstream().args(["-x", "-d", "aes256", "-k", KEY, "-C"]).arg(&cage.inner);
    let _ = cmd.stdin_bytes(bytes).run().expect(0);
    assert!(cage.files().contains_key("golf/small.ibd.lz4"));
}

#[test]
fn two_names_that_become_one_are_both_named() {
    for (one, two) in [("x", "x.lz4"), ("x.lz4", "x"), ("x.zst", "x.lz4")] {
        let mut stream = StreamWriter::new(Vec::new());
        stream.file(one, b"", 1).file(two, b"", 1);
        let cage = Cage::new();
        let ran = decoding(&cage, None, &[], &stream.finish()).expect(1);
        let want = format!("{two}: without suffixes it is named x, as is {one}");
        assert!(ran.stderr_text().contains(&want), "{ran:?}");
    }
}

/// Pipes a file through a real program.
fn through(program: &str, args: &[&str], bytes: &[u8]) -> Vec<u8> {
    Cmd::new(tools::find(program)).args(args).stdin_bytes(bytes).run().expect(0).stdout
}

#[test]
fn interleaved_lz4_and_zstd_files_are_decoded_also_without_room() {
    let plain: Vec<Vec<u8>> =
        (0..24_u32).map(|n| mixed(n.into(), 300_000 + 77_777 * n as usize)).collect();
    let flags: [(&str, &[&str]); 6] = [
        ("lz4", &["-c"]),
        ("lz4", &["-c", "-9", "-B4", "-BX"]),
        ("lz4", &["-c", "-BD", "--no-frame-crc"]),
        ("zstd", &["-c", "-q"]),
        ("zstd", &["-c", "-q", "--ultra", "-22"]),
        ("zstd", &["-c", "-q", "--long=27", "--no-check"]),
    ];
    let stored: Vec<(String, Vec<u8>)> = plain
        .iter()
        .enumerate()
        .map(|(n, bytes)| {
            let (program, args) = flags[n % flags.len()];
            let suffix = if program == "lz4" { "lz4" } else { "zst" };
            (format!("db/{n}.{suffix}"), through(program, args, bytes))
        })
        .collect();
    let mut stream = StreamWriter::new(Vec::new());
    let step = 33_333;
    let most = stored.iter().map(|(_, bytes)| bytes.len()).max().unwrap();
    for at in (0..most).step_by(step) {
        for (name, bytes) in stored.iter().filter(|(_, bytes)| bytes.len() > at) {
            stream.payload(name, at as u64, &bytes[at..bytes.len().min(at + step)]);
        }
    }
    for (name, _) in &stored {
        stream.end(name);
    }
    let stream = stream.finish();
    // In the second case hardly any window fits into memory: files wait on disk. A window of 128
    // MiB needs that much of the budget at once.
    for memory in ["--memory=1G", "--memory=220M"] {
        let cage = Cage::new();
        let ran = decoding(&cage, None, &[memory, "--decompress-threads=4"], &stream).expect(0);
        for (n, bytes) in plain.iter().enumerate() {
            let got = fs::read(cage.inner.join(format!("db/{n}"))).unwrap();
            assert!(got == *bytes, "{n}: {ran:?}");
        }
    }
    // A file that needs more than the whole limit is refused, with the number.
    let cage = Cage::new();
    let ran = decoding(&cage, None, &["--memory=100M"], &stream).expect(1);
    assert!(ran.stderr_text().contains("bytes of memory, the limit is"), "{ran:?}");
}

#[test]
fn page_compressed_tables_have_their_holes_again() {
    // Pages of 16 KiB with 1 to 3 blocks used, as a server leaves them; then full ones.
    let mut table = Vec::new();
    for page in 0..400_usize {
        let mut bytes = vec![0; 16384];
        let used = if page < 300 { 4096 * (1 + page % 3) - 100 } else { 16384 };
        bytes[..used].copy_from_slice(&noise(page as u64, used));
        table.extend(bytes);
    }
    let written: u64 = (0..300).map(|page| 4096 * (1 + page % 3)).sum::<u64>() + 100 * 16384;
    let stored = through("zstd", &["-c", "-q", "-1"], &table);
    for (name, bytes) in [("db/t.ibd.zst", &stored), ("db/t.ibd", &table)] {
        let mut stream = StreamWriter::new(Vec::new());
        stream.file(name, bytes, 100_001);
        let cage = Cage::new();
        let _ = decoding(&cage, None, &[], &stream.finish()).expect(0);
        let file = cage.inner.join("db/t.ibd");
        assert!(fs::read(&file).unwrap() == table);
        let blocks = fs::metadata(&file).unwrap().blocks() * 512;
        assert!(blocks <= written + 65536, "{name}: {blocks} for {written}");
        assert!(blocks * 3 < table.len() as u64 * 2, "{name}: {blocks}");
    }
    // Real ones from MariaDB: as it sends them, and as Percona's sparse chunks.
    for vector in chains().iter().filter(|vector| {
        vector.name.ends_with("ccs16384.xbs.gz") || vector.name.ends_with("sparse-crafted.xbs.gz")
    }) {
        let cage = Cage::new();
        let _ = decoding(&cage, None, &[], &vector.bytes).expect(0);
        let found = fs::metadata(cage.inner.join("golf/packed.ibd")).unwrap();
        assert!(found.blocks() * 512 < found.len() / 2, "{}: {found:?}", vector.name);
    }
    // Other files may be full of zeros intentionally.
    let mut stream = StreamWriter::new(Vec::new());
    stream.file("ib_logfile0", &vec![0; 1 << 20], 1 << 20);
    let cage = Cage::new();
    let _ = decoding(&cage, None, &[], &stream.finish()).expect(0);
    assert!(fs::metadata(cage.inner.join("ib_logfile0")).unwrap().blocks() * 512 >= 1 << 20);
}
