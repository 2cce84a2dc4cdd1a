//! Single files out of a packed backup, without the rest of it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

mod common;

use std::collections::BTreeMap;
use std::io::Cursor;

use common::*;
use xb_backup::{GetReport, GetRequest, Keys, Layout, PutRequest, Selection, WaysIn, stopper};
use xb_encryptor::KeyBytes;
use xb_pipeline::{Observer, extract_from};
use xb_reader::{ChunkWriter, TargetDir};

const MIB: usize = 1 << 20;

/// Bytes that do not repeat and do not shrink.
fn noise(mut seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(seed >> 11).to_le_bytes()[..5]);
    }
    bytes.truncate(len);
    bytes
}

/// Two threads copy tables side by side; one of them is the one that is wanted.
fn backup_stream() -> (Vec<u8>, BTreeMap<&'static str, Vec<u8>>) {
    let files: BTreeMap<_, _> = [
        ("big/a.ibd", 18 * MIB + 7),
        ("big/b.ibd", 9 * MIB),
        ("shop/t.ibd", 3 * MIB + 100),
        ("shop/t.frm", 900),
        ("ibdata1", 2 * MIB),
        ("xtrabackup_checkpoints", 100),
    ]
    .into_iter()
    .zip(1_u64..)
    .map(|((name, len), seed)| (name, noise(seed, len)))
    .collect();
    let mut writer = ChunkWriter::new(Vec::new());
    let chunk = 2 * MIB;
    for n in 0..10 {
        for (name, content) in &files {
            if let Some(piece) = content.chunks(chunk).nth(n) {
                writer.payload(name, (n * chunk) as u64, piece).unwrap();
                if (n + 1) * chunk >= content.len() {
                    writer.end(name).unwrap();
                }
            }
        }
    }
    writer.end("shop/empty.MYD").unwrap();
    writer.payload("xtrabackup_info", 0, b"tool_name = mariadb-backup\n").unwrap();
    writer.end("xtrabackup_info").unwrap();
    (writer.finish().unwrap(), files)
}

fn get_files(
    store: &Store,
    name: &str,
    keys: Keys,
    files: Selection,
) -> Result<(GetReport, Vec<u8>), xb_backup::BackupError> {
    let (_stopper, mut stop) = stopper();
    let request = GetRequest { files, keys, ..request(name) };
    let observer = Observer::default();
    let run = xb_backup::get(&store.root, &request, Collected::default(), &observer, &mut stop);
    block_on(run).map(|(report, Collected(bytes))| (report, bytes))
}

/// The files of an xbstream.
fn unpacked(stream: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let target = TargetDir::open(dir.path()).unwrap();
    extract_from(stream, target, xb_pipeline::ExtractOptions::default()).unwrap();
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(dir.path()).unwrap().to_str().unwrap().to_owned();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn globs(patterns: &[&str]) -> Selection {
    let patterns: Vec<String> = patterns.iter().map(|p| (*p).to_owned()).collect();
    Selection::globs(&patterns).unwrap()
}

#[test]
fn one_table_costs_little_more_than_its_bytes() {
    let store = Store::new();
    let (stream, files) = backup_stream();
    let key = || Keys { key: Some(KeyBytes::new(&[7; 32]).unwrap()), ..Keys::default() };
    for (name, sealed, compress) in
        [("plain", false, "none"), ("zstd", false, "zstd:1"), ("sealed", true, "lz4")]
    {
        let ways_in =
            WaysIn { key: sealed.then(|| KeyBytes::new(&[7; 32]).unwrap()), ..WaysIn::default() };
        let request = PutRequest {
            ways_in,
            compress: compress.parse().unwrap(),
            ..put_request(name, Layout::Packed, 5 * MIB as u64 + 11)
        };
        let (_stopper, mut stop) = stopper();
        let source = Cursor::new(stream.clone());
        let observer = Observer::default();
        block_on(xb_backup::put(&store.root, &request, source, &observer, &mut stop)).unwrap();
        let keys = || if sealed { key() } else { Keys::default() };

        let (report, got) = get_files(&store, name, keys(), globs(&["shop/*"])).unwrap();
        let got = unpacked(&got);
        let names: Vec<_> = got.keys().map(String::as_str).collect();
        assert_eq!(names, ["shop/empty.MYD", "shop/t.frm", "shop/t.ibd"], "{name}");
        assert!(
            got["shop/t.ibd"] == files["shop/t.ibd"] && got["shop/t.frm"] == files["shop/t.frm"]
        );
        let chosen = report.chosen.unwrap();
        assert_eq!((chosen.files, chosen.needed_files), (3, 0));
        // Two runs of frames, and frames of 1 MiB that it shares with its neighbours at their ends.
        let (bytes, read) = (chosen.bytes, report.stored_bytes);
        assert!(read >= bytes && read <= bytes + 6 * MIB as u64, "{name}: {read} for {bytes}");

        let prepared = globs(&["shop/t.ibd"]).with_what_prepare_needs(true);
        let (report, got) = get_files(&store, name, keys(), prepared).unwrap();
        let names: Vec<_> = unpacked(&got).into_keys().collect();
        let all =
            ["ibdata1", "shop/t.frm", "shop/t.ibd", "xtrabackup_checkpoints", "xtrabackup_info"];
        assert_eq!(names, all, "{name}");
        let chosen = report.chosen.unwrap();
        assert_eq!((chosen.files, chosen.needed_files), (1, 4));
        assert_eq!(chosen.bytes, files["shop/t.ibd"].len() as u64);

        let (_, all) = get_files(&store, name, keys(), globs(&["*"])).unwrap();
        assert!(all == stream, "{name}: everything is the stream again");
        let exact = Selection::exact(["big/b.ibd".to_owned()]);
        let (_, got) = get_files(&store, name, keys(), exact).unwrap();
        assert!(unpacked(&got)["big/b.ibd"] == files["big/b.ibd"]);
        assert!(get_files(&store, name, keys(), globs(&["shop/*", "nope"])).is_err());
    }
}

#[test]
fn damage_in_what_is_read_is_found() {
    let store = Store::new();
    let (stream, _) = backup_stream();
    store.put("n", Layout::Packed, 4 * MIB as u64, Cursor::new(stream)).unwrap();
    let objects: Vec<_> =
        store.files().into_iter().filter(|p| p.to_str().unwrap().contains("/n/")).collect();
    let mut failed = 0;
    for path in objects.iter().filter(|path| !path.ends_with("claim")) {
        let good = std::fs::read(path).unwrap();
        let mut bad = good.clone();
        // Every frame of 1 MiB has some.
        bad.iter_mut().step_by(500_000).for_each(|byte| *byte ^= 1);
        std::fs::write(path, &bad).unwrap();
        match get_files(&store, "n", Keys::default(), globs(&["shop/*"])) {
            Ok((_, got)) => assert_eq!(unpacked(&got).len(), 3),
            Err(error) => {
                failed += 1;
                assert!(matches!(error, xb_backup::BackupError::Damaged { .. }), "{error}");
            }
        }
        std::fs::write(path, &good).unwrap();
    }
    assert!(failed >= 2, "the table lies in more than one object");
    assert!(failed < objects.len() - 1, "all objects were read");
}
