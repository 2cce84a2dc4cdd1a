use std::ops::Range;

use bytes::Bytes;
use proptest::prelude::*;
use xb_frame::index::{ChunkRecord, parse};
use xb_frame::{Codec, Limits, StreamHeader, StreamId, StreamReader, StreamWriter, crc32c};
use xb_pipeline::{Body, FRONT_LEN, Observer, UnpackPlan, unpack_parts};
use xb_reader::ChunkWriter;

use super::plan::PlanFailure;
use super::*;
use crate::read::stream_sink::StreamSink;
use crate::selection::MatchedNames;

/// Next step of the producer.
#[derive(Debug, Clone)]
enum Step {
    Chunk(usize, Vec<u8>),
    Seek(usize, u64),
    Rename(usize),
    Remove(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let file = 0_usize..6;
    let chunk = (file.clone(), proptest::collection::vec(any::<u8>(), 1..300))
        .prop_map(|(file, bytes)| Step::Chunk(file, bytes));
    let seek = (file.clone(), 0_u64..1000).prop_map(|(file, to)| Step::Seek(file, to));
    let step = prop_oneof![
        12 => chunk,
        1 => seek,
        1 => file.clone().prop_map(Step::Rename),
        1 => file.prop_map(Step::Remove),
    ];
    proptest::collection::vec(step, 0..40)
}

/// One file of the stream, as the test generates it.
#[derive(Debug, Clone)]
struct Made {
    name: String,
    ends_as: String,
    removed: bool,
    begun: bool,
    next: u64,
}

/// An xbstream, the file of each chunk, and its index records.
struct Stream {
    bytes: Vec<u8>,
    chunks: Vec<(usize, Range<usize>)>,
    files: Vec<Made>,
    native: Vec<u8>,
}

fn stream(steps: &[Step], frames: &[usize]) -> Stream {
    let mut files: Vec<Made> = (0..6)
        .map(|n| {
            let name = format!("db{}/t{n}.ibd", n % 2);
            Made { ends_as: name.clone(), name, removed: false, begun: false, next: 0 }
        })
        .collect();
    for step in steps {
        match step {
            Step::Rename(n) if !files[*n].removed => {
                files[*n].ends_as = format!("db{}/r{n}", n % 2)
            }
            Step::Remove(n) => files[*n].removed = true,
            _ => {}
        }
    }
    let (mut bytes, mut chunks, mut records) = (Vec::new(), Vec::new(), Vec::new());
    let mut add = |bytes: &mut Vec<u8>, n: usize, write: &dyn Fn(&mut ChunkWriter<Vec<u8>>)| {
        let mut writer = ChunkWriter::new(Vec::new());
        write(&mut writer);
        let chunk = writer.finish().unwrap();
        let start = bytes.len();
        bytes.extend(&chunk);
        chunks.push((n, start..bytes.len()));
        chunk.len() as u64
    };
    enum Rec {
        File(usize),
        Chunk(ChunkRecord),
        End(usize, u64),
        Rename(usize),
        Remove(usize),
    }
    let mut ended = [false; 6];
    for step in steps {
        match step {
            Step::Chunk(n, payload) if !ended[*n] => {
                let file = &mut files[*n];
                if !file.begun {
                    records.push(Rec::File(*n));
                    file.begun = true;
                }
                let (offset, name) = (file.next, file.name.clone());
                let len = payload.len() as u64;
                file.next += len;
                let position = bytes.len() as u64;
                let whole = add(&mut bytes, *n, &|w| w.payload(&name, offset, payload).unwrap());
                records.push(Rec::Chunk(ChunkRecord {
                    file: *n as u64,
                    kind: b'P',
                    position,
                    head_len: whole - len,
                    payload_len: len,
                    offset,
                    logical_len: len,
                }));
            }
            // A seek writes something only before a chunk that does not start where the last one
            // ended.
            Step::Seek(n, to) if files[*n].begun && !ended[*n] && files[*n].next != *to => {
                let name = files[*n].name.clone();
                add(&mut bytes, *n, &|w| w.seek(&name, *to).unwrap());
                let position = bytes.len() as u64;
                let whole = add(&mut bytes, *n, &|w| w.payload(&name, *to, b"x").unwrap());
                records.push(Rec::Chunk(ChunkRecord {
                    file: *n as u64,
                    kind: b'P',
                    position,
                    head_len: whole - 1,
                    payload_len: 1,
                    offset: *to,
                    logical_len: 1,
                }));
                files[*n].next = to + 1;
            }
            _ => {}
        }
        // Some files end early, so that their ends lie between the chunks of other files.
        if let Step::Chunk(n, payload) = step
            && payload.len() % 5 == 0
            && !ended[*n]
        {
            let name = files[*n].name.clone();
            add(&mut bytes, *n, &|w| w.end(&name).unwrap());
            records.push(Rec::End(*n, files[*n].next));
            ended[*n] = true;
        }
    }
    for n in 0..6 {
        if files[n].removed {
            if files[n].begun {
                let name = files[n].name.clone();
                add(&mut bytes, n, &|w| w.remove(&name).unwrap());
                records.push(Rec::Remove(n));
            }
            continue;
        }
        if !files[n].begun {
            records.push(Rec::File(n));
        }
        let (name, to) = (files[n].name.clone(), files[n].ends_as.clone());
        if !ended[n] {
            add(&mut bytes, n, &|w| w.end(&name).unwrap());
            records.push(Rec::End(n, files[n].next));
        }
        if name != to {
            add(&mut bytes, n, &|w| w.rename(&name, &to).unwrap());
            records.push(Rec::Rename(n));
        }
    }
    // Frames at arbitrary positions, records at the end: the format promises no order between them.
    let header = StreamHeader::new(StreamId([3; 16]));
    let mut native = header.encode().to_vec();
    let mut writer = StreamWriter::new(&header).with_index_target(200);
    let mut rest = &bytes[..];
    let mut sizes = frames.iter().cycle();
    let mut queue = records.iter();
    loop {
        let len = (*sizes.next().unwrap()).min(rest.len());
        let (now, later) = rest.split_at(len);
        rest = later;
        if len > 0 {
            let size = u32::try_from(len).unwrap();
            let head = writer.data_frame(0, Codec::None, size, size, crc32c(now)).unwrap();
            native.extend(head);
            native.extend(now);
        }
        for record in queue.by_ref().take(if rest.is_empty() { usize::MAX } else { 2 }) {
            let record = match record {
                Rec::File(n) => {
                    Record::File { file: *n as u64, source: 0, path: files[*n].name.as_bytes() }
                }
                Rec::Chunk(chunk) => Record::Chunk(*chunk),
                Rec::End(n, size) => Record::End { file: *n as u64, size: *size },
                Rec::Rename(n) => {
                    Record::Rename { file: *n as u64, path: files[*n].ends_as.as_bytes() }
                }
                Rec::Remove(n) => Record::Remove { file: *n as u64 },
            };
            writer.record(&record).unwrap();
            if writer.index_due() {
                native.extend(writer.index_frame().unwrap());
            }
        }
        if rest.is_empty() {
            break;
        }
    }
    native.extend(&writer.finish().bytes);
    Stream { bytes, chunks, files, native }
}

/// The payloads of all index frames.
fn index(native: &[u8]) -> Vec<Vec<u8>> {
    let mut reader = StreamReader::new(Limits::default());
    let (mut found, mut payload, mut input) = (Vec::new(), Vec::new(), native);
    while let Some(event) = reader.next(&mut input).unwrap() {
        match event {
            xb_frame::Event::Frame(_) => payload.clear(),
            xb_frame::Event::Payload(bytes) => payload.extend_from_slice(bytes),
            xb_frame::Event::FrameEnd(header) if header.kind == xb_frame::Kind::Index => {
                found.push(payload.clone());
            }
            _ => {}
        }
    }
    found
}

fn parts_of(
    native: &[u8],
    selection: &Selection,
    proven: &Checkpoint,
) -> Result<Parts, PlanFailure> {
    let payloads = index(native);
    let records = || payloads.iter().flat_map(|p| parse(p).unwrap().map(Result::unwrap));
    let mut changes = LaterChanges::default();
    records().for_each(|record| changes.take(&record));
    let mut chooser = ChunkSelector::new(selection, proven, changes);
    records().try_for_each(|record| chooser.take(&record))?;
    let mut parts = chooser.finish()?;
    let mut frames = FrameFinder::new(&parts.picks);
    records().for_each(|record| {
        if let Record::Frames(run) = record {
            frames.take(&run);
        }
    });
    parts.runs = frames.finish()?;
    Ok(parts)
}

#[derive(Default)]
struct Collected(Vec<u8>);

impl StreamSink for Collected {
    fn take(&mut self, bytes: Bytes) -> Result<(), BackupError> {
        self.0.extend_from_slice(&bytes);
        Ok(())
    }
}

/// Fetches only the parts from the native stream.
fn fetch(native: &[u8], parts: Parts, cut: usize) -> Vec<u8> {
    let body =
        Body::open(&native[..FRONT_LEN.min(native.len())], native.len() as u64, None).unwrap();
    let runs = parts.runs.clone();
    let whole = Bytes::copy_from_slice(native);
    let pieces: Vec<_> = body
        .stored(&runs)
        .into_iter()
        .flat_map(|range| {
            let range = whole
                .slice(usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap());
            range.chunks(cut).map(|piece| Some(range.slice_ref(piece))).collect::<Vec<_>>()
        })
        .collect();
    let plan = UnpackPlan::new(64 << 20, 2, 2).unwrap();
    let mut picker = Picker::new(parts, Collected::default());
    let take = |offset, piece: Bytes| picker.take(offset, &piece);
    unpack_parts(pieces.into_iter(), &body, runs, &plan, &Observer::default(), take).unwrap();
    let (given, Collected(bytes)) = picker.finish().unwrap();
    assert_eq!(given, bytes.len() as u64);
    bytes
}

proptest! {
    #[test]
    fn a_selection_gives_the_chunks_of_its_files_and_no_others(
        steps in steps(),
        frames in proptest::collection::vec(1_usize..400, 1..6),
        glob in prop::sample::select(vec!["db0/*", "db1/t*", "*t3.ibd", "*/r*", "*"]),
        cut in 1_usize..500,
    ) {
        let made = stream(&steps, &frames);
        let selection = Selection::globs(&[glob.to_owned()]).unwrap();
        let wanted = |n: usize| {
            let file = &made.files[n];
            !file.removed && selection.judge(file.ends_as.as_bytes(), &mut MatchedNames::default()).is_some()
        };
        let any = (0..6).any(wanted);
        match parts_of(&made.native, &selection, &Checkpoint::default()) {
            Err(refused) => prop_assert!(!any, "{refused:?}"),
            Ok(parts) => {
                prop_assert!(any);
                let chosen = parts.chosen;
                prop_assert_eq!(chosen.files, (0..6).filter(|n| wanted(*n)).count() as u64);
                let expected: Vec<u8> = made
                    .chunks
                    .iter()
                    .filter(|(n, _)| wanted(*n))
                    .flat_map(|(_, range)| made.bytes[range.clone()].to_vec())
                    .collect();
                prop_assert_eq!(parts.stream_bytes(), expected.len() as u64);
                prop_assert!(fetch(&made.native, parts, cut) == expected);
            }
        }
    }

    /// Proven chunks are not fetched again, and everything else is.
    #[test]
    fn proven_files_are_left_out(
        sizes in proptest::collection::vec((0_usize..6, 1_usize..200), 1..40),
        frames in proptest::collection::vec(1_usize..300, 1..4),
        cut in 0_usize..40,
    ) {
        let steps: Vec<Step> = sizes
            .iter()
            .map(|(file, len)| Step::Chunk(*file, vec![7; len | 1]))
            // No early ends: a length divisible by five would cause one.
            .filter(|step| !matches!(step, Step::Chunk(_, bytes) if bytes.len() % 5 == 0))
            .collect();
        let made = stream(&steps, &frames);
        let mut proven = Checkpoint::default();
        for step in steps.iter().take(cut) {
            let Step::Chunk(n, bytes) = step else { unreachable!() };
            let name = made.files[*n].name.clone().into_bytes();
            proven.begun.entry(name).or_default().upto += bytes.len() as u64;
        }
        proven.whole.insert(made.files[0].name.clone().into_bytes());
        let parts = parts_of(&made.native, &Selection::default(), &proven).unwrap();
        let mut passed = 0;
        let expected: Vec<u8> = made
            .chunks
            .iter()
            .filter(|(n, range)| {
                let is_end = range.len() == 14 + made.files[*n].name.len();
                if !is_end {
                    passed += 1;
                }
                *n != 0 && (is_end || passed > cut)
            })
            .flat_map(|(_, range)| made.bytes[range.clone()].to_vec())
            .collect();
        prop_assert!(fetch(&made.native, parts, 97) == expected);
    }
}
