//! Extraction of the received stream into files, completed with blocks of the old data that the donor leaves out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use xb_pipeline::{
    Durability, ExtractError, ExtractOptions, Extractor, FileDecoding, Observer, OnFailure, Stopped,
};
use xb_reader::TargetDir;
use xb_wire::{Incoming, Refusal};

use super::destination::Destination;
use crate::context::Context;
use crate::contract::args::Product;
use crate::delta::answering::Answering;
use crate::delta::fill::{FillError, Filler};
use crate::delta::old_data::OldData;
use crate::delta::question::{Key, Question};
use crate::error::{SstError, cannot_write};

/// Reason to take no more of the stream.
#[derive(Debug, thiserror::Error)]
pub(super) enum SinkError {
    /// The extractor has failed, and has the cause.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The donor has left out blocks that this node has not promised.
    #[error(transparent)]
    Unfit(#[from] FillError),
}

/// Extraction of one stream.
pub(super) struct Extraction {
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
    pub(super) fn start(
        context: &Context,
        destination: &Destination,
        incoming: &Incoming,
        observer: &Observer,
        old: Option<(OldData, Key)>,
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
    pub(super) fn take(&mut self, bytes: Bytes) -> Result<(), SinkError> {
        self.filler.push(&bytes)?;
        self.take_filled()
    }

    /// Takes what is left of a stream that has arrived.
    pub(super) fn complete(&mut self, context: &Context) -> Result<(), SinkError> {
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
    pub(super) fn end_answers(&mut self) {
        self.answering = None;
    }

    /// Returns whether a file could not be written.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Returns the number of files once everything received is written.
    pub(super) fn finish(self) -> Result<u64, SstError> {
        let report = self.extractor.finish();
        report
            .map(|report| report.files)
            .map_err(|source| cannot_extract(&self.destination, source))
    }

    /// Ends the extraction of a stream that ends early. Fails only if a file could not be written, which
    /// the donor knows by then.
    pub(super) fn end_early(self) -> Result<(), SstError> {
        let failed = Arc::clone(&self.failed);
        match self.finish() {
            Err(error) if failed.load(Ordering::Acquire) => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns why the extraction has stopped.
    pub(super) fn failure(self) -> SstError {
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
