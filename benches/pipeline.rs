//! Cost of the pipeline, compared to the checksums that it must compute.
//!
//! `floor` computes the three checksums over the same bytes in one thread; `up` runs the whole way
//! from a stream in memory to objects that are dropped; `down` the way back; `extract` writes files
//! (in the temporary folder: use a tmpfs to measure the program and not the disk).

#![allow(clippy::expect_used, missing_docs)]

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use xb_frame::{StreamHeader, StreamId};
use xb_pipeline::{
    Budget, Content, Durability, EndRule, ExtractOptions, Extractor, NativeStream, ObjectLayout,
    ObjectSize, Observer, PackPlan, PackSettings, PackSizing, Part, PartLimits, UnpackPlan,
    XbstreamInput, start_pack, sums, unpack,
};
use xb_reader::{ChunkWriter, Dialect, TargetDir};

const LIMITS: PartLimits =
    PartLimits { min: 5 << 20, max: 5 << 30, count: 10_000, object: u64::MAX, equal: false };
const MEMORY: u64 = 256 << 20;

/// A stream of 16 files of 8 MiB in chunks of 1 MiB, interleaved as by several copying threads.
fn stream() -> Bytes {
    let mut writer = ChunkWriter::new(Vec::new());
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let piece: Vec<u8> = (0..1 << 20)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    let names: Vec<String> = (0..16).map(|n| format!("db/t{n}.ibd")).collect();
    for part in 0..8 {
        names
            .iter()
            .for_each(|name| writer.payload(name, part << 20, &piece).expect("memory takes it"));
    }
    names.iter().for_each(|name| writer.end(name).expect("memory takes it"));
    writer.end("xtrabackup_info").expect("memory takes it");
    writer.finish().expect("memory takes it").into()
}

fn up(stream: Bytes, threads: usize, mut keep: impl FnMut(Part) + Send + 'static) {
    let plan = PackPlan::new(PackSizing {
        memory: MEMORY,
        codec_memory: 0,
        object_size: ObjectSize::new(32 << 20),
        threads,
        parallel: 4,
        limits: LIMITS,
    })
    .expect("it fits");
    let header = StreamHeader::new(StreamId([1; 16]));
    let input = XbstreamInput { rule: EndRule::KnownProducer, dialect: Dialect::Auto };
    let settings = PackSettings {
        plan,
        layout: ObjectLayout::Packed {
            content: Content::Xbstream(input),
            stream: NativeStream::plain(header),
        },
    };
    let sink = move |part| {
        keep(part);
        Ok(())
    };
    let run = start_pack(
        std::io::Cursor::new(stream),
        settings,
        &Budget::new(MEMORY),
        &Observer::default(),
        sink,
    );
    run.expect("threads").join().expect("a whole stream");
}

fn benches(c: &mut Criterion) {
    let input = stream();
    let mut group = c.benchmark_group("pipeline");
    group.throughput(Throughput::Bytes(input.len() as u64)).sample_size(20);
    group.bench_function("floor", |b| {
        b.iter(|| {
            for slab in input.chunks(1 << 20) {
                black_box((sums::crc32(slab), sums::crc32c(slab), sums::crc64(slab)));
            }
        });
    });
    for threads in [1, 2] {
        group.bench_function(format!("up/{threads}"), |b| {
            b.iter(|| up(input.clone(), threads, drop))
        });
    }
    let native = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let collect = std::sync::Arc::clone(&native);
    up(input.clone(), 2, move |part| collect.lock().expect("alone").extend(part.payload.concat()));
    let native = Bytes::from(std::mem::take(&mut *native.lock().expect("alone")));
    for threads in [1, 2] {
        let plan = UnpackPlan::new(MEMORY, threads, 4).expect("it fits");
        group.bench_function(format!("down/{threads}"), |b| {
            b.iter(|| {
                let native = native.clone();
                let ranges = (0..native.len())
                    .step_by(8 << 20)
                    .map(move |at| Some(native.slice(at..native.len().min(at + (8 << 20)))));
                let take = |bytes: Bytes| {
                    black_box(bytes);
                    Ok::<_, std::convert::Infallible>(())
                };
                unpack(ranges, None, &plan, &Observer::default(), take).expect("whole");
            });
        });
        group.bench_function(format!("extract/{threads}"), |b| {
            b.iter(|| {
                let folder = tempfile::tempdir().expect("a folder");
                let target = TargetDir::open(folder.path()).expect("a folder");
                let options = ExtractOptions::default()
                    .with_threads(threads)
                    .with_durability(Durability::None);
                let mut extractor = Extractor::new(target, options).expect("threads");
                for at in (0..input.len()).step_by(1 << 20) {
                    extractor
                        .feed(input.slice(at..input.len().min(at + (1 << 20))))
                        .expect("a good stream");
                }
                extractor.finish().expect("a whole stream");
            });
        });
    }
    group.finish();
}

criterion_group!(pipeline, benches);
criterion_main!(pipeline);
