mod interleaved;
mod resumed;
mod stored;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use tempfile::TempDir;
use xb_reader::{ChunkWriter, DecodeError, FLAG_REWRITE, MapEntry, TargetDir, TargetError};

use crate::testing::{extract, tree};
use crate::{
    Durability, ExtractCause, ExtractError, ExtractOptions, ExtractReport, Extractor, Observer,
    OnFailure, extract_from,
};

type Writer = ChunkWriter<Vec<u8>>;

fn stream(write: impl FnOnce(&mut Writer) -> io::Result<()>) -> Vec<u8> {
    let mut writer = ChunkWriter::new(Vec::new());
    write(&mut writer).unwrap();
    writer.finish().unwrap()
}

/// Bytes that differ at every position.
fn content(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|n| (n ^ seed).wrapping_mul(0x9e37_79b9).to_le_bytes()[2]).collect()
}

fn options(threads: usize) -> ExtractOptions {
    ExtractOptions { threads, durability: Durability::None, ..ExtractOptions::default() }
}

fn names(dir: &TempDir) -> Vec<String> {
    tree(dir.path()).into_keys().collect()
}

/// Interleaves two files of several MiB, one with holes, and many small files.
fn mixed() -> (Vec<u8>, BTreeMap<String, Vec<u8>>) {
    let mut files = BTreeMap::new();
    let big = content(1, 5_000_001);
    let dense = content(2, 3_000_000);
    let map = [
        MapEntry { skip: 4096, len: 1_500_000 },
        MapEntry { skip: 70_000, len: 1_499_999 },
        MapEntry { skip: 1, len: 1 },
        MapEntry { skip: 12_345, len: 0 },
    ];
    let bytes = stream(|w| {
        for n in 0..5 {
            let at = n * 1_000_000;
            w.payload("db/big.ibd", at as u64, &big[at..at + 1_000_000])?;
            for m in 0..20 {
                let name = format!("small/{n}-{m}");
                let bytes = content(n * 20 + m, m * 50);
                if !bytes.is_empty() {
                    w.payload(&name, 0, &bytes)?;
                }
                w.end(&name)?;
                files.insert(name, bytes);
            }
            if n == 2 {
                w.sparse("db/holes.ibd", 0, &map, &dense)?;
            }
        }
        w.payload("db/big.ibd", 5_000_000, &big[5_000_000..])?;
        w.end("db/big.ibd")?;
        w.payload("db/holes.ibd", 4096 + 70_000 + 1 + 12_345 + 3_000_000, b"tail")?;
        w.end("db/holes.ibd")
    });
    let mut holes = vec![0; 4096];
    holes.extend_from_slice(&dense[..1_500_000]);
    holes.resize(holes.len() + 70_000, 0);
    holes.extend_from_slice(&dense[1_500_000..2_999_999]);
    holes.push(0);
    holes.extend_from_slice(&dense[2_999_999..]);
    holes.resize(holes.len() + 12_345, 0);
    holes.extend_from_slice(b"tail");
    files.insert("db/big.ibd".to_owned(), big);
    files.insert("db/holes.ibd".to_owned(), holes);
    (bytes, files)
}

#[test]
fn files_come_out_whole_with_any_number_of_threads() {
    let (bytes, files) = mixed();
    for (threads, step) in [(1, 1 << 20), (2, 1 << 20), (4, 65_536), (3, 999_983), (2, usize::MAX)]
    {
        let dir = tempfile::tempdir().unwrap();
        let observer = Observer::default();
        let options = ExtractOptions { observer: observer.clone(), ..options(threads) };
        let report = extract(dir.path(), &bytes, step, options).unwrap();
        assert!(tree(dir.path()) == files, "{threads} threads, steps of {step}");
        assert_eq!((report.files, report.bytes), (files.len() as u64, bytes.len() as u64));
        assert!(report.truncated.is_none());
        let seen = observer.snapshot();
        assert_eq!((seen.files, seen.bytes), (report.files, report.bytes));
    }
}

#[test]
fn a_reader_is_read_to_its_end() {
    let (bytes, files) = mixed();
    for durability in [Durability::File, Durability::End] {
        let dir = tempfile::tempdir().unwrap();
        let target = TargetDir::open(dir.path()).unwrap();
        let options = ExtractOptions { durability, ..options(2) };
        extract_from(&bytes[..], target, options).unwrap();
        assert!(tree(dir.path()) == files);
    }
}

#[test]
fn names_are_reported_when_a_file_begins() {
    let bytes = stream(|w| {
        w.payload("a", 0, b"1")?;
        w.end("empty")?;
        w.payload("a", 1, b"2")?;
        w.end("a")
    });
    let dir = tempfile::tempdir().unwrap();
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let names = Arc::clone(&told);
    let mut extractor = Extractor::new(TargetDir::open(dir.path()).unwrap(), options(1))
        .unwrap()
        .on_file(move |path| names.lock().unwrap().push(path.to_string()));
    extractor.feed(bytes.into()).unwrap();
    extractor.finish().unwrap();
    assert_eq!(*told.lock().unwrap(), ["a", "empty"]);
}

#[test]
fn the_first_error_in_the_stream_counts_and_whole_files_stay() {
    let big = content(3, 3 << 20);
    let good = stream(|w| {
        w.payload("whole", 0, b"abc")?;
        w.end("whole")?;
        w.payload("half", 0, &big)
    });
    let mut bytes = good.clone();
    // A wrong byte of payload, followed by a chunk out of order and by bytes that are no chunk.
    bytes[1 << 20] ^= 1;
    bytes.extend(stream(|w| {
        w.payload("late", 0, &big)?;
        w.end("late")?;
        w.payload("half", 1, b"gap")
    }));
    bytes.extend_from_slice(b"not a chunk at all");
    for (threads, step) in [(1, 4096), (2, 1 << 20), (4, usize::MAX)] {
        let dir = tempfile::tempdir().unwrap();
        let error = extract(dir.path(), &bytes, step, options(threads)).unwrap_err();
        assert!(
            matches!(error.cause, ExtractCause::Decode(DecodeError::Checksum { .. })),
            "{threads} threads, steps of {step}: {error}"
        );
        assert_eq!(error.report.files, 1);
        assert_eq!(names(&dir), ["whole"]);
        assert!(!dir.path().join(".xb-partial").exists());
    }
}

#[test]
fn errors_tell_file_and_offsets() {
    let table: [(Vec<u8>, &str); 4] = [
        (
            stream(|w| w.payload("a", 0, b"abc")),
            "the stream is truncated: 1 file has no end chunk: a (at 3)",
        ),
        (
            stream(|w| {
                w.payload("a", 0, b"abc")?;
                w.payload("a", 4, b"abc")
            }),
            "a: chunk at stream offset 38 is for file offset 4, expected 3",
        ),
        (
            stream(|w| {
                w.end("fine")?;
                w.end("there/f")
            }),
            "there/f: there is not a directory (stream offset 18)",
        ),
        (stream(|w| w.end(".xb-partial/f")), "names starting with .xb-partial are reserved"),
    ];
    for (bytes, want) in table {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("there"), "").unwrap();
        let error = extract(dir.path(), &bytes, 1 << 20, options(2)).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
}

#[test]
fn nothing_that_was_there_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("old"), "old").unwrap();
    for bytes in [
        stream(|w| {
            w.payload("old", 0, b"new")?;
            w.end("old")
        }),
        stream(|w| {
            w.end("mine")?;
            w.rename("mine", "old")
        }),
        stream(|w| {
            w.payload("mine2", 0, b"new")?;
            w.rename("mine2", "old")?;
            w.end("old")
        }),
        stream(|w| w.remove("old")),
    ] {
        let error = extract(dir.path(), &bytes, 7, options(2)).unwrap_err();
        let exists =
            matches!(error.cause, ExtractCause::Target { source: TargetError::Exists { .. }, .. });
        assert!(exists, "{error}");
    }
    // Even if a chunk declares that it may replace the file.
    let mut bytes = stream(|w| w.payload("old", 0, b"new"));
    bytes[8] = FLAG_REWRITE;
    bytes.extend(stream(|w| w.end("old")));
    extract(dir.path(), &bytes, 1 << 20, options(1)).unwrap_err();
    assert_eq!(fs::read(dir.path().join("old")).unwrap(), b"old");
}

#[test]
fn names_change_in_the_order_of_the_stream() {
    let put = |w: &mut Writer, name: &str, bytes: &[u8]| {
        w.payload(name, 0, bytes)?;
        w.end(name)
    };
    let mut bytes = stream(|w| {
        put(w, "a", b"first a")?;
        put(w, "b", b"first b")?;
        // Swap two names, then use the freed name again.
        w.rename("a", "tmp")?;
        w.rename("b", "a")?;
        w.rename("tmp", "b")?;
        w.rename("b", "c/d")?;
        put(w, "b", b"second b")?;
        // Remove and create again; remove while open; rename while open.
        w.remove("a")?;
        put(w, "a", b"second a")?;
        w.payload("gone", 0, b"x")?;
        w.remove("gone")?;
        w.remove("never was")?;
        w.payload("e", 0, b"ee")?;
        w.rename("e", "f")?;
        w.payload("f", 2, b"ff")?;
        w.end("f")?;
        put(w, "twice", b"the first and longer one")
    });
    let rewrite = bytes.len();
    bytes.extend(stream(|w| put(w, "twice", b"second")));
    bytes[rewrite + 8] = FLAG_REWRITE;
    for (threads, step) in [(1, 1), (2, 1 << 20), (4, 61)] {
        let dir = tempfile::tempdir().unwrap();
        let report = extract(dir.path(), &bytes, step, options(threads)).unwrap();
        let want = [
            ("a", &b"second a"[..]),
            ("b", b"second b"),
            ("c/d", b"first a"),
            ("f", b"eeff"),
            ("twice", b"second"),
        ];
        assert_eq!(
            tree(dir.path()),
            want.map(|(name, bytes)| (name.to_owned(), bytes.to_vec())).into()
        );
        assert_eq!(report.files, 5);
    }
}

/// mariadb-backup removes the folder of a database that was dropped while it ran, and names only that.
#[test]
fn a_folder_is_removed_with_the_files_of_the_stream_in_it() {
    let bytes = stream(|w| {
        for name in ["d/a", "d/b", "shared/a", "other/a"] {
            w.payload(name, 0, name.as_bytes())?;
            w.end(name)?;
        }
        w.end("d/c")?;
        w.remove("d")?;
        w.remove("shared")?;
        // Its files went before.
        w.end("one/a")?;
        w.end("one/b")?;
        w.remove("one/a")?;
        w.rename("one/b", "other/b")?;
        w.remove("one")?;
        w.payload("d/again", 0, b"x")?;
        w.end("d/again")
    });
    for threads in [1, 4] {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("shared")).unwrap();
        fs::write(dir.path().join("shared/anothers"), "y").unwrap();
        let report = extract(dir.path(), &bytes, 1 << 20, options(threads)).unwrap();
        let left =
            [("d/again", "x"), ("other/a", "other/a"), ("other/b", ""), ("shared/anothers", "y")];
        let left = left.map(|(name, bytes)| (name.to_owned(), bytes.as_bytes().to_vec()));
        assert_eq!(tree(dir.path()), left.into());
        assert!(!dir.path().join("one").exists());
        assert_eq!(report.files, 3);
    }
    // One without a file of the stream is another's.
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    let bytes = stream(|w| w.remove("d"));
    let error = extract(dir.path(), &bytes, 1 << 20, options(1)).unwrap_err().to_string();
    assert!(error.contains("d: already exists"), "{error}");
}

#[test]
fn pieces_that_overlap_keep_their_order() {
    let first = content(4, 4 << 20);
    let second = content(5, 2 << 20);
    let bytes = stream(|w| {
        w.payload("f", 0, &first)?;
        for n in 0..8_u64 {
            w.seek("f", n << 18)?;
            w.payload("f", n << 18, &second)?;
        }
        w.end("f")
    });
    let mut want = first;
    for n in 0..8 {
        want[n << 18..(n << 18) + (2 << 20)].copy_from_slice(&second);
    }
    for threads in [1, 4] {
        let dir = tempfile::tempdir().unwrap();
        extract(dir.path(), &bytes, 1 << 20, options(threads)).unwrap();
        assert!(tree(dir.path())["f"] == want);
    }
}

#[test]
fn a_cut_stream_is_salvaged_only_where_that_is_allowed() {
    let bytes = stream(|w| {
        w.payload("whole", 0, b"abc")?;
        w.end("whole")?;
        w.payload("b", 0, b"12345")?;
        w.payload("a", 0, b"123")
    });
    for cut in [bytes.len(), bytes.len() - 1, bytes.len() - 38] {
        let dir = tempfile::tempdir().unwrap();
        assert!(
            extract(dir.path(), &bytes[..cut], 1 << 20, options(2)).unwrap_err().cause.is_cut()
        );
        assert_eq!(names(&dir), ["whole"]);
        let dir = tempfile::tempdir().unwrap();
        let options = ExtractOptions { allow_truncated: true, ..options(2) };
        let report = extract(dir.path(), &bytes[..cut], 1 << 20, options).unwrap();
        assert_eq!((report.files, names(&dir)), (1, vec!["whole".to_owned()]));
        let dropped: Vec<_> = report
            .truncated
            .unwrap()
            .dropped
            .into_iter()
            .map(|(path, at)| (path.to_string(), at))
            .collect();
        let both = [("a".to_owned(), 3), ("b".to_owned(), 5)];
        assert_eq!(dropped, if cut == bytes.len() - 38 { &both[1..] } else { &both[..] });
    }
    // Errors other than a cut are never tolerated.
    let mut wrong = bytes.clone();
    wrong[37] ^= 1;
    for bytes in [&wrong[..], b""] {
        let dir = tempfile::tempdir().unwrap();
        let options = ExtractOptions { allow_truncated: true, ..options(1) };
        extract(dir.path(), bytes, 1 << 20, options).unwrap_err();
        assert_eq!(names(&dir), Vec::<String>::new());
    }
}

#[test]
fn an_abandoned_extraction_leaves_whole_files_only() {
    let (bytes, files) = mixed();
    let dir = tempfile::tempdir().unwrap();
    let mut extractor = Extractor::new(TargetDir::open(dir.path()).unwrap(), options(2)).unwrap();
    extractor.feed(Bytes::copy_from_slice(&bytes[..bytes.len() / 2])).unwrap();
    drop(extractor);
    for (name, bytes) in tree(dir.path()) {
        assert!(files[&name] == bytes, "{name}");
    }
    assert!(!dir.path().join(".xb-partial").exists());
}

#[test]
fn input_that_fails_is_an_error_with_its_place() {
    struct Broken(usize);
    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let bytes = stream(|w| w.end("whole"));
            if self.0 == bytes.len() {
                return Err(io::Error::other("cable pulled"));
            }
            buffer[0] = bytes[self.0];
            self.0 += 1;
            Ok(1)
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let target = TargetDir::open(dir.path()).unwrap();
    let error = extract_from(Broken(0), target, options(1)).unwrap_err();
    assert_eq!(error.to_string(), "cannot read at stream offset 19: cable pulled");
    assert_eq!((error.report.files, names(&dir)), (1, vec!["whole".to_owned()]));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    /// For any damage: no panic, no hang, and every named file has its content from the stream.
    #[test]
    fn damage_is_contained(at in any::<prop::sample::Index>(), bit in 0..8, threads in 1_usize..4, step in 1_usize..200) {
        let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut bytes = stream(|w| {
            for n in 0..4_usize {
                let bytes = content(n, 100 * n);
                w.payload(format!("d/f{n}"), 0, &bytes[..50 * n])?;
                w.end(format!("e{n}"))?;
                w.payload(format!("d/f{n}"), 50 * n as u64, &bytes[50 * n..])?;
                w.end(format!("d/f{n}"))?;
                files.insert(format!("d/f{n}"), bytes);
            }
            Ok(())
        });
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        let dir = tempfile::tempdir().unwrap();
        let _ = extract(dir.path(), &bytes, step, options(threads));
        for (name, bytes) in tree(dir.path()) {
            // Checksums cover the contents, but not the names.
            let empty = bytes.is_empty();
            prop_assert!(empty || files.values().any(|known| *known == bytes), "{}", name);
        }
        prop_assert!(!dir.path().join(".xb-partial").exists());
    }
}

#[test]
fn a_failure_is_reported_while_the_input_stalls() {
    for threads in [1, 3] {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("taken"), "by another").unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let on_failure = OnFailure::new(move |cause| {
            let _ = tell.send(cause.to_string());
        });
        let options = ExtractOptions { on_failure, ..options(threads) };
        let mut extractor = Extractor::new(TargetDir::open(dir.path()).unwrap(), options).unwrap();
        let bytes = stream(|writer| {
            writer.payload("taken", 0, b"new")?;
            writer.end("taken")
        });
        // The error may be found before all bytes are fed.
        let _ = extractor.feed(bytes.into());
        let cause = told.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
        assert!(cause.contains("taken: already exists"), "{cause}");
        assert_eq!(extractor.finish().unwrap_err().to_string(), cause);
    }
}

#[test]
fn small_files_are_counted_as_they_are_named() {
    let len = |n: usize| 4000 + n * 7;
    let good = stream(|w| {
        for n in 0..2000 {
            w.payload(format!("d{}/f{n:04}", n / 100), 0, &content(n, len(n)))?;
            w.end(format!("d{}/f{n:04}", n / 100))?;
        }
        Ok(())
    });
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    for threads in [1, 4] {
        let dir = TempDir::new().unwrap();
        let report = extract(dir.path(), &good, 1 << 20, options(threads)).unwrap();
        assert_eq!((report.files, tree(dir.path()).len()), (2000, 2000));

        let dir = TempDir::new().unwrap();
        let error = extract(dir.path(), &bad, 1 << 20, options(threads)).unwrap_err();
        let files = tree(dir.path());
        assert_eq!(error.report.files, files.len() as u64);
        for (name, bytes) in files {
            let n: usize = name.rsplit_once('f').unwrap().1.parse().unwrap();
            assert!(bytes == content(n, len(n)), "{name}");
        }
    }
}
