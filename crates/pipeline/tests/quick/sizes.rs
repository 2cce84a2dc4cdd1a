//! The packer alone decides the size of objects; how the input arrives has no influence.

use std::sync::{Arc, Mutex};

use crate::common::{CODECS, LIMITS, Steps, native, open, pack_plan, put, stream};
use bytes::Bytes;
use xb_pipeline::{Budget, EndRule, Observer, PackSettings, Part, SLAB, start_pack};
use xb_reader::ChunkWriter;
use xb_testkit::data;

const MIB: usize = 1 << 20;

/// A stream of about `len` bytes, of which every codec keeps more than three quarters.
fn table(len: usize) -> Bytes {
    let mut piece = data::noise(1, 3 * MIB);
    piece.extend(data::pages(2, MIB));
    let mut writer = ChunkWriter::new(Vec::with_capacity(len + 8 * MIB));
    for n in 0..len.div_ceil(piece.len()) {
        writer.payload("db/t.ibd", (n * piece.len()) as u64, &piece).unwrap();
    }
    writer.end("db/t.ibd").unwrap();
    writer.end("xtrabackup_info").unwrap();
    writer.finish().unwrap().into()
}

#[test]
fn objects_have_the_size_asked_for_with_every_codec_and_the_seal() {
    // Below, at and above the memory.
    for chunk in [1, 10, 64, 96].map(|n| n * MIB) {
        let input = table((chunk / 2 * 3).max(12 * MIB));
        for (codec, sealed) in CODECS.iter().flat_map(|codec| [(codec, false), (codec, true)]) {
            let sizes = Arc::new(Mutex::new(Vec::new()));
            let seen = Arc::clone(&sizes);
            let sink = move |part: Part| {
                let mut sizes = seen.lock().unwrap();
                if part.index == 0 {
                    sizes.push(0);
                }
                *sizes.last_mut().unwrap() += part.payload.iter().map(Bytes::len).sum::<usize>();
                Ok(())
            };
            let plan = pack_plan(64 << 20, chunk as u64, 2, 2, LIMITS).unwrap();
            let settings = PackSettings { plan, layout: native(codec, sealed).0 };
            let source = Steps(input.clone(), usize::MAX);
            let budget = Budget::new(plan.memory);
            start_pack(source, settings, &budget, &Observer::default(), sink)
                .unwrap()
                .join()
                .unwrap();
            let sizes = sizes.lock().unwrap();
            let (last, full) = sizes.split_last().unwrap();
            let what = format!("{codec}, sealed {sealed}: {sizes:?}");
            assert!(!full.is_empty() && full.iter().all(|size| *size == chunk), "{what}");
            assert!((1..=chunk).contains(last), "{what}");
        }
    }
}

/// Reads of one byte, odd lengths, the boundaries of slabs and segments, and everything at once;
/// unpacked in ranges of the same lengths.
#[test]
fn no_size_of_reads_or_ranges_changes_the_result() {
    let small = stream(&[("t", 5_000), ("xtrabackup_info", 5)], 777);
    let large = stream(&[("t", 3 * MIB), ("xtrabackup_info", 5)], 99_999);
    let slab = SLAB;
    let odd = [1, 2, 3, 7, 127, 128, 129, 1_021];
    let border = [65_537, slab - 57, slab - 1, slab, slab + 1, 2 * slab + 1, usize::MAX];
    for (codec, sealed) in CODECS.iter().flat_map(|codec| [(codec, false), (codec, true)]) {
        for (input, step) in
            odd.map(|step| (&small, step)).into_iter().chain(border.map(|step| (&large, step)))
        {
            let plan = pack_plan(64 << 20, 1 << 20, 2, 2, LIMITS).unwrap();
            let (cutting, key) = native(codec, sealed);
            let (objects, result) = put(input.clone(), step, plan, cutting, EndRule::KnownProducer);
            result.unwrap();
            let stored: Bytes = objects.into_values().collect::<Vec<_>>().concat().into();
            let back = open(stored, step.min(1 << 30), key).unwrap();
            assert!(back == *input, "{codec}, sealed {sealed}, {step} bytes at a time");
        }
    }
}
