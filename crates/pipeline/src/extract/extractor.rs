//! First stage of extraction: chunk heads, the steps that they require, files and their names.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use crossbeam_channel::bounded;
use xb_reader::{
    Change, ChunkHead, ChunkKind, ContentSum, Decoder, Event, FileId, FileTable, Placement,
    RelPath, TargetDir,
};

use super::finalize::{Finalizer, FinalizerReport};
use super::open_file::{OpenFile, at};
use super::piece::{Content, Piece, StoredBytes};
use super::report::{
    Durability, ExtractCause, ExtractError, ExtractLog, ExtractOptions, ExtractReport,
    PartialFileState, Stopped, Truncated, cannot_decode,
};
use super::work::{Outcome, Step, WorkOptions, Worker};
use crate::extract::decode::{FileDecodeError, Member, Names, Plan, may_have_holes};
use crate::extract::decode_workers::DecodeWorkers;
use crate::flow::budget::{Budget, Permit};
use crate::flow::hold_ups::Wait;
use crate::flow::ordered_pool::{Submit, WorkerDied, ordered_by};
use crate::flow::plan::SLAB;

/// Callback that receives each file's name when its first chunk arrives.
type OnFile = Box<dyn FnMut(&RelPath) + Send>;

/// Extracts a stream that is fed to it piece by piece.
///
/// Call [`Extractor::finish`] at the end. If the extractor is dropped instead, extraction stops:
/// complete files keep their names, unfinished ones are removed.
pub struct Extractor {
    decoder: Decoder,
    files: FileTable,
    open: HashMap<FileId, Arc<OpenFile>>,
    current: Option<Current>,
    batch: Vec<Step>,
    /// Number of the current stretch of the stream, from 1. See [`Extractor::send_ended`].
    stretch: u64,
    /// Number of files that began in this stretch and have not ended.
    unended: usize,
    /// Number of steps of the batch that belong to earlier stretches.
    ended: usize,
    /// Whether progress is logged.
    logged: bool,
    on_file: Option<OnFile>,
    options: ExtractOptions,
    /// Names that the files will get, if any layer is decoded.
    names: Names,
    /// Limits the bytes that wait for decoding. The permit pays for the current slab.
    flight: Budget,
    slab: Option<Arc<Permit>>,
    target: Arc<TargetDir>,
    /// `None` after the last batch was sent.
    submit: Option<Submit<Vec<Step>, Vec<Outcome>>>,
    finalizer: Option<JoinHandle<FinalizerReport>>,
    /// Set by the finalizer at its first error: remaining work is skipped.
    cancelled: Arc<AtomicBool>,
    failure: Option<ExtractCause>,
}

/// The chunk whose payload is arriving.
struct Current {
    file: Arc<OpenFile>,
    place: Placement,
    position: u64,
}

impl Extractor {
    /// Starts the threads. It does not read input or create files yet.
    ///
    /// # Errors
    /// [`ExtractCause::Thread`].
    pub fn new(target: TargetDir, options: ExtractOptions) -> Result<Self, ExtractError> {
        Self::start(target, options, None)
    }

    /// Like [`Extractor::new`], for a run that can be resumed: `log` records what is proven.
    /// `begun` lists the files that an earlier run left unfinished. The stream must continue each
    /// of them where that run stopped, and must not contain files that were complete.
    ///
    /// # Errors
    /// As [`Extractor::new`]; also if one of the files cannot be resumed.
    pub fn resumable(
        target: TargetDir,
        options: ExtractOptions,
        log: Arc<dyn ExtractLog>,
        begun: Option<Vec<PartialFileState>>,
    ) -> Result<Self, ExtractError> {
        let mut extractor = Self::start(target, options, Some(log))?;
        let Some(begun) = begun else { return Ok(extractor) };
        extractor.files.went_before();
        for file in begun {
            let PartialFileState { path, number, upto, crc } = file;
            let resumed = extractor.plan(&path, 0).and_then(|plan| {
                let failed = cannot_decode(&path, 0);
                if !plan.layers.is_empty() {
                    return Err(failed(FileDecodeError::OutOfOrder));
                }
                let holes = extractor.options.decoding.is_active() && may_have_holes(&plan.name);
                if extractor.options.decoding.is_active() {
                    extractor.names.claim(&plan).map_err(failed)?;
                }
                let partial = extractor.target.go_on(&plan.name, number, upto);
                let partial =
                    partial.map_err(|source| ExtractCause::Target { position: 0, source })?;
                Ok(OpenFile::begun(plan.name, holes, partial, ContentSum::new(upto, crc)))
            });
            let opened = match resumed {
                Ok(opened) => opened,
                Err(cause) => return Err(ExtractError::early(cause)),
            };
            let id = extractor.files.begun_before(&path, upto);
            extractor.open.insert(id, Arc::new(opened));
        }
        Ok(extractor)
    }

    fn start(
        target: TargetDir,
        options: ExtractOptions,
        log: Option<Arc<dyn ExtractLog>>,
    ) -> Result<Self, ExtractError> {
        let threads = options.threads.max(1);
        let target = Arc::new(target);
        let cancelled = Arc::new(AtomicBool::new(false));
        let durable = options.durability == Durability::File;
        let logged = log.is_some();
        let work = || {
            let (target, cancelled) = (Arc::clone(&target), Arc::clone(&cancelled));
            let observer = options.observer.clone();
            let mut worker =
                Worker::new(target, cancelled, observer, WorkOptions { logged, durable });
            move |batch| worker.run(batch)
        };
        // One batch being filled, one in work per thread, and as many waiting to be settled.
        let (submit, results) = ordered_by("extract", threads, 2 * threads + 1, work);
        let finalizer = {
            let (observer, on_failure) = (options.observer.clone(), options.on_failure.clone());
            let crew = options.decoding.is_active().then(|| {
                let (target, observer) = (Arc::clone(&target), observer.clone());
                let on_failure = on_failure.clone();
                DecodeWorkers::new(&options.decoding, target, durable, observer, on_failure)
                    .logging(log.clone())
            });
            let finalizer =
                Finalizer::new(Arc::clone(&target), durable, observer, crew, log, on_failure);
            let cancelled = Arc::clone(&cancelled);
            std::thread::Builder::new()
                .name("extract-final".to_owned())
                .spawn(move || finalizer.run(results, &cancelled))
        };
        let finalizer =
            finalizer.map_err(|error| ExtractError::early(ExtractCause::Thread(error)))?;
        Ok(Self {
            decoder: Decoder::new(options.dialect, options.limits),
            files: FileTable::new(),
            open: HashMap::new(),
            current: None,
            batch: Vec::new(),
            stretch: 1,
            unended: 0,
            ended: 0,
            logged,
            on_file: None,
            names: Names::default(),
            flight: Budget::new(options.decoding.flight()),
            slab: None,
            options,
            target,
            submit: Some(submit),
            finalizer: Some(finalizer),
            cancelled,
            failure: None,
        })
    }

    /// Sets a callback that receives the name of each file when its first chunk arrives.
    #[must_use]
    pub fn on_file(mut self, on_file: impl FnMut(&RelPath) + Send + 'static) -> Self {
        self.on_file = Some(Box::new(on_file));
        self
    }

    /// Takes the next piece of the stream, of any length. Waits while the workers are busy. The
    /// bytes are shared, not copied.
    ///
    /// # Errors
    /// [`Stopped`]: further input is useless; [`Extractor::finish`] returns the cause.
    pub fn feed(&mut self, mut bytes: Bytes) -> Result<(), Stopped> {
        while !bytes.is_empty() {
            if self.is_stopped() {
                return Err(Stopped);
            }
            let piece = bytes.split_to(SLAB.min(bytes.len()));
            self.push(&piece);
            self.send_batch()?;
        }
        Ok(())
    }

    /// Takes the next piece of the stream, of at most [`SLAB`] bytes, into the batch. The batch is
    /// sent later.
    pub(super) fn push(&mut self, bytes: &Bytes) {
        self.options.observer.add_bytes(bytes.len() as u64);
        if self.options.decoding.is_active() {
            // The lease is for the whole slab, because every piece of it keeps all of it alive.
            let lease = || self.flight.lease(SLAB as u64);
            self.slab = Some(Arc::new(self.options.observer.waiting(Wait::Workers, lease)));
        }
        let taken = self.take(bytes);
        self.note(taken);
        self.slab = None;
    }

    /// Number of bytes that come next in the stream and that a worker may read from a file itself.
    pub(super) fn storable(&self) -> u64 {
        let serial = self.current.as_ref().is_some_and(|current| current.file.is_serial());
        // Layers are decoded in order, and a log needs the checksums of all parts.
        let in_order = serial || self.logged || self.options.decoding.is_active();
        if in_order { 0 } else { self.decoder.payload_left() }
    }

    /// Takes the next `len` bytes of the stream, at most [`Extractor::storable`], into the batch.
    /// They are in `input` from `offset` on.
    pub(super) fn push_stored(&mut self, input: &Arc<File>, offset: u64, len: u64) {
        let position = self.decoder.position();
        let len = self.decoder.skip_payload(len);
        self.options.observer.add_bytes(len);
        let input = Arc::clone(input);
        self.push_piece(len, Content::Stored(StoredBytes { input, offset, len, position }));
        let taken = self.take(&Bytes::new());
        self.note(taken);
    }

    fn note(&mut self, taken: Result<(), ExtractCause>) {
        if let Err(cause) = taken {
            self.options.on_failure.tell(&cause);
            self.failure = Some(cause);
        }
    }

    /// Returns whether an error was found, so that waiting for more input is useless.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.failure.is_some() || self.cancelled.load(Ordering::Acquire)
    }

    /// The only file of the stream so far, if it has not ended and no chunk has begun.
    #[must_use]
    pub fn only_unfinished(&self) -> Option<&RelPath> {
        let mut open = self.files.open_files();
        let (path, _) = open.next()?;
        let only = open.next().is_none() && self.files.finished() == 0 && self.current.is_none();
        only.then_some(path)
    }

    /// Ends the stream and waits until everything is written, settled and, as configured, durable.
    ///
    /// # Errors
    /// The first error, in the order of the stream. Complete files stay.
    pub fn finish(mut self) -> Result<ExtractReport, ExtractError> {
        if self.failure.is_none() {
            self.failure = self.take_end().err();
        }
        self.conclude()
    }

    /// Ends the stream because the input cannot be read. Everything before is settled.
    ///
    /// Returns the error to report: that of `source`, or an error earlier in the stream.
    #[must_use]
    pub fn read_failed(mut self, source: io::Error) -> ExtractError {
        let position = self.decoder.position();
        self.failure.get_or_insert(ExtractCause::Read { position, source });
        let (report, failure) = self.join_all();
        let cause = failure.unwrap_or(ExtractCause::Worker(WorkerDied));
        ExtractError { cause, report }
    }

    fn conclude(&mut self) -> Result<ExtractReport, ExtractError> {
        let (mut report, failure) = self.join_all();
        match failure {
            Some(cause) if self.options.allow_truncated && cause.is_cut() => {
                let dropped = self.files.open_files();
                report.truncated = Some(Box::new(Truncated::new(cause, dropped)));
            }
            Some(cause) => return Err(ExtractError { cause, report }),
            None => {}
        }
        if self.options.durability != Durability::None
            && let Err(error) = self.target.sync()
        {
            return Err(ExtractError { cause: ExtractCause::Sync(error), report });
        }
        Ok(report)
    }

    /// Waits until everything so far is settled, and removes unfinished files. Returns the first
    /// failure.
    fn join_all(&mut self) -> (ExtractReport, Option<ExtractCause>) {
        // Stopped means that the finalizer has a failure, which is earlier than any here.
        let _ = self.send_batch();
        let joined = self.join();
        self.current = None;
        self.open.clear();
        let report = ExtractReport {
            files: joined.files,
            decrypted: joined.decrypted,
            bytes: self.decoder.position(),
            truncated: None,
        };
        (report, joined.failure.or_else(|| self.failure.take()))
    }

    /// Ends the threads and waits for them. Batches already sent are still settled, unless
    /// cancelled.
    fn join(&mut self) -> FinalizerReport {
        drop(self.submit.take());
        let finalized = self.finalizer.take().map(JoinHandle::join);
        finalized.and_then(Result::ok).unwrap_or(FinalizerReport {
            files: 0,
            decrypted: 0,
            failure: Some(WorkerDied.into()),
        })
    }

    /// Decodes a piece of the stream and adds its steps to the batch.
    fn take(&mut self, bytes: &Bytes) -> Result<(), ExtractCause> {
        let mut input = &bytes[..];
        while let Some(event) = self.decoder.next(&mut input)? {
            match event {
                Event::Head(head) => self.take_head(head)?,
                Event::Data(piece) => self.take_piece(bytes.slice_ref(piece)),
                Event::ChunkEnd => self.take_chunk_end(),
            }
        }
        Ok(())
    }

    fn take_end(&mut self) -> Result<(), ExtractCause> {
        while let Some(event) = self.decoder.finish()? {
            match event {
                Event::Head(head) => self.take_head(head)?,
                Event::Data(piece) => self.take_piece(Bytes::from_static(piece)),
                Event::ChunkEnd => self.take_chunk_end(),
            }
        }
        Ok(self.files.finish()?)
    }

    fn take_piece(&mut self, bytes: Bytes) {
        self.push_piece(bytes.len() as u64, Content::Memory(bytes));
    }

    fn push_piece(&mut self, len: u64, content: Content) {
        // Pieces of ignored chunks belong to no file.
        let Some(current) = &mut self.current else { return };
        let place = current.place.clone();
        current.place.skip(len);
        let (file, position) = (Arc::clone(&current.file), current.position);
        self.batch.push(Step::Piece(Piece {
            serial: file.is_serial(),
            file,
            place,
            content,
            position,
            flight: self.slab.clone(),
        }));
    }

    fn take_chunk_end(&mut self) {
        if self.current.take().is_some() {
            self.batch.push(Step::ChunkEnd);
        }
    }

    /// Sends all steps so far to the workers.
    pub(super) fn send_batch(&mut self) -> Result<(), Stopped> {
        (self.unended, self.ended) = (0, 0);
        self.stretch += 1;
        let batch = std::mem::take(&mut self.batch);
        self.send(batch)
    }

    /// Sends all steps so far, except those of a last stretch that has not ended.
    ///
    /// A stretch ends when all files that began in it have ended, or when it is sent. A worker
    /// completes the files that begin and end in one stretch, which takes less work. So this is
    /// better than [`Extractor::send_batch`] where the next bytes are sure to come soon.
    pub(super) fn send_ended(&mut self) -> Result<(), Stopped> {
        // Pieces that wait to be decoded hold memory that the next ones need.
        if self.ended == 0 || self.options.decoding.is_active() {
            return self.send_batch();
        }
        let rest = self.batch.split_off(self.ended);
        self.ended = 0;
        let batch = std::mem::replace(&mut self.batch, rest);
        self.send(batch)
    }

    fn send(&mut self, batch: Vec<Step>) -> Result<(), Stopped> {
        if self.cancelled.load(Ordering::Acquire) {
            return Err(Stopped);
        }
        if batch.is_empty() {
            return Ok(());
        }
        let Some(submit) = &self.submit else { return Err(Stopped) };
        self.options.observer.waiting(Wait::Workers, || submit.send(batch)).map_err(|_| Stopped)
    }
}

/// The steps that a chunk head requires.
impl Extractor {
    fn take_head(&mut self, head: ChunkHead) -> Result<(), ExtractCause> {
        let (position, path) = (head.position, head.path.clone());
        let inside = match head.kind {
            ChunkKind::Remove => self.own_in(&path, position)?,
            _ => Vec::new(),
        };
        let change = self.files.apply(&head)?;
        match change {
            Change::Opened { id, replaces } => {
                if replaces.is_some() {
                    let path = self.plan(&path, position)?.name;
                    self.batch.push(Step::Remove { path, position });
                    self.barrier();
                }
                let file = self.begin(path, position)?;
                self.open.insert(id, Arc::clone(&file));
                self.go_on(file, head)?;
            }
            Change::Continued { id } => {
                if let Some(file) = self.open.get(&id) {
                    self.go_on(Arc::clone(file), head)?;
                }
            }
            Change::Ended { id, size, only_chunk } => {
                let file = match self.open.remove(&id) {
                    Some(file) => file,
                    None => {
                        debug_assert!(only_chunk, "an open file is known");
                        self.begin(path.clone(), position)?
                    }
                };
                let name = self.plan(&path, position)?.name;
                let began_here = file.ends_in(self.stretch, self.logged);
                self.batch.push(Step::Commit { file, path, name, size, position });
                if began_here {
                    self.end_stretch();
                }
            }
            Change::Renamed { open, replaces, .. } => {
                if let ChunkKind::Rename { to } = head.kind {
                    let (path, to) = self.rename(&path, &to, position)?;
                    if replaces.is_some() {
                        self.batch.push(Step::Remove { path: to.clone(), position });
                    }
                    self.batch.push(if open {
                        // The file is renamed at its end; until then the name only has to be free.
                        Step::CheckAbsent { path: to, position }
                    } else {
                        Step::Rename { path, to, position }
                    });
                    self.barrier();
                }
            }
            Change::Removed { id: Some(id), open: true } => {
                let plan = self.plan(&path, position)?;
                self.names.release(&plan);
                if let Some(file) = self.open.remove(&id) {
                    let began_here = file.began_in(self.stretch);
                    self.batch.push(Step::Discard { file });
                    if began_here {
                        self.end_stretch();
                    }
                }
            }
            Change::Removed { id: Some(_), open: false } => {
                let plan = self.plan(&path, position)?;
                self.names.release(&plan);
                let path = plan.name;
                self.batch.push(Step::Remove { path, position });
                self.barrier();
            }
            // Nothing to remove. But a file that does not come from this stream must not be
            // reported as removed.
            Change::Removed { id: None, .. } => {
                let path = self.plan(&path, position)?.name;
                self.batch.push(Step::CheckAbsent { path, position });
                self.barrier();
            }
            Change::FolderRemoved { .. } => {
                for file in inside {
                    self.names.release(&file);
                    self.batch.push(Step::Remove { path: file.name, position });
                }
                self.batch.push(Step::RemoveFolder { path, position });
                self.barrier();
            }
            Change::Ignored => {}
        }
        Ok(())
    }

    /// The complete files of this stream in a folder, if that is what `path` names.
    fn own_in(&mut self, path: &RelPath, position: u64) -> Result<Vec<Plan>, ExtractCause> {
        // Until then, files may not have their names.
        self.barrier();
        let mut own = Vec::new();
        for name in self.target.names_in(path).map_err(at(position))? {
            let stored = self.names.in_stream(&name);
            if self.files.has_finished(&stored) {
                own.push(self.plan(&stored, position)?);
            }
        }
        Ok(own)
    }

    fn begin(&mut self, path: RelPath, position: u64) -> Result<Arc<OpenFile>, ExtractCause> {
        if let Some(on_file) = &mut self.on_file {
            on_file(&path);
        }
        let plan = self.plan(&path, position)?;
        let mut holes = false;
        if self.options.decoding.is_active() {
            self.names.claim(&plan).map_err(cannot_decode(&path, position))?;
            holes = may_have_holes(&plan.name);
        }
        let member = (!plan.layers.is_empty()).then(|| Member::new(path, &plan));
        let file = Arc::new(OpenFile::new(plan.name, holes, member, self.stretch));
        self.batch.push(Step::Begin { file: Arc::clone(&file), position });
        self.unended += 1;
        Ok(file)
    }

    /// Notes that a file of this stretch has ended.
    fn end_stretch(&mut self) {
        self.unended = self.unended.saturating_sub(1);
        if self.unended == 0 {
            self.stretch += 1;
            self.ended = self.batch.len();
        }
    }

    /// Plans the restore of the file of this name.
    fn plan(&self, path: &RelPath, position: u64) -> Result<Plan, ExtractCause> {
        Plan::new(path, &self.options.decoding).map_err(cannot_decode(path, position))
    }

    /// Returns the names, without suffixes, of a file that is renamed.
    fn rename(
        &mut self,
        path: &RelPath,
        to: &RelPath,
        position: u64,
    ) -> Result<(RelPath, RelPath), ExtractCause> {
        let (old, new) = (self.plan(path, position)?, self.plan(to, position)?);
        let failed = cannot_decode(path, position);
        if old.layers != new.layers {
            return Err(failed(FileDecodeError::Renamed { to: to.clone() }));
        }
        if self.options.decoding.is_active() {
            self.names.release(&old);
            self.names.claim(&new).map_err(failed)?;
        }
        Ok((old.name, new.name))
    }

    /// Handles a chunk with content for `file`, or a seek in it.
    fn go_on(&mut self, file: Arc<OpenFile>, head: ChunkHead) -> Result<(), ExtractCause> {
        if file.member.is_some() && !matches!(head.kind, ChunkKind::Payload { .. }) {
            return Err(cannot_decode(&head.path, head.position)(FileDecodeError::OutOfOrder));
        }
        if matches!(head.kind, ChunkKind::Seek { .. }) {
            file.make_serial();
            return Ok(());
        }
        self.batch.push(Step::Head(Box::new(head.clone()), Arc::clone(&file)));
        self.current = Some(Current { file, place: head.placement(), position: head.position });
        Ok(())
    }

    /// Waits until the finalizer has processed everything so far. Needed where names change or must
    /// be free, because workers give names to small files.
    fn barrier(&mut self) {
        let (reached, wait) = bounded::<Infallible>(0);
        self.batch.push(Step::Barrier { _reached: reached });
        if self.send_batch().is_ok() {
            // Nothing is ever sent: the finalizer drops its end when it gets here or when it has
            // stopped. In the second case the next batch is not sent.
            let _ = wait.recv();
        }
    }
}

impl Drop for Extractor {
    fn drop(&mut self) {
        if self.submit.is_some() {
            self.cancelled.store(true, Ordering::Release);
            // All threads must have released the files before they are removed.
            self.join();
        }
    }
}

impl fmt::Debug for Extractor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let position = self.decoder.position();
        f.debug_struct("Extractor").field("position", &position).finish_non_exhaustive()
    }
}
