//! Several streams over real FIFOs: merged to one, and one divided between several.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::stream;
use rustix::fs::{CWD, FileType, mknodat};
use xb_pipeline::{FifoError, FifoNames, Fifos, Merge, Split};
use xb_reader::{Change, ChunkReader, Dialect, Item, Limits};

/// Long enough for any machine.
const LONG: Duration = Duration::from_secs(120);

fn fifos(dir: &Path, streams: usize, timeout: Duration) -> Fifos {
    Fifos { dir: dir.to_owned(), streams, timeout, dialect: Dialect::Auto }
}

fn name(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("thread_{number}"))
}

fn create(dir: &Path, streams: usize) {
    for number in 0..streams {
        mknodat(CWD, name(dir, number), FileType::Fifo, 0o600.into(), 0).unwrap();
    }
}

/// Writes a control byte and `bytes` to a FIFO, from another thread.
fn writer(dir: &Path, number: usize, bytes: Vec<u8>) -> JoinHandle<std::io::Result<()>> {
    raw_writer(dir, number, [&[0][..], &bytes].concat())
}

fn raw_writer(dir: &Path, number: usize, bytes: Vec<u8>) -> JoinHandle<std::io::Result<()>> {
    let path = name(dir, number);
    std::thread::spawn(move || OpenOptions::new().write(true).open(path)?.write_all(&bytes))
}

fn merged(dir: &Path, streams: usize, timeout: Duration) -> std::io::Result<Vec<u8>> {
    let (mut merge, _names) = Merge::new(fifos(dir, streams, timeout), None);
    let mut all = Vec::new();
    merge.read_to_end(&mut all).map(|_| all)
}

/// Content of each file of a stream, and the names in the order of their ends.
fn files(stream: &[u8]) -> (BTreeMap<String, Vec<u8>>, Vec<String>) {
    let mut reader = ChunkReader::new(stream, Dialect::Auto, Limits::default());
    let (mut files, mut order) = (BTreeMap::<String, Vec<u8>>::new(), Vec::new());
    let mut current = String::new();
    while let Some(item) = reader.next().unwrap() {
        match item {
            Item::Chunk(head, change) => {
                current = head.path.to_string();
                files.entry(current.clone()).or_default();
                if matches!(change, Change::Ended { .. }) {
                    order.push(current.clone());
                }
            }
            Item::Data(bytes) => files.get_mut(&current).unwrap().extend_from_slice(bytes),
            Item::ChunkEnd => {}
        }
    }
    (files, order)
}

/// Streams of several threads, as a producer writes them: the last file after everything else.
fn threads(streams: usize) -> Vec<Vec<u8>> {
    (0..streams)
        .map(|thread| {
            let names: Vec<_> = (0..20).map(|n| format!("t{thread}/{n}.ibd")).collect();
            let sizes = names.iter().enumerate().map(|(n, name)| (name.as_str(), n * n * 997));
            stream(&sizes.collect::<Vec<_>>(), 10_000 + thread * 7777)
        })
        .collect()
}

#[test]
fn streams_are_merged_by_whole_chunks_and_the_last_file_stays_last() {
    for streams in [2, 3, 8] {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path(), streams);
        let mut inputs = threads(streams);
        let expected: BTreeMap<_, _> = inputs.iter().flat_map(|input| files(input).0).collect();
        // The last file is in the stream that is looked at first.
        let info = stream(&[("xtrabackup_info", 100), ("xtrabackup_tablespaces", 300)], 50);
        inputs[0].extend_from_slice(&info);
        let writers: Vec<_> = inputs
            .into_iter()
            .enumerate()
            .map(|(number, input)| writer(dir.path(), number, input))
            .collect();
        let all = merged(dir.path(), streams, LONG).unwrap();
        writers.into_iter().for_each(|writer| writer.join().unwrap().unwrap());
        let (mut found, order) = files(&all);
        assert_eq!(found.remove("xtrabackup_info").unwrap().len(), 100);
        assert_eq!(found.remove("xtrabackup_tablespaces").unwrap().len(), 300);
        assert!(found == expected, "{streams} streams");
        assert_eq!(order.len(), 20 * streams + 2);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "names are removed");
    }
}

/// Everything that was written before the last file is read before it, wherever it was written.
#[test]
fn the_last_file_waits_for_what_was_written_before_it() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), 3);
    let open: Vec<_> = (0..3)
        .map(|number| {
            let path = name(dir.path(), number);
            OpenOptions::new().read(true).write(true).open(path).unwrap()
        })
        .collect();
    let mut send = [&open[0], &open[1], &open[2]];
    // Small enough for the pipes, so that one thread can write all of it before the reader starts.
    for file in &mut send {
        file.write_all(&[0]).unwrap();
    }
    send[0].write_all(&stream(&[("xtrabackup_tablespaces", 9)], 5)).unwrap();
    send[1].write_all(&stream(&[("xtrabackup_info.zst", 9)], 5)).unwrap();
    send[2].write_all(&stream(&[("a.ibd", 9000), ("b.ibd", 0)], 100)).unwrap();
    let (mut merge, _names) = Merge::new(fifos(dir.path(), 3, LONG), None);
    // The reader opens its ends before the writers close theirs.
    let mut first = vec![0; 10];
    merge.read_exact(&mut first).unwrap();
    drop(open);
    merge.read_to_end(&mut first).unwrap();
    let order = files(&first).1;
    assert_eq!(order, ["a.ibd", "b.ibd", "xtrabackup_info.zst", "xtrabackup_tablespaces"]);
}

#[test]
fn a_stream_may_be_empty_and_may_lack_its_control_byte() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), 3);
    let one = stream(&[("x", 5)], 3);
    let writers = [
        raw_writer(dir.path(), 0, one.clone()),
        raw_writer(dir.path(), 1, vec![0]),
        // A control byte that looks like the start of a chunk.
        raw_writer(dir.path(), 2, [&b"X"[..], &stream(&[("y", 2)], 1)].concat()),
    ];
    let all = merged(dir.path(), 3, LONG).unwrap();
    writers.into_iter().for_each(|writer| writer.join().unwrap().unwrap());
    assert_eq!(files(&all).0.into_keys().collect::<Vec<_>>(), ["x", "y"]);
}

#[test]
fn chunks_of_every_type_pass_unchanged() {
    // A sparse map far longer than the buffer of a FIFO, then a seek as the last chunk but one.
    let entries = 5000_u32;
    let payload = vec![7; entries as usize];
    let mut map = Vec::new();
    for _ in 0..entries {
        map.extend_from_slice(&4096_u32.to_le_bytes());
        map.extend_from_slice(&1_u32.to_le_bytes());
    }
    let mut bytes = b"XBSTCK01\0S\x01\0\0\0s".to_vec();
    bytes.extend_from_slice(&entries.to_le_bytes());
    bytes.extend_from_slice(&u64::from(entries).to_le_bytes());
    bytes.extend_from_slice(&0_u64.to_le_bytes());
    let crc = xb_reader::crc32(&[&map[..], &payload].concat());
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(&map);
    bytes.extend_from_slice(&payload);
    bytes.extend_from_slice(b"XBSTCK01\0E\x01\0\0\0s");
    bytes.extend_from_slice(b"XBSTCK01\0S\x01\0\0\0m");
    bytes.extend_from_slice(&77_u64.to_le_bytes());
    bytes.extend_from_slice(b"XBSTCK01\0E\x01\0\0\0m");
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), 2);
    let writers = [writer(dir.path(), 0, bytes.clone()), writer(dir.path(), 1, Vec::new())];
    let all = merged(dir.path(), 2, LONG).unwrap();
    writers.into_iter().for_each(|writer| writer.join().unwrap().unwrap());
    assert!(all == bytes);
}

/// A writer that dies ends the others: their next write fails.
#[test]
fn a_writer_that_dies_is_named_and_the_others_are_ended() {
    let whole = stream(&[("a/b.ibd", 50_000)], 20_000);
    let end = whole.len();
    for (cut, expected) in [
        (end - 21, "1 file has no end chunk: a/b.ibd (at 50000)"),
        (end - 20, "the stream ends at offset"),
        (end - 100, "the stream ends at offset"),
        (20_041, "1 file has no end chunk: a/b.ibd (at 20000)"),
        (3, "the stream ends at offset 3"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path(), 3);
        let dying = writer(dir.path(), 1, whole[..cut].to_vec());
        // Far more than the pipes hold.
        let endless = |number| {
            let names: Vec<_> = (0..60).map(|n| format!("{number}/{n}")).collect();
            let sizes: Vec<_> = names.iter().map(|name| (name.as_str(), 200_000)).collect();
            writer(dir.path(), number, stream(&sizes, 100_000))
        };
        let others = [endless(0), endless(2)];
        let (mut merge, names) = Merge::new(fifos(dir.path(), 3, LONG), None);
        let error = merge.read_to_end(&mut Vec::new()).unwrap_err();
        let text = FifoError::within(&error).unwrap().to_string();
        let path = name(dir.path(), 1).display().to_string();
        assert!(text.contains(&path) && text.contains(expected), "{cut}: {text}");
        dying.join().unwrap().unwrap();
        for other in others {
            let failed = other.join().unwrap().unwrap_err();
            assert_eq!(failed.kind(), ErrorKind::BrokenPipe);
        }
        drop(names);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_writer_that_never_comes_is_named() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), 1);
    let only = writer(dir.path(), 0, stream(&[("x", 5)], 3));
    let error = merged(dir.path(), 2, Duration::from_millis(300)).unwrap_err().to_string();
    assert!(error.contains("thread_1: no program created it within 0 s"), "{error}");
    only.join().unwrap().unwrap();

    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), 2);
    let only = writer(dir.path(), 0, stream(&[("x", 5)], 3));
    let error = merged(dir.path(), 2, Duration::from_millis(300)).unwrap_err().to_string();
    assert!(error.contains("thread_1: no program opened it for writing within"), "{error}");
    only.join().unwrap().unwrap();

    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), 2);
    let silent = raw_writer(dir.path(), 1, Vec::new());
    let error = merged(dir.path(), 2, LONG).unwrap_err().to_string();
    assert!(error.contains("thread_1: its writer ended without writing anything"), "{error}");
    silent.join().unwrap().unwrap();
}

#[test]
fn an_input_without_fifo_or_stream_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(name(dir.path(), 0), "precious").unwrap();
    let error = merged(dir.path(), 2, LONG).unwrap_err().to_string();
    assert!(error.contains("thread_0: it exists, but is not a FIFO"), "{error}");
    assert_eq!(std::fs::read(name(dir.path(), 0)).unwrap(), b"precious", "not ours to remove");

    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), 2);
    let writers = [
        writer(dir.path(), 0, b"mysql: [Warning] something\n".to_vec()),
        writer(dir.path(), 1, stream(&[("x", 5)], 3)),
    ];
    let error = merged(dir.path(), 2, LONG).unwrap_err().to_string();
    assert!(error.contains("thread_0") && error.contains("[Warning]"), "{error}");
    writers.into_iter().for_each(|writer| drop(writer.join().unwrap()));

    // A file may not be divided between two FIFOs.
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), 2);
    let whole = stream(&[("x", 20)], 10);
    let half = 8 + 6 + 1 + 20 + 10;
    let writers = [
        writer(dir.path(), 0, whole[..half].to_vec()),
        writer(dir.path(), 1, whole[half..].to_vec()),
    ];
    let error = merged(dir.path(), 2, LONG).unwrap_err().to_string();
    assert!(error.contains("thread_"), "{error}");
    writers.into_iter().for_each(|writer| drop(writer.join().unwrap()));
}

/// Reads a FIFO to its end, as soon as it exists, from another thread.
fn reader(dir: &Path, number: usize) -> JoinHandle<Vec<u8>> {
    let path = name(dir, number);
    std::thread::spawn(move || {
        let mut file = loop {
            match File::open(&path) {
                Ok(file) => break file,
                Err(error) if error.kind() == ErrorKind::NotFound => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        };
        let mut all = Vec::new();
        file.read_to_end(&mut all).unwrap();
        all
    })
}

#[test]
fn a_stream_is_divided_by_files_and_every_part_is_a_stream() {
    let mut whole = threads(4).concat();
    whole.extend_from_slice(&stream(&[("xtrabackup_info", 100)], 50));
    let expected = files(&whole).0;
    for (streams, step) in [(2, 1000), (5, 7), (3, whole.len())] {
        let dir = tempfile::tempdir().unwrap();
        let readers: Vec<_> = (0..streams).map(|number| reader(dir.path(), number)).collect();
        let names = FifoNames::default();
        let mut split = Split::opening(fifos(dir.path(), streams, LONG), &names)().unwrap();
        whole.chunks(step).for_each(|piece| split.write_all(piece).unwrap());
        split.finish().unwrap();
        let mut found = BTreeMap::new();
        let mut last = 0;
        for reader in readers {
            let bytes = reader.join().unwrap();
            assert_eq!(bytes[0], 0, "the control byte");
            let (part, order) = files(&bytes[1..]);
            last += usize::from(order.last().is_some_and(|name| name == "xtrabackup_info"));
            for (name, content) in part {
                assert!(found.insert(name, content).is_none(), "in one stream only");
            }
        }
        assert!(found == expected && last == 1, "{streams} streams in steps of {step}");
        drop(names);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_divided_stream_can_be_merged_again() {
    let mut whole = threads(3).concat();
    whole.extend_from_slice(&stream(&[("xtrabackup_info", 100)], 50));
    let expected = files(&whole).0;
    let dir = tempfile::tempdir().unwrap();
    let settings = fifos(dir.path(), 4, LONG);
    let merging = std::thread::spawn({
        let settings = settings.clone();
        move || {
            let (mut merge, names) = Merge::new(settings, None);
            let mut all = Vec::new();
            merge.read_to_end(&mut all).unwrap();
            (all, names)
        }
    });
    let names = FifoNames::default();
    let mut split = Split::opening(settings, &names)().unwrap();
    split.write_all(&whole).unwrap();
    split.finish().unwrap();
    let (all, _names) = merging.join().unwrap();
    let (found, order) = files(&all);
    assert!(found == expected);
    assert_eq!(order.last().unwrap(), "xtrabackup_info");
}

#[test]
fn a_reader_that_never_comes_or_leaves_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let names = FifoNames::default();
    let settings = fifos(dir.path(), 2, Duration::ZERO);
    let error = Split::opening(settings.clone(), &names)().unwrap_err().to_string();
    assert!(error.contains("thread_0: no program opened it for reading within 0 s"), "{error}");
    // Its names are still there until they are dropped, and another run must not use them.
    let second = Split::opening(settings, &FifoNames::default())().unwrap_err().to_string();
    assert!(second.contains("thread_0 already exists"), "{second}");
    drop(names);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);

    let names = FifoNames::default();
    let all = reader(dir.path(), 0);
    let leaving = std::thread::spawn({
        let path = name(dir.path(), 1);
        move || {
            while let Err(error) = File::open(&path) {
                assert_eq!(error.kind(), ErrorKind::NotFound);
                std::thread::yield_now();
            }
        }
    });
    let settings = fifos(dir.path(), 2, LONG);
    let outcome = Split::opening(settings, &names)().map_err(std::io::Error::from);
    let failed = outcome.and_then(|mut split| {
        leaving.join().unwrap();
        split.write_all(&threads(2).concat())
    });
    let text = FifoError::within(&failed.unwrap_err()).unwrap().to_string();
    assert!(text.contains("thread_1: its reader ended before the end of the stream"), "{text}");
    all.join().unwrap();
}
