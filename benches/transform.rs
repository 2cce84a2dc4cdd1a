//! CPU cost of compression and seal in the pipeline, compared to codec and cipher alone.
//!
//! `alone` runs codec and cipher over the same bytes in the same pieces, in one thread; `pipeline`
//! is the whole way from a stream in memory to objects that are dropped: chunks found and checked,
//! frames, index, segments, object checksums. `plain` is the same way without codec and seal. The
//! benchmark measures CPU time of the process, all threads together.
//!
//! At the end it prints two ratios, from alternating rounds: the cost that codec and seal add to
//! the plain pipeline, and the cost of the whole pipeline, each divided by their cost alone.

#![allow(clippy::expect_used, missing_docs)]

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};
use xb_compressor::{Algorithm, BlockEncoder};
use xb_encryptor::{Backend, FreshKey, SealContext, Sealer};
use xb_frame::{Seal, StreamHeader, StreamId};
use xb_pipeline::{
    Budget, Content, EndRule, NativeStream, ObjectLayout, ObjectSize, Observer, PackPlan,
    PackSettings, PackSizing, Part, PartLimits, SLAB, XbstreamInput, start_pack,
};
use xb_reader::{ChunkWriter, Dialect};
use xb_testkit::data;

const ALGORITHMS: [&str; 5] = ["none", "lz4", "snappy", "zstd:1", "gzip:3"];
const MEMORY: u64 = 256 << 20;
const LIMITS: PartLimits =
    PartLimits { min: 5 << 20, max: 5 << 30, count: 10_000, object: u64::MAX, equal: false };
/// Number of rounds of the final comparison.
const ROUNDS: usize = 5;

/// CPU time of the process.
struct CpuTime;

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(now).expect("time goes forward")
}

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;
    fn start(&self) -> Duration {
        cpu_time()
    }
    fn end(&self, start: Duration) -> Duration {
        cpu_time() - start
    }
    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }
    fn zero(&self) -> Duration {
        Duration::ZERO
    }
    #[allow(clippy::cast_precision_loss)]
    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }
    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

/// A stream of table files in chunks of 10 MiB, as the stock tools write them.
fn stream() -> Bytes {
    let mut writer = ChunkWriter::new(Vec::new());
    for number in 0..4_u64 {
        let name = format!("db/t{number}.ibd");
        let table = data::pages(number, 128 << 20);
        for (at, chunk) in table.chunks(10 << 20).enumerate() {
            let offset = (at * (10 << 20)) as u64;
            writer.payload(&name, offset, chunk).expect("memory takes it");
        }
        writer.end(&name).expect("memory takes it");
    }
    writer.end("xtrabackup_info").expect("memory takes it");
    writer.finish().expect("memory takes it").into()
}

fn sealer() -> (StreamHeader, Sealer) {
    let key = FreshKey::generate().expect("random bytes");
    let id = StreamId([1; 16]);
    let commitment = key.key().commitment(&id.0);
    let header = StreamHeader::new(id).with_seal(Seal::Aes256GcmHkdf1Mb, commitment);
    let bytes = header.encode();
    let context = SealContext { stream_id: id.0, commitment, header: &bytes };
    let (sealer, _) = key.sealer(&context, Backend::default()).expect("its own commitment");
    (header, sealer)
}

fn alone(stream: &Bytes, algorithm: Algorithm) {
    let mut encoder = BlockEncoder::new(algorithm).expect("memory");
    let mut out = vec![0; encoder.max_encoded_len(SLAB)];
    // A full segment that holds the frames of one piece, as far as they fill it.
    let mut segment = vec![0; SLAB];
    let (_, mut sealer) = sealer();
    // The head makes the first segment shorter.
    let first = &mut segment[40..];
    sealer.next_segment(false).expect("a few").seal(first).expect("its length");
    let mut due = 0;
    for piece in stream.chunks(SLAB) {
        due += match algorithm {
            Algorithm::None => piece.len(),
            _ => encoder.encode(piece, &mut out).expect("it fits").unwrap_or(piece.len()),
        };
        while due >= SLAB {
            let next = sealer.next_segment(false).expect("a few");
            next.seal(black_box(&mut segment)).expect("its length");
            due -= SLAB;
        }
    }
}

fn sealed(algorithm: Algorithm) -> NativeStream {
    let (header, sealer) = sealer();
    NativeStream { header, compress: algorithm.into(), sealer: Some(sealer) }
}

fn plain() -> NativeStream {
    NativeStream::plain(StreamHeader::new(StreamId([1; 16])))
}

fn pipeline(stream: &Bytes, native: NativeStream, threads: usize) {
    let plan = PackPlan::new(PackSizing {
        memory: MEMORY,
        codec_memory: 0,
        object_size: ObjectSize::new(64 << 20),
        threads,
        parallel: 4,
        limits: LIMITS,
    })
    .expect("it fits");
    let input = XbstreamInput { rule: EndRule::KnownProducer, dialect: Dialect::Auto };
    let settings = PackSettings {
        plan,
        layout: ObjectLayout::Packed { content: Content::Xbstream(input), stream: native },
    };
    let source = std::io::Cursor::new(stream.clone());
    let sink = |part: Part| {
        black_box(part);
        Ok(())
    };
    let run = start_pack(source, settings, &Budget::new(MEMORY), &Observer::default(), sink);
    run.expect("it starts").join().expect("a whole stream");
}

fn transform(c: &mut Criterion<CpuTime>) {
    let stream = stream();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut ratios = Vec::new();
    for text in ALGORITHMS {
        let algorithm: Algorithm = text.parse().expect("one of ours");
        let mut group = c.benchmark_group(format!("{text} and seal, CPU"));
        group.throughput(Throughput::Bytes(stream.len() as u64)).sample_size(10);
        group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(3));
        group.bench_function("alone", |b| b.iter(|| alone(&stream, algorithm)));
        let whole = || pipeline(&stream, sealed(algorithm), threads);
        group.bench_function("pipeline", |b| b.iter(whole));
        group.finish();

        let cost = |run: &dyn Fn()| {
            let before = cpu_time();
            run();
            cpu_time() - before
        };
        let round = |_| {
            let alone = cost(&|| alone(&stream, algorithm)).as_secs_f64();
            let plain = cost(&|| pipeline(&stream, plain(), threads)).as_secs_f64();
            let whole = cost(&whole).as_secs_f64();
            ((whole - plain) / alone, whole / alone)
        };
        let (added, whole): (Vec<f64>, Vec<f64>) = (0..ROUNDS).map(round).unzip();
        ratios.push((text, median(added), median(whole)));
    }
    println!("\nCPU, to that of codec and cipher alone: median (least, most)");
    println!("{:>8}  {:24}  whole pipeline", "", "added to the pipeline");
    for (text, added, whole) in ratios {
        println!("{text:>8}  {added:24}  {whole}");
    }
}

/// Formats median, minimum and maximum.
fn median(mut rounds: Vec<f64>) -> String {
    rounds.sort_by(f64::total_cmp);
    let (least, most) = (rounds[0], rounds[rounds.len() - 1]);
    format!("{:.3}  ({least:.3}, {most:.3})", rounds[rounds.len() / 2])
}

criterion_group!(name = benches; config = Criterion::default().with_measurement(CpuTime); targets = transform);
criterion_main!(benches);
