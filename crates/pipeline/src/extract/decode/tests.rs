//! Damage in every layer, pieces of every size, and very little memory.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panic")]

use std::collections::BTreeMap;
use std::fs;

use bytes::Bytes;
use proptest::prelude::*;
use xb_compressor::{FileCodec, PieceEncoder, ZstdLevel};
use xb_encryptor::xbcrypt::{Algorithm, ChunkSize, Encrypter};
use xb_encryptor::{Backend, KeyBytes};
use xb_reader::{ChunkWriter, TargetDir};

use super::*;
use crate::testing::{extract, tree};
use crate::{Durability, ExtractCause, ExtractOptions, Extractor};

fn cipher() -> Cipher {
    let key = KeyBytes::new(&[3; 24]).unwrap();
    Cipher::new(Algorithm::Aes192, Some(&key), Backend::default()).unwrap()
}

fn content(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|n| ((n / 7) ^ seed).wrapping_mul(0x9e37_79b9).to_le_bytes()[2]).collect()
}

/// Compresses to frames of `piece` plain bytes.
fn compressed(codec: FileCodec, plain: &[u8], piece: usize) -> Vec<u8> {
    let mut encoder = PieceEncoder::new(codec).unwrap();
    let mut stored = Vec::new();
    for piece in plain.chunks(piece) {
        let start = stored.len();
        stored.resize(start + encoder.max_encoded_len(piece.len()), 0);
        let len = encoder.encode(piece, &mut stored[start..]).unwrap();
        stored.truncate(start + len);
    }
    stored
}

fn encrypted(plain: &[u8], chunk: u64) -> Vec<u8> {
    let mut encrypter = Encrypter::new(cipher(), ChunkSize::new(chunk).unwrap());
    let mut stored = Vec::new();
    encrypter.push(plain, &mut stored).unwrap();
    encrypter.finish(&mut stored).unwrap();
    stored
}

/// One file for each combination of layers: stored name, stored bytes, plain name, plain bytes.
fn samples(len: usize) -> Vec<(String, Vec<u8>, String, Vec<u8>)> {
    let zstd = FileCodec::Zstd(ZstdLevel::new(3).unwrap());
    let mut all = Vec::new();
    for (n, suffix) in
        ["", ".lz4", ".zst", ".xbcrypt", ".lz4.xbcrypt", ".zst.xbcrypt", ".xbcrypt.zst.lz4"]
            .into_iter()
            .enumerate()
    {
        let plain = content(n, len + n * 1000);
        let mut stored = plain.clone();
        for layer in suffix.split('.').skip(1) {
            stored = match layer {
                "lz4" => compressed(FileCodec::Lz4, &stored, 50_000),
                "zst" => compressed(zstd, &stored, 70_000),
                _ => encrypted(&stored, 9_000),
            };
        }
        all.push((format!("d/f{n}.ibd{suffix}"), stored, format!("d/f{n}.ibd"), plain));
    }
    all
}

/// Interleaves all files in chunks of `chunk` bytes.
fn stream(files: &[(String, Vec<u8>, String, Vec<u8>)], chunk: usize) -> Vec<u8> {
    let mut writer = ChunkWriter::new(Vec::new());
    let most = files.iter().map(|(_, stored, ..)| stored.len()).max().unwrap();
    for at in (0..most).step_by(chunk) {
        for (name, stored, ..) in files.iter().filter(|(_, stored, ..)| stored.len() > at) {
            let end = stored.len().min(at + chunk);
            writer.payload(name, at as u64, &stored[at..end]).unwrap();
        }
    }
    files.iter().for_each(|(name, ..)| writer.end(name).unwrap());
    writer.finish().unwrap()
}

fn options(threads: usize, memory: u64) -> ExtractOptions {
    let decrypt = Decrypt::With(Arc::new(cipher()));
    ExtractOptions {
        threads,
        durability: Durability::None,
        decoding: FileDecoding { decompress: true, decrypt, threads, memory },
        ..ExtractOptions::default()
    }
}

#[test]
fn pieces_of_every_size_give_the_same_files() {
    let files = samples(30_000);
    let want: BTreeMap<_, _> =
        files.iter().map(|(.., name, plain)| (name.clone(), plain.clone())).collect();
    for (chunk, step, threads) in
        [(1 << 20, usize::MAX, 1), (9_973, 1, 2), (1, 4096, 3), (777, 13, 1), (9_000, 65_537, 4)]
    {
        let dir = tempfile::tempdir().unwrap();
        let report =
            extract(dir.path(), &stream(&files, chunk), step, options(threads, 0)).unwrap();
        assert!(tree(dir.path()) == want, "chunks of {chunk}, steps of {step}");
        assert_eq!((report.files, report.decrypted), (7, 4));
    }
}

/// Every file opens its windows and keeps them until the end of the stream.
#[test]
fn hundreds_of_open_files_do_not_exceed_the_memory_and_wait_on_disk() {
    let zstd = FileCodec::Zstd(ZstdLevel::new(3).unwrap());
    let files: Vec<_> = (0..300)
        .map(|n| {
            let plain = content(n, 150_000 + n * 10);
            let stored = encrypted(&compressed(zstd, &plain, 150_000), 65_536);
            (format!("f{n}.zst.xbcrypt"), stored, format!("f{n}"), plain)
        })
        .collect();
    let bytes = stream(&files, 10_000);
    let dir = tempfile::tempdir().unwrap();
    let mut extractor =
        Extractor::new(TargetDir::open(dir.path()).unwrap(), options(3, 0)).unwrap();
    let mut parked = 0;
    for piece in bytes.chunks(100_000) {
        extractor.feed(Bytes::copy_from_slice(piece)).unwrap();
        // A file in progress is one file in the directory, a parked one is two.
        let runs = fs::read_dir(dir.path().join(".xb-partial")).unwrap();
        let there: usize = runs.map(|run| fs::read_dir(run.unwrap().path()).unwrap().count()).sum();
        parked = parked.max(there.saturating_sub(300));
    }
    assert_eq!(extractor.finish().unwrap().files, 300);
    assert!(parked > 200, "{parked} files were parked");
    let found = tree(dir.path());
    assert!(files.iter().all(|(.., name, plain)| found[name] == *plain));
}

#[test]
fn cut_layers_are_errors_though_the_stream_is_whole() {
    for (name, stored, ..) in samples(30_000) {
        if name.ends_with(".ibd") {
            continue;
        }
        // Not on a boundary of chunks or frames, where a cut cannot be detected.
        for cut in [1, 20, 4_321, stored.len() - 1] {
            let file = vec![(name.clone(), stored[..cut].to_vec(), String::new(), Vec::new())];
            let dir = tempfile::tempdir().unwrap();
            let error = extract(dir.path(), &stream(&file, 1000), 999, options(2, 0)).unwrap_err();
            assert!(
                matches!(error.cause, ExtractCause::FileDecoding { .. }),
                "{name} {cut}: {error}"
            );
            assert!(error.to_string().starts_with(&name), "{error}");
            assert_eq!(tree(dir.path()).len(), 0);
        }
    }
}

/// The job of the panicking thread holds memory for which the feeder waits; it must be freed.
#[test]
fn a_panic_ends_the_extraction_with_its_cause() {
    let noise = xb_testkit::data::noise(1, 40 << 20);
    for threads in [1, 3] {
        let files = ["panic.lz4", "other.lz4"].map(|name| {
            let stored = compressed(FileCodec::Lz4, &noise, 1 << 20);
            (name.to_owned(), stored, String::new(), Vec::new())
        });
        let bytes = stream(&files, 1 << 20);
        let dir = tempfile::tempdir().unwrap();
        let (done, waiting) = std::sync::mpsc::channel();
        let path = dir.path().to_owned();
        std::thread::spawn(move || {
            let _ = done.send(extract(&path, &bytes, 1 << 20, options(threads, 0)).unwrap_err());
        });
        let error = waiting.recv_timeout(std::time::Duration::from_secs(120));
        let error = error.expect("the extraction hangs");
        assert!(matches!(error.cause, ExtractCause::Worker(_)), "{error}");
        assert!(!dir.path().join("panic").exists());
    }
}

#[test]
fn large_encrypted_chunks_want_their_memory() {
    let len = 70 << 20;
    let plain = content(1, len);
    let stored = encrypted(&plain, len as u64);
    let file = vec![("f.xbcrypt".to_owned(), stored, String::new(), Vec::new())];
    let bytes = stream(&file, 10 << 20);
    // Decoded directly if there is memory, from disk if there is just enough, otherwise an error.
    for memory in [400, 120] {
        let dir = tempfile::tempdir().unwrap();
        extract(dir.path(), &bytes, 1 << 20, options(1, memory << 20)).unwrap();
        assert!(tree(dir.path())["f"] == plain);
    }
    let dir = tempfile::tempdir().unwrap();
    let error = extract(dir.path(), &bytes, 1 << 20, options(1, 100 << 20)).unwrap_err();
    let source = FileDecodeError::Memory { needed: 0, allowed: 0 };
    assert!(
        matches!(&error.cause, ExtractCause::FileDecoding { source: found, .. }
            if std::mem::discriminant(found) == std::mem::discriminant(&source)),
        "{error}"
    );
}

#[test]
fn bombs_cost_no_memory_and_no_disk() {
    let zstd = FileCodec::Zstd(ZstdLevel::new(19).unwrap());
    let once = compressed(zstd, &vec![0; 4 << 20], 4 << 20);
    let bomb = compressed(zstd, &once.repeat(200), 4 << 20);
    assert!(bomb.len() < 10_000);
    let file = vec![("bomb.ibd.zst.zst".to_owned(), bomb, String::new(), Vec::new())];
    let dir = tempfile::tempdir().unwrap();
    extract(dir.path(), &stream(&file, 1 << 20), 1 << 20, options(2, 64 << 20)).unwrap();
    let found = fs::metadata(dir.path().join("bomb.ibd")).unwrap();
    assert_eq!(found.len(), 200 * (4 << 20));
    assert_eq!(std::os::unix::fs::MetadataExt::blocks(&found), 0);
}

#[test]
fn renames_and_removals_reach_files_that_are_undone() {
    let stored = compressed(FileCodec::Lz4, b"some pages", 100);
    let mut writer = ChunkWriter::new(Vec::new());
    for name in ["a.lz4", "b.lz4", "c.lz4", "open.lz4", "gone.lz4"] {
        writer.payload(name, 0, &stored).unwrap();
        if !["open.lz4", "gone.lz4"].contains(&name) {
            writer.end(name).unwrap();
        }
    }
    writer.rename("a.lz4", "d/a2.lz4").unwrap();
    writer.remove("b.lz4").unwrap();
    writer.rename("open.lz4", "late.lz4").unwrap();
    writer.end("late.lz4").unwrap();
    writer.remove("gone.lz4").unwrap();
    // The name is free again, even with another suffix.
    writer.payload("b", 0, b"plain").unwrap();
    writer.end("b").unwrap();
    let bytes = writer.finish().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let report = extract(dir.path(), &bytes, 1 << 20, options(2, 0)).unwrap();
    assert_eq!(report.files, 4);
    assert_eq!(
        tree(dir.path()).into_keys().collect::<Vec<_>>(),
        ["b", "c", "d/a2", "late"].map(String::from)
    );

    let mut writer = ChunkWriter::new(Vec::new());
    writer.payload("a.lz4", 0, &stored).unwrap();
    writer.end("a.lz4").unwrap();
    writer.rename("a.lz4", "a").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let error = extract(dir.path(), &writer.finish().unwrap(), 1 << 20, options(2, 0)).unwrap_err();
    assert!(error.to_string().contains("different suffixes"), "{error}");
}

#[test]
fn a_folder_is_removed_with_files_that_were_decoded() {
    let stored = compressed(FileCodec::Lz4, b"some pages", 100);
    let mut writer = ChunkWriter::new(Vec::new());
    for name in ["d/a.lz4", "d/b", "d/open.lz4", "e/a.lz4"] {
        writer.payload(name, 0, &stored).unwrap();
        if name != "d/open.lz4" {
            writer.end(name).unwrap();
        }
    }
    writer.remove("d").unwrap();
    // The names are free again, even without the suffix.
    writer.payload("d/a", 0, b"plain").unwrap();
    writer.end("d/a").unwrap();
    writer.end("d/open.lz4").unwrap();
    let bytes = writer.finish().unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("d/anothers"), "").unwrap();
    let report = extract(dir.path(), &bytes, 1 << 20, options(2, 0)).unwrap();
    assert_eq!(report.files, 3);
    let left = ["d/a", "d/anothers", "d/open", "e/a"].map(String::from);
    assert_eq!(tree(dir.path()).into_keys().collect::<Vec<_>>(), left);
}

#[test]
fn an_abandoned_extraction_leaves_nothing() {
    let files = samples(300_000);
    let bytes = stream(&files, 10_000);
    let dir = tempfile::tempdir().unwrap();
    let mut extractor =
        Extractor::new(TargetDir::open(dir.path()).unwrap(), options(2, 0)).unwrap();
    extractor.feed(Bytes::copy_from_slice(&bytes[..bytes.len() / 2])).unwrap();
    drop(extractor);
    assert_eq!(tree(dir.path()).len(), 0);
    assert!(!dir.path().join(".xb-partial").exists());
}

#[test]
fn a_cut_stream_keeps_the_files_that_were_undone() {
    let files = samples(20_000);
    let mut writer = ChunkWriter::new(Vec::new());
    for (name, stored, ..) in &files {
        writer.payload(name, 0, stored).unwrap();
        writer.end(name).unwrap();
    }
    let bytes = writer.finish().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let options = ExtractOptions { allow_truncated: true, ..options(2, 0) };
    let report = extract(dir.path(), &bytes[..bytes.len() - 100], 4096, options).unwrap();
    assert_eq!((report.files, report.decrypted), (6, 3));
    assert_eq!(report.truncated.unwrap().dropped.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 96, ..ProptestConfig::default() })]

    /// Damage inside the stored bytes of one file, which no checksum of the stream detects: no
    /// panic, no hang, and every named file has its original content. Only a few bits are exempt,
    /// in places that no layer checks.
    #[test]
    fn damage_in_a_layer_is_contained(
        which in 1_usize..7, at in any::<prop::sample::Index>(), bit in 0..8, threads in 1_usize..4, chunk in 100_usize..20_000,
    ) {
        let mut files = samples(20_000);
        let (_, stored, ..) = &mut files[which];
        let at = at.index(stored.len());
        stored[at] ^= 1_u8 << bit;
        let dir = tempfile::tempdir().unwrap();
        let result = extract(dir.path(), &stream(&files, chunk), 1 << 20, options(threads, 0));
        let found = tree(dir.path());
        for (name, bytes) in &found {
            let plain = files.iter().find(|(.., known, _)| known == name).map(|(.., plain)| plain);
            prop_assert!(plain == Some(bytes), "{} at {}", name, at);
        }
        prop_assert_eq!(found.len() == files.len(), result.is_ok());
        prop_assert!(!dir.path().join(".xb-partial").exists());
    }
}
