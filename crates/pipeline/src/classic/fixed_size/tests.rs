//! Objects and parts of interleaved files, in pieces of any length.
#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use xb_reader::{ChunkKind, ChunkReader, Dialect, Item, Limits};
use xb_testkit::stream::scan;

use super::*;
use crate::classic::object::MAX_XBSTREAM_CHUNK;
use crate::flow::plan::{ObjectSize, PackPlan, PackSizing, PartLimits, PlanError};

fn plan(memory: u64, object: u64, limits: PartLimits) -> Result<PackPlan, PlanError> {
    let object_size = ObjectSize::new(object);
    PackPlan::new(PackSizing {
        memory,
        codec_memory: 0,
        object_size,
        threads: 2,
        parallel: 4,
        limits,
    })
}

/// Lengths of the parts of an object, and its bytes.
type Object = (Vec<u64>, Vec<u8>);

fn name(file: usize) -> RelPath {
    // The longest name allowed is among them.
    let deep = "n".repeat(250);
    let folder = ["d".into(), "d/dd".into(), deep.clone(), format!("{deep}/{deep}")];
    let path = format!("{}/{file:09}", folder[file % 4]);
    assert!(file % 4 != 3 || path.len() == RelPath::MAX_LEN);
    RelPath::new(path.as_bytes()).unwrap()
}

fn content(file: usize, len: usize) -> Vec<u8> {
    let byte = |n: usize| ((n / 3) ^ file).to_le_bytes()[n % 3];
    (0..len).map(|n| if n / 2000 % 3 == 1 { 0 } else { byte(n) }).collect()
}

/// Cuts files of these lengths; `steps` lists whose piece is next and its length. The pieces of
/// every other file are copied.
fn cut(
    lens: &[usize],
    steps: &[(usize, usize)],
    sizes: Sizes,
    limit: u64,
) -> (BTreeMap<String, Object>, Cut) {
    let mut objects = BTreeMap::<String, Object>::new();
    let sink = |part: Part| {
        let (parts, bytes) = objects.entry(part.object.to_string()).or_default();
        assert_eq!(parts.len(), part.index as usize, "the parts of an object come in order");
        parts.push(part.payload.iter().map(|b| b.len() as u64).sum());
        part.payload.iter().for_each(|b| bytes.extend_from_slice(b));
        Ok(())
    };
    let mut cutter = FixedSizeCutter::new(sizes, limit, sink);
    let budget = Budget::new(u64::MAX / 2);
    let files: Vec<_> =
        lens.iter().enumerate().map(|(n, len)| (name(n), content(n, *len))).collect();
    let mut at = vec![0; lens.len()];
    let rest = files.iter().enumerate().map(|(n, (_, bytes))| (n, bytes.len().max(1)));
    for (file, len) in steps.iter().copied().chain(rest) {
        let file = file % files.len();
        let (path, bytes) = &files[file];
        let piece = &bytes[at[file]..bytes.len().min(at[file] + len)];
        at[file] += piece.len();
        match piece.iter().position(|b| *b != 0).unwrap_or(piece.len()) {
            zeros if zeros > 500 => {
                cutter.zeros(path, zeros as u64).unwrap();
                cutter.copy(path, &piece[zeros..], &budget).unwrap();
            }
            _ if file % 2 == 0 => cutter.add(path, Bytes::copy_from_slice(piece)).unwrap(),
            _ => cutter.copy(path, piece, &budget).unwrap(),
        }
        let held: u64 = cutter.files.values().map(|file| file.queue.held()).sum();
        assert_eq!(cutter.idle, held);
        assert!(held <= limit, "{held} bytes are held");
    }
    files.iter().for_each(|(path, _)| cutter.end(path).unwrap());
    assert_eq!((cutter.files.len(), cutter.idle), (0, 0));
    let cut = cutter.finish();
    (objects, cut)
}

/// Returns the files in a stream. Their chunks must be contiguous and have correct checksums.
fn files_of(stream: &[u8]) -> BTreeMap<RelPath, Vec<u8>> {
    let mut reader = ChunkReader::new(stream, Dialect::Percona, Limits::default());
    let (mut open, mut files) = (BTreeMap::<RelPath, Vec<u8>>::new(), BTreeMap::new());
    let mut current = None;
    while let Some(item) = reader.next().unwrap() {
        match item {
            Item::Data(piece) => {
                let path = current.clone().unwrap();
                open.entry(path).or_default().extend_from_slice(piece);
            }
            Item::Chunk(head, _) => {
                current = Some(head.path.clone());
                match head.kind {
                    ChunkKind::Payload { len, .. } => {
                        assert!((1..=MAX_XBSTREAM_CHUNK).contains(&len))
                    }
                    ChunkKind::End => {
                        let bytes = open.remove(&head.path).unwrap_or_default();
                        assert!(files.insert(head.path, bytes).is_none());
                    }
                    other => panic!("{other:?}"),
                }
            }
            Item::ChunkEnd => {}
        }
    }
    assert!(open.is_empty());
    files
}

/// Checks everything that holds with any amount of memory. Returns the number of short objects.
fn check(
    lens: &[usize],
    sizes: Sizes,
    objects: &BTreeMap<String, Object>,
    cut: Cut,
) -> Result<u64, TestCaseError> {
    let total: usize = objects.values().map(|(_, bytes)| bytes.len()).sum();
    prop_assert_eq!((cut.objects, cut.bytes), (objects.len() as u64, total as u64));
    // Sorted names with their numbers are in the order of the objects.
    let stream: Vec<u8> = objects.values().flat_map(|(_, bytes)| bytes).copied().collect();
    let files = files_of(&stream);
    prop_assert_eq!(files.len(), lens.len());
    let mut short = 0;
    for (n, len) in lens.iter().enumerate() {
        prop_assert_eq!(&files[&name(n)], &content(n, *len));
        let own = objects.iter().filter(|(key, _)| key.starts_with(&format!("{}.", name(n))));
        let own: Vec<_> = own.collect();
        let (last, others) = own.split_last().unwrap();
        prop_assert!(last.1.1.len() as u64 <= sizes.object);
        for (number, (key, (parts, bytes))) in own.iter().enumerate() {
            let ending = format!(".{number:020}");
            prop_assert!(key.ends_with(&ending));
            let (_, full) = parts.split_last().unwrap();
            let equal = sizes.least == sizes.object;
            let fits = |part: &u64| if equal { *part == sizes.part } else { *part >= sizes.least };
            prop_assert!(full.iter().all(fits), "parts of {:?}", parts);
            prop_assert!(parts.iter().all(|part| *part < sizes.part + MIN_OBJECT));
            // Whole chunks of this file only.
            prop_assert!(scan(bytes).iter().all(|c| c.path.as_bytes() == name(n).as_bytes()));
        }
        for (_, (_, bytes)) in others {
            prop_assert!(bytes.len() as u64 <= sizes.object);
            short += u64::from(bytes.len() as u64 != sizes.object);
        }
    }
    prop_assert_eq!(cut.short, short);
    Ok(short)
}

/// Lengths around the thresholds.
fn len() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), 1_usize..600, 3000_usize..5000, 0_usize..60_000]
}

fn steps() -> impl Strategy<Value = Vec<(usize, usize)>> {
    prop::collection::vec((0_usize..8, prop_oneof![1_usize..40, 1_usize..30_000]), 0..60)
}

/// Objects in one request, in parts of any size, and in equal parts.
fn sizes() -> impl Strategy<Value = Sizes> {
    (4096_u64..40_000, 1_u64..6, 4096_u64..9000, any::<bool>()).prop_map(
        |(object, parts, least, equal)| {
            let part = object.div_ceil(parts);
            match (object < least + MIN_OBJECT || part < least, equal) {
                (true, _) => Sizes { object, part: object, least: object },
                (_, true) => Sizes { object, part, least: object },
                (_, false) => Sizes { object, part, least },
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_objects_but_the_last_have_the_size_asked_for(
        lens in prop::collection::vec(len(), 1..8), steps in steps(), sizes in sizes(),
    ) {
        let (objects, cut) = cut(&lens, &steps, sizes, u64::MAX / 2);
        prop_assert_eq!(check(&lens, sizes, &objects, cut)?, 0);
    }

    #[test]
    fn with_little_memory_short_ones_are_counted(
        lens in prop::collection::vec(len(), 1..8), steps in steps(), sizes in sizes(), room in 0_u64..60_000,
    ) {
        // Blocks hold whole pages, and the first block more than its part. A single file always
        // fits.
        let pages = if lens.len() == 1 { 4096 * steps.len() as u64 } else { 0 };
        let limit = sizes.needed() + (64 << 10) + pages + room;
        let (objects, cut) = cut(&lens, &steps, sizes, limit);
        let short = check(&lens, sizes, &objects, cut)?;
        prop_assert!(lens.len() > 1 || short == 0, "{} are short", short);
    }

    #[test]
    fn chunks_add_up_to_the_room(room in MIN_OBJECT..(300 << 20), path in 1_u64..512) {
        let heads = Heads { payload: 34 + path, end: 14 + path };
        for fill in [Fill::exactly(room, heads), Fill::exactly_with_one_more(room, heads)] {
            prop_assert_eq!(fill.total(heads), room);
            prop_assert_eq!(fill.chunks().sum::<u64>(), fill.payload);
            prop_assert!(fill.chunks().all(|len| (1..=MAX_XBSTREAM_CHUNK).contains(&len)));
        }
        // An early part with all bytes is exact in the same number of chunks.
        let all = Fill::all(room);
        prop_assert_eq!(Fill::exactly(all.total(heads), heads), all);
    }

    #[test]
    fn parts_keep_to_the_store_and_the_memory(
        object in MIN_OBJECT..(20 << 30), memory in (16_u64 << 20)..(2 << 30), count in prop_oneof![Just(1000), Just(10_000)], equal: bool,
    ) {
        let limits = PartLimits { min: 5 << 20, max: 5 << 30, count, object: u64::MAX, equal };
        if let Ok(plan) = plan(memory, object, limits)
            && let Ok(idle) = idle_limit(&plan)
        {
            let sizes = Sizes::new(&plan, idle);
            prop_assert!(sizes.part <= object && sizes.needed() <= idle);
            prop_assert!(sizes.part == object || sizes.part >= limits.min);
            prop_assert!(sizes.least == object || sizes.least >= limits.min);
            let smallest = sizes.part.min(sizes.least);
            prop_assert!(object.div_ceil(smallest) <= count);
            // The last of equal parts is not much shorter.
            let last = object - sizes.part * ((object - 1) / sizes.part);
            prop_assert!(!equal || last >= MIN_OBJECT);
        }
    }
}

#[test]
fn too_little_memory_is_refused_with_a_number_that_does() {
    for (equal, object) in [(false, 10_000), (false, 200 << 20), (true, 7 << 20), (true, 1 << 30)] {
        let limits =
            PartLimits { min: 5 << 20, max: 5 << 30, count: 10_000, object: u64::MAX, equal };
        let mut memory = 1;
        let plan = loop {
            let plan = plan(memory, object, limits);
            match plan.clone().and_then(|plan| idle_limit(&plan).map(drop)) {
                Ok(()) => break plan.unwrap(),
                Err(PlanError::Memory { needed, .. }) => {
                    assert!(needed > memory, "{needed} are more than {memory}");
                    memory = needed;
                }
                Err(error) => panic!("{error}"),
            }
        };
        assert!(plan.memory < 64 << 20, "{object}: {}", plan.memory);
    }
}
