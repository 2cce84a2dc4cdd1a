//! Streams cut at every byte, and streams with unusual ends.

use crate::common::{extract, tree};
use xb_reader::{ChunkWriter, MapEntry};

/// Two interleaved files with holes and an empty one, and the offsets at which no file is open.
fn sample() -> (Vec<u8>, Vec<usize>) {
    let mut stream = Vec::new();
    let mut whole_at = Vec::new();
    let mut add = |whole: bool, write: &dyn Fn(&mut ChunkWriter<&mut Vec<u8>>)| {
        write(&mut ChunkWriter::new(&mut stream));
        if whole {
            whole_at.push(stream.len());
        }
    };
    add(false, &|w| w.payload("db/a", 0, b"0123456789").unwrap());
    add(false, &|w| {
        let map = [MapEntry { skip: 7, len: 3 }, MapEntry { skip: 2, len: 1 }];
        w.sparse("b", 0, &map, b"holy").unwrap();
    });
    add(false, &|w| w.end("db/a").unwrap());
    add(false, &|w| w.payload("b", 13, b"rest").unwrap());
    add(true, &|w| w.end("b").unwrap());
    add(true, &|w| w.end("empty").unwrap());
    add(false, &|w| w.payload("c", 0, b"0123456789").unwrap());
    add(false, &|w| w.seek("c", 4).unwrap());
    add(false, &|w| w.payload("c", 4, b"xy").unwrap());
    add(true, &|w| w.end("c").unwrap());
    add(true, &|w| w.rename("c", "d/e").unwrap());
    add(true, &|w| w.remove("b").unwrap());
    (stream, whole_at)
}

#[test]
fn a_cut_is_seen_wherever_a_file_is_open() {
    let (stream, whole_at) = sample();
    for cut in 0..=stream.len() {
        let dir = tempfile::tempdir().unwrap();
        let result = extract(&stream[..cut], dir.path());
        let got = tree(dir.path());
        assert_eq!(result.is_ok(), whole_at.contains(&cut), "cut at {cut}: {result:?}");
        // Every file with a final name is complete.
        for (name, content) in &got {
            let whole = match name.as_str() {
                "db/a" | "c" | "d/e" => 10,
                "b" => 17,
                "empty" => 0,
                other => panic!("cut at {cut}: {other} is not in the stream"),
            };
            assert_eq!(content.size, whole, "cut at {cut}: {name}");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    extract(&stream[..], dir.path()).unwrap();
    let names: Vec<_> = tree(dir.path()).into_keys().collect();
    assert_eq!(names, ["d/e", "db/a", "empty"]);
}

#[test]
fn an_error_is_the_same_however_the_input_is_cut() {
    let (stream, whole_at) = sample();
    let mut broken: Vec<Vec<u8>> = (0..stream.len()).map(|cut| stream[..cut].to_vec()).collect();
    for text in [
        "mariadb-backup: Error: disk full\nmore",
        "\n\n  two lines\nmore",
        "XBSTCK0",
        "XBSTCK02",
        "\r\n\r\n",
    ] {
        for at in [0, whole_at[0]] {
            let mut bytes = stream[..at].to_vec();
            bytes.extend_from_slice(text.as_bytes());
            broken.push(bytes.clone());
            bytes.extend_from_slice(&stream[at..]);
            broken.push(bytes);
        }
    }
    for bytes in broken {
        let errors: Vec<String> = [1, 3, 64, usize::MAX]
            .into_iter()
            .map(|step| {
                let dir = tempfile::tempdir().unwrap();
                let result = extract(crate::common::Steps { bytes: &bytes, step }, dir.path());
                result.map_or_else(|error| error.to_string(), |()| "whole".to_owned())
            })
            .collect();
        assert!(errors.iter().all(|error| *error == errors[0]), "{errors:#?}");
    }
}

#[test]
fn text_in_the_way_is_quoted() {
    let mut bytes = b"\x1b[31mERROR 2002: cannot connect\nsecond line\n".to_vec();
    bytes.extend_from_slice(&sample().0);
    let dir = tempfile::tempdir().unwrap();
    let error = extract(&bytes[..], dir.path()).unwrap_err().to_string();
    let want = "not a chunk at stream offset 0: expected XBSTCK01, found \"\\x1b[31mERROR 2002: cannot connect\"";
    assert_eq!(error, want);
}
