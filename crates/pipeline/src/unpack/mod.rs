//! Unpacking: converts ranges of a native stream to its plain bytes.
//!
//! ```text
//! ranges ──► unsealed ──────► frames ───────────► decoded ──────► sink
//!            segments opened  header, checksum,   plain bytes of  in order
//!            "segments",      index               each frame
//!            n "open"         "frames"            n "frame"       the caller
//! ```
//!
//! Names in quotation marks are threads. A payload is never copied before it is decoded: a frame
//! that spans two ranges is a list of slices. Without a seal the first step is left out.

pub(crate) mod error;
pub(crate) mod frame_decoder;
pub(crate) mod parts;
pub(crate) mod unseal;

use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use xb_encryptor::DataKey;
use xb_frame::{Event, FrameHeader, Kind, Limits, StreamReader, Summary};

use crate::flow::checksum;
use crate::flow::hold_ups::Wait;
use crate::flow::observer::Observer;
use crate::flow::ordered_pool::{Closed, Submit, WorkerDied, ordered_by};
use crate::flow::plan::{SLAB, UnpackPlan};
use crate::flow::received::Received;
use crate::flow::slab::SlabPool;
use crate::flow::work::Work;
use crate::unpack::error::{NoMoreFrames, UnpackError, not_sealed};
use crate::unpack::frame_decoder::{Frame, FrameDecodeError, FrameDecoder};
use crate::unpack::unseal::Unsealed;

/// Takes the ranges of a native stream in order, and passes its plain bytes to `sink`, in order.
/// `key` opens the seal; an unsealed stream is only accepted without a key.
///
/// A `None` item of `ranges` means that the source has failed; the end of the iterator means that
/// all ranges were returned.
///
/// Every byte passed to `sink` has been checked by checksum or seal. But only `Ok` proves that the
/// stream was complete.
///
/// # Errors
/// [`UnpackError`], the first cause.
pub fn unpack<I, R, S, E>(
    ranges: I,
    key: Option<Arc<DataKey>>,
    plan: &UnpackPlan,
    observer: &Observer,
    sink: S,
) -> Result<Summary, UnpackError<E>>
where
    I: Iterator<Item = Option<R>> + Send + 'static,
    R: Into<Received>,
    S: FnMut(Bytes) -> Result<(), E>,
{
    unpack_watched(ranges, key, plan, observer, |_, _| {}, sink)
}

/// Like [`unpack`]. `watch` receives the header and the stored payload of each data and index
/// frame, in order. At that point the checksum of an index payload has been checked, that of a data
/// payload has not.
///
/// # Errors
/// As [`unpack`].
pub fn unpack_watched<I, R, S, E>(
    ranges: I,
    key: Option<Arc<DataKey>>,
    plan: &UnpackPlan,
    observer: &Observer,
    watch: impl FnMut(&FrameHeader, &[Bytes]) + Send + 'static,
    mut sink: S,
) -> Result<Summary, UnpackError<E>>
where
    I: Iterator<Item = Option<R>> + Send + 'static,
    R: Into<Received>,
    S: FnMut(Bytes) -> Result<(), E>,
{
    let sealed = key.is_some();

    // Unseal: workers open the segments of the body.
    let counting = observer.clone();
    let counted =
        ranges.map(|range| range.map(Into::into)).inspect(move |range: &Option<Received>| {
            counting.add_stored(range.as_ref().map_or(0, |r| r.len() as u64))
        });
    let body: Box<dyn Iterator<Item = Result<Received, NoMoreFrames>> + Send> = match key {
        Some(key) => {
            let sealed = counted.map(|range| range.map(Bytes::from));
            let opened =
                Unsealed::start(sealed, key, plan, observer).map_err(UnpackError::Thread)?;
            Box::new(opened.map(|piece| piece.map(Received::from)))
        }
        None => Box::new(counted.map(|range| range.ok_or(NoMoreFrames::Source))),
    };

    // Decode: workers check and decode the frames that were not checked where they were found. The
    // pool has room for those not yet consumed.
    let pool = SlabPool::new(SLAB, plan.depth + 2);
    let (to_decode, mut decoded) = ordered_by("frame", plan.threads, plan.depth, || {
        let mut decoder = FrameDecoder::new(pool.clone());
        let observer = observer.clone();
        move |frame: Frame| {
            let bytes = frame.len();
            observer.working(Work::Decode, bytes, || decoder.decode(frame))
        }
    });

    // Find: locate the frames of the body, and check those that are stored as they are.
    let observing = observer.clone();
    let finder: JoinHandle<Result<Summary, NoMoreFrames>> = std::thread::Builder::new()
        .name("frames".into())
        .spawn(move || find(body, sealed, &to_decode, &observing, watch))
        .map_err(UnpackError::Thread)?;

    // Pass on the plain bytes, in order.
    let mut outcome = Ok(());
    while let Some(result) = decoded.recv() {
        outcome = match result {
            Err(died) => Err(UnpackError::Worker(died)),
            Ok(Err(undecoded)) => Err(undecoded.into()),
            Ok(Ok(pieces)) => pieces.into_iter().try_for_each(|piece| {
                observer.add_bytes(piece.len() as u64);
                observer.waiting(Wait::Sink, || sink(piece)).map_err(UnpackError::Sink)
            }),
        };
        if outcome.is_err() {
            break;
        }
    }
    // Ends the finder if it still runs, because its frames are no longer needed.
    drop(decoded);
    outcome?;
    Ok(finder.join().unwrap_or(Err(NoMoreFrames::Worker(WorkerDied)))?)
}

fn find(
    mut pieces: impl Iterator<Item = Result<Received, NoMoreFrames>>,
    sealed: bool,
    submit: &Submit<Frame, Result<Vec<Bytes>, FrameDecodeError>>,
    observer: &Observer,
    mut watch: impl FnMut(&FrameHeader, &[Bytes]),
) -> Result<Summary, NoMoreFrames> {
    // Frames larger than ours would not fit the slabs.
    let most = u32::try_from(SLAB).unwrap_or(u32::MAX);
    let mut reader =
        StreamReader::new(Limits::default().with_max_plain(most).with_external_unseal(sealed));
    let mut payload = Vec::new();
    // CRC-32C of `payload`, as long as it is known without reading it.
    let mut sum = Some(0);
    while let Some(piece) = observer.waiting(Wait::Source, || pieces.next()) {
        let piece = piece?;
        let mut input = &piece[..];
        while let Some(event) = reader.next(&mut input)? {
            match event {
                Event::Header(header) if sealed && !header.is_sealed() => {
                    return Err(not_sealed());
                }
                Event::Payload(bytes) => {
                    let end = piece.len() - input.len();
                    sum = sum.filter(|_| piece.has_sums()).map(|sum| {
                        let next = piece.crc32c(end - bytes.len(), end);
                        checksum::crc32c_combine(sum, next, bytes.len() as u64)
                    });
                    payload.push(piece.slice_ref(bytes));
                }
                Event::FrameEnd(header) => {
                    let payload = std::mem::take(&mut payload);
                    let crc32c = sum.replace(0);
                    watch(&header, &payload);
                    if header.kind == Kind::Data {
                        let frame = Frame { header, payload, crc32c };
                        pass(frame, submit, observer)?;
                    }
                }
                _ => {}
            }
        }
    }
    Ok(reader.finish()?)
}

/// Passes a frame to the workers, unless they have nothing to do.
fn pass(
    frame: Frame,
    submit: &Submit<Frame, Result<Vec<Bytes>, FrameDecodeError>>,
    observer: &Observer,
) -> Result<(), Closed> {
    if frame.needs_worker() {
        return observer.waiting(Wait::Workers, || submit.send(frame));
    }
    let checked = observer.working(Work::Decode, frame.len(), || frame.check());
    observer.waiting(Wait::Workers, || submit.done(checked.map(|()| frame.payload)))
}
