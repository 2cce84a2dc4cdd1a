//! Streams in regular files.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::path::PathBuf;

use super::*;
use crate::StoredStream;

/// Writes `bytes` behind `before` bytes of something else; the position is in front of `bytes`.
fn input(dir: &TempDir, before: usize, bytes: &[u8]) -> (PathBuf, File) {
    let path = dir.path().join("input");
    fs::write(&path, [&vec![b'x'; before], bytes].concat()).unwrap();
    let mut file = File::open(&path).unwrap();
    file.seek(SeekFrom::Start(before as u64)).unwrap();
    (path, file)
}

/// Extracts the stream in `file` from its position on.
fn run_stored(
    dir: &Path,
    file: File,
    options: ExtractOptions,
) -> Result<ExtractReport, ExtractError> {
    let mut input = StoredStream::new(file, options.threads).unwrap().unwrap();
    let mut extractor = Extractor::new(TargetDir::open(dir).unwrap(), options)?;
    let result = loop {
        match input.feed_next(&mut extractor) {
            Ok(true) if !extractor.is_stopped() => {}
            Ok(_) => break extractor.finish(),
            Err(error) => break Err(extractor.read_failed(error)),
        }
    };
    input.leave().unwrap();
    result
}

/// Files with long chunks, one of them sparse, and small files between them.
fn long() -> (Vec<u8>, BTreeMap<String, Vec<u8>>) {
    let (one, other, dense) = (content(7, 1_700_000), content(8, 900_000), content(9, 600_000));
    let map = [
        MapEntry { skip: 0, len: 300_000 },
        MapEntry { skip: 8192, len: 299_999 },
        MapEntry { skip: 1, len: 1 },
    ];
    let bytes = stream(|w| {
        w.payload("long/one.ibd", 0, &one[..700_000])?;
        w.payload("long/other", 0, &other[..300_000])?;
        w.payload("long/one.ibd", 700_000, &one[700_000..])?;
        w.payload("little", 0, b"content")?;
        w.end("little")?;
        w.sparse("long/holes.ibd", 0, &map, &dense)?;
        w.end("empty")?;
        w.payload("long/other", 300_000, &other[300_000..])?;
        w.end("long/other")?;
        w.end("long/holes.ibd")?;
        w.end("long/one.ibd")
    });
    let mut holes = dense[..300_000].to_vec();
    holes.resize(308_192, 0);
    holes.extend_from_slice(&dense[300_000..599_999]);
    holes.push(0);
    holes.push(dense[599_999]);
    let named = [
        ("empty", Vec::new()),
        ("little", b"content".to_vec()),
        ("long/holes.ibd", holes),
        ("long/one.ibd", one),
        ("long/other", other),
    ];
    (bytes, named.map(|(name, bytes)| (name.to_owned(), bytes)).into())
}

/// Offsets of the chunks of a stream, and its length.
fn chunks(stream: &[u8]) -> Vec<usize> {
    let mut decoder =
        xb_reader::Decoder::new(xb_reader::Dialect::Auto, xb_reader::Limits::default());
    let (mut rest, mut found) = (stream, Vec::new());
    while let Some(event) = decoder.next(&mut rest).unwrap() {
        if let xb_reader::Event::Head(head) = event {
            found.push(usize::try_from(head.position).unwrap());
        }
    }
    found.push(stream.len());
    found
}

/// Extracts the same bytes from a file and from memory, and compares errors, reports and files.
fn same(bytes: &[u8], options: &ExtractOptions) {
    let folder = TempDir::new().unwrap();
    let [fed, stored] = ["fed", "stored"].map(|name| folder.path().join(name));
    for dir in [&fed, &stored] {
        fs::create_dir(dir).unwrap();
    }
    let (_, file) = input(&folder, 0, bytes);
    let expected = extract(&fed, bytes, 1 << 20, options.clone());
    let got = run_stored(&stored, file, options.clone());
    match (expected, got) {
        (Ok(expected), Ok(got)) => {
            assert_eq!((got.files, got.bytes), (expected.files, expected.bytes));
            assert!(tree(&stored) == tree(&fed));
            let dropped = |report: ExtractReport| {
                report.truncated.map(|cut| (cut.cause.to_string(), cut.dropped))
            };
            assert_eq!(dropped(got), dropped(expected));
        }
        (Err(expected), Err(got)) => {
            assert_eq!(got.to_string(), expected.to_string());
            assert_eq!(got.report.files, tree(&stored).len() as u64);
        }
        (expected, got) => panic!("in memory {expected:?}, in a file {got:?}"),
    }
}

#[test]
fn a_stream_in_a_file_is_extracted_from_where_the_file_stands() {
    let ((mut bytes, mut files), (more, others)) = (long(), mixed());
    bytes.extend(more);
    files.extend(others);
    for (threads, before) in [(1, 0), (2, 1), (4, 12_345)] {
        let (folder, dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let (path, mut file) = input(&folder, before, &bytes);
        let observer = Observer::default();
        let options = ExtractOptions { observer: observer.clone(), ..options(threads) };
        let report = run_stored(dir.path(), file.try_clone().unwrap(), options).unwrap();
        assert!(tree(dir.path()) == files, "{threads} threads");
        assert_eq!((report.files, report.bytes), (files.len() as u64, bytes.len() as u64));
        assert_eq!(observer.snapshot().bytes, report.bytes);
        // Another reader of the same descriptor continues at the end.
        assert_eq!(file.stream_position().unwrap(), fs::metadata(path).unwrap().len());
    }
    assert!(StoredStream::new(File::open("/dev/null").unwrap(), 1).unwrap().is_none());
}

#[test]
fn damage_in_any_chunk_gives_the_same_error_as_from_memory() {
    let (bytes, _) = long();
    for ends in chunks(&bytes).windows(2) {
        let (begin, end) = (ends[0], ends[1]);
        // Magic, length of the name, fields, first and last byte of the payload.
        for at in [begin, begin + 10, begin + 30, begin + (end - begin) / 2, end - 1] {
            let mut bytes = bytes.clone();
            bytes[at.min(end - 1)] ^= 0x10;
            same(&bytes, &options(2));
        }
    }
}

#[test]
fn truncation_in_any_chunk_gives_the_same_error_as_from_memory() {
    let (bytes, _) = long();
    for ends in chunks(&bytes).windows(2) {
        let (begin, end) = (ends[0], ends[1]);
        for cut in [begin, begin + 9, begin + (end - begin) / 2, end - 1] {
            same(&bytes[..cut], &options(2));
            let options = ExtractOptions { allow_truncated: true, ..options(2) };
            same(&bytes[..cut], &options);
        }
    }
    // Bytes behind the last chunk.
    for tail in [&b"\0"[..], b"XBST", b"not a chunk\n", &[0; 5000]] {
        same(&[&bytes, tail].concat(), &options(2));
    }
}

#[test]
fn layers_seeks_and_ignored_chunks_are_treated_the_same() {
    let (one, two) = (content(3, 1 << 20), content(4, 700_000));
    let mut bytes = stream(|w| {
        w.payload("f", 0, &one)?;
        w.seek("f", 100)?;
        w.payload("f", 100, &two)?;
        w.end("f")
    });
    let mut ignored = stream(|w| w.payload("x", 0, &two));
    (ignored[8], ignored[9]) = (xb_reader::FLAG_IGNORABLE, b'?');
    bytes.extend(ignored);
    bytes.extend(stream(|w| {
        w.payload("g.zst", 0, &one)?;
        w.end("g.zst")
    }));
    for threads in [1, 4] {
        same(&bytes, &options(threads));
        let decoding = crate::FileDecoding { decompress: true, ..crate::FileDecoding::default() };
        same(&bytes, &ExtractOptions { decoding, ..options(threads) });
    }
}

#[test]
fn a_file_that_is_truncated_meanwhile_is_an_error() {
    let (bytes, _) = long();
    let ends = chunks(&bytes);
    // At a chunk, between two files, and inside payload that the workers read.
    for len in [0, ends[ends.len() / 2], bytes.len() - 1_000_000] {
        let (folder, dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let (path, file) = input(&folder, 0, &bytes);
        let mut input = StoredStream::new(file, 2).unwrap().unwrap();
        OpenOptions::new().write(true).open(path).unwrap().set_len(len as u64).unwrap();
        // Truncation is not a stream that was cut: the rest existed.
        let options = ExtractOptions { allow_truncated: true, ..options(2) };
        let target = TargetDir::open(dir.path()).unwrap();
        let mut extractor = Extractor::new(target, options).unwrap();
        let error = loop {
            match input.feed_next(&mut extractor) {
                Ok(true) if !extractor.is_stopped() => {}
                Ok(_) => break extractor.finish().unwrap_err(),
                Err(error) => break extractor.read_failed(error),
            }
        };
        let text = error.to_string();
        assert!(text.ends_with("the input file was truncated while it was being read"), "{text}");
        assert!(matches!(error.cause, ExtractCause::Read { .. }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 48, ..ProptestConfig::default() })]

    /// Chunks of any length, with any damage, give the same files or the same error.
    #[test]
    fn any_stream_gives_the_same_from_file_and_memory(
        lens in prop::collection::vec(prop_oneof![1_usize..5000, 200_000_usize..700_000], 1..12),
        damage in prop::option::of((any::<prop::sample::Index>(), 0..8)),
        threads in 1_usize..4,
    ) {
        let mut bytes = stream(|w| {
            let mut offsets = [0; 3];
            for (n, len) in lens.iter().enumerate() {
                let at = &mut offsets[n % 3];
                w.payload(format!("d/f{}", n % 3), *at, &content(n, *len))?;
                *at += *len as u64;
            }
            (0..3).try_for_each(|n| w.end(format!("d/f{n}")))
        });
        if let Some((at, bit)) = damage {
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
        }
        same(&bytes, &options(threads));
    }
}
