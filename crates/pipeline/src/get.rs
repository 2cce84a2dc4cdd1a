//! The way down: ranges of a native stream, in order → frames → checked in parallel → plain bytes,
//! in order.
//!
//! One thread finds the frames; payloads are never copied, a frame that straddles two ranges is a
//! list of slices. The workers check (and one day open and decompress) frames side by side; the
//! calling thread takes the plain bytes in order.

use std::thread::JoinHandle;

use bytes::Bytes;
use xb_frame::{Event, FrameError, FrameHeader, Kind, Limits, StreamReader, Summary};

use crate::observe::{Observer, Wait};
use crate::plan::GetPlan;
use crate::pool::{Closed, Submit, WorkerDied, ordered};
use crate::sums;

/// Why a run down failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GetError<E> {
    /// The native stream is damaged or cut.
    #[error(transparent)]
    Frame(FrameError),
    /// A thread of ours died.
    #[error(transparent)]
    Worker(#[from] WorkerDied),
    /// The plain bytes were not taken.
    #[error(transparent)]
    Sink(E),
    /// The ranges stopped coming; whoever brings them has the cause.
    #[error("the ranges stopped coming")]
    Stopped,
    /// The system has no thread for us.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// A frame as it lies in the ranges: a job for a worker.
struct Frame {
    header: FrameHeader,
    payload: Vec<Bytes>,
}

enum Found {
    Whole(Summary),
    Stopped,
}

/// Takes the ranges of a native stream in order, and gives its plain bytes to `sink`, in order.
///
/// An item of `ranges` that is `None` says that the source has failed; the end of the iterator
/// says that all has been given.
///
/// Every byte given to `sink` has passed its checksum. But only `Ok` says that the stream was
/// whole.
///
/// # Errors
/// [`GetError`], the first cause.
pub fn unpack<I, S, E>(
    ranges: I,
    plan: &GetPlan,
    observer: &Observer,
    mut sink: S,
) -> Result<Summary, GetError<E>>
where
    I: Iterator<Item = Option<Bytes>> + Send + 'static,
    S: FnMut(Bytes) -> Result<(), E>,
{
    let (submit, mut results) = ordered("frame", plan.threads, plan.depth, check);
    let observing = observer.clone();
    let finder: JoinHandle<Result<Found, Stop>> = std::thread::Builder::new()
        .name("frames".into())
        .spawn(move || find(ranges, &submit, &observing))
        .map_err(GetError::Thread)?;
    let mut outcome = Ok(());
    while let Some(result) = results.recv() {
        outcome = match result {
            Err(died) => Err(GetError::Worker(died)),
            Ok(Err(damaged)) => Err(GetError::Frame(damaged)),
            Ok(Ok(pieces)) => pieces.into_iter().try_for_each(|piece| {
                observer.add_bytes(piece.len() as u64);
                sink(piece).map_err(GetError::Sink)
            }),
        };
        if outcome.is_err() {
            break;
        }
    }
    // Ends the finder if it still runs: nobody takes its frames any more.
    drop(results);
    outcome?;
    match finder.join() {
        Ok(Ok(Found::Whole(summary))) => Ok(summary),
        Ok(Ok(Found::Stopped) | Err(Stop::Closed)) => Err(GetError::Stopped),
        Ok(Err(Stop::Frame(error))) => Err(GetError::Frame(error)),
        Err(_) => Err(GetError::Worker(WorkerDied)),
    }
}

enum Stop {
    Closed,
    Frame(FrameError),
}

impl From<Closed> for Stop {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<FrameError> for Stop {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

fn find(
    mut ranges: impl Iterator<Item = Option<Bytes>>,
    submit: &Submit<Frame, Result<Vec<Bytes>, FrameError>>,
    observer: &Observer,
) -> Result<Found, Stop> {
    let mut reader = StreamReader::new(Limits::default());
    let mut payload = Vec::new();
    while let Some(range) = observer.waiting(Wait::Source, || ranges.next()) {
        let Some(range) = range else { return Ok(Found::Stopped) };
        observer.add_stored(range.len() as u64);
        let mut input = &range[..];
        while let Some(event) = reader.next(&mut input)? {
            match event {
                Event::Payload(piece) => payload.push(range.slice_ref(piece)),
                Event::FrameEnd(header) => {
                    let payload = std::mem::take(&mut payload);
                    if header.kind == Kind::Data {
                        observer.waiting(Wait::Sink, || submit.send(Frame { header, payload }))?;
                    }
                }
                _ => {}
            }
        }
    }
    Ok(Found::Whole(reader.finish()?))
}

/// The work of a worker: proves a frame and gives its plain bytes.
fn check(frame: Frame) -> Result<Vec<Bytes>, FrameError> {
    let sum = frame
        .payload
        .iter()
        .fold(0, |sum, piece| sums::crc32c_combine(sum, sums::crc32c(piece), piece.len() as u64));
    frame.header.check_payload_crc(sum)?;
    Ok(frame.payload)
}
