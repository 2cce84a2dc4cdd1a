//! Packs and unpacks transformed files, and checks the memory limits of open files.
#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::{Mutex, PoisonError};

use proptest::prelude::*;
use xb_compressor::ZstdLevel;
use xb_encryptor::xbcrypt::Algorithm;
use xb_encryptor::{Backend, KeyBytes};
use xb_reader::{ChunkKind, ChunkReader, ChunkWriter, Dialect, Item, Limits, MapEntry, TargetDir};

use super::*;
use crate::testing::tree;
use crate::{
    Budget, ClassicLayout, ClassicObjects, Decrypt, Durability, EndRule, ExtractOptions,
    FileDecoding, ObjectLayout, ObjectSize, Observer, PackResult, PackSettings, PackSizing, Part,
    PartLimits, XbstreamInput, extract_from, start_pack,
};

/// One object per chunk.
fn files(transform: Transform) -> ClassicLayout {
    ClassicLayout { objects: ClassicObjects::OnePerChunk, transform: Some(transform) }
}

fn layout(transform: Transform) -> ObjectLayout {
    let input = XbstreamInput { rule: EndRule::AnyEnd, dialect: Dialect::Auto };
    ObjectLayout::Classic { input, files: files(transform) }
}

type Files = BTreeMap<String, Vec<u8>>;

fn cipher() -> Arc<Cipher> {
    let key = KeyBytes::new(&[3; 32]).unwrap();
    Arc::new(Cipher::new(Algorithm::Aes256, Some(&key), Backend::default()).unwrap())
}

fn transform(compress: Option<FileCodec>, chunk: Option<u64>) -> Transform {
    let encrypt = chunk
        .map(|size| FileCipher { cipher: cipher(), chunk_size: ChunkSize::new(size).unwrap() });
    Transform { compress, encrypt, threads: 3 }
}

fn zstd() -> Option<FileCodec> {
    Some(FileCodec::Zstd(ZstdLevel::DEFAULT))
}

fn content(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|n| ((n / 5) ^ seed).wrapping_mul(0x9e37_79b9).to_le_bytes()[2]).collect()
}

/// Interleaves all files in chunks of `chunk` bytes, followed by their end chunks.
fn mixed(files: &[(&str, Vec<u8>)], chunk: usize) -> Vec<u8> {
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

fn plan(memory: u64) -> PackPlan {
    PackPlan::new(PackSizing {
        memory,
        codec_memory: 0,
        object_size: ObjectSize::new(10 << 20),
        threads: 2,
        parallel: 4,
        limits: PartLimits {
            min: 1 << 20,
            max: u64::MAX,
            count: 10_000,
            object: u64::MAX,
            equal: false,
        },
    })
    .unwrap()
}

/// Packs a stream and returns its objects by key, and the result.
fn put(
    stream: Vec<u8>,
    transform: Transform,
    memory: u64,
) -> (BTreeMap<String, Vec<u8>>, Result<PackResult, PackError>) {
    let plan = plan(memory);
    let settings = PackSettings { plan, layout: layout(transform) };
    let objects = Arc::new(Mutex::new(BTreeMap::<String, Vec<u8>>::new()));
    let taken = Arc::clone(&objects);
    let sink = move |part: Part| {
        let mut objects = taken.lock().unwrap_or_else(PoisonError::into_inner);
        let object = objects.entry(part.object.to_string()).or_default();
        part.payload.iter().for_each(|bytes| object.extend_from_slice(bytes));
        Ok(())
    };
    let source = Cursor::new(stream);
    let putting =
        start_pack(source, settings, &Budget::new(memory), &Observer::default(), sink).unwrap();
    let result = putting.join();
    let objects = std::mem::take(&mut *objects.lock().unwrap_or_else(PoisonError::into_inner));
    (objects, result)
}

/// Joins all objects to one stream; sorted names with their numbers are in the right order.
fn joined(objects: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    objects.values().flatten().copied().collect()
}

fn restore(stream: &[u8]) -> Files {
    let dir = tempfile::tempdir().unwrap();
    let decoding = FileDecoding {
        decompress: true,
        decrypt: Decrypt::With(cipher()),
        ..FileDecoding::default()
    };
    let options = ExtractOptions { decoding, durability: Durability::None, ..Default::default() };
    extract_from(stream, TargetDir::open(dir.path()).unwrap(), options).unwrap();
    tree(dir.path())
}

/// Returns path and payload length of each chunk, after checking it.
fn chunks(stream: &[u8]) -> Vec<(String, Option<u64>)> {
    let mut reader = ChunkReader::new(stream, Dialect::Percona, Limits::default());
    let mut found = Vec::new();
    while let Some(item) = reader.next().unwrap() {
        if let Item::Chunk(head, _) = item {
            let len = matches!(head.kind, ChunkKind::Payload { .. }).then(|| head.payload_len());
            found.push((head.path.to_string(), len));
        }
    }
    found
}

#[test]
fn names_and_order_are_those_of_xtrabackup() {
    let files = [
        ("ibdata1", content(1, 100_000)),
        ("d/empty.ibd", Vec::new()),
        ("d/done.ibd.zst", content(2, 100)),
        ("d/sealed.ibd.lz4.xbcrypt", content(3, 100)),
        ("xtrabackup_checkpoints", content(4, 100)),
        ("xtrabackup_info", content(5, 100)),
    ];
    let stream = mixed(&files, 30_000);
    let names = |transform| {
        let (objects, result) = put(stream.clone(), transform, 64 << 20);
        assert_eq!(result.unwrap().scanned.bytes, stream.len() as u64);
        let mut names: Vec<String> =
            chunks(&joined(&objects)).into_iter().map(|(name, _)| name).collect();
        names.dedup();
        names
    };
    assert_eq!(
        names(transform(Some(FileCodec::Lz4), Some(65_536))),
        [
            "d/done.ibd.zst.xbcrypt",
            "d/empty.ibd.lz4.xbcrypt",
            "d/sealed.ibd.lz4.xbcrypt",
            "ibdata1.lz4.xbcrypt",
            "xtrabackup_checkpoints",
            "xtrabackup_info.lz4.xbcrypt"
        ]
    );
    assert_eq!(
        names(transform(zstd(), None)),
        [
            "d/done.ibd.zst",
            "d/empty.ibd.zst",
            "d/sealed.ibd.lz4.xbcrypt",
            "ibdata1.zst",
            "xtrabackup_checkpoints",
            "xtrabackup_info.zst"
        ]
    );
}

#[test]
fn chunks_are_as_large_as_they_may_be() {
    // Noise does not shrink, so that the total is known.
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_le_bytes()[7]
    })
    .take(25 << 20)
    .collect();
    for transform in
        [transform(zstd(), Some(65_536)), transform(None, Some(65_536)), transform(zstd(), None)]
    {
        let (objects, result) =
            put(mixed(&[("big", noise.clone())], 1 << 20), transform, 128 << 20);
        result.unwrap();
        let stream = joined(&objects);
        let lens: Vec<u64> = chunks(&stream).into_iter().filter_map(|(_, len)| len).collect();
        assert_eq!(lens.len(), 3, "{lens:?}");
        let full = (10 << 20) - (64 << 10)..=10 << 20;
        assert!(lens[..2].iter().all(|len| full.contains(len)), "{lens:?}");
        assert!(restore(&stream)["big"] == noise);
    }
}

#[test]
fn hundreds_of_mixed_files_go_through_little_memory() {
    let names: Vec<String> = (0..400).map(|n| format!("d/f{n}.ibd")).collect();
    let files: Vec<(&str, Vec<u8>)> = names
        .iter()
        .enumerate()
        .map(|(n, name)| (&name[..], content(n, 60_000 + n * 100)))
        .collect();
    let memory = 40 << 20;
    for transform in [transform(Some(FileCodec::Lz4), Some(65_536)), transform(None, Some(1024))] {
        let (objects, result) = put(mixed(&files, 7_000), transform, memory);
        let put = result.unwrap();
        assert_eq!(put.scanned.files, 400);
        let stream = joined(&objects);
        let back = restore(&stream);
        assert!(files.iter().all(|(name, bytes)| back[*name] == *bytes));
    }
}

#[test]
fn holes_go_through_as_zeros() {
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
    let (objects, result) = put(writer.finish().unwrap(), transform(zstd(), Some(2000)), 64 << 20);
    result.unwrap();
    let mut want = b"front".to_vec();
    want.resize(5 + 5_000_000, 0);
    want.extend_from_slice(b"abc");
    want.resize(want.len() + 70_000, 0);
    want.extend_from_slice(b"de");
    want.resize(want.len() + 9, 0);
    want.extend_from_slice(b"end");
    assert!(restore(&joined(&objects))["t.ibd"] == want);
}

#[test]
fn an_impossible_transform_is_refused() {
    let run = |write: &dyn Fn(&mut ChunkWriter<Vec<u8>>)| {
        let mut writer = ChunkWriter::new(Vec::new());
        write(&mut writer);
        let stream = writer.finish().unwrap();
        put(stream, transform(zstd(), Some(65_536)), 64 << 20).1.unwrap_err().to_string()
    };
    let error = run(&|w| {
        w.payload("x", 0, b"1").unwrap();
        w.end("x").unwrap();
        w.end("x.lz4").unwrap();
    });
    assert_eq!(error, "x.lz4: without suffixes it is named x, as is x (stream offset 51)");
    let long = "n".repeat(250);
    let error = run(&|w| w.end(&long).unwrap());
    assert!(error.contains("invalid name with suffixes"), "{error}");
    let error = run(&|w| {
        w.payload("x", 0, b"1").unwrap();
        w.end("x").unwrap();
        w.rename("x", "y").unwrap();
    });
    assert!(error.contains("renames"), "{error}");
    // Damage in the stream is found before a result is returned.
    let mut stream = mixed(&[("x", content(1, 5000))], 1000);
    stream[100] ^= 1;
    let error = put(stream, transform(zstd(), None), 64 << 20).1.unwrap_err();
    assert!(matches!(error, PackError::Stream(_)), "{error}");
}

#[test]
fn too_little_memory_is_refused_with_a_number_that_does() {
    let small = plan(30 << 20);
    let transform = transform(zstd(), Some(65_536));
    let Err(PlanError::Memory { needed, .. }) = files(transform.clone()).check(&small) else {
        panic!()
    };
    files(transform).check(&plan(needed)).unwrap();
}

#[test]
fn a_sink_that_stops_stops_all() {
    let plan = plan(40 << 20);
    let settings = PackSettings { plan, layout: layout(transform(None, Some(65_536))) };
    let source = Cursor::new(mixed(&[("x", content(1, 50 << 20))], 1 << 20));
    let sink = |_: Part| Err(crate::Closed);
    let budget = Budget::new(plan.memory);
    let putting = start_pack(source, settings, &budget, &Observer::default(), sink).unwrap();
    assert!(matches!(putting.join(), Err(PackError::Closed(_))));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 48, ..ProptestConfig::default() })]

    /// For any files and any cut of the stream, the unpacked content is the original, chunks keep
    /// to their limit, and the stored bytes do not depend on the cut unless memory is short.
    #[test]
    fn transformed_files_come_back(
        lens in prop::collection::vec(prop_oneof![0_usize..200, 0_usize..100_000, (4_usize << 20) - 2..(4 << 20) + 3], 1..6),
        chunk in prop_oneof![500_usize..5_000, 50_000_usize..3_000_000],
        codec in prop_oneof![Just(None), Just(Some(FileCodec::Lz4)), Just(zstd())],
        cipher in prop_oneof![Just(None), (1024_u64..200_000).prop_map(Some)],
        memory in (38_u64 << 20)..(200 << 20),
    ) {
        let names: Vec<String> = (0..lens.len()).map(|n| format!("d{}/f{n}", n % 2)).collect();
        let files: Vec<(&str, Vec<u8>)> =
            names.iter().zip(&lens).map(|(name, len)| (&name[..], content(*len, *len))).collect();
        let (objects, result) = put(mixed(&files, chunk), transform(codec, cipher), memory);
        let put = result.unwrap();
        prop_assert_eq!(put.scanned.files, files.len() as u64);
        let stream = joined(&objects);
        let crate::PackOutput::Classic(cut) = put.output else { panic!("classic was asked for") };
        prop_assert_eq!((cut.objects, cut.bytes), (objects.len() as u64, stream.len() as u64));
        prop_assert!(chunks(&stream).iter().all(|(_, len)| len.is_none_or(|len| (1..=10 << 20).contains(&len))));
        let back = restore(&stream);
        prop_assert_eq!(back.len(), files.len());
        prop_assert!(files.iter().all(|(name, bytes)| back[*name] == *bytes));
    }
}
