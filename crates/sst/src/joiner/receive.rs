//! Receives the stream into files, completed with blocks of the old data that the donor leaves out; checks that the files are
//! complete, and confirms them to the donor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use bytes::Bytes;
use xb_pipeline::{
    Durability, ExtractError, ExtractOptions, Extractor, FileDecoding, Observer, OnFailure,
    Stopped, UnpackError, UnpackPlan, unpack,
};
use xb_reader::TargetDir;
use xb_wire::{Incoming, Offered, Receipt, Refusal, TransferError};

use super::acceptance::EngineLocks;
use super::content;
use super::destination::Destination;
use super::room::ReceiveFolders;
use crate::context::Context;
use crate::contract::args::Product;
use crate::contract::position::Position;
use crate::contract::settings::DeltaWish;
use crate::delta::answering::Answering;
use crate::delta::fill::{FillError, Filler};
use crate::delta::old_files::OldFiles;
use crate::delta::question::{Key, Question};
use crate::error::{SstError, cannot_write};
use crate::offer::Answer;
use crate::session::progress::Progress;

/// Memory for frames that are being decoded, in bytes.
const MEMORY: u64 = 64 << 20;

/// Receives the donor's files into their directories, and confirms them once they are complete. Returns the position that
/// they state, if they state one before they are prepared.
///
/// # Errors
/// The first cause, which the donor is told, too.
pub(super) fn receive(
    context: &Context,
    offered: Offered,
    folders: &mut ReceiveFolders<'_>,
) -> Result<Option<Position>, SstError> {
    let Context { args, settings, error_log, .. } = context;
    let backup = folders.backup;
    let progress = Progress::start(context, backup.bytes, || 0);
    let (mut old, wish) = old_data(context, backup.key);
    let mut incoming = offered.accept(&Answer::write(wish))?;
    let (incoming, files) = loop {
        // The stream of a donor that begins again leaves nothing out.
        let old = old.take();
        match receive_stream(context, incoming, &folders.destination, progress.observer(), old)? {
            Received::Whole(incoming, files) => break (incoming, files),
            Received::BeganAgain(again) => incoming = again,
        }
        error_log.warn(
            "the donor's backup program failed and runs once more: discarding what was received",
        );
        if let Err(error) = folders.begin_again() {
            incoming.refuse(&error.to_string());
            return Err(error);
        }
        progress.begin_again();
    };
    let (new, offered) = (&folders.destination.new, backup.position.as_ref());
    let checked =
        content::check(new, args.product, settings.lower_case_names, offered).and_then(|stated| {
            // A donor need not have said that it has some.
            let has = |name: &str| content::has_rocksdb(&new.join(name));
            content::refuse_rocksdb(&context.layout, args.product, has).map(|()| stated)
        });
    let stated = match checked {
        Ok(stated) => stated,
        Err(error) => {
            incoming.refuse(&error.to_string());
            return Err(error);
        }
    };
    if incoming.confirm()? == Receipt::Unknown {
        error_log.warn("the connection was lost after the last byte: the donor may not know that the transfer is complete");
    }
    progress.finish(format_args!("received {files} files"));
    Ok(stated)
}

/// Returns the old data, if the donor can leave out blocks of it (`key`) and no server uses it, and the donor's
/// instruction.
fn old_data(context: &Context, key: Option<Key>) -> (Option<(OldFiles, Key)>, DeltaWish) {
    let Context { settings, layout, error_log, .. } = context;
    let old = key.filter(|_| settings.delta != DeltaWish::No).and_then(|key| {
        let old = OldFiles::open(layout, error_log)?;
        // Copies of data in use would be right, but fewer and fewer blocks would be equal.
        let is_free = EngineLocks::take(layout).is_ok_and(|locks| locks.are_whole());
        if !is_free {
            error_log.warn("the old data may be in use: receiving all data from the donor");
        }
        is_free.then_some((old, key))
    });
    let wish = if old.is_some() { settings.delta } else { DeltaWish::No };
    (old, wish)
}

/// A stream that has ended, and the connection, so that the result can be sent to the donor.
enum Received {
    /// All its files are written: their number.
    Whole(Incoming, u64),
    /// The donor has begun another one.
    BeganAgain(Incoming),
}

/// Receives one stream and writes its files. Succeeds only for a complete stream: the donor ends it only after its backup
/// program has succeeded and has written its last file. Blocks that the donor leaves out come from the `old` data.
fn receive_stream(
    context: &Context,
    incoming: Incoming,
    destination: &Destination,
    observer: &Observer,
    old: Option<(OldFiles, Key)>,
) -> Result<Received, SstError> {
    let mut extraction = match Extraction::start(context, destination, &incoming, observer, old) {
        Ok(extraction) => extraction,
        Err(error) => {
            incoming.refuse(&error.to_string());
            return Err(error);
        }
    };
    let threads = context.settings.write_threads;
    let plan =
        UnpackPlan { threads, depth: threads * 2, range: 1 << 20, parallel: 1, memory: MEMORY };
    let refusal = incoming.refusal();
    let (blocks, returned) = Blocks::of(incoming);
    let outcome = unpack(blocks, None, &plan, observer, |bytes| extraction.take(bytes))
        .and_then(|_| extraction.complete(context).map_err(UnpackError::Sink));
    extraction.end_answers();

    let begins_again = matches!(outcome, Err(UnpackError::Stopped)) && returned.begins_again();
    if let Err(error) = &outcome
        && !begins_again
    {
        // A thread that still waits for the donor must not keep waiting: the donor may be silent
        // for long.
        refusal.refuse(&SstError::Get(error.to_string()).to_string());
    }
    let (incoming, failure) = returned.wait();
    if begins_again {
        extraction.end_early()?;
        return incoming.map(Received::BeganAgain).ok_or_else(lost);
    }
    match (outcome, incoming) {
        (Err(error), _) => Err(first_cause(error, failure, extraction)),
        (Ok(()), None) => Err(extraction.finish().err().unwrap_or_else(lost)),
        (Ok(()), Some(incoming)) => match extraction.finish() {
            Ok(files) => Ok(Received::Whole(incoming, files)),
            Err(error) => {
                incoming.refuse(&error.to_string());
                Err(error)
            }
        },
    }
}

fn lost() -> SstError {
    SstError::Get("the connection was lost".into())
}

/// Returns why a stream ended early. `error`: why it could not be unpacked; `failure`: that of the connection.
fn first_cause(
    error: UnpackError<SinkError>,
    failure: Option<TransferError>,
    extraction: Extraction,
) -> SstError {
    // If this side ended the transfer itself, the cause is not the connection.
    let is_ours = |failure: &TransferError| {
        matches!(failure, TransferError::Cancelled | TransferError::BeganAgain)
    };
    match (error, failure) {
        (_, Some(failure)) if !is_ours(&failure) => failure.into(),
        (UnpackError::Sink(SinkError::Stopped(_)), _) => extraction.failure(),
        _ if extraction.has_failed() => extraction.failure(),
        (UnpackError::Stopped, failure) => failure.unwrap_or(TransferError::Cancelled).into(),
        (error, _) => SstError::Get(error.to_string()),
    }
}

/// A connection that is no longer read, and its failure.
type ReadConnection = (Incoming, Option<TransferError>);

/// Reader of the stream's blocks, in a thread of the pipeline. Returns the connection when dropped.
struct Blocks {
    incoming: Option<Incoming>,
    failure: Option<TransferError>,
    begins_again: Arc<AtomicBool>,
    back: Sender<ReadConnection>,
}

/// Takes the connection back from [`Blocks`].
struct Returned {
    begins_again: Arc<AtomicBool>,
    connection: Receiver<ReadConnection>,
}

impl Blocks {
    fn of(incoming: Incoming) -> (Self, Returned) {
        let (back, connection) = channel();
        let begins_again = Arc::new(AtomicBool::new(false));
        let returned = Returned { begins_again: Arc::clone(&begins_again), connection };
        (Self { incoming: Some(incoming), failure: None, begins_again, back }, returned)
    }
}

impl Iterator for Blocks {
    type Item = Option<Bytes>;

    fn next(&mut self) -> Option<Option<Bytes>> {
        match self.incoming.as_mut()?.next_block() {
            Ok(Some(block)) => Some(Some(block)),
            Ok(None) => None,
            Err(error) => {
                let again = matches!(error, TransferError::BeganAgain);
                self.begins_again.store(again, Ordering::Release);
                self.failure = Some(error);
                Some(None)
            }
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        if let Some(incoming) = self.incoming.take() {
            // The receiver is gone only if the transfer has failed elsewhere.
            let _ = self.back.send((incoming, self.failure.take()));
        }
    }
}

impl Returned {
    /// Returns whether the donor has begun another stream.
    fn begins_again(&self) -> bool {
        self.begins_again.load(Ordering::Acquire)
    }

    /// Waits until no other thread reads from the connection.
    fn wait(self) -> (Option<Incoming>, Option<TransferError>) {
        match self.connection.recv() {
            Ok((incoming, failure)) => (Some(incoming), failure),
            Err(_) => (None, None),
        }
    }
}

/// Reason to take no more of the stream.
#[derive(Debug, thiserror::Error)]
enum SinkError {
    /// The extractor has failed, and has the cause.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The donor has left out blocks that this node has not promised.
    #[error(transparent)]
    Unfit(#[from] FillError),
}

/// Extraction of one stream.
struct Extraction {
    extractor: Extractor,
    failed: Arc<AtomicBool>,
    destination: Destination,
    observer: Observer,
    /// Completes the stream, if the donor leaves blocks out.
    filler: Filler,
    answering: Option<Answering>,
}

impl Extraction {
    /// Starts the extraction, and answers the donor's questions about the `old` data. If a file cannot be written, the
    /// donor is informed immediately.
    ///
    /// # Errors
    /// If a directory cannot be opened, or a thread cannot be started.
    fn start(
        context: &Context,
        destination: &Destination,
        incoming: &Incoming,
        observer: &Observer,
        old: Option<(OldFiles, Key)>,
    ) -> Result<Self, SstError> {
        let failed = Arc::new(AtomicBool::new(false));
        let extractor = extractor(context, destination, incoming.refusal(), &failed)?;
        let (answering, filler) = match old {
            None => (None, Filler::of_whole()),
            Some((mut old, key)) => {
                let look = move |question: &Question| old.look(question, &key);
                let started = Answering::start(incoming.answers(), incoming.refusal(), look);
                let failed = |error| SstError::Get(format!("cannot start a thread: {error}"));
                let (answering, filler) = started.map_err(failed)?;
                (Some(answering), filler)
            }
        };
        let (destination, observer) = (destination.clone(), observer.clone());
        Ok(Self { extractor, failed, destination, observer, filler, answering })
    }

    /// Takes bytes of the stream.
    fn take(&mut self, bytes: Bytes) -> Result<(), SinkError> {
        self.filler.push(&bytes)?;
        self.take_filled()
    }

    /// Takes what is left of a stream that has arrived.
    fn complete(&mut self, context: &Context) -> Result<(), SinkError> {
        self.filler.finish()?;
        self.take_filled()?;
        if let Some(answering) = &self.answering {
            let (asked, kept) = (answering.asked(), self.filler.filled());
            context.error_log.info(format_args!(
                "delta: {} MiB of the data are copies of this node's old data",
                kept >> 20
            ));
            context.report_delta(asked, kept);
        }
        Ok(())
    }

    fn take_filled(&mut self) -> Result<(), SinkError> {
        // They count as transferred.
        self.observer.add_bytes(self.filler.take_count());
        while let Some(bytes) = self.filler.pop() {
            self.extractor.feed(bytes)?;
        }
        Ok(())
    }

    /// Answers no more questions.
    fn end_answers(&mut self) {
        self.answering = None;
    }

    /// Returns whether a file could not be written.
    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Returns the number of files once everything received is written.
    fn finish(self) -> Result<u64, SstError> {
        let report = self.extractor.finish();
        report
            .map(|report| report.files)
            .map_err(|source| cannot_extract(&self.destination, source))
    }

    /// Ends the extraction of a stream that ends early. Fails only if a file could not be written, which
    /// the donor knows by then.
    fn end_early(self) -> Result<(), SstError> {
        let failed = Arc::clone(&self.failed);
        match self.finish() {
            Err(error) if failed.load(Ordering::Acquire) => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns why the extraction has stopped.
    fn failure(self) -> SstError {
        match self.finish() {
            Err(error) => error,
            Ok(_) => SstError::Get("extraction stopped without a cause".into()),
        }
    }
}

fn extractor(
    context: &Context,
    destination: &Destination,
    refusal: Refusal,
    failed: &Arc<AtomicBool>,
) -> Result<Extractor, SstError> {
    let threads = context.settings.write_threads;
    // As the product's own xbstream program creates them.
    let modes = |target: TargetDir| match context.args.product {
        Product::MariaDb => target.with_modes(0o660, 0o700),
        Product::Percona => target.with_modes(0o640, 0o750),
    };
    let target = destination.open(modes).map_err(|error| SstError::Get(error.to_string()))?;
    // Files that the backup program itself has compressed.
    let decoding = FileDecoding { decompress: true, threads, ..FileDecoding::default() };
    let mut options = ExtractOptions::default()
        .with_threads(threads)
        .with_durability(Durability::None)
        .with_decoding(decoding);
    options.on_failure = OnFailure::new({
        let (failed, destination) = (Arc::clone(failed), destination.clone());
        move |cause| {
            failed.store(true, Ordering::Release);
            refusal.refuse(&cannot_write(&destination.dir_of_failure(cause), cause));
        }
    });
    Extractor::new(target, options).map_err(|source| cannot_extract(destination, source))
}

fn cannot_extract(destination: &Destination, source: ExtractError) -> SstError {
    let folder = destination.dir_of_failure(&source.cause);
    SstError::Extract { folder, source: Box::new(source) }
}
