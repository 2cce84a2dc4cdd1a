//! The way up: source → scan → frames → pack (or classic cut) → parts.
//!
//! Two threads and the workers between them. The reader fills slabs, finds chunk heads and hands
//! slabs to the workers; the workers do all that touches every byte while it is in cache; the
//! packer takes their results in order.

use std::io::Read;
use std::thread::JoinHandle;

use bytes::Bytes;
use xb_frame::{Codec, FrameError, Record, StreamHeader, StreamWriter, Summary};
use xb_reader::{Dialect, PieceCheck};

use crate::budget::Budget;
use crate::cut::{ChunkCutter, Cut, CutError};
use crate::observe::{Observer, Wait};
use crate::pack::{Packed, Packer, PartSink};
use crate::plan::{PutPlan, SLAB};
use crate::pool::{Closed, Results, Submit, WorkerDied, ordered};
use crate::scan::{ChunkCheck, Entry, Notes, Scanned, Scanner, StreamError, sum_pieces};
use crate::slab::{Slab, SlabPool};
use crate::sums;
use crate::whole::EndRule;

/// Why a run up failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// The input could not be read.
    #[error("cannot read the stream at offset {position}: {source}")]
    Read {
        /// Offset in the stream.
        position: u64,
        /// What the system said.
        source: std::io::Error,
    },
    /// The stream is damaged or not whole.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The stream cannot be cut the classic way.
    #[error(transparent)]
    Cut(CutError),
    /// The format's own limits were reached.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A thread of ours died.
    #[error(transparent)]
    Worker(#[from] WorkerDied),
    /// The next stage stopped; it knows the cause.
    #[error(transparent)]
    Closed(#[from] Closed),
}

impl From<CutError> for PutError {
    fn from(error: CutError) -> Self {
        match error {
            CutError::Closed(closed) => Self::Closed(closed),
            other => Self::Cut(other),
        }
    }
}

/// How the stream is laid out in objects.
#[derive(Debug, Clone)]
pub enum Cutting {
    /// One native stream with this header, in objects of the plan's chunk size.
    Packed(StreamHeader),
    /// One object a chunk.
    Classic,
}

/// What a run up did. Only a whole stream gives one.
#[derive(Debug, Clone)]
pub struct Put {
    /// What came in.
    pub scanned: Scanned,
    /// What went out.
    pub laid: Laid,
}

/// What went out.
#[derive(Debug, Clone)]
pub enum Laid {
    /// A native stream in equal objects.
    Packed {
        /// The stream in numbers.
        summary: Summary,
        /// The objects in numbers.
        packed: Packed,
    },
    /// One object a chunk.
    Classic(Cut),
}

/// A run up in progress.
#[derive(Debug)]
pub struct Putting {
    reader: JoinHandle<Result<(), PutError>>,
    packer: JoinHandle<Result<Put, PutError>>,
}

impl Putting {
    /// Waits for the end and gives the result, or the first cause.
    ///
    /// Waits for the source too, which may be stalled: after a failure of a later stage, end the
    /// source first or do not call this.
    ///
    /// # Errors
    /// [`PutError`]; [`PutError::Closed`] only when the sink of parts has stopped.
    pub fn join(self) -> Result<Put, PutError> {
        let packed = self.packer.join().unwrap_or(Err(PutError::Worker(WorkerDied)));
        let read = self.reader.join().unwrap_or(Err(PutError::Worker(WorkerDied)));
        match (read, packed) {
            // Closed is a consequence: the other side has the cause.
            (Ok(()) | Err(PutError::Closed(_)), packed) => packed,
            (Err(cause), _) => Err(cause),
        }
    }
}

enum Job {
    Slab { slab: Slab, notes: Notes },
    End(Notes, Box<Scanned>),
}

enum Work {
    Slab { bytes: Bytes, crc32c: u32, crc64: u64, sums: Vec<PieceCheck>, notes: Notes },
    End(Notes, Box<Scanned>),
}

/// Settings of [`start_put`].
#[derive(Debug, Clone)]
pub struct PutSettings {
    /// Sizes and numbers of things at a time.
    pub plan: PutPlan,
    /// Layout in objects.
    pub cutting: Cutting,
    /// When the stream counts as whole.
    pub rule: EndRule,
    /// How to read the letter `S`.
    pub dialect: Dialect,
}

/// Starts to read `source` and to hand parts to `sink`, both in threads of their own.
///
/// # Errors
/// When the system has no thread for us.
pub fn start_put<R, S>(
    source: R,
    settings: PutSettings,
    budget: &Budget,
    observer: &Observer,
    sink: S,
) -> std::io::Result<Putting>
where
    R: Read + Send + 'static,
    S: PartSink + Send + 'static,
{
    let PutSettings { plan, cutting, rule, dialect } = settings;
    let packed = matches!(cutting, Cutting::Packed(_));
    let (submit, results) =
        ordered("frame", plan.threads, plan.depth, move |job| work(job, packed));
    let keep = usize::try_from(plan.memory / SLAB as u64).unwrap_or(usize::MAX);
    let input = Input {
        source,
        pool: SlabPool::new(SLAB, keep),
        budget: budget.clone(),
        observer: observer.clone(),
    };
    let scanner = Scanner::new(dialect, rule);
    let reader = std::thread::Builder::new()
        .name("read".into())
        .spawn(move || input.read_all(scanner, &submit))?;
    let packer = std::thread::Builder::new().name("pack".into()).spawn(move || match cutting {
        Cutting::Packed(header) => pack_all(results, &header, &plan, sink),
        Cutting::Classic => cut_all(results, plan.part, sink),
    })?;
    Ok(Putting { reader, packer })
}

struct Input<R> {
    source: R,
    pool: SlabPool,
    budget: Budget,
    observer: Observer,
}

impl<R: Read> Input<R> {
    fn read_all(
        mut self,
        mut scanner: Scanner,
        submit: &Submit<Job, Work>,
    ) -> Result<(), PutError> {
        let mut position = 0;
        loop {
            let permit = self.observer.waiting(Wait::Sink, || self.budget.lease(SLAB as u64));
            let mut slab = self.pool.take(Some(permit));
            self.observer.waiting(Wait::Source, || fill(&mut self.source, &mut slab)).map_err(
                |source| PutError::Read { position: position + slab.len() as u64, source },
            )?;
            if slab.is_empty() {
                break;
            }
            position += slab.len() as u64;
            let notes = scanner.scan(&slab)?;
            self.observer.add_bytes(slab.len() as u64);
            self.observer.add_files(
                notes.entries.iter().filter(|e| matches!(e, Entry::End { .. })).count() as u64,
            );
            self.observer.waiting(Wait::Workers, || submit.send(Job::Slab { slab, notes }))?;
        }
        // Only a stream that is whole gets an end: without it the packer gives no result.
        let (notes, scanned) = scanner.finish()?;
        submit.send(Job::End(notes, Box::new(scanned)))?;
        Ok(())
    }
}

/// Reads until the slab is full or the input is over.
fn fill(source: &mut impl Read, slab: &mut Slab) -> std::io::Result<()> {
    while !slab.is_full() {
        match source.read(slab.room()) {
            Ok(0) => break,
            Ok(n) => slab.advance(n),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// All that touches every byte, while it is in cache.
fn work(job: Job, packed: bool) -> Work {
    match job {
        Job::End(notes, scanned) => Work::End(notes, scanned),
        Job::Slab { slab, notes } => {
            let sums = sum_pieces(&slab, &notes.steps);
            let (crc32c, crc64) =
                if packed { (sums::crc32c(&slab), sums::crc64(&slab)) } else { (0, 0) };
            Work::Slab { bytes: slab.freeze(), crc32c, crc64, sums, notes }
        }
    }
}

fn pack_all(
    mut results: Results<Work>,
    header: &StreamHeader,
    plan: &PutPlan,
    mut sink: impl PartSink,
) -> Result<Put, PutError> {
    let mut packer = Packer::new(plan.chunk, plan.part);
    let mut writer = StreamWriter::new(header);
    let mut check = ChunkCheck::default();
    packer.push(Bytes::copy_from_slice(&header.encode()), None, &mut sink)?;
    while let Some(work) = results.recv() {
        match work? {
            Work::Slab { bytes, crc32c, crc64, sums, notes } => {
                check.steps(notes.steps, &sums, |_| {}).map_err(StreamError::from)?;
                // Slabs are of one size, far below 4 GiB.
                let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                let frame = writer.data_frame(0, Codec::None, len, len, crc32c)?;
                packer.push(Bytes::copy_from_slice(&frame), None, &mut sink)?;
                packer.push(bytes, Some(crc64), &mut sink)?;
                index(&mut writer, &notes.entries, &mut packer, &mut sink)?;
            }
            Work::End(notes, scanned) => {
                check.steps(notes.steps, &[], |_| {}).map_err(StreamError::from)?;
                index(&mut writer, &notes.entries, &mut packer, &mut sink)?;
                let tail = writer.finish();
                packer.push(Bytes::from(tail.bytes), None, &mut sink)?;
                let packed = packer.finish(&mut sink)?;
                return Ok(Put {
                    scanned: *scanned,
                    laid: Laid::Packed { summary: tail.summary, packed },
                });
            }
        }
    }
    // The reader stopped before the end and has the cause.
    Err(PutError::Closed(Closed))
}

fn index(
    writer: &mut StreamWriter,
    entries: &[Entry],
    packer: &mut Packer,
    sink: &mut impl PartSink,
) -> Result<(), PutError> {
    for entry in entries {
        writer.record(&match entry {
            Entry::File { file, path } => {
                Record::File { file: *file, source: 0, path: path.as_bytes() }
            }
            Entry::Chunk(chunk) => Record::Chunk(*chunk),
            Entry::End { file, size } => Record::End { file: *file, size: *size },
            Entry::Rename { file, path } => Record::Rename { file: *file, path: path.as_bytes() },
            Entry::Remove { file } => Record::Remove { file: *file },
        })?;
        flush_index(writer, packer, sink)?;
    }
    flush_index(writer, packer, sink)
}

fn flush_index(
    writer: &mut StreamWriter,
    packer: &mut Packer,
    sink: &mut impl PartSink,
) -> Result<(), PutError> {
    if writer.index_due()
        && let Some(frame) = writer.index_frame()
    {
        packer.push(Bytes::from(frame), None, sink)?;
    }
    Ok(())
}

fn cut_all(
    mut results: Results<Work>,
    part: u64,
    mut sink: impl PartSink,
) -> Result<Put, PutError> {
    let mut cutter = ChunkCutter::new(part);
    let mut check = ChunkCheck::default();
    while let Some(work) = results.recv() {
        let (bytes, sums, notes, scanned) = match work? {
            Work::Slab { bytes, sums, notes, .. } => (bytes, sums, notes, None),
            Work::End(notes, scanned) => (Bytes::new(), Vec::new(), notes, Some(scanned)),
        };
        let mut refused = Ok(());
        check
            .steps(notes.steps, &sums, |head| {
                if refused.is_ok() {
                    refused = cutter.head(head);
                }
            })
            .map_err(StreamError::from)?;
        refused?;
        cutter.push(bytes, &mut sink)?;
        if let Some(scanned) = scanned {
            return Ok(Put { scanned: *scanned, laid: Laid::Classic(cutter.finish()) });
        }
    }
    Err(PutError::Closed(Closed))
}
