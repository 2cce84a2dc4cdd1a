//! The worked example of `docs/spec/format.md`: the document, the file in `fixtures/`, our writer,
//! our reader, and a Python reader written from the document alone must all agree.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::{Op, build, read};
use xb_frame::index::{self, ChunkRecord};
use xb_frame::{Codec, IndexPlace, Record, StreamHeader, StreamId, StreamWriter, Trailer, crc32c};

const DOCUMENT: &str = include_str!("../../../../docs/spec/format.md");
const TINY: &[u8] = include_bytes!("../../../../fixtures/native/tiny.native");
const READER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/read-native.py");

/// The xbstream in the example: file `a` with `hi\n`.
const PLAIN: &[u8] = b"XBSTCK01\0P\x01\0\0\0a\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \x7a\x7a\x6f\xedhi\nXBSTCK01\0E\x01\0\0\0a";

/// The bytes of the document's hex block.
fn document_bytes() -> Vec<u8> {
    let block = DOCUMENT.split("```hex\n").nth(1).unwrap().split("```").next().unwrap();
    let mut bytes = Vec::new();
    for line in block.lines() {
        let Some((offset, rest)) = line.split(';').next().unwrap().split_once(':') else {
            continue;
        };
        assert_eq!(usize::from_str_radix(offset, 16).unwrap(), bytes.len(), "{line}");
        let row = rest.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap());
        bytes.extend(row);
    }
    bytes
}

#[test]
fn document_and_file_agree() {
    assert_eq!(document_bytes(), TINY);
}

#[test]
fn writer_makes_the_example() {
    let id = StreamId(std::array::from_fn(|n| n as u8));
    let header = StreamHeader::new(id).with_max_plain(32).unwrap();
    let mut stream = header.encode().to_vec();
    let mut writer = StreamWriter::new(&header);
    for frame in PLAIN.chunks(32) {
        let len = frame.len() as u32;
        stream.extend(writer.data_frame(0, Codec::None, len, len, crc32c(frame)).unwrap());
        stream.extend(frame);
    }
    let chunk = ChunkRecord {
        file: 0,
        kind: b'P',
        position: 0,
        head_len: 35,
        payload_len: 3,
        offset: 0,
        logical_len: 3,
    };
    writer.record(&Record::File { file: 0, source: 0, path: b"a" }).unwrap();
    writer.record(&Record::Chunk(chunk)).unwrap();
    writer.record(&Record::End { file: 0, size: 3 }).unwrap();
    stream.extend(&writer.finish().bytes);
    assert_eq!(stream, TINY);
}

#[test]
fn reader_reads_the_example() {
    let whole = read(TINY, &[TINY.len()]).unwrap();
    assert_eq!(whole.plain[&0], PLAIN);
    assert_eq!(whole.listed, whole.frames);
    let summary = whole.summary;
    assert_eq!((summary.stream_len, summary.body_len, summary.end_position), (473, 281, 193));
    assert_eq!(summary.end.last_index, Some(IndexPlace { position: 117, len: 76 }));
    assert_eq!((summary.end.data_frames, summary.end.sources), (2, vec![53]));

    let trailer = Trailer::parse(TINY.last_chunk().unwrap()).unwrap();
    trailer.check(&StreamHeader::parse(TINY).unwrap(), 473).unwrap();
    assert!(trailer.check(&StreamHeader::parse(TINY).unwrap(), 474).is_err());

    let records: Vec<_> = index::parse(&whole.index_payloads[0]).unwrap().collect();
    assert_eq!(records.len(), 4);
    assert_eq!(records[0], Ok(Record::File { file: 0, source: 0, path: b"a" }));
    assert!(matches!(records[1], Ok(Record::Chunk(chunk)) if chunk.head_len == 35));
    assert_eq!(records[2], Ok(Record::End { file: 0, size: 3 }));
    assert!(matches!(records[3], Ok(Record::Frames(run)) if run.plain_range() == (0..53)));
}

/// Runs the Python reader and returns whether it succeeded, its standard output and its standard
/// error.
fn second_reader(stream: &[u8]) -> (bool, Vec<u8>, String) {
    let mut child = Command::new("python3")
        .arg(READER)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this test needs python3");
    let mut stdin = child.stdin.take().unwrap();
    let done = std::thread::scope(|scope| {
        // Write in another thread: otherwise both sides would wait for each other. The reader may
        // stop at an error.
        scope.spawn(move || stdin.write_all(stream).is_ok());
        child.wait_with_output().unwrap()
    });
    (done.status.success(), done.stdout, String::from_utf8(done.stderr).unwrap())
}

#[test]
fn second_reader_reads_the_example_and_ours() {
    let (ok, plain, message) = second_reader(TINY);
    assert!(ok, "{message}");
    assert_eq!(plain, PLAIN);

    // Several sources, several index frames, files, frames of different sizes.
    let header = StreamHeader::new(crate::common::ID).with_max_plain(3000).unwrap();
    let (mut ops, mut first) = (Vec::new(), Vec::new());
    for n in 0..200_usize {
        let payload: Vec<u8> = (0..1 + n * 37 % 3000).map(|at| (at * n) as u8).collect();
        let source = (n % 7 / 5) as u16;
        if source == 0 {
            first.extend_from_slice(&payload);
        }
        ops.push(Op::Data(source, payload));
        ops.push(Op::File(n as u64, vec![b'f'; 1 + n % 511]));
    }
    let (stream, summary) = build(&header, 4000, &ops);
    assert!(summary.end.index_frames > 3);
    let (ok, plain, message) = second_reader(&stream);
    assert!(ok, "{message}");
    assert_eq!(plain, first);

    let (empty, _) = build(&header, 4000, &[]);
    assert_eq!(second_reader(&empty), (true, Vec::new(), String::new()));
}

#[test]
fn second_reader_refuses_damage() {
    for at in (0..TINY.len()).step_by(43) {
        let mut bad = TINY.to_vec();
        bad[at] ^= 1;
        let (ok, _, message) = second_reader(&bad);
        assert!(!ok && message.starts_with("read-native.py: "), "byte {at}: {message}");
        let (ok, _, message) = second_reader(&TINY[..at]);
        assert!(!ok && message.contains("is truncated"), "cut at {at}: {message}");
    }
    let (ok, _, message) = second_reader(&[TINY, b"x"].concat());
    assert!(!ok && message.contains("bytes follow"), "{message}");
}
