//! Receives the stream into files, checks that they are complete, and confirms them to the donor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use bytes::Bytes;
use xb_pipeline::{
    Durability, ExtractError, ExtractOptions, Extractor, FileDecoding, Observer, OnFailure,
    Stopped, UnpackError, UnpackPlan, unpack,
};
use xb_reader::TargetDir;

use super::content;
use super::destination::Destination;
use super::reuse;
use super::room::ReceiveFolders;
use crate::context::Context;
use crate::contract::args::Family;
use crate::contract::position::Position;
use crate::delta::agreement::Answer;
use crate::delta::answering::Answering;
use crate::delta::fill::{FillError, Filler};
use crate::delta::old_data::OldData;
use crate::delta::question::Key;
use crate::error::{SstError, cannot_write};
use crate::session::progress::Progress;
use xb_report::Direction;
use xb_wire::{Incoming, Offered, Receipt, Refusal, TransferError};

/// Memory for frames that are being decoded, in bytes.
const MEMORY: u64 = 64 << 20;

/// Receives the donor's files into their directories, and confirms them once they are complete. Returns the position that
/// they state, if they state one before they are prepared. `key`: the donor offers to leave out what this node has.
///
/// # Errors
/// The first cause, which the donor is told, too.
pub(super) fn receive(
    context: &Context,
    offered: Offered,
    folders: &mut ReceiveFolders<'_>,
    offered_at: Option<&Position>,
    key: Option<Key>,
) -> Result<Option<Position>, SstError> {
    let Context { args, settings, error_log, .. } = context;
    let destination = folders.destination;
    let observer = Observer::default();
    observer.begin_phase("receiving");
    let progress = Progress::start(context, &observer, folders.amount.bytes);
    let watch = context.watch(Direction::Receive, settings.write_threads, &observer);
    let (old, wish) = reuse::old_data(context, key);
    let incoming = offered.accept(&Answer::write(wish))?;
    let (incoming, files) = receive_files(context, incoming, destination, &observer, old, || {
        error_log.warn(
            "the donor's backup program failed and runs once more: discarding what was received",
        );
        folders.begin_again()?;
        progress.begin_again();
        Ok(())
    })?;
    let stated = match content::before_preparing(&destination.new, args.family, offered_at) {
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
    drop(watch);
    Ok(stated)
}

/// Receives the stream and writes its files to their destination. Succeeds only for a complete stream: the
/// donor ends the stream only after its backup program has succeeded and has written its last file.
/// Returns the connection, so that the result can be sent to the donor, and the number of files. When the donor begins
/// again, `discard` removes what was received. What the donor leaves out comes from the `old` data; a stream that begins
/// again is whole.
fn receive_files(
    context: &Context,
    mut incoming: Incoming,
    destination: &Destination,
    observer: &Observer,
    mut old: Option<(OldData, Key)>,
    mut discard: impl FnMut() -> Result<(), SstError>,
) -> Result<(Incoming, u64), SstError> {
    loop {
        incoming = match receive_stream(context, incoming, destination, observer, old.take())? {
            Received::Whole(incoming, files) => return Ok((incoming, files)),
            Received::BeganAgain(incoming) => incoming,
        };
        if let Err(error) = discard() {
            incoming.refuse(&error.to_string());
            return Err(error);
        }
    }
}

/// How a stream has ended.
enum Received {
    /// All its files are written.
    Whole(Incoming, u64),
    /// The donor has begun another one.
    BeganAgain(Incoming),
}

fn receive_stream(
    context: &Context,
    incoming: Incoming,
    destination: &Destination,
    observer: &Observer,
    old: Option<(OldData, Key)>,
) -> Result<Received, SstError> {
    let refusal = incoming.refusal();
    let started = Files::start(context, destination, &refusal).and_then(|files| {
        let Some((old, key)) = old else { return Ok((files, None, Filler::of_whole())) };
        let started = Answering::start(incoming.answers(), refusal.clone(), old, key);
        let failed = |error| SstError::Get(format!("cannot start a thread: {error}"));
        let (answering, filler) = started.map_err(failed)?;
        Ok((files, Some(answering), filler))
    });
    let (mut files, answering, mut filler) = match started {
        Ok(started) => started,
        Err(error) => {
            incoming.refuse(&error.to_string());
            return Err(error);
        }
    };
    let threads = context.settings.write_threads;
    let plan =
        UnpackPlan { threads, depth: threads * 2, range: 1 << 20, parallel: 1, memory: MEMORY };
    let (back, given_back) = channel();
    let began_again = Arc::new(AtomicBool::new(false));
    let blocks = Blocks {
        incoming: Some(incoming),
        failure: None,
        began_again: Arc::clone(&began_again),
        back,
    };
    let outcome = unpack(blocks, None, &plan, observer, |bytes| {
        filler.push(&bytes)?;
        files.take_filled(&mut filler, observer)
    });
    let outcome = outcome.and_then(|_| {
        filler.finish().map_err(|error| UnpackError::Sink(SinkError::Unfit(error)))?;
        files.take_filled(&mut filler, observer).map_err(UnpackError::Sink)
    });
    if let (Some(answering), Ok(())) = (&answering, &outcome) {
        let (asked, kept) = (answering.asked(), filler.filled());
        context.error_log.info(format_args!(
            "delta: {} MiB of the data are copies of this node's old data",
            kept >> 20
        ));
        context.report_delta(asked, kept);
    }
    drop(answering);
    let discards =
        matches!(outcome, Err(UnpackError::Stopped)) && began_again.load(Ordering::Acquire);
    if let Err(error) = &outcome
        && !discards
    {
        // A thread that still waits for the donor must not keep waiting: the donor may be silent
        // for long.
        refusal.refuse(&SstError::Get(error.to_string()).to_string());
    }
    let (incoming, failure) = take_back(&given_back);
    if discards {
        files.end_early()?;
        let incoming = incoming.ok_or_else(|| SstError::Get("the connection was lost".into()))?;
        return Ok(Received::BeganAgain(incoming));
    }
    // If this side ended the transfer itself, the cause is not the connection.
    let wires = failure
        .as_ref()
        .filter(|failure| !matches!(failure, TransferError::Cancelled | TransferError::BeganAgain));
    Err(match (outcome, wires) {
        (Ok(_), _) => match (files.finish(), incoming) {
            (Ok(number), Some(incoming)) => return Ok(Received::Whole(incoming, number)),
            (Ok(_), None) => SstError::Get("the connection was lost".into()),
            (Err(error), incoming) => {
                if let Some(incoming) = incoming {
                    incoming.refuse(&error.to_string());
                }
                error
            }
        },
        (Err(_), Some(failure)) => failure.clone().into(),
        (Err(error), None)
            if files.have_failed() || matches!(error, UnpackError::Sink(SinkError::Stopped(_))) =>
        {
            files.failure()
        }
        (Err(UnpackError::Stopped), None) => failure.unwrap_or(TransferError::Cancelled).into(),
        (Err(error), None) => SstError::Get(error.to_string()),
    })
}

/// Why no more of the stream is taken.
#[derive(Debug, thiserror::Error)]
enum SinkError {
    /// The extraction has failed, and has the cause.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The stream does not fit what this node has said that it has.
    #[error(transparent)]
    Unfit(#[from] FillError),
}

/// Extraction of the files.
struct Files {
    extractor: Extractor,
    failed: Arc<AtomicBool>,
    destination: Destination,
}

impl Files {
    /// Starts the extraction. If a file cannot be written, the donor is informed immediately.
    fn start(
        context: &Context,
        destination: &Destination,
        refusal: &Refusal,
    ) -> Result<Self, SstError> {
        let threads = context.settings.write_threads;
        // As the family's own xbstream program creates them.
        let modes = |target: TargetDir| match context.args.family {
            Family::MariaDb => target.with_modes(0o660, 0o700),
            Family::Percona => target.with_modes(0o640, 0o750),
        };
        let target = destination.open(modes).map_err(|error| SstError::Get(error.to_string()))?;
        let failed = Arc::new(AtomicBool::new(false));
        let destination = destination.clone();
        let on_failure = OnFailure::new({
            let (failed, refusal, destination) =
                (Arc::clone(&failed), refusal.clone(), destination.clone());
            move |cause| {
                failed.store(true, Ordering::Release);
                refusal.refuse(&cannot_write(&destination.dir_of_failure(cause), cause));
            }
        });
        // Files that the backup program itself has compressed.
        let decoding = FileDecoding { decompress: true, threads, ..FileDecoding::default() };
        let mut options = ExtractOptions::default()
            .with_threads(threads)
            .with_durability(Durability::None)
            .with_decoding(decoding);
        options.on_failure = on_failure;
        let extractor =
            Extractor::new(target, options).map_err(|source| extract(&destination, source))?;
        Ok(Self { extractor, failed, destination })
    }

    /// Takes the completed stream.
    fn take_filled(&mut self, filler: &mut Filler, observer: &Observer) -> Result<(), SinkError> {
        // They count as transferred.
        observer.add_bytes(filler.take_count());
        while let Some(bytes) = filler.pop() {
            self.extractor.feed(bytes)?;
        }
        Ok(())
    }

    fn have_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Returns the number of files once everything received is written.
    fn finish(self) -> Result<u64, SstError> {
        let report = self.extractor.finish();
        report.map(|report| report.files).map_err(|source| extract(&self.destination, source))
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

    fn failure(self) -> SstError {
        match self.finish() {
            Err(error) => error,
            Ok(_) => SstError::Get("extraction stopped without a cause".into()),
        }
    }
}

fn extract(destination: &Destination, source: ExtractError) -> SstError {
    let folder = destination.dir_of_failure(&source.cause);
    SstError::Extract { folder, source: Box::new(source) }
}

/// Returns the connection once no other thread reads from it.
fn take_back(
    given_back: &Receiver<(Incoming, Option<TransferError>)>,
) -> (Option<Incoming>, Option<TransferError>) {
    match given_back.recv() {
        Ok((incoming, failure)) => (Some(incoming), failure),
        Err(_) => (None, None),
    }
}

/// Reader of the stream's blocks. Returns the connection when dropped.
struct Blocks {
    incoming: Option<Incoming>,
    failure: Option<TransferError>,
    began_again: Arc<AtomicBool>,
    back: Sender<(Incoming, Option<TransferError>)>,
}

impl Iterator for Blocks {
    type Item = Option<Bytes>;

    fn next(&mut self) -> Option<Option<Bytes>> {
        match self.incoming.as_mut()?.next_block() {
            Ok(Some(block)) => Some(Some(block)),
            Ok(None) => None,
            Err(error) => {
                let again = matches!(error, TransferError::BeganAgain);
                self.began_again.store(again, Ordering::Release);
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
