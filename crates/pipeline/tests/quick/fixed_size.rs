//! The classic layout with objects of one size, starting from a stream.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::mpsc::sync_channel;

use crate::common::{LIMITS, all_comes_back, pack_plan};
use proptest::prelude::*;
use xb_compressor::{FileCodec, ZstdLevel};
use xb_pipeline::{
    Budget, ClassicLayout, ClassicObjects, Cut, EndRule, ObjectLayout, Observer, PackError,
    PackOutput, PackPlan, PackSettings, Part, PartLimits, PlanError, Transform, XbstreamInput,
    start_pack,
};
use xb_reader::{ChunkWriter, Dialect, MapEntry};
use xb_testkit::command::Cmd;
use xb_testkit::files::tree;
use xb_testkit::stream::scan;
use xb_testkit::{data, tools};

const MIB: usize = 1 << 20;

type Objects = BTreeMap<String, Vec<u8>>;

/// Packs a stream. The store takes parts in a thread of its own, and holds `slow` of them until
/// more arrive.
fn put(
    stream: Vec<u8>,
    plan: PackPlan,
    transform: Option<Transform>,
    slow: usize,
) -> Result<(Objects, Cut), PackError> {
    let (parts, arriving) = sync_channel::<Part>(1);
    let store = std::thread::spawn(move || {
        let (mut objects, mut held) = (Objects::new(), Vec::new());
        for part in arriving {
            held.push(part);
            if held.len() > slow {
                for part in held.drain(..) {
                    let object = objects.entry(part.object.to_string()).or_default();
                    object.extend(part.payload.concat());
                }
            }
        }
        for part in held {
            objects.entry(part.object.to_string()).or_default().extend(part.payload.concat());
        }
        objects
    });
    let input = XbstreamInput { rule: EndRule::AnyEnd, dialect: Dialect::Percona };
    let files = ClassicLayout { objects: ClassicObjects::FixedSize, transform };
    let settings = PackSettings { plan, layout: ObjectLayout::Classic { input, files } };
    let budget = Budget::new(plan.memory);
    let sink = move |part: Part| parts.send(part).map_err(|_| xb_pipeline::Closed);
    let source = Cursor::new(stream);
    let done = start_pack(source, settings, &budget, &Observer::default(), sink)?.join();
    let objects = store.join().unwrap();
    all_comes_back(&budget);
    let PackOutput::Classic(cut) = done?.output else { panic!("classic was asked for") };
    let bytes: usize = objects.values().map(Vec::len).sum();
    assert_eq!((cut.objects, cut.bytes), (objects.len() as u64, bytes as u64));
    Ok((objects, cut))
}

/// Interleaves all files in chunks of `chunk` bytes, followed by their end chunks.
fn mixed(files: &[(String, Vec<u8>)], chunk: usize) -> Vec<u8> {
    let mut writer = ChunkWriter::new(Vec::new());
    let most = files.iter().map(|(_, bytes)| bytes.len()).max().unwrap_or(0);
    for at in (0..most).step_by(chunk) {
        for (name, bytes) in files.iter().filter(|(_, bytes)| bytes.len() > at) {
            let end = bytes.len().min(at + chunk);
            writer.payload(name, at as u64, &bytes[at..end]).unwrap();
        }
    }
    files.iter().for_each(|(name, _)| writer.end(name).unwrap());
    writer.finish().unwrap()
}

/// Joins the objects of all files, as the stock tool does.
fn joined(objects: &Objects) -> Vec<u8> {
    objects.values().flatten().copied().collect()
}

/// Returns name and content of the files in a stream.
fn files_of(stream: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::<String, Vec<u8>>::new();
    for chunk in scan(stream) {
        // A payload follows 34 bytes and the name.
        let begin = chunk.start + 34 + chunk.path.len();
        let bytes = files.entry(chunk.path).or_default();
        if chunk.kind == 'P' {
            bytes.extend_from_slice(&stream[begin..chunk.stop]);
        }
    }
    files
}

/// Lengths of a file's objects, in order.
fn lens(objects: &Objects, name: &str) -> Vec<usize> {
    let own = objects.iter().filter(|(key, _)| key[..key.len() - 21] == *name);
    own.map(|(_, bytes)| bytes.len()).collect()
}

fn content(file: usize, len: usize) -> Vec<u8> {
    (0..len).map(|n| ((n / 5) ^ file).wrapping_mul(0x9e37_79b9).to_le_bytes()[2]).collect()
}

fn many(count: usize, len: usize) -> Vec<(String, Vec<u8>)> {
    (0..count).map(|n| (format!("d{}/t{n}.ibd", n % 3), content(n, len + n * 7 % 1000))).collect()
}

fn assert_same(objects: &Objects, files: &[(String, Vec<u8>)]) {
    let back = files_of(&joined(objects));
    assert_eq!(back.len(), files.len());
    assert!(files.iter().all(|(name, bytes)| back[name] == *bytes));
}

#[test]
fn sixteen_mixed_files_have_exact_objects_where_their_parts_fit() {
    // 16 parts of 5 MiB and the bytes in flight.
    let files = many(16, 11 * MIB);
    let stream = mixed(&files, 10 * MIB);
    let limits =
        PartLimits { min: 5 << 20, max: 5 << 30, count: 10_000, object: u64::MAX, equal: false };
    for (chunk, memory) in [(6, 160), (10, 160)] {
        let plan = pack_plan(memory << 20, chunk << 20, 2, 4, limits).unwrap();
        let (objects, cut) = put(stream.clone(), plan, None, 1).unwrap();
        assert_eq!(cut.short, 0, "objects of {chunk} MiB");
        for (name, _) in &files {
            let lens = lens(&objects, name);
            let (_, full) = lens.split_last().unwrap();
            assert!(full.iter().all(|len| *len as u64 == chunk << 20), "{lens:?}");
        }
        assert_same(&objects, &files);
    }
}

#[test]
fn any_number_of_open_files_is_accepted() {
    for (count, len, piece, chunk) in [
        (400, 150_000, 9_000, 64_000),
        (10_000, 700, 300, 4096),
        (2_000, 9_000, 9_000, 1 << 20),
        (60, 1_300_000, 600_000, 8 << 20),
    ] {
        let files = many(count, len);
        let plan = pack_plan(9 << 20, chunk, 1, 2, LIMITS).unwrap();
        let plan = match (ClassicLayout { objects: ClassicObjects::FixedSize, transform: None })
            .check(&plan)
        {
            Ok(()) => plan,
            Err(PlanError::Memory { needed, .. }) => {
                pack_plan(needed, chunk, 1, 2, LIMITS).unwrap()
            }
            Err(error) => panic!("{error}"),
        };
        let (objects, cut) = put(mixed(&files, piece), plan, None, 0).unwrap();
        assert!(cut.short > 0, "{count} files of {len} cannot all have fitted");
        assert_same(&objects, &files);
    }
}

#[test]
fn a_failed_run_gives_everything_back() {
    let files = many(40, 300_000);
    let mut stream = mixed(&files, 20_000);
    let plan = pack_plan(16 << 20, 100_000, 2, 2, LIMITS).unwrap();
    // A flipped bit of a payload, a cut, and a missing end.
    let last = stream.len() - 1;
    stream[last / 2] ^= 1;
    assert!(matches!(put(stream.clone(), plan, None, 0), Err(PackError::Stream(_))));
    stream[last / 2] ^= 1;
    stream.truncate(last / 3);
    assert!(matches!(put(stream, plan, None, 0), Err(PackError::Stream(_))));
}

#[test]
fn the_dialect_of_one_fork_is_refused_and_objects_have_a_least_size() {
    let mut writer = ChunkWriter::new(Vec::new());
    writer.payload("x", 0, b"1").unwrap();
    writer.end("x").unwrap();
    writer.rename("x", "y").unwrap();
    let stream = writer.finish().unwrap();
    let plan = |chunk| pack_plan(16 << 20, chunk, 1, 2, LIMITS).unwrap();
    let error = put(stream, plan(5000), None, 0).unwrap_err().to_string();
    assert!(error.contains("classic layout cannot store"), "{error}");
    let error = put(mixed(&many(1, 9), 9), plan(4095), None, 0).unwrap_err();
    assert!(matches!(error, PackError::Plan(PlanError::Object { least: 4096, .. })), "{error}");
}

#[test]
fn holes_become_zeros() {
    let map = [
        MapEntry { skip: 5_000_000, len: 3 },
        MapEntry { skip: 70_000, len: 2 },
        MapEntry { skip: 9, len: 0 },
    ];
    let mut writer = ChunkWriter::new(Vec::new());
    writer.payload("t.ibd", 0, b"front").unwrap();
    writer.sparse("t.ibd", 5, &map, b"abcde").unwrap();
    writer.payload("t.ibd", 5 + 5_000_000 + 70_000 + 9 + 5, b"end").unwrap();
    writer.end("t.ibd").unwrap();
    let plan = pack_plan(16 << 20, 1_000_000, 1, 2, LIMITS).unwrap();
    let (objects, cut) = put(writer.finish().unwrap(), plan, None, 0).unwrap();
    let mut want = b"front".to_vec();
    want.resize(5 + 5_000_000, 0);
    want.extend_from_slice(b"abc");
    want.resize(want.len() + 70_000, 0);
    want.extend_from_slice(b"de");
    want.resize(want.len() + 9, 0);
    want.extend_from_slice(b"end");
    assert_eq!((cut.short, cut.objects), (0, 6));
    assert!(files_of(&joined(&objects))["t.ibd"] == want);
}

#[test]
fn the_stock_reader_takes_the_objects() {
    let mut files = many(5, 900_000);
    files.push(("empty".into(), Vec::new()));
    files.push(("big".into(), data::noise(7, 25 * MIB)));
    for (chunk, memory) in [(24 << 20, 256), (700_000, 32)] {
        let plan = pack_plan(memory << 20, chunk, 2, 4, LIMITS).unwrap();
        let (objects, cut) = put(mixed(&files, MIB + 7), plan, None, 0).unwrap();
        assert_eq!(cut.short, 0);
        let dir = tempfile::tempdir().unwrap();
        ["d0", "d1", "d2"].iter().for_each(|d| std::fs::create_dir(dir.path().join(d)).unwrap());
        let mbstream = Cmd::new(tools::find("mbstream")).args(["-x", "-C"]).arg(dir.path());
        let _ = mbstream.stdin_bytes(joined(&objects)).run().expect(0);
        assert_eq!(tree(dir.path()).len(), files.len());
        for (name, bytes) in &files {
            assert!(std::fs::read(dir.path().join(name)).unwrap() == *bytes, "{name}");
        }
    }
}

#[test]
fn files_that_are_compressed_on_the_way_have_exact_objects_too() {
    let codec = |codec| Transform { compress: Some(codec), encrypt: None, threads: 2 };
    let files: Vec<_> = (0..6).map(|n| (format!("t{n}"), data::mixed(n as u64, 5 * MIB))).collect();
    let stream = mixed(&files, 500_000);
    for codec in [codec(FileCodec::Lz4), codec(FileCodec::Zstd(ZstdLevel::DEFAULT))] {
        let plan = pack_plan(96 << 20, 400_000, 2, 4, LIMITS).unwrap();
        let (objects, cut) = put(stream.clone(), plan, Some(codec.clone()), 1).unwrap();
        assert_eq!(cut.short, 0);
        let suffix = codec.compress.unwrap().member().suffix();
        for (name, _) in &files {
            let lens = lens(&objects, &format!("{name}{suffix}"));
            let (_, full) = lens.split_last().unwrap();
            assert!(full.len() > 2 && full.iter().all(|len| *len == 400_000), "{lens:?}");
        }
        // The stored bytes are the same as in the stock layout.
        let stored = files_of(&joined(&objects));
        assert!(stored.values().all(|bytes| bytes.len() > MIB));
        let dir = tempfile::tempdir().unwrap();
        let target = xb_reader::TargetDir::open(dir.path()).unwrap();
        let decoding =
            xb_pipeline::FileDecoding { decompress: true, ..xb_pipeline::FileDecoding::default() };
        let options = xb_pipeline::ExtractOptions::default().with_decoding(decoding);
        xb_pipeline::extract_from(&joined(&objects)[..], target, options).unwrap();
        assert!(
            files
                .iter()
                .all(|(name, bytes)| { std::fs::read(dir.path().join(name)).unwrap() == *bytes })
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_stream_comes_back_from_exact_objects(
        lens in prop::collection::vec(prop_oneof![0_usize..3000, 0_usize..800_000, Just(3 << 20)], 1..6),
        piece in prop_oneof![300_usize..5_000, 400_000_usize..2_000_000],
        chunk in prop_oneof![4096_u64..100_000, 500_000_u64..4_000_000],
        memory in 64_u64..200,
    ) {
        let files: Vec<_> =
            lens.iter().enumerate().map(|(n, len)| (format!("f{n}"), content(n, *len))).collect();
        let plan = pack_plan(memory << 20, chunk, 2, 2, LIMITS).unwrap();
        let (objects, cut) = put(mixed(&files, piece), plan, None, 0).unwrap();
        prop_assert_eq!(cut.short, 0, "all files fit as a whole");
        for (name, _) in &files {
            let lens = self::lens(&objects, name);
            let (last, full) = lens.split_last().unwrap();
            prop_assert!(full.iter().all(|len| *len as u64 == chunk) && *last as u64 <= chunk);
        }
        assert_same(&objects, &files);
    }
}
