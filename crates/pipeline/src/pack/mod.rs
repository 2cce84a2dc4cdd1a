//! The way up: source → scan → frames → pack (or classic cut) → parts.
//!
//! Two threads and the workers between them. The reader fills slabs, finds chunk heads and hands
//! slabs to the workers; the workers do all that touches every byte while it is in cache: sums,
//! codec, the frame's own checksum. The packer takes their results in order. With a codec or a
//! seal the body passes through segments on its way, which further workers seal.

pub(crate) mod body;
pub(crate) mod coalesce;
pub(crate) mod native_input;
pub(crate) mod packer;

use std::io::Read;
use std::thread::JoinHandle;

use bytes::Bytes;
use xb_compressor::{Algorithm, BlockEncoder, CodecError};
use xb_encryptor::xbcrypt::XbcryptError;
use xb_encryptor::{SealError, Sealer};
use xb_frame::{Codec, FrameError, Record, StreamHeader, StreamWriter, Summary, Tail, Trailer};
use xb_reader::{Dialect, PieceCheck};

use crate::classic::fixed_size::{self, Plain};
use crate::classic::one_object_per_chunk::{ChunkCutter, Cut, CutError};
use crate::classic::transform::{Making, MemberError, Transform};
use crate::flow::budget::Budget;
use crate::flow::checksum;
use crate::flow::observer::{Observer, Wait};
use crate::flow::ordered_pool::{Closed, Results, Submit, WorkerDied, ordered_by};
use crate::flow::plan::{PlanError, PutPlan, SLAB};
use crate::flow::slab::{Slab, SlabPool};
use crate::pack::body::Body;
use crate::pack::packer::{Packed, PartSink};
use crate::scan::end_rule::{EndProof, EndRule};
use crate::scan::scanner::{
    ChunkCheck, Entry, Notes, Scanned, Scanner, Step, StreamError, sum_pieces,
};

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
    /// A codec refused its work.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The seal refused its work.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// A chunk could not be encrypted.
    #[error(transparent)]
    Xbcrypt(#[from] XbcryptError),
    /// A file cannot be compressed or encrypted on its own.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// The memory is too little for what is to be done.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The system has no thread for us.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
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
#[derive(Debug)]
pub enum Cutting {
    /// One native stream in objects of the plan's chunk size.
    Packed(Native),
    /// One object a chunk.
    Classic,
    /// One object a chunk, of a stream whose files were compressed and encrypted one by one.
    Members(Transform),
    /// Classic objects of the plan's chunk size, each of whole chunks of one file, which is
    /// transformed before where that is asked for.
    Recut(Option<Transform>),
}

impl Cutting {
    /// Finds out whether the memory is enough for it.
    ///
    /// # Errors
    /// [`PlanError`] with the number that is.
    pub fn check(&self, plan: &PutPlan) -> Result<(), PlanError> {
        match self {
            Self::Packed(_) | Self::Classic => Ok(()),
            Self::Members(transform) => transform.shares(plan, false).map(drop),
            Self::Recut(None) => fixed_size::Share::of(plan).map(drop),
            Self::Recut(Some(transform)) => transform.shares(plan, true).map(drop),
        }
    }
}

/// What the native stream is to be like.
#[derive(Debug)]
pub struct Native {
    /// Its header, which must be sealed exactly when there is a sealer.
    pub header: StreamHeader,
    /// Codec of its frames. A frame that does not shrink is stored as it is.
    pub compress: Algorithm,
    /// Seals its body.
    pub sealer: Option<Sealer>,
}

impl Native {
    /// Neither compressed nor sealed.
    #[must_use]
    pub fn plain(header: StreamHeader) -> Self {
        Self { header, compress: Algorithm::None, sealer: None }
    }

    fn is_plain(&self) -> bool {
        self.compress == Algorithm::None && self.sealer.is_none()
    }
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
    /// A native stream that came in as one, in equal objects ([`start_carry`](crate::start_carry)).
    Carried {
        /// Its header.
        header: StreamHeader,
        /// Its trailer, which fits the header and the length.
        trailer: Trailer,
        /// The objects in numbers.
        packed: Packed,
    },
    /// Objects file by file.
    Classic(Cut),
}

/// A run up in progress.
#[derive(Debug)]
pub struct Putting {
    pub(crate) reader: Option<JoinHandle<Result<(), PutError>>>,
    pub(crate) packer: JoinHandle<Result<Put, PutError>>,
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
        let read = self.reader.map_or(Ok(Ok(())), JoinHandle::join);
        let read = read.unwrap_or(Err(PutError::Worker(WorkerDied)));
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
    Slab(Worked),
    End(Notes, Box<Scanned>),
    Failed(CodecError),
}

/// A slab behind the workers.
struct Worked {
    /// As it is to be stored.
    stored: Slab,
    codec: Codec,
    plain_len: usize,
    crc32c: u32,
    crc64: u64,
    sums: Vec<PieceCheck>,
    notes: Notes,
}

/// What comes in.
#[derive(Debug, Clone)]
pub enum Content {
    /// An xbstream: every chunk is checked, and the index knows every file.
    Xbstream {
        /// When it counts as whole.
        rule: EndRule,
        /// How to read the letter `S`.
        dialect: Dialect,
    },
    /// Any bytes up to the end of the input. Whether that is the end they should have, nobody here
    /// can know. Packed only; there is nothing to index.
    Raw,
}

/// Settings of [`start_put`].
#[derive(Debug)]
pub struct PutSettings {
    /// Sizes and numbers of things at a time.
    pub plan: PutPlan,
    /// Layout in objects.
    pub cutting: Cutting,
    /// What the source gives.
    pub content: Content,
}

/// Starts to read `source` and to hand parts to `sink`, both in threads of their own.
///
/// # Errors
/// When the system has no thread or no memory for us.
pub fn start_put<R, S>(
    source: R,
    settings: PutSettings,
    budget: &Budget,
    observer: &Observer,
    sink: S,
) -> Result<Putting, PutError>
where
    R: Read + Send + 'static,
    S: PartSink + Send + 'static,
{
    let PutSettings { plan, cutting, content } = settings;
    cutting.check(&plan)?;
    let needs = match &cutting {
        Cutting::Classic | Cutting::Members(_) | Cutting::Recut(_) => {
            Needs { compress: Algorithm::None, crc32c: false, crc64: false }
        }
        Cutting::Packed(native) => Needs {
            compress: native.compress,
            // The tags of a seal prove more, and segments are summed up behind it.
            crc32c: native.sealer.is_none(),
            crc64: native.is_plain(),
        },
    };
    let (submit, results) = ordered_by("frame", plan.threads, plan.depth, || {
        // A codec without memory fails at its first job, in stream order like every failure.
        let mut worker = Worker::new(needs);
        move |job| match &mut worker {
            Ok(worker) => worker.work(job),
            Err(error) => Work::Failed(error.clone()),
        }
    });
    let keep = usize::try_from(plan.memory / SLAB as u64).unwrap_or(usize::MAX);
    let pool = SlabPool::new(SLAB, keep);
    let mut budget = budget.clone();
    let (mut shares, mut lease_waits_for) = (None, Wait::Sink);
    if let Cutting::Members(transform) | Cutting::Recut(Some(transform)) = &cutting {
        let divided = transform.shares(&plan, matches!(cutting, Cutting::Recut(_)))?;
        budget = Budget::new(divided.slabs);
        shares = Some(divided);
        // Slabs come back when they are taken apart; what waits for the store is leased there.
        lease_waits_for = Wait::Workers;
    }
    let observer = observer.clone();
    let watching = observer.clone();
    let leased = budget.clone();
    let input = Input { source, pool: pool.clone(), budget, lease_waits_for, observer };
    let watcher = Watcher::new(content);
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    let reader =
        thread("read").spawn(move || input.read_all(watcher, &submit)).map_err(PutError::Thread)?;
    let packer = match cutting {
        Cutting::Packed(native) => {
            let body = if native.is_plain() {
                Body::direct(&plan, sink)
            } else {
                Body::dense(&plan, native.sealer, pool, sink).map_err(PutError::Thread)?
            };
            let header = native.header;
            thread("pack").spawn(move || pack_all(results, &header, body))
        }
        Cutting::Classic => thread("pack").spawn(move || cut_all(results, plan.part, sink)),
        Cutting::Recut(None) => {
            let plain = Plain::new(&plan, leased, sink)?;
            thread("pack").spawn(move || recut_all(results, plain))
        }
        Cutting::Members(transform) => {
            let shares = shares.unwrap_or_default();
            thread("pack").spawn(move || {
                let cutter = shares.stock_cutter(&plan, sink);
                make_all(results, Making::start(&transform, shares, watching, cutter)?)
            })
        }
        Cutting::Recut(Some(transform)) => {
            let shares = shares.unwrap_or_default();
            thread("pack").spawn(move || {
                let cutter = shares.recutter(&plan, sink);
                make_all(results, Making::start(&transform, shares, watching, cutter)?)
            })
        }
    };
    Ok(Putting { reader: Some(reader), packer: packer.map_err(PutError::Thread)? })
}

/// Looks at what passes.
enum Watcher {
    Xbstream(Box<Scanner>),
    Raw { bytes: u64 },
}

impl Watcher {
    fn new(content: Content) -> Self {
        match content {
            Content::Xbstream { rule, dialect } => {
                Self::Xbstream(Box::new(Scanner::new(dialect, rule)))
            }
            Content::Raw => Self::Raw { bytes: 0 },
        }
    }

    fn scan(&mut self, slab: &[u8]) -> Result<Notes, StreamError> {
        match self {
            Self::Xbstream(scanner) => scanner.scan(slab),
            Self::Raw { bytes } => {
                *bytes += slab.len() as u64;
                Ok(Notes::default())
            }
        }
    }

    fn finish(self) -> Result<(Notes, Scanned), StreamError> {
        match self {
            Self::Xbstream(scanner) => scanner.finish(),
            Self::Raw { bytes } => {
                Ok((Notes::default(), Scanned::unread(bytes, EndProof::InputEnd)))
            }
        }
    }
}

struct Input<R> {
    source: R,
    pool: SlabPool,
    budget: Budget,
    lease_waits_for: Wait,
    observer: Observer,
}

impl<R: Read> Input<R> {
    fn read_all(
        mut self,
        mut watcher: Watcher,
        submit: &Submit<Job, Work>,
    ) -> Result<(), PutError> {
        let mut position = 0;
        loop {
            let permit =
                self.observer.waiting(self.lease_waits_for, || self.budget.lease(SLAB as u64));
            let mut slab = self.pool.take(Some(permit));
            self.observer.waiting(Wait::Source, || fill(&mut self.source, &mut slab)).map_err(
                |source| PutError::Read { position: position + slab.len() as u64, source },
            )?;
            if slab.is_empty() {
                break;
            }
            position += slab.len() as u64;
            let notes = watcher.scan(&slab)?;
            self.observer.add_bytes(slab.len() as u64);
            self.observer.add_files(
                notes.entries.iter().filter(|e| matches!(e, Entry::End { .. })).count() as u64,
            );
            self.observer.waiting(Wait::Workers, || submit.send(Job::Slab { slab, notes }))?;
        }
        // Only a stream that is whole gets an end: without it the packer gives no result.
        let (notes, scanned) = watcher.finish()?;
        submit.send(Job::End(notes, Box::new(scanned)))?;
        Ok(())
    }
}

/// Reads until the slab is full or the input is over.
pub(crate) fn fill(source: &mut impl Read, slab: &mut Slab) -> std::io::Result<()> {
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

/// What a worker has to do to each slab.
#[derive(Debug, Clone, Copy)]
struct Needs {
    compress: Algorithm,
    crc32c: bool,
    crc64: bool,
}

/// Does all that touches every byte, while it is in cache.
struct Worker {
    needs: Needs,
    encoder: BlockEncoder,
    scratch: Vec<u8>,
}

impl Worker {
    fn new(needs: Needs) -> Result<Self, CodecError> {
        let encoder = BlockEncoder::new(needs.compress)?;
        let room =
            if needs.compress == Algorithm::None { 0 } else { encoder.max_encoded_len(SLAB) };
        Ok(Self { needs, encoder, scratch: vec![0; room] })
    }

    fn work(&mut self, job: Job) -> Work {
        match job {
            Job::End(notes, scanned) => Work::End(notes, scanned),
            Job::Slab { slab, notes } => match self.slab(slab, notes) {
                Ok(worked) => Work::Slab(worked),
                Err(error) => Work::Failed(error),
            },
        }
    }

    fn slab(&mut self, mut slab: Slab, notes: Notes) -> Result<Worked, CodecError> {
        let sums = sum_pieces(&slab, &notes.steps);
        let plain_len = slab.len();
        let mut codec = Codec::None;
        if let Some(block) = self.needs.compress.block_codec()
            && let Some(len) = self.encoder.encode(&slab, &mut self.scratch)?
        {
            // Back into the slab it came from, which is paid for.
            slab.truncate(len);
            slab.copy_from_slice(&self.scratch[..len]);
            codec = frame_codec(block);
        }
        let crc32c = if self.needs.crc32c { checksum::crc32c(&slab) } else { 0 };
        let crc64 = if self.needs.crc64 { checksum::crc64(&slab) } else { 0 };
        Ok(Worked { stored: slab, codec, plain_len, crc32c, crc64, sums, notes })
    }
}

/// The two crates number the codecs alike and do not know each other.
fn frame_codec(block: xb_compressor::BlockCodec) -> Codec {
    use xb_compressor::BlockCodec;
    match block {
        BlockCodec::Lz4 => Codec::Lz4,
        BlockCodec::Snappy => Codec::Snappy,
        BlockCodec::Zlib => Codec::Zlib,
        BlockCodec::Zstd => Codec::Zstd,
        _ => Codec::None,
    }
}

fn pack_all<S: PartSink + Send + 'static>(
    results: Results<Work>,
    header: &StreamHeader,
    mut body: Body<S>,
) -> Result<Put, PutError> {
    match pack_frames(results, header, &mut body) {
        Ok((scanned, tail)) => {
            let summary = tail.summary.clone();
            let packed = body.finish(tail)?;
            Ok(Put { scanned, laid: Laid::Packed { summary, packed } })
        }
        // Closed is a consequence; the sealing side may have the cause.
        Err(PutError::Closed(_)) => Err(body.cause()),
        Err(cause) => Err(cause),
    }
}

fn pack_frames<S: PartSink + Send + 'static>(
    mut results: Results<Work>,
    header: &StreamHeader,
    body: &mut Body<S>,
) -> Result<(Scanned, Tail), PutError> {
    let mut writer = StreamWriter::new(header);
    let mut check = ChunkCheck::default();
    body.header(header)?;
    while let Some(work) = results.recv() {
        match work? {
            Work::Slab(worked) => {
                check.steps(worked.notes.steps, &worked.sums, |_| {}).map_err(StreamError::from)?;
                // Slabs are of one size, far below 4 GiB.
                let len = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
                let (plain, stored) = (len(worked.plain_len), len(worked.stored.len()));
                let frame = writer.data_frame(0, worked.codec, plain, stored, worked.crc32c)?;
                body.frame(&frame, worked.stored, worked.crc64)?;
                index(&mut writer, &worked.notes.entries, body)?;
            }
            Work::End(notes, scanned) => {
                check.steps(notes.steps, &[], |_| {}).map_err(StreamError::from)?;
                index(&mut writer, &notes.entries, body)?;
                return Ok((*scanned, writer.finish()));
            }
            Work::Failed(error) => return Err(error.into()),
        }
    }
    // The reader stopped before the end and has the cause.
    Err(PutError::Closed(Closed))
}

fn index<S: PartSink + Send + 'static>(
    writer: &mut StreamWriter,
    entries: &[Entry],
    body: &mut Body<S>,
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
        flush_index(writer, body)?;
    }
    flush_index(writer, body)
}

fn flush_index<S: PartSink + Send + 'static>(
    writer: &mut StreamWriter,
    body: &mut Body<S>,
) -> Result<(), PutError> {
    if writer.index_due()
        && let Some(frame) = writer.index_frame()
    {
        body.own(frame)?;
    }
    Ok(())
}

fn make_all(results: Results<Work>, mut making: Making) -> Result<Put, PutError> {
    match make_members(results, &mut making) {
        Ok(scanned) => Ok(Put { scanned, laid: Laid::Classic(making.finish()?) }),
        // Closed is a consequence; the cutting side may have the cause.
        Err(PutError::Closed(_)) => Err(making.cause()),
        Err(cause) => Err(cause),
    }
}

fn make_members(mut results: Results<Work>, making: &mut Making) -> Result<Scanned, PutError> {
    let mut check = ChunkCheck::default();
    while let Some(work) = results.recv() {
        let (bytes, sums, notes, scanned) = match work? {
            Work::Slab(Worked { stored, sums, notes, .. }) => (Some(stored), sums, notes, None),
            Work::End(notes, scanned) => (None, Vec::new(), notes, Some(scanned)),
            Work::Failed(error) => return Err(error.into()),
        };
        let bytes = bytes.as_deref().unwrap_or_default();
        let mut sums = sums.iter();
        for step in notes.steps {
            match &step {
                Step::Head(head) => making.head(head)?,
                Step::Piece(range) => making.piece(bytes.get(range.clone()).unwrap_or_default())?,
                Step::End => making.chunk_end()?,
            }
            check.step(step, &mut sums).map_err(StreamError::from)?;
        }
        if let Some(scanned) = scanned {
            return Ok(*scanned);
        }
    }
    Err(PutError::Closed(Closed))
}

fn recut_all(mut results: Results<Work>, mut plain: Plain<impl PartSink>) -> Result<Put, PutError> {
    let mut check = ChunkCheck::default();
    while let Some(work) = results.recv() {
        let (bytes, sums, notes, scanned) = match work? {
            Work::Slab(Worked { stored, sums, notes, .. }) => (stored.freeze(), sums, notes, None),
            Work::End(notes, scanned) => (Bytes::new(), Vec::new(), notes, Some(scanned)),
            Work::Failed(error) => return Err(error.into()),
        };
        let mut sums = sums.iter();
        for step in notes.steps {
            match &step {
                Step::Head(head) => plain.head(head)?,
                Step::Piece(range) => {
                    let sum = sums.as_slice().first().copied();
                    let sum = sum.unwrap_or_else(|| PieceCheck::of(&bytes[range.clone()]));
                    plain.piece(bytes.slice(range.clone()), sum)?;
                }
                Step::End => plain.chunk_end()?,
            }
            check.step(step, &mut sums).map_err(StreamError::from)?;
        }
        if let Some(scanned) = scanned {
            return Ok(Put { scanned: *scanned, laid: Laid::Classic(plain.finish()) });
        }
    }
    Err(PutError::Closed(Closed))
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
            Work::Slab(Worked { stored, sums, notes, .. }) => (stored.freeze(), sums, notes, None),
            Work::End(notes, scanned) => (Bytes::new(), Vec::new(), notes, Some(scanned)),
            Work::Failed(error) => return Err(error.into()),
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
