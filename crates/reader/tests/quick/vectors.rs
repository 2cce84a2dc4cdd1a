//! Decodes every vector, with the input cut in several ways.

use crate::common::{Steps, Vector, extract, tree};

#[test]
fn every_vector_gives_its_result() {
    for vector in Vector::all() {
        let bytes = vector.bytes();
        let steps: &[usize] =
            if bytes.len() < 100_000 { &[1, 7, usize::MAX] } else { &[4099, usize::MAX] };
        for &step in steps {
            let dir = tempfile::tempdir().unwrap();
            let target = dir.path().join("target");
            std::fs::create_dir(&target).unwrap();
            let result = extract(Steps { bytes: &bytes, step }, &target);
            let got = tree(&target);
            match (&vector.plain, result) {
                (Some(plain), Ok(())) => assert_eq!(&got, plain, "{}, step {step}", vector.file),
                (Some(_), Err(error)) => panic!("{}, step {step}: {error}", vector.file),
                (None, Ok(())) => panic!("{}, step {step}: taken", vector.file),
                (None, Err(_)) => {}
            }
            // No unfinished files are left, and there is nothing outside the target.
            assert!(!target.join(".xb-partial").exists(), "{}", vector.file);
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "{}", vector.file);
        }
    }
}

/// The messages of the bad vectors, so that a message that gets worse is noticed.
#[test]
fn messages_name_file_and_offset() {
    let vectors = Vector::all();
    let mut worse = Vec::new();
    for (file, want) in [
        ("bad/absolute.xbs", "chunk at stream offset 0: absolute file name /evil-q41"),
        (
            "bad/bad-checksum.xbs",
            "q41: checksum mismatch in the chunk for file offset 0 (stream offset 0)",
        ),
        (
            "bad/bad-magic-second.xbs",
            "not a chunk at stream offset 40: expected XBSTCK01, found \"YBSTCK01\"",
        ),
        (
            "bad/duplicate-file.xbs",
            "q41: chunk at stream offset 57 follows the end chunk of the file",
        ),
        ("bad/empty-input.xbs", "the input is empty"),
        ("bad/file-then-dir.xbs", "n/m: n is not a directory"),
        ("bad/gap.xbs", "q41: chunk at stream offset 40 is for file offset 4, expected 3"),
        ("bad/garbage-after.xbs", "not a chunk at stream offset 57: expected XBSTCK01, found \""),
        ("bad/length-huge.xbs", "q41: chunk at stream offset 0 has "),
        ("bad/missing-eof.xbs", "the stream is truncated: 1 file has no end chunk: q41 (at 3)"),
        ("bad/overlap.xbs", "q41: chunk at stream offset 43 is for file offset 3, expected 6"),
        ("bad/path-empty.xbs", "chunk at stream offset 0: empty file name"),
        ("bad/path-length-512.xbs", "has a file name of 512 bytes, more than the limit of 511"),
        ("bad/path-length-huge.xbs", "has a file name of"),
        ("bad/path-with-nul.xbs", "contains a NUL byte"),
        ("bad/sparse-crc-without-map.xbs", "b.ibd: checksum mismatch"),
        ("bad/sparse-map-count-huge.xbs", "has 4294967295 map entries, allowed range 1 to 1048576"),
        ("bad/sparse-map-cut.xbs", "the stream ends at offset 54, inside the chunk at 0 of b.ibd"),
        ("bad/sparse-map-longer-than-payload.xbs", "adds up to"),
        ("bad/sparse-map-shorter-than-payload.xbs", "adds up to"),
        ("bad/sparse-offset-without-holes.xbs", "b.ibd: chunk at stream offset"),
        ("bad/traversal.xbs", "leads outside the directory"),
        ("bad/truncated-at-13.xbs", "the stream ends at offset 13, inside the chunk at 0"),
        ("bad/unknown-type.xbs", "chunk at stream offset 40 has the unknown type 0x5"),
        ("mariadb/rename-traversal.xbs", "leads outside the directory"),
    ] {
        let vector = vectors.iter().find(|vector| vector.file == file).expect(file);
        let dir = tempfile::tempdir().unwrap();
        let error = extract(&vector.bytes()[..], dir.path()).expect_err(file).to_string();
        if !error.contains(want) {
            worse.push(format!("{file}: {error}"));
        }
    }
    assert!(worse.is_empty(), "{worse:#?}");
}

/// The content of the vector, spelled out: the seek goes back into the middle of the file.
#[test]
fn a_seek_overwrites() {
    let vectors = Vector::all();
    let seek = vectors.iter().find(|vector| vector.file == "mariadb/seek.xbs").unwrap();
    let dir = tempfile::tempdir().unwrap();
    extract(&seek.bytes()[..], dir.path()).unwrap();
    assert_eq!(std::fs::read(dir.path().join("m/a")).unwrap(), b"hellXYworld");
}
