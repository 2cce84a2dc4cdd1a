//! Runs the backup program, and once more if it fails in the middle, and sends its stream without the blocks that the
//! joiner has, until the joiner has stored it.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use xb_compressor::Compression;
use xb_frame::{StreamHeader, StreamId};
use xb_pipeline::{
    AutoCodec, Budget, Closed, Content, EndRule, FrameCompression, NativeStream, ObjectLayout,
    ObjectSize, Observer, PackError, PackPlan, PackSettings, Part, PartLimits, Wait, XbstreamInput,
    start_pack,
};
use xb_reader::Dialect;
use xb_wire::{Counters, Outgoing, Questions, TransferError};

use crate::cancel::{CancelReason, CancelToken};
use crate::context::Context;
use crate::contract::args::Product;
use crate::contract::settings::DeltaWish;
use crate::delta::choice::Choice;
use crate::delta::question::Key;
use crate::delta::read_ahead::ReadAhead;
use crate::delta::thin::{DeltaCounters, Thinner, WireJoiner};
use crate::error::SstError;
use crate::offer::Answer;
use crate::run::{ChildError, Run};
use crate::server::import_watch::ImportWatch;
use crate::server::keep_replicating::ReplicationGuard;
use crate::session::backup_program::{option, password, server_words};
use crate::session::progress::Progress;
use crate::session::temp_dir::WorkFolder;

/// Size of the blocks that are sent, in bytes.
const BLOCK: u64 = 1 << 20;
/// Least memory for data in flight, in bytes.
const MEMORY: u64 = 96 << 20;
/// Blocks for each worker: two frames wait or are in work, and four wait for the connection, by which
/// `compress=auto` sees that it is busy.
const BLOCKS_PER_WORKER: u64 = 6;
/// Time to wait for a reply about the old data of a joiner that does nothing at all.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// Sends a backup of this node's server, of about `bytes`, and waits until the joiner has stored it. If the joiner agrees,
/// it is asked with the `key` which blocks it has, and they are left out.
///
/// # Errors
/// The first cause, of which the joiner is told.
pub(super) fn send(
    context: &Context,
    outgoing: Outgoing,
    key: Option<Key>,
    bytes: u64,
) -> Result<(), SstError> {
    let delta = key.and_then(|key| Delta::agreed(&outgoing, key));
    let counters = outgoing.counters();
    let progress = Progress::start(context, bytes, move || counters.snapshot().acknowledged);
    let observer = progress.observer();
    let sink = Sink::new(outgoing, observer, context);
    let files = match back_up(context, observer, &progress, &sink, delta) {
        Ok(files) => files,
        Err(error) => {
            let error = sink.cause(error);
            sink.abort(&error);
            return Err(error);
        }
    };
    // The joiner still has to store what it received.
    observer.waiting(Wait::Sink, || sink.finish())?;
    // The last progress line; after `done` the server reads no more. This call does not block.
    progress.finish(format_args!("sent {files} files"));
    Ok(())
}

/// Runs the backup into the sink, and once more if its program fails in the middle. Returns the number of
/// files in it.
fn back_up(
    context: &Context,
    observer: &Observer,
    progress: &Progress,
    sink: &Sink,
    delta: Option<Delta>,
) -> Result<u64, SstError> {
    // A block that waits for a connection has not left, although the pipeline has passed it on. It counts
    // as sent when a connection begins to write it.
    let counters = Arc::clone(&sink.counters);
    let auto = AutoCodec::new(move || {
        let wire = counters.snapshot();
        wire.sent.saturating_sub(wire.resent)
    });
    // Held until the backup has ended.
    let replicating = ReplicationGuard::set(context);
    let has_begun = Arc::default();
    let outcome = match send_backup(context, &auto, observer, sink, delta, &has_begun) {
        Err(SstError::Child(first)) if may_run_again(&first, &has_begun, sink) => {
            context.error_log.warn(format_args!(
                "{first}; running it once more: the joiner discards what it has received"
            ));
            keep_first_log(context);
            sink.begin_again();
            progress.begin_again();
            // The joiner has given up what it held.
            send_backup(context, &auto, observer, sink, None, &has_begun).map_err(|error| {
                match error {
                    // These have causes of their own.
                    SstError::Stopped(_)
                    | SstError::Child(ChildError::Stopped(_))
                    | SstError::Wire(_) => error,
                    second => {
                        SstError::FailedTwice { first: Box::new(first), second: Box::new(second) }
                    }
                }
            })
        }
        outcome => outcome,
    };
    replicating.end();
    if context.settings.compress == Compression::Auto {
        context.error_log.info(format_args!("SST: compress=auto: {}", auto.report()));
    }
    outcome
}

/// Returns whether the program is run once more: it has failed by itself, in the middle, and the joiner
/// can discard what it has. A program that has sent nothing most likely has wrong settings, and would
/// fail in the same way.
fn may_run_again(error: &ChildError, has_begun: &AtomicBool, sink: &Sink) -> bool {
    let has_begun = has_begun.load(Ordering::Acquire);
    matches!(error, ChildError::Failed { .. }) && has_begun && sink.can_begin_again()
}

fn log_of_backup(context: &Context) -> PathBuf {
    context.layout.datadir.join("xbrs.backup.log")
}

/// Keeps the messages of the first run: the second writes a new log.
fn keep_first_log(context: &Context) {
    let log = log_of_backup(context);
    let kept = log.with_extension("first.log");
    if let Err(error) = std::fs::rename(&log, &kept) {
        context.error_log.warn(format_args!("cannot keep {}: {error}", log.display()));
    }
}

/// Returns the settings with which the stream of a backup is packed.
fn pack_settings(context: &Context, auto: &AutoCodec) -> Result<PackSettings, SstError> {
    let settings = &context.settings;
    let threads = settings.compress_threads;
    let memory = MEMORY.max((BLOCKS_PER_WORKER * threads as u64 + 2) * BLOCK);
    let plan = PackPlan {
        threads,
        depth: threads * 2,
        object_size: ObjectSize::new(u64::MAX),
        part_size: BLOCK,
        parallel: 1,
        memory,
        // A connection has no part limits, unlike a store: all blocks have one size.
        limits: PartLimits { min: 1, max: BLOCK, count: u64::MAX, object: u64::MAX, equal: true },
    };
    let compress = match settings.compress {
        Compression::Fixed(algorithm) => FrameCompression::Fixed(algorithm),
        Compression::Auto => FrameCompression::Auto(auto.clone()),
    };
    let stream =
        NativeStream { header: StreamHeader::new(StreamId(random()?)), compress, sealer: None };
    let content =
        Content::Xbstream(XbstreamInput { rule: EndRule::KnownProducer, dialect: Dialect::Auto });
    Ok(PackSettings { plan, layout: ObjectLayout::Packed { content, stream } })
}

/// Runs the backup program once, with its output into the sink. Returns the number of files in it. The flag shows whether
/// the program has written anything.
fn send_backup(
    context: &Context,
    auto: &AutoCodec,
    observer: &Observer,
    sink: &Sink,
    delta: Option<Delta>,
    has_begun: &Arc<AtomicBool>,
) -> Result<u64, SstError> {
    let put = pack_settings(context, auto)?;
    let tmpdir = context.settings.tmpdir.as_deref();
    let work = WorkFolder::make(context.args.role, tmpdir, &context.layout.datadir)?;
    let run = Run {
        program: &context.settings.program,
        args: backup_args(context, work.path()),
        env: password(context),
        log: Some(log_of_backup(context)),
        writable: Vec::new(),
    };
    let imports = ImportWatch::begin(context);
    let (backup, output) = run.stream(&context.cancel, &context.settings.locks)?;
    let (output, has_ended) = Output::new(output, Arc::clone(has_begun));
    let taking = sink.clone();
    let budget = Budget::new(put.plan.memory);
    let (source, saved) = leaving_out(context, output, delta, observer)?;
    let outcome = start_pack(source, put, &budget, observer, move |part| taking.take(part))
        .and_then(xb_pipeline::PackHandle::join);
    // A connection error is the cause of every error that follows from it.
    sink.check()?;
    match outcome {
        // The backup was still running: a write error because its output was closed is not the
        // cause.
        Err(error) if !has_ended.load(Ordering::Acquire) && !is_stall(&error) => {
            context.cancel.check()?;
            drop(backup);
            Err(SstError::Put(Box::new(error)))
        }
        outcome => {
            let dropped = backup.ended()?;
            let put = outcome.map_err(|error| SstError::Put(Box::new(error)))?;
            imports.refuse(&run, &dropped, &put.scanned).map_err(ChildError::from)?;
            if let Some(saved) = saved {
                context.error_log.info(format_args!(
                    "SST: delta: asked about {} MiB, of which the joiner has {} MiB",
                    saved.asked() >> 20,
                    saved.equal() >> 20
                ));
                if saved.is_unanswered() {
                    context.error_log.warn("the joiner no longer answers what its old data has: the rest was sent in full");
                }
                context.report_delta(saved.asked(), saved.equal());
            }
            Ok(put.scanned.files)
        }
    }
}

/// A transfer that leaves out what the joiner has.
struct Delta {
    questions: Questions,
    key: Key,
    wish: DeltaWish,
}

impl Delta {
    /// Returns it if the joiner has agreed.
    fn agreed(outgoing: &Outgoing, key: Key) -> Option<Self> {
        let wish = Answer::read(outgoing.answer());
        let questions = outgoing.questions().filter(|_| wish != DeltaWish::No)?;
        Some(Self { questions, key, wish })
    }
}

/// A stream, and the count of what it leaves out.
type ThinStream = (Box<dyn Read + Send>, Option<Arc<DeltaCounters>>);

/// Returns the backup's stream without what the joiner has, and the count of that.
fn leaving_out(
    context: &Context,
    output: Output<impl Read + Send + 'static>,
    delta: Option<Delta>,
    observer: &Observer,
) -> Result<ThinStream, SstError> {
    match delta {
        None => Ok((Box::new(output), None)),
        Some(Delta { questions, key, wish }) => {
            let idle = context.settings.idle_timeout;
            // Before the transfer counts as idle.
            let patience = if idle.is_zero() { REPLY_LIMIT } else { REPLY_LIMIT.min(idle / 2) };
            let waker = questions.waker();
            let output = ReadAhead::start(output, move || waker.wake())
                .map_err(SstError::io("read the output of", &context.settings.program))?;
            let joiner = WireJoiner { questions, patience };
            let thinner = Thinner::new(output, joiner, key, Choice::new(wish), observer);
            let saved = thinner.saved();
            Ok((Box::new(thinner), Some(saved)))
        }
    }
}

/// Returns whether the backup is being ended because it blocked its server for too long.
fn is_stall(error: &PackError) -> bool {
    matches!(error, PackError::Read { source, .. } if source.kind() == ErrorKind::TimedOut)
}

/// The backup's output, with flags that some of it and that its end was read.
struct Output<R> {
    inner: R,
    has_begun: Arc<AtomicBool>,
    has_ended: Arc<AtomicBool>,
}

impl<R> Output<R> {
    fn new(inner: R, has_begun: Arc<AtomicBool>) -> (Self, Arc<AtomicBool>) {
        let has_ended = Arc::new(AtomicBool::new(false));
        (Self { inner, has_begun, has_ended: Arc::clone(&has_ended) }, has_ended)
    }
}

impl<R: Read> Read for Output<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(buffer)?;
        if len > 0 {
            self.has_begun.store(true, Ordering::Release);
        } else if !buffer.is_empty() {
            self.has_ended.store(true, Ordering::Release);
        }
        Ok(len)
    }
}

/// Passes blocks to the connection. Clones share the same connection.
#[derive(Debug, Clone)]
struct Sink {
    counters: Arc<Counters>,
    outgoing: Arc<Mutex<Option<Outgoing>>>,
    observer: Observer,
    cancel: CancelToken,
}

impl Sink {
    fn new(outgoing: Outgoing, observer: &Observer, context: &Context) -> Self {
        let (counters, cancel) = (outgoing.counters(), context.cancel.clone());
        let outgoing = Arc::new(Mutex::new(Some(outgoing)));
        Self { counters, outgoing, observer: observer.clone(), cancel }
    }

    fn outgoing(&self) -> MutexGuard<'_, Option<Outgoing>> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a part of the stream.
    fn take(&self, part: Part) -> Result<(), Closed> {
        let len: usize = part.payload.iter().map(bytes::Bytes::len).sum();
        let sent = self.outgoing().as_mut().map(|outgoing| {
            if len as u64 == BLOCK {
                return outgoing.send_all(part.payload);
            }
            // The source waits for the reply. A copy does not keep the buffers, which are far larger.
            outgoing.send(part.payload.concat().into())?;
            outgoing.pass_on()
        });
        if !matches!(sent, Some(Ok(()))) {
            // Cancel, because the backup may be waiting for something else at this moment.
            self.cancel.cancel(CancelReason::Elsewhere);
            return Err(Closed);
        }
        self.observer.add_stored(len as u64);
        Ok(())
    }

    /// Returns the error of the connection if it has failed; it returns the same error every time.
    fn check(&self) -> Result<(), TransferError> {
        self.outgoing().as_ref().map_or(Ok(()), Outgoing::check)
    }

    /// Returns whether the joiner can discard what it has received, and take another stream.
    fn can_begin_again(&self) -> bool {
        self.outgoing().as_ref().is_some_and(Outgoing::can_begin_again)
    }

    /// Tells the joiner to discard what it has received: another stream follows.
    fn begin_again(&self) {
        if let Some(outgoing) = self.outgoing().as_mut() {
            outgoing.begin_again();
        }
    }

    /// Ends the stream, and waits until the joiner confirms that everything is stored.
    fn finish(&self) -> Result<(), TransferError> {
        let outgoing = self.outgoing().take();
        outgoing.map_or(Ok(()), Outgoing::finish)
    }

    /// Returns the first cause of an error that may only report the failure of another part.
    fn cause(&self, error: SstError) -> SstError {
        match (&error, self.check()) {
            (
                SstError::Stopped(CancelReason::Elsewhere)
                | SstError::Child(ChildError::Stopped(CancelReason::Elsewhere)),
                Err(cause),
            ) => cause.into(),
            _ => error,
        }
    }

    /// Tells the joiner why the transfer ends.
    fn abort(&self, error: &SstError) {
        if let Some(outgoing) = self.outgoing().take() {
            outgoing.abort(&error.to_string());
        }
    }
}

/// Returns the arguments for the backup program.
fn backup_args(context: &Context, work: &Path) -> Vec<OsString> {
    let Context { args, settings, layout, .. } = context;
    let mut words = args.defaults.words();
    words.extend(["--backup", "--stream=xbstream", "--galera-info"].map(OsString::from));
    words.push(option("--datadir", &layout.datadir));
    words.push(option("--target-dir", work));
    words.push(option("--parallel", settings.backup_threads.to_string()));
    if let Some(login) = &settings.login {
        words.push(option("--user", &login.user));
    }
    match (settings.extra_port, &args.socket) {
        (Some(port), _) => {
            words.push("--host=127.0.0.1".into());
            words.push(option("--port", port.to_string()));
        }
        (None, Some(socket)) => words.push(option("--socket", socket)),
        (None, None) => {}
    }
    if args.product == Product::Percona {
        words.extend(["--lock-ddl", "--binlog-info=ON"].map(OsString::from));
    }
    words.extend(settings.backup_opts.iter().cloned());
    let server = server_words(args);
    if args.product == Product::MariaDb && !server.is_empty() {
        words.push("--mysqld-args".into());
        words.extend(server);
    }
    words
}

pub(super) fn random<const N: usize>() -> Result<[u8; N], SstError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| SstError::Io {
        what: "get random bytes from",
        path: "the system".into(),
        source: std::io::Error::other(error),
    })?;
    Ok(bytes)
}
