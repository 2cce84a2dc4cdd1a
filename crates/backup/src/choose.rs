//! From a selection and the index to the parts of a stream that must be read for it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use xb_frame::Record;
use xb_reader::ChunkWriter;

use crate::error::BackupError;
use crate::get::StreamSink;
use crate::index::Index;
use crate::select::{Matched, Selection, Why};

/// Frames between two wanted ones that are fetched as well, in bytes: a request costs more.
const GAP: u64 = 128 << 10;

/// Bytes that a plan for single files may take in memory. A file takes some 120.
const MAX_PLAN: usize = 256 << 20;

/// How many files were chosen, and how large they are as they lie in the stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Files that were asked for.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that `prepare` needs besides.
    pub needed_files: u64,
    /// Their bytes.
    pub needed_bytes: u64,
}

impl Chosen {
    pub(crate) fn add(&mut self, why: Why, files: u64, bytes: u64) {
        match why {
            Why::Asked => {
                self.files += files;
                self.bytes += bytes;
            }
            Why::Needed => {
                self.needed_files += files;
                self.needed_bytes += bytes;
            }
        }
    }
}

/// What an earlier restore into the same target has proven, by the names in the stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Proven {
    /// Files that are whole.
    pub(crate) whole: HashSet<Vec<u8>>,
    /// Files that are not.
    pub(crate) begun: HashMap<Vec<u8>, Come>,
}

/// How far a file has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Come {
    /// All before this offset is there.
    pub(crate) upto: u64,
    /// Bytes of its part of the stream that this took.
    pub(crate) taken: u64,
}

/// A piece of the stream that is made of the chosen files.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pick {
    /// These bytes of the source.
    Source(Range<u64>),
    /// These of [`Parts::text`], which are not in the source, or nobody knows where.
    Text(Range<usize>),
}

/// The parts of a stream that hold the chosen files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parts {
    picks: Vec<Pick>,
    /// Chunks without payload, made anew.
    text: Bytes,
    /// Where their frames lie in the body.
    pub(crate) runs: Vec<Range<u64>>,
    pub(crate) chosen: Chosen,
}

/// Finds the parts for the chosen files.
pub(crate) async fn parts(
    index: &Index<'_>,
    selection: &Selection,
    proven: &Proven,
) -> Result<Parts, BackupError> {
    let mut names = FinalNames::default();
    for number in 0..index.len() {
        let payload = index.payload(number).await?;
        for record in index.records(&payload)? {
            names.take(&record.map_err(|error| index.bad_record(error))?);
        }
    }
    let mut chooser = Chooser::new(selection, proven, names);
    for number in 0..index.len() {
        let payload = index.payload(number).await?;
        for record in index.records(&payload)? {
            let record = record.map_err(|error| index.bad_record(error))?;
            chooser.take(&record).map_err(|refused| refused.of(index))?;
        }
    }
    let mut parts = chooser.finish().map_err(|refused| refused.of(index))?;
    let mut frames = FrameFinder::new(&parts.picks);
    for number in 0..index.len() {
        let payload = index.payload(number).await?;
        for record in index.records(&payload)? {
            if let Record::Frames(run) = record.map_err(|error| index.bad_record(error))? {
                frames.take(&run);
            }
        }
    }
    parts.runs = frames.finish().map_err(|refused| refused.of(index))?;
    Ok(parts)
}

/// Why no parts come out.
#[derive(Debug)]
enum Refused {
    Index(&'static str),
    Selection(BackupError),
}

impl Refused {
    fn of(self, index: &Index<'_>) -> BackupError {
        match self {
            Self::Index(what) => index.damaged(what),
            Self::Selection(error) => error,
        }
    }
}

/// What files are called at the end, where not as they began.
#[derive(Debug, Default)]
struct FinalNames {
    renamed: HashMap<u64, Vec<u8>>,
    removed: HashSet<u64>,
}

impl FinalNames {
    fn take(&mut self, record: &Record<'_>) {
        match record {
            Record::Rename { file, path } => drop(self.renamed.insert(*file, path.to_vec())),
            Record::Remove { file } => drop(self.removed.insert(*file)),
            _ => {}
        }
    }
}

/// A chosen file that is not done with.
#[derive(Debug)]
struct Open {
    path: Vec<u8>,
    why: Why,
    /// Offset at which a reader expects its next chunk.
    next: u64,
    /// It has come so far in an earlier run.
    proven: u64,
    ended: bool,
}

struct Chooser<'a> {
    selection: &'a Selection,
    proven: &'a Proven,
    names: FinalNames,
    matched: Matched,
    open: HashMap<u64, Open>,
    parts: Parts,
    text: BytesMut,
    /// End of the last chunk that was chosen.
    end: u64,
}

impl<'a> Chooser<'a> {
    fn new(selection: &'a Selection, proven: &'a Proven, names: FinalNames) -> Self {
        Self {
            selection,
            proven,
            names,
            matched: Matched::default(),
            open: HashMap::new(),
            parts: Parts::default(),
            text: BytesMut::new(),
            end: 0,
        }
    }

    /// Takes the records in order.
    fn take(&mut self, record: &Record<'_>) -> Result<(), Refused> {
        match record {
            Record::File { source: 1.., .. } => {
                return Err(Refused::Selection(BackupError::Selection(
                    "it has several inputs; single files can be had of one only".into(),
                )));
            }
            Record::File { file, path, .. } => self.file(*file, path),
            Record::Chunk(chunk) => {
                let Some(open) = self.open.get_mut(&chunk.file) else { return Ok(()) };
                let end = chunk.offset + chunk.logical_len;
                let (why, skipped) = (open.why, end <= open.proven);
                let seek = (chunk.offset != open.next && !skipped).then(|| open.path.clone());
                open.next = end;
                if skipped {
                    return Ok(());
                }
                if let Some(path) = seek {
                    self.say(|writer| writer.seek(&path, chunk.offset))?;
                }
                let len = chunk.head_len + chunk.payload_len;
                if chunk.position < self.end {
                    return Err(Refused::Index("its chunks are not in order"));
                }
                self.end = chunk.position + len;
                self.parts.chosen.add(why, 0, chunk.payload_len);
                match self.parts.picks.last_mut() {
                    Some(Pick::Source(last)) if last.end == chunk.position => last.end = self.end,
                    _ => self.parts.picks.push(Pick::Source(chunk.position..self.end)),
                }
                if self.parts.picks.len().saturating_mul(size_of::<Pick>()) > MAX_PLAN {
                    return Err(too_much());
                }
            }
            Record::End { file, .. } => {
                let Some(open) = self.open.get_mut(file) else { return Ok(()) };
                open.ended = true;
                let (path, why) = (open.path.clone(), open.why);
                self.say(|writer| writer.end(&path))?;
                self.parts.chosen.add(why, 1, 0);
                if !self.names.renamed.contains_key(file) {
                    self.open.remove(file);
                }
            }
            Record::Rename { file, path } => {
                let Some(open) = self.open.get_mut(file) else { return Ok(()) };
                let old = std::mem::replace(&mut open.path, path.to_vec());
                self.say(|writer| writer.rename(&old, path))?;
            }
            // Not chosen in the first place.
            Record::Remove { .. } | Record::Frames(_) | _ => {}
        }
        Ok(())
    }

    fn file(&mut self, file: u64, path: &[u8]) {
        if self.names.removed.contains(&file) {
            return;
        }
        let name = self.names.renamed.get(&file).map_or(path, Vec::as_slice);
        let Some(why) = self.selection.judge(name, &mut self.matched) else { return };
        if self.proven.whole.contains(name) {
            return;
        }
        let proven = self.proven.begun.get(path).map_or(0, |come| come.upto);
        // Where a reader goes on that has begun with it.
        let open = Open { path: path.to_vec(), why, next: 0, proven, ended: false };
        self.open.insert(file, open);
    }

    /// Adds a chunk without payload.
    fn say(
        &mut self,
        write: impl FnOnce(&mut ChunkWriter<Vec<u8>>) -> std::io::Result<()>,
    ) -> Result<(), Refused> {
        let mut writer = ChunkWriter::new(Vec::new());
        let bad = |_| Refused::Index("it has a name that no file can have");
        write(&mut writer).map_err(bad)?;
        let chunk = writer.finish().map_err(bad)?;
        let start = self.text.len();
        self.text.extend_from_slice(&chunk);
        let end = self.text.len();
        if end > MAX_PLAN {
            return Err(too_much());
        }
        match self.parts.picks.last_mut() {
            Some(Pick::Text(last)) => last.end = end,
            _ => self.parts.picks.push(Pick::Text(start..end)),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Parts, Refused> {
        self.selection.check(&self.matched).map_err(Refused::Selection)?;
        if self.open.values().any(|open| !open.ended) {
            return Err(Refused::Index("a file in it has no end"));
        }
        self.parts.text = self.text.freeze();
        Ok(self.parts)
    }
}

fn too_much() -> Refused {
    Refused::Selection(BackupError::Selection(
        "so many single files would take too much memory: choose fewer, or take all".into(),
    ))
}

/// Finds the frames that hold the picked parts of the source.
struct FrameFinder<'a> {
    wanted: std::iter::Peekable<Box<dyn Iterator<Item = Range<u64>> + Send + 'a>>,
    /// Up to here the first of what is wanted has been found.
    found: u64,
    runs: Vec<Range<u64>>,
}

impl<'a> FrameFinder<'a> {
    fn new(picks: &'a [Pick]) -> Self {
        let sources = picks.iter().filter_map(|pick| match pick {
            Pick::Source(range) => Some(range.clone()),
            Pick::Text(_) => None,
        });
        let wanted: Box<dyn Iterator<Item = _> + Send> = Box::new(sources);
        Self { wanted: wanted.peekable(), found: 0, runs: Vec::new() }
    }

    /// Takes the runs of source 0 in order.
    fn take(&mut self, run: &xb_frame::index::FrameRun<'_>) {
        let plain = run.plain_range();
        if run.source() != 0 || self.wanted.peek().is_none_or(|first| first.start >= plain.end) {
            return;
        }
        for frame in run.frames() {
            let (start, end) =
                (frame.plain_offset, frame.plain_offset + u64::from(frame.plain_len));
            let mut needed = false;
            while let Some(first) = self.wanted.peek() {
                let from = self.found.max(first.start);
                // A gap in the frames: it is never found, which `finish` sees.
                if end <= from || from < start {
                    break;
                }
                needed = true;
                self.found = end.min(first.end);
                if self.found < first.end {
                    break;
                }
                self.wanted.next();
            }
            if needed {
                let header = xb_frame::FRAME_HEADER_LEN as u64;
                let body_end = frame.position + header + u64::from(frame.stored_len);
                match self.runs.last_mut() {
                    Some(last)
                        if last.end <= frame.position && frame.position - last.end <= GAP =>
                    {
                        last.end = body_end;
                    }
                    _ => self.runs.push(frame.position..body_end),
                }
            }
        }
    }

    fn finish(mut self) -> Result<Vec<Range<u64>>, Refused> {
        if self.wanted.next().is_some() {
            return Err(Refused::Index("no frame holds some part of a file"));
        }
        match self.runs.is_sorted_by(|a, b| a.end <= b.start) {
            true => Ok(self.runs),
            false => Err(Refused::Index("its frames are not in order")),
        }
    }
}

impl Parts {
    /// Bytes of the stream that is made of them.
    pub(crate) fn stream_bytes(&self) -> u64 {
        self.picks
            .iter()
            .map(|pick| match pick {
                Pick::Source(range) => range.end - range.start,
                Pick::Text(range) => range.len() as u64,
            })
            .sum()
    }
}

/// Makes the stream of the chosen files out of the plain bytes of their frames.
pub(crate) struct Picker<S> {
    picks: std::iter::Peekable<std::vec::IntoIter<Pick>>,
    text: Bytes,
    sink: S,
    given: u64,
}

impl<S: StreamSink> Picker<S> {
    pub(crate) fn new(parts: Parts, sink: S) -> Self {
        Self { picks: parts.picks.into_iter().peekable(), text: parts.text, sink, given: 0 }
    }

    /// Takes the bytes that stand at `offset` in the source; in order.
    pub(crate) fn take(&mut self, offset: u64, bytes: &Bytes) -> Result<(), BackupError> {
        let end = offset + bytes.len() as u64;
        self.say()?;
        while let Some(Pick::Source(wanted)) = self.picks.peek_mut() {
            let from = wanted.start.max(offset);
            let to = wanted.end.min(end);
            if from >= to {
                break;
            }
            // Both lie within the bytes at hand.
            let within = |at: u64| usize::try_from(at - offset).unwrap_or(usize::MAX);
            let piece = bytes.slice(within(from)..within(to));
            wanted.start = to;
            let done = wanted.start == wanted.end;
            self.given += piece.len() as u64;
            self.sink.take(piece)?;
            if done {
                self.picks.next();
                self.say()?;
            }
        }
        Ok(())
    }

    /// Gives the text that comes next, if any.
    fn say(&mut self) -> Result<(), BackupError> {
        while let Some(Pick::Text(range)) = self.picks.peek() {
            let piece = self.text.slice(range.clone());
            self.picks.next();
            self.given += piece.len() as u64;
            self.sink.take(piece)?;
        }
        Ok(())
    }

    /// All frames have come. Gives the number of bytes that the sink got.
    pub(crate) fn finish(mut self) -> Result<(u64, S), BackupError> {
        self.say()?;
        match self.picks.next() {
            None => Ok((self.given, self.sink)),
            Some(_) => Err(BackupError::Bug("parts of the stream were not fetched")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use xb_frame::index::{ChunkRecord, parse};
    use xb_frame::{Codec, Limits, StreamHeader, StreamId, StreamReader, StreamWriter, crc32c};
    use xb_pipeline::{Body, FRONT_LEN, GetPlan, Observer, unpack_parts};

    use super::*;

    /// What a producer does next.
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

    /// One file of the stream as the test sees it.
    #[derive(Debug, Clone)]
    struct Made {
        name: String,
        ends_as: String,
        removed: bool,
        begun: bool,
        next: u64,
    }

    /// An xbstream, who each of its chunks is of, and its records.
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
                    let whole =
                        add(&mut bytes, *n, &|w| w.payload(&name, offset, payload).unwrap());
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
                // Only before a chunk that is not where the last one ended does it say anything.
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
            // Some end early, so that ends lie between the chunks of others.
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
        // Frames anywhere, records at the end: the format promises no order between them.
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

    fn parts_of(native: &[u8], selection: &Selection, proven: &Proven) -> Result<Parts, Refused> {
        let payloads = index(native);
        let records = || payloads.iter().flat_map(|p| parse(p).unwrap().map(Result::unwrap));
        let mut names = FinalNames::default();
        records().for_each(|record| names.take(&record));
        let mut chooser = Chooser::new(selection, proven, names);
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

    /// Fetches the parts out of the native stream, and nothing else of it.
    fn fetch(native: &[u8], parts: Parts, cut: usize) -> Vec<u8> {
        let body =
            Body::open(&native[..FRONT_LEN.min(native.len())], native.len() as u64, None).unwrap();
        let runs = parts.runs.clone();
        let whole = Bytes::copy_from_slice(native);
        let pieces: Vec<_> = body
            .stored(&runs)
            .into_iter()
            .flat_map(|range| {
                let range = whole.slice(
                    usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap(),
                );
                range.chunks(cut).map(|piece| Some(range.slice_ref(piece))).collect::<Vec<_>>()
            })
            .collect();
        let plan = GetPlan::new(64 << 20, 2, 2).unwrap();
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
                !file.removed && selection.judge(file.ends_as.as_bytes(), &mut Matched::default()).is_some()
            };
            let any = (0..6).any(wanted);
            match parts_of(&made.native, &selection, &Proven::default()) {
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

        /// What was proven before is not fetched again, and what is left is all the rest.
        #[test]
        fn what_is_proven_is_left_out(
            sizes in proptest::collection::vec((0_usize..6, 1_usize..200), 1..40),
            frames in proptest::collection::vec(1_usize..300, 1..4),
            cut in 0_usize..40,
        ) {
            let steps: Vec<Step> = sizes
                .iter()
                .map(|(file, len)| Step::Chunk(*file, vec![7; len | 1]))
                // No early ends: lengths that five divides would make some.
                .filter(|step| !matches!(step, Step::Chunk(_, bytes) if bytes.len() % 5 == 0))
                .collect();
            let made = stream(&steps, &frames);
            let mut proven = Proven::default();
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
}
