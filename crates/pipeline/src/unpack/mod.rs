//! The way down: ranges of a native stream, in order → opened → frames → decoded in parallel →
//! plain bytes, in order.
//!
//! One thread finds the frames; payloads are never copied before they are decoded, a frame that
//! straddles two ranges is a list of slices. The workers check and decode frames side by side; the
//! calling thread takes the plain bytes in order. A seal is opened before all that (`open.rs`).

pub(crate) mod parts;
pub(crate) mod unseal;

use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use xb_compressor::{BlockCodec, BlockDecoder, CodecError};
use xb_encryptor::{DataKey, SealError};
use xb_frame::{
    Codec, Event, FrameError, FrameHeader, Kind, Limits, Part, Place, StreamReader, Summary,
};

use crate::flow::checksum;
use crate::flow::observer::{Observer, Wait};
use crate::flow::ordered_pool::{Closed, Submit, WorkerDied, ordered_by};
use crate::flow::plan::{GetPlan, SLAB};
use crate::flow::slab::SlabPool;
use crate::unpack::unseal::Opened;

/// Why a run down failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GetError<E> {
    /// The native stream is damaged or cut.
    #[error(transparent)]
    Frame(FrameError),
    /// The seal does not hold: another key, or bytes that were changed.
    #[error(transparent)]
    Seal(SealError),
    /// A frame does not decode to what its header says.
    #[error("{place}: {source}")]
    Codec {
        /// The frame.
        place: Place,
        /// What the codec says.
        source: CodecError,
    },
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

impl<E> GetError<E> {
    /// Where in the stream the damage lies, counted from the first byte of its body without the
    /// seal, where that can be told.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        match self {
            Self::Frame(error) => error.place(),
            Self::Codec { place, .. } => Some(*place),
            _ => None,
        }
    }
}

/// A frame as it lies in the ranges: a job for a worker.
pub(crate) struct Frame {
    pub(crate) header: FrameHeader,
    pub(crate) payload: Vec<Bytes>,
}

/// Why no more frames were found.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Nobody takes them.
    Closed,
    /// Nobody brings ranges.
    Source,
    Frame(FrameError),
    Seal(SealError),
    Worker(WorkerDied),
}

/// Whoever gives a key does not want bytes that nobody vouches for.
pub(crate) fn not_sealed() -> Stop {
    Stop::Frame(FrameError::Mismatch {
        place: Place { part: Part::StreamHeader, position: 0 },
        field: "seal",
        expected: 1,
        got: 0,
    })
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

impl<E> From<Stop> for GetError<E> {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Closed | Stop::Source => Self::Stopped,
            Stop::Frame(error) => Self::Frame(error),
            Stop::Seal(error) => Self::Seal(error),
            Stop::Worker(died) => Self::Worker(died),
        }
    }
}

/// Takes the ranges of a native stream in order, and gives its plain bytes to `sink`, in order.
/// `key` opens the seal; a stream without one is taken only without a key.
///
/// An item of `ranges` that is `None` says that the source has failed; the end of the iterator
/// says that all has been given.
///
/// Every byte given to `sink` has passed its checksum or seal. But only `Ok` says that the stream
/// was whole.
///
/// # Errors
/// [`GetError`], the first cause.
pub fn unpack<I, S, E>(
    ranges: I,
    key: Option<Arc<DataKey>>,
    plan: &GetPlan,
    observer: &Observer,
    sink: S,
) -> Result<Summary, GetError<E>>
where
    I: Iterator<Item = Option<Bytes>> + Send + 'static,
    S: FnMut(Bytes) -> Result<(), E>,
{
    unpack_watched(ranges, key, plan, observer, |_, _| {}, sink)
}

/// As [`unpack`]; `watch` sees the header and the stored payload of each data and index frame, in
/// order. An index payload has passed its checksum then, that of data has not yet.
///
/// # Errors
/// As [`unpack`].
pub fn unpack_watched<I, S, E>(
    ranges: I,
    key: Option<Arc<DataKey>>,
    plan: &GetPlan,
    observer: &Observer,
    watch: impl FnMut(&FrameHeader, &[Bytes]) + Send + 'static,
    mut sink: S,
) -> Result<Summary, GetError<E>>
where
    I: Iterator<Item = Option<Bytes>> + Send + 'static,
    S: FnMut(Bytes) -> Result<(), E>,
{
    // Room for the frames that are decoded and not taken yet.
    let pool = SlabPool::new(SLAB, plan.depth + 2);
    let (submit, mut results) = ordered_by("frame", plan.threads, plan.depth, || {
        let mut decoder =
            Decoder { blocks: BlockDecoder::new(), scratch: Vec::new(), pool: pool.clone() };
        move |frame| decoder.decode(frame)
    });
    let sealed = key.is_some();
    let counting = observer.clone();
    let counted = ranges
        .inspect(move |range| counting.add_stored(range.as_ref().map_or(0, |r| r.len() as u64)));
    let pieces: Box<dyn Iterator<Item = Result<Bytes, Stop>> + Send> = match key {
        Some(key) => Box::new(Opened::start(counted, key, plan).map_err(GetError::Thread)?),
        None => Box::new(counted.map(|range| range.ok_or(Stop::Source))),
    };
    let observing = observer.clone();
    let finder: JoinHandle<Result<Summary, Stop>> = std::thread::Builder::new()
        .name("frames".into())
        .spawn(move || find(pieces, sealed, &submit, &observing, watch))
        .map_err(GetError::Thread)?;
    let mut outcome = Ok(());
    while let Some(result) = results.recv() {
        outcome = match result {
            Err(died) => Err(GetError::Worker(died)),
            Ok(Err(Undecoded::Frame(error))) => Err(GetError::Frame(error)),
            Ok(Err(Undecoded::Codec(place, source))) => Err(GetError::Codec { place, source }),
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
    Ok(finder.join().unwrap_or(Err(Stop::Worker(WorkerDied)))?)
}

fn find(
    mut pieces: impl Iterator<Item = Result<Bytes, Stop>>,
    sealed: bool,
    submit: &Submit<Frame, Result<Vec<Bytes>, Undecoded>>,
    observer: &Observer,
    mut watch: impl FnMut(&FrameHeader, &[Bytes]),
) -> Result<Summary, Stop> {
    // Larger frames than ours would not fit the slabs.
    let most = u32::try_from(SLAB).unwrap_or(u32::MAX);
    let mut reader =
        StreamReader::new(Limits::default().with_max_plain(most).with_caller_opens_seal(sealed));
    let mut payload = Vec::new();
    while let Some(piece) = observer.waiting(Wait::Source, || pieces.next()) {
        let piece = piece?;
        let mut input = &piece[..];
        while let Some(event) = reader.next(&mut input)? {
            match event {
                Event::Header(header) if sealed && !header.is_sealed() => {
                    return Err(not_sealed());
                }
                Event::Payload(bytes) => payload.push(piece.slice_ref(bytes)),
                Event::FrameEnd(header) => {
                    let payload = std::mem::take(&mut payload);
                    watch(&header, &payload);
                    if header.kind == Kind::Data {
                        observer.waiting(Wait::Sink, || submit.send(Frame { header, payload }))?;
                    }
                }
                _ => {}
            }
        }
    }
    Ok(reader.finish()?)
}

/// Why a frame gave no plain bytes.
pub(crate) enum Undecoded {
    Frame(FrameError),
    Codec(Place, CodecError),
}

/// What a worker has of its own.
pub(crate) struct Decoder {
    pub(crate) blocks: BlockDecoder,
    /// The payload in one piece, where it lies in several.
    pub(crate) scratch: Vec<u8>,
    pub(crate) pool: SlabPool,
}

impl Decoder {
    /// Proves a frame and gives its plain bytes.
    pub(crate) fn decode(
        &mut self,
        Frame { header, payload }: Frame,
    ) -> Result<Vec<Bytes>, Undecoded> {
        if header.payload_crc32c.is_some() {
            let sum = payload.iter().fold(0, |sum, piece| {
                checksum::crc32c_combine(sum, checksum::crc32c(piece), piece.len() as u64)
            });
            header.check_payload_crc(sum).map_err(Undecoded::Frame)?;
        }
        let Some(codec) = block_codec(header.codec) else { return Ok(payload) };
        let stored: &[u8] = match payload.as_slice() {
            [whole] => whole,
            pieces => {
                self.scratch.clear();
                pieces.iter().for_each(|piece| self.scratch.extend_from_slice(piece));
                &self.scratch
            }
        };
        let mut slab = self.pool.take(None);
        let len = usize::try_from(header.plain_len).unwrap_or(usize::MAX).min(slab.room().len());
        slab.advance(len);
        self.blocks
            .decode(codec, stored, &mut slab)
            .map_err(|error| Undecoded::Codec(header.place(), error))?;
        Ok(vec![slab.freeze()])
    }
}

fn block_codec(codec: Codec) -> Option<BlockCodec> {
    BlockCodec::from_number(codec.number())
}
