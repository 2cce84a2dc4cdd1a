//! Throughput of each codec in plain bytes per second, one thread, in frames of 1 MiB.
//!
//! `pages` resembles table files, with noise in one of four pages; `noise` does not shrink at all.
//! All codecs: `cargo bench --bench codec`; one codec: `cargo bench --bench codec -- zstd`.

#![allow(clippy::expect_used, missing_docs)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use xb_compressor::{
    Algorithm, BlockDecoder, BlockEncoder, FileCodec, FileDecoder, Member, PIECE_PLAIN,
    PieceEncoder, State, ZstdLevel,
};
use xb_testkit::{data, vectors};

const FRAME: usize = 1 << 20;
/// More than one core's share of the caches.
const PLAIN: usize = 16 << 20;
const ALGORITHMS: [&str; 8] =
    ["lz4", "snappy", "gzip:1", "gzip:3", "gzip:6", "zstd:1", "zstd:3", "zstd:9"];

type Group<'a> = BenchmarkGroup<'a, criterion::measurement::WallTime>;

fn group<'a>(criterion: &'a mut Criterion, name: &str, bytes: usize) -> Group<'a> {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Bytes(bytes as u64));
    group.sample_size(10).warm_up_time(Duration::from_millis(500));
    group.measurement_time(Duration::from_secs(2));
    group
}

fn blocks(criterion: &mut Criterion) {
    for (name, plain) in [("pages", data::pages(1, PLAIN)), ("noise", data::noise(1, PLAIN))] {
        for text in ALGORITHMS {
            let algorithm: Algorithm = text.parse().expect("one of ours");
            let codec = algorithm.block_codec().expect("it compresses");
            let mut encoder = BlockEncoder::new(algorithm).expect("memory");
            let mut out = vec![0; encoder.max_encoded_len(FRAME)];
            let mut stored = Vec::new();
            for frame in plain.chunks(FRAME) {
                if let Some(len) = encoder.encode(frame, &mut out).expect("in order") {
                    stored.push(out[..len].to_vec());
                }
            }
            let len: usize = stored.iter().map(Vec::len).sum();
            println!(
                "{text} of {name}: {:.3} of the size",
                match stored.len() {
                    0 => 1.0,
                    _ => len as f64 / plain.len() as f64,
                }
            );

            group(criterion, &format!("encode {name}"), plain.len()).bench_function(
                text,
                |bench| {
                    bench.iter(|| {
                        for frame in plain.chunks(FRAME) {
                            black_box(
                                encoder.encode(black_box(frame), &mut out).expect("in order"),
                            );
                        }
                    });
                },
            );
            if stored.is_empty() {
                continue;
            }
            let mut decoder = BlockDecoder::new();
            let mut out = vec![0; FRAME];
            group(criterion, &format!("decode {name}"), plain.len()).bench_function(
                text,
                |bench| {
                    bench.iter(|| {
                        for block in &stored {
                            decoder.decode(codec, black_box(block), &mut out).expect("our own");
                        }
                    });
                },
            );
        }
    }
}

fn members(criterion: &mut Criterion) {
    let plain = data::pages(2, PLAIN);
    let mut all = vec![(Member::Qpress, vectors::read("compress/t.csv-ccs65536.qp"), 300_000)];
    for codec in [FileCodec::Lz4, FileCodec::Zstd(ZstdLevel::DEFAULT)] {
        let mut encoder = PieceEncoder::new(codec).expect("memory");
        let mut out = vec![0; encoder.max_encoded_len(PIECE_PLAIN)];
        let mut stored = Vec::new();
        for piece in plain.chunks(PIECE_PLAIN) {
            let len = encoder.encode(piece, &mut out).expect("in order");
            stored.extend_from_slice(&out[..len]);
        }
        all.push((codec.member(), stored, plain.len()));
        let name = codec.member().suffix();
        group(criterion, "encode member", plain.len()).bench_function(name, |bench| {
            bench.iter(|| {
                for piece in plain.chunks(PIECE_PLAIN) {
                    black_box(encoder.encode(black_box(piece), &mut out).expect("in order"));
                }
            });
        });
    }
    let mut out = vec![0; FRAME];
    for (member, stored, len) in all {
        group(criterion, "decode member", len).bench_function(member.suffix(), |bench| {
            bench.iter(|| {
                let mut decoder = FileDecoder::new(member).expect("memory");
                for mut piece in stored.chunks(FRAME) {
                    let mut state = State::OutputFull;
                    while state == State::OutputFull {
                        state = decoder.decode(&mut piece, &mut out).expect("our own").state;
                    }
                }
                assert_eq!(decoder.finish().expect("whole").plain, len as u64);
            });
        });
    }
}

criterion_group!(benches, blocks, members);
criterion_main!(benches);
