//! The stages that the other benches contain but do not show alone: finding chunks, checking pages,
//! extracting small files, and writing and reading the index.
//!
//! `cargo bench --bench parts -- scan`; also `pages`, `extract` (in the temporary folder: use a
//! tmpfs to measure the program and not the disk) and `index`.

#![allow(clippy::expect_used, missing_docs)]

use std::convert::Infallible;
use std::hint::black_box;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use xb_frame::index::{ChunkRecord, parse};
use xb_frame::{FRAME_HEADER_LEN, Record, StreamHeader, StreamId, StreamWriter, crc32c};
use xb_pages::PageChecker;
use xb_pipeline::{Durability, ExtractOptions, Extractor, Observer, relay};
use xb_reader::{ChunkWriter, TargetDir};
use xb_testkit::data;

const MIB: usize = 1 << 20;
const PLAIN: usize = 64 * MIB;
const PAGE: usize = data::PAGE;
/// Number of records in the index, and of small files.
const RECORDS: u64 = 10_000;
const SMALL: usize = 12 << 10;

/// A stream of files of `size` bytes, which add up to `PLAIN`, in chunks of at most 10 MiB.
fn stream(size: usize) -> Bytes {
    let plain = data::mixed(1, PLAIN);
    let mut writer = ChunkWriter::new(Vec::new());
    for (number, file) in plain.chunks(size).enumerate() {
        let name = format!("db/t{number}.ibd");
        for (at, chunk) in file.chunks(10 * MIB).enumerate() {
            writer.payload(&name, (at * 10 * MIB) as u64, chunk).expect("memory takes it");
        }
        writer.end(&name).expect("memory takes it");
    }
    writer.end("xtrabackup_info").expect("memory takes it");
    writer.finish().expect("memory takes it").into()
}

fn pieces(stream: &Bytes) -> impl Iterator<Item = Bytes> + use<> {
    let stream = stream.clone();
    (0..stream.len()).step_by(MIB).map(move |at| stream.slice(at..stream.len().min(at + MIB)))
}

fn scan(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("scan");
    for (name, size) in [("files of 32 MiB", 32 * MIB), ("files of 12 KiB", SMALL)] {
        let stream = stream(size);
        group.throughput(Throughput::Bytes(stream.len() as u64)).sample_size(20);
        group.bench_function(name, |bench| {
            bench.iter(|| {
                let sink = |piece| {
                    black_box(piece);
                    Ok::<_, Infallible>(())
                };
                let source = pieces(&stream).map(Some);
                relay(source, None, &Observer::default(), |_| Ok(()), sink).expect("a good stream")
            });
        });
    }
    group.finish();
}

/// A tablespace with the checksums of MySQL 5.7 and later.
fn tablespace() -> Vec<u8> {
    let mut space = data::noise(2, PLAIN);
    for (number, page) in (0_u32..).zip(space.chunks_mut(PAGE)) {
        page[..38].fill(0);
        page[4..8].copy_from_slice(&number.to_be_bytes());
        page[20..24].copy_from_slice(&(0x1000 + number).to_be_bytes());
        page[24..26].copy_from_slice(&if number == 0 { 8_u16 } else { 17855 }.to_be_bytes());
        page[37] = 5;
        if number == 0 {
            // Pages of 16 KiB.
            page[54..58].copy_from_slice(&0x0161_u32.to_be_bytes());
        }
        page[PAGE - 4..].copy_from_slice(&(0x1000 + number).to_be_bytes());
        let sum = crc32c(&page[4..26]) ^ crc32c(&page[38..PAGE - 8]);
        page[..4].copy_from_slice(&sum.to_be_bytes());
        page[PAGE - 8..PAGE - 4].copy_from_slice(&sum.to_be_bytes());
    }
    space
}

fn pages(criterion: &mut Criterion) {
    let space = tablespace();
    let mut group = criterion.benchmark_group("pages");
    group.throughput(Throughput::Bytes(space.len() as u64)).sample_size(20);
    group.bench_function("crc32 of 16 KiB", |bench| {
        bench.iter(|| {
            let mut checker = PageChecker::of_name(b"db/t.ibd").expect("a tablespace");
            let mut bad = 0;
            for piece in space.chunks(MIB) {
                checker.feed(piece, &mut |_| bad += 1);
            }
            let checked = checker.finish(&mut |_| bad += 1);
            assert!(checked.is_tablespace && bad == 0, "{bad} bad pages: {:?}", checked.counts);
        });
    });
    group.finish();
}

fn extract(criterion: &mut Criterion) {
    let stream = stream(SMALL);
    let mut group = criterion.benchmark_group("extract");
    group.throughput(Throughput::Elements((PLAIN / SMALL) as u64)).sample_size(10);
    for threads in [1, 2] {
        group.bench_function(format!("files of 12 KiB/{threads}"), |bench| {
            let run = |folder: &mut tempfile::TempDir| {
                let target = TargetDir::open(folder.path()).expect("a folder");
                let durability = Durability::None;
                let options =
                    ExtractOptions::default().with_threads(threads).with_durability(durability);
                let mut extractor = Extractor::new(target, options).expect("threads");
                pieces(&stream).for_each(|piece| extractor.feed(piece).expect("a good stream"));
                extractor.finish().expect("a whole stream");
            };
            let folder = || tempfile::tempdir().expect("a folder");
            bench.iter_batched_ref(folder, run, BatchSize::PerIteration);
        });
    }
    group.finish();
}

fn write_index() -> Vec<u8> {
    let header = StreamHeader::new(StreamId([1; 16]));
    let mut writer = StreamWriter::new(&header).with_index_target(MIB);
    for file in 0..RECORDS {
        let path = format!("db/t{file}.ibd");
        let (position, len) = (file * 20_000, SMALL as u64);
        let chunk = ChunkRecord {
            file,
            kind: b'P',
            position,
            head_len: 40,
            payload_len: len,
            offset: 0,
            logical_len: len,
        };
        let records = [
            Record::File { file, source: 0, path: path.as_bytes() },
            Record::Chunk(chunk),
            Record::End { file, size: len },
        ];
        records.iter().for_each(|record| writer.record(record).expect("in order"));
    }
    writer.index_frame().expect("records")
}

fn index(criterion: &mut Criterion) {
    let frame = write_index();
    let mut group = criterion.benchmark_group("index");
    group.throughput(Throughput::Elements(3 * RECORDS));
    group.bench_function("write", |bench| bench.iter(write_index));
    group.bench_function("read", |bench| {
        bench.iter(|| {
            let records = parse(&frame[FRAME_HEADER_LEN..]).expect("our own");
            assert_eq!(records.filter(Result::is_ok).count() as u64, 3 * RECORDS);
        });
    });
    group.finish();
}

criterion_group!(benches, scan, pages, extract, index);
criterion_main!(benches);
