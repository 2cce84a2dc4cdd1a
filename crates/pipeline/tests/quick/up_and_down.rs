//! Packs and unpacks without a store: parts are collected in memory.

use crate::common::{
    CODECS, LIMITS, get, native, native_key, one_object_per_chunk, open, pack_plan, packed, put,
    stream,
};
use bytes::Bytes;
use proptest::prelude::*;
use xb_pipeline::{
    EndRule, Observer, PackError, PackOutput, StreamError, UnpackPlan, sums, unpack,
};
use xb_reader::ChunkWriter;
use xb_testkit::data::Noise;

#[test]
fn comes_back_bit_for_bit_in_objects_of_the_size_asked_for() {
    let input = stream(
        &[("a.ibd", 3_000_000), ("empty", 0), ("b/c.frm", 12_345), ("xtrabackup_info", 100)],
        700_000,
    );
    let plan = pack_plan(64 << 20, 1_000_000, 2, 4, LIMITS).unwrap();
    let (objects, result) = put(input.clone(), 65_536, plan, packed(), EndRule::KnownProducer);
    let result = result.unwrap();
    assert_eq!((result.scanned.files, result.scanned.bytes), (4, input.len() as u64));
    let sizes: Vec<usize> = objects.values().map(Vec::len).collect();
    assert!(sizes[..sizes.len() - 1].iter().all(|size| *size == 1_000_000), "{sizes:?}");
    let PackOutput::Packed { summary, packed } = result.output else {
        panic!("packed was asked for")
    };
    assert_eq!((packed.objects, packed.bytes), (objects.len() as u64, summary.stream_len));
    let native: Bytes = objects.into_values().collect::<Vec<_>>().concat().into();
    for range in [977, 1 << 20, usize::MAX / 2] {
        assert!(get(native.clone(), range).unwrap() == input, "range {range}");
    }
}

/// The flaw that motivated this project: with a codec and a seal, too, the objects must have the
/// requested size.
#[test]
fn every_codec_and_the_seal_leave_the_size_alone() {
    let files = [("a.ibd", 5_000_000), ("b/c.frm", 12_345), ("xtrabackup_info", 100)];
    let input = stream(&files, 700_000);
    for codec in CODECS {
        for sealed in [false, true] {
            let what = format!("{codec}, sealed: {sealed}");
            let plan = pack_plan(64 << 20, 100_000, 2, 4, LIMITS).unwrap();
            let (cutting, key) = native(codec, sealed);
            let (objects, result) =
                put(input.clone(), 65_536, plan, cutting, EndRule::KnownProducer);
            let PackOutput::Packed { summary, packed } = result.unwrap().output else {
                panic!("packed")
            };
            let sizes: Vec<usize> = objects.values().map(Vec::len).collect();
            assert!(
                sizes[..sizes.len() - 1].iter().all(|size| *size == 100_000),
                "{what}: {sizes:?}"
            );
            assert_eq!((packed.objects, packed.bytes), (objects.len() as u64, summary.stream_len));
            let native: Bytes = objects.into_values().collect::<Vec<_>>().concat().into();
            assert_eq!(native.len() < input.len(), codec != "none", "{what}");
            for range in [977, 1 << 20, usize::MAX / 2] {
                assert!(
                    open(native.clone(), range, key.clone()).unwrap() == input,
                    "{what}, {range}"
                );
            }
            // A sealed stream only opens with its own key, and an unsealed one does not pass as
            // sealed.
            let other = native_key();
            assert!(open(native.clone(), 977, Some(other)).is_err(), "{what}: a foreign key");
            assert_eq!(open(native, 977, None).is_err(), sealed, "{what}: no key");
        }
    }
}

#[test]
fn every_cut_and_every_flipped_bit_of_a_sealed_stream_is_noticed() {
    let input = stream(&[("a", 300), ("xtrabackup_info", 10)], 200);
    let plan = pack_plan(64 << 20, 1 << 20, 1, 1, LIMITS).unwrap();
    let (cutting, key) = native("zstd:1", true);
    let (objects, _) = put(input.clone(), 4096, plan, cutting, EndRule::KnownProducer);
    let native = objects.into_values().next().unwrap();
    for at in 0..native.len() {
        let cut = open(Bytes::copy_from_slice(&native[..at]), 4096, key.clone());
        assert!(cut.is_err(), "cut at {at}");
        let mut bad = native.clone();
        bad[at] ^= 1 << (at % 8);
        assert!(open(bad.into(), 4096, key.clone()).is_err(), "bit flipped in byte {at}");
    }
    assert_eq!(open(native.into(), 4096, key).unwrap(), input);
}

/// Long runs of frames that do not shrink stay in the slabs they were read into; short ones, and
/// frames that shrink, are copied. The stream and the objects show no difference.
#[test]
fn frames_that_are_copied_and_frames_that_are_not_stay_in_order() {
    const MIB: usize = 1 << 20;
    let mut noise = Noise::new(1);
    let mut writer = ChunkWriter::new(Vec::new());
    let mut at = 0;
    for (mib, shrinks) in [(3, true), (12, false), (2, true), (5, false), (1, true), (20, false)] {
        let mut content = vec![7; mib * MIB];
        if !shrinks {
            noise.fill(&mut content);
        }
        writer.payload("a.ibd", at, &content).unwrap();
        at += content.len() as u64;
    }
    writer.end("a.ibd").unwrap();
    writer.payload("xtrabackup_info", 0, &[1; 100]).unwrap();
    writer.end("xtrabackup_info").unwrap();
    let input = writer.finish().unwrap();
    for codec in ["lz4", "zstd:1", "auto"] {
        for sealed in [false, true] {
            let what = format!("{codec}, sealed: {sealed}");
            let plan = pack_plan(40 << 20, 3_000_000, 2, 4, LIMITS).unwrap();
            let (cutting, key) = native(codec, sealed);
            let (objects, result) = put(input.clone(), MIB, plan, cutting, EndRule::KnownProducer);
            let PackOutput::Packed { packed, .. } = result.unwrap().output else {
                panic!("packed")
            };
            let sizes: Vec<usize> = objects.values().map(Vec::len).collect();
            let (last, equal) = sizes.split_last().unwrap();
            assert!(equal.iter().all(|size| *size == 3_000_000) && *last <= 3_000_000, "{what}");
            let sums: Vec<u64> = objects.values().map(|object| sums::crc64(object)).collect();
            assert_eq!(packed.sums, sums, "{what}");
            let native: Bytes = objects.into_values().collect::<Vec<_>>().concat().into();
            assert!(open(native, 777_777, key).unwrap() == input, "{what}");
        }
    }
}

#[test]
fn a_flipped_bit_of_an_unsealed_stream_is_noticed_by_the_checksums_of_its_arrival() {
    let input = stream(&[("a", 400_000), ("xtrabackup_info", 10)], 90_000);
    let plan = pack_plan(64 << 20, 1 << 20, 1, 1, LIMITS).unwrap();
    for codec in ["none", "zstd:1"] {
        let (cutting, _) = native(codec, false);
        let (objects, _) = put(input.clone(), 4096, plan, cutting, EndRule::KnownProducer);
        let native = objects.into_values().next().unwrap();
        let step = native.len() / 150;
        for at in (0..native.len()).step_by(step.max(1)) {
            let mut bad = native.clone();
            bad[at] ^= 1 << (at % 8);
            assert!(open(bad.into(), 130_000, None).is_err(), "{codec}: bit flipped in byte {at}");
        }
        assert!(open(native.into(), 130_000, None).unwrap() == input);
    }
}

/// Segments of a body with several are dropped, repeated or swapped. All bytes returned before the
/// error are genuine.
#[test]
fn segments_out_of_place_are_noticed_and_nothing_false_comes_out() {
    let input = stream(&[("a", 4_000_000), ("xtrabackup_info", 10)], 700_000);
    let plan = pack_plan(64 << 20, 1 << 30, 2, 4, LIMITS).unwrap();
    let (cutting, key) = native("none", true);
    let (objects, _) = put(input.clone(), 65_536, plan, cutting, EndRule::KnownProducer);
    let native = objects.into_values().next().unwrap();
    let (head, body) = native.split_at(128);
    let segments: Vec<&[u8]> = body.chunks(1 << 20).collect();
    assert!(segments.len() >= 4);
    for order in [vec![0, 2, 3], vec![0, 1, 1, 2, 3], vec![0, 2, 1, 3], vec![1, 2, 3], vec![0, 1]] {
        let moved: Vec<&[u8]> =
            std::iter::once(head).chain(order.iter().map(|n| segments[*n])).collect();
        let mut out = Vec::new();
        let plan = UnpackPlan::new(64 << 20, 2, 2).unwrap();
        let bytes: Bytes = moved.concat().into();
        let outcome = unpack(
            std::iter::once(Some(bytes)),
            key.clone(),
            &plan,
            &Observer::default(),
            |piece| {
                out.extend_from_slice(&piece);
                Ok::<_, std::convert::Infallible>(())
            },
        );
        assert!(outcome.is_err(), "{order:?}");
        assert!(
            input.starts_with(&out),
            "{order:?}: {} bytes that are not the stream's",
            out.len()
        );
    }
}

#[test]
fn classic_objects_are_the_chunks_of_the_stream() {
    let input = stream(&[("a/t.ibd", 2_500_000), ("empty", 0), ("xtrabackup_info", 10)], 1_000_000);
    for part in [100_000, 64 << 20] {
        let mut plan = pack_plan(64 << 20, 1_000_000, 2, 4, LIMITS).unwrap();
        plan.part_size = part;
        let (objects, result) =
            put(input.clone(), 4096, plan, one_object_per_chunk(), EndRule::KnownProducer);
        let PackOutput::Classic(cut) = result.unwrap().output else {
            panic!("classic was asked for")
        };
        assert_eq!((cut.objects, cut.bytes), (7, input.len() as u64));
        let keys: Vec<&str> = objects.keys().map(String::as_str).collect();
        let names = [("a/t.ibd", 4), ("empty", 1), ("xtrabackup_info", 2)];
        let expected: Vec<String> = names
            .iter()
            .flat_map(|(n, count)| (0..*count).map(move |k| format!("{n}.{k:020}")))
            .collect();
        assert_eq!(keys, expected);
        assert_eq!(objects.into_values().collect::<Vec<_>>().concat(), input);
    }
}

#[test]
fn a_stream_cut_at_any_byte_gives_no_result() {
    let input = stream(&[("a", 50), ("xtrabackup_info", 10)], 20);
    let plan = pack_plan(64 << 20, 64, 1, 1, LIMITS).unwrap();
    for cut in 0..input.len() {
        let (_, result) = put(input[..cut].to_vec(), 4096, plan, packed(), EndRule::KnownProducer);
        assert!(matches!(result, Err(PackError::Stream(_))), "cut at {cut}: {result:?}");
    }
    assert!(put(input, 4096, plan, packed(), EndRule::KnownProducer).1.is_ok());
}

#[test]
fn a_wrong_checksum_names_file_and_offset() {
    let mut input = stream(&[("a", 3_000_000), ("xtrabackup_info", 10)], 1_000_000);
    input[1_500_000] ^= 1;
    let plan = pack_plan(64 << 20, 1 << 20, 2, 4, LIMITS).unwrap();
    for cutting in [packed(), one_object_per_chunk()] {
        let (_, result) = put(input.clone(), 65_536, plan, cutting, EndRule::KnownProducer);
        let Err(PackError::Stream(StreamError::Decode(error))) = result else {
            panic!("{result:?}")
        };
        let text = error.to_string();
        assert!(text.contains('a') && text.contains("1000000"), "{text}");
    }
}

#[test]
fn every_cut_and_every_flipped_bit_of_the_objects_is_noticed() {
    let input = stream(&[("a", 300), ("xtrabackup_info", 10)], 200);
    let plan = pack_plan(64 << 20, 1 << 20, 1, 1, LIMITS).unwrap();
    let (objects, _) = put(input.clone(), 4096, plan, packed(), EndRule::KnownProducer);
    let native = objects.into_values().next().unwrap();
    for at in 0..native.len() {
        assert!(get(Bytes::copy_from_slice(&native[..at]), 4096).is_err(), "cut at {at}");
        let mut bad = native.clone();
        bad[at] ^= 1 << (at % 8);
        assert!(get(bad.into(), 4096).is_err(), "bit flipped in byte {at}");
    }
    assert_eq!(get(native.into(), 4096).unwrap(), input);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_sizes_up_and_down(len in 0_usize..400_000, chunk in 1000_usize..300_000, object in 1_u64..500_000, part in 1_u64..500_000, step in 1_usize..100_000, range in 1_usize..300_000, codec in 0..CODECS.len(), sealed: bool) {
        let input = stream(&[("t", len), ("xtrabackup_info", 5)], chunk);
        let mut plan = pack_plan(64 << 20, object.max(1000), 2, 3, LIMITS).unwrap();
        plan.part_size = part.max(500);
        let (cutting, key) = native(CODECS[codec], sealed);
        let (objects, result) = put(input.clone(), step.max(100), plan, cutting, EndRule::KnownProducer);
        result.unwrap();
        let mut by_number: Vec<_> = objects.into_iter().map(|(k, v)| (k.parse::<u64>().unwrap(), v)).collect();
        by_number.sort();
        let (last, full) = by_number.split_last().unwrap();
        prop_assert!(full.iter().all(|(_, o)| o.len() as u64 == plan.object_size.get()) && last.1.len() as u64 <= plan.object_size.get());
        let native: Bytes = by_number.into_iter().map(|(_, o)| o).collect::<Vec<_>>().concat().into();
        prop_assert!(open(native, range.max(500), key).unwrap() == input);
    }
}
