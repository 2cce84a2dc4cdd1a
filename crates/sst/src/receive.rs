//! From the wire to files, proven whole.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use bytes::Bytes;
use xb_pipeline::{
    Durability, ExtractOptions, Extractor, GetError, GetPlan, Observer, Stopped, Undo, unpack,
};
use xb_reader::TargetDir;

use crate::context::Context;
use crate::error::SstError;
use crate::transport::{Incoming, TransferError};

/// Memory for frames that are being decoded, in bytes.
const MEMORY: u64 = 64 << 20;

/// Receives the stream and makes its files in `new`. Only a stream that is whole gives a result: the
/// donor ends it only after its backup program has ended well and has written its last file. The
/// connection comes back, so that the donor can be told what came of it.
pub(crate) fn receive(
    context: &Context,
    incoming: Incoming,
    new: &Path,
    observer: &Observer,
) -> Result<(Incoming, u64), SstError> {
    let threads = context.settings.write_threads;
    let target = TargetDir::open(new).map_err(|error| SstError::Get(error.to_string()))?;
    let options = ExtractOptions {
        threads,
        durability: Durability::None,
        // What the backup program has compressed by itself.
        undo: Undo { decompress: true, threads, ..Undo::default() },
        ..ExtractOptions::default()
    };
    let mut extractor =
        Extractor::new(target, options).map_err(|error| SstError::Extract(Box::new(error)))?;
    let plan = GetPlan { threads, depth: threads * 2, range: 1 << 20, parallel: 1, memory: MEMORY };
    let (back, given_back) = channel();
    let blocks = Blocks { incoming: Some(incoming), failure: None, back };
    let outcome = unpack(blocks, None, &plan, observer, |bytes| extractor.feed(bytes));
    let (incoming, failure) = take_back(&given_back);
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    let error = match outcome {
        Ok(_) => match extractor.finish() {
            Ok(report) => {
                let incoming =
                    incoming.ok_or_else(|| SstError::Get("the connection is lost".into()))?;
                return Ok((incoming, report.files));
            }
            Err(error) => SstError::Extract(Box::new(error)),
        },
        Err(GetError::Sink(Stopped)) => match extractor.finish() {
            Err(error) => SstError::Extract(Box::new(error)),
            Ok(_) => SstError::Get("the files stopped without a cause".into()),
        },
        Err(error) => SstError::Get(error.to_string()),
    };
    if let Some(incoming) = incoming {
        incoming.refuse(&error.to_string());
    }
    context.stop().check()?;
    Err(error)
}

/// The connection, once nobody reads from it any more.
fn take_back(
    given_back: &Receiver<(Incoming, Option<TransferError>)>,
) -> (Option<Incoming>, Option<TransferError>) {
    match given_back.recv() {
        Ok((incoming, failure)) => (Some(incoming), failure),
        Err(_) => (None, None),
    }
}

/// The blocks of the stream. Gives the connection back when it is dropped.
struct Blocks {
    incoming: Option<Incoming>,
    failure: Option<TransferError>,
    back: Sender<(Incoming, Option<TransferError>)>,
}

impl Iterator for Blocks {
    type Item = Option<Bytes>;

    fn next(&mut self) -> Option<Option<Bytes>> {
        match self.incoming.as_mut()?.next_block() {
            Ok(Some(block)) => Some(Some(block)),
            Ok(None) => None,
            Err(error) => {
                self.failure = Some(error);
                Some(None)
            }
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        if let Some(incoming) = self.incoming.take() {
            // Nobody wants it any more only if the transfer has failed elsewhere.
            let _ = self.back.send((incoming, self.failure.take()));
        }
    }
}
