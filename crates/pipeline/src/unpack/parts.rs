//! Unpacks selected parts of a native stream: body ranges → segments opened → frames → decoded in
//! parallel → plain bytes with their offsets, in order.
//!
//! A caller that knows from the index where frames are asks a [`Body`] which bytes of the stored
//! stream to fetch for them, and passes the fetched bytes back.

use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::{Bytes, BytesMut};
use xb_encryptor::{
    Backend, DataKey, Opener, SEAL_HEAD_LEN, SealContext, SealError, SegmentLayout,
};
use xb_frame::{
    ErrorLocation, FRAME_HEADER_LEN, FrameError, FrameHeader, Kind, Part, STREAM_HEADER_LEN,
    StreamHeader, TRAILER_LEN,
};

use crate::flow::hold_ups::Wait;
use crate::flow::observer::Observer;
use crate::flow::ordered_pool::{Submit, WorkerDied, ordered, ordered_by};
use crate::flow::plan::{SLAB, UnpackPlan};
use crate::flow::slab::SlabPool;
use crate::flow::work::Work;
use crate::unpack::error::{NoMoreFrames, UnpackError};
use crate::unpack::frame_decoder::{Frame, FrameDecodeError, FrameDecoder};
use crate::unpack::unseal::open_segment;

/// Length in bytes of the start of a stored stream that [`Body::open`] needs.
pub const FRONT_LEN: usize = STREAM_HEADER_LEN + SEAL_HEAD_LEN;

/// Body of a stored stream, for access to any part.
#[derive(Debug, Clone)]
pub struct Body {
    header: StreamHeader,
    opener: Option<Arc<Opener>>,
    /// Length without the seal.
    len: u64,
}

/// Reason why a stored stream cannot be read in parts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The header is damaged, or a frame is not where it should be.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The key is wrong, or the bytes were changed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The stream is sealed and no key was given, or the other way round.
    #[error("{}", if *.sealed { "it is sealed, but there is no key" } else { "it is not sealed, but there is a key" })]
    Key {
        /// Whether the stream is sealed.
        sealed: bool,
    },
    /// No stream can have this length.
    #[error("a stream cannot be {len} bytes long")]
    Length {
        /// Length in bytes.
        len: u64,
    },
}

impl Body {
    /// Reads the start of a stored stream that is `stream_len` bytes long. `front` must have
    /// [`FRONT_LEN`] bytes, or all bytes of a shorter stream.
    ///
    /// # Errors
    /// [`BodyError`].
    pub fn open(front: &[u8], stream_len: u64, key: Option<&DataKey>) -> Result<Self, BodyError> {
        let cut = || FrameError::Truncated { place: at(Part::StreamHeader, 0) };
        let Some((start, rest)) = front.split_at_checked(STREAM_HEADER_LEN) else {
            return Err(cut().into());
        };
        let header = StreamHeader::parse(start)?;
        let bad_len = || BodyError::Length { len: stream_len };
        let stored =
            stream_len.checked_sub((STREAM_HEADER_LEN + TRAILER_LEN) as u64).ok_or_else(bad_len)?;
        let (opener, len) = match (header.key_commitment(), key) {
            (None, None) => (None, stored),
            (Some(commitment), Some(key)) => {
                let head = rest.first_chunk().ok_or_else(cut)?;
                let context = SealContext {
                    stream_id: header.id().0,
                    commitment: *commitment,
                    header: start,
                };
                let opener = Opener::new(key, &context, head, Backend::default())?;
                (Some(Arc::new(opener)), LAYOUT.plain_len(stored).ok_or_else(bad_len)?)
            }
            (commitment, _) => return Err(BodyError::Key { sealed: commitment.is_some() }),
        };
        Ok(Self { header, opener, len })
    }

    /// Header of the stream.
    #[must_use]
    pub fn header(&self) -> &StreamHeader {
        &self.header
    }

    /// Length of the body in bytes, without the seal.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the body is empty, which no valid stream is: it always has an end frame.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Ranges of the stored stream that are needed for the body ranges `runs`, in order and without
    /// overlap. `runs` must be in order and not overlap, each must not be empty, and all must lie
    /// within the body.
    #[must_use]
    pub fn stored(&self, runs: &[Range<u64>]) -> Vec<Range<u64>> {
        self.spans(runs).into_iter().map(|span| span.stored).collect()
    }

    /// Returns the bytes of one body range from the bytes that [`Body::stored`] names for it.
    ///
    /// # Errors
    /// [`SealError`] if the seal does not match; [`FrameError::Truncated`] if `stored` is too
    /// short.
    pub fn plain(&self, run: &Range<u64>, stored: &[u8]) -> Result<Bytes, BodyError> {
        let cut = || BodyError::Frame(FrameError::Truncated { place: at(Part::Index, run.start) });
        let Some(span) = self.spans(std::slice::from_ref(run)).pop() else { return Err(cut()) };
        let mut plain = BytesMut::new();
        match &self.opener {
            None => plain.extend_from_slice(stored),
            Some(opener) => {
                let mut rest = stored;
                for segment in self.segments(&span) {
                    let (now, later) = rest.split_at_checked(segment.len).ok_or_else(cut)?;
                    rest = later;
                    let begin = plain.len();
                    plain.resize(begin + segment.len, 0);
                    let room = plain.get_mut(begin..).unwrap_or_default();
                    let len = opener.open_segment_into(segment.index, segment.last, now, room)?;
                    plain.truncate(begin + len);
                }
            }
        }
        let from = usize::try_from(run.start - span.body.start).map_err(|_| cut())?;
        let len = usize::try_from(run.end - run.start).map_err(|_| cut())?;
        let plain = plain.freeze();
        match from.checked_add(len) {
            Some(end) if end <= plain.len() => Ok(plain.slice(from..end)),
            _ => Err(cut()),
        }
    }

    fn spans(&self, runs: &[Range<u64>]) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        let front = STREAM_HEADER_LEN as u64;
        for run in runs.iter().filter(|run| !run.is_empty()) {
            if self.opener.is_none() {
                let stored = run.start + front..run.end + front;
                match spans.last_mut() {
                    Some(last) if last.body.end == run.start => {
                        last.body.end = run.end;
                        last.stored.end = stored.end;
                    }
                    _ => spans.push(Span { body: run.clone(), stored }),
                }
                continue;
            }
            let (first, last) = (LAYOUT.locate(run.start).index, LAYOUT.locate(run.end - 1).index);
            let (head, tail) =
                (LAYOUT.plain_range(first, self.len).start, LAYOUT.plain_range(last, self.len).end);
            let end = LAYOUT.sealed_range(last, self.len).end + front;
            match spans.last_mut() {
                Some(span) if span.body.end >= head => {
                    span.body.end = span.body.end.max(tail);
                    span.stored.end = span.stored.end.max(end);
                }
                _ => {
                    let start = LAYOUT.sealed_range(first, self.len).start + front;
                    spans.push(Span { body: head..tail, stored: start..end });
                }
            }
        }
        spans
    }

    /// Segments of a span.
    fn segments(&self, span: &Span) -> impl Iterator<Item = Segment> + use<> {
        let (start, end, len) = (span.body.start, span.body.end, self.len);
        let mut index = LAYOUT.locate(start).index;
        std::iter::from_fn(move || {
            let plain = LAYOUT.plain_range(index, len);
            if plain.is_empty() || plain.start >= end {
                return None;
            }
            let sealed = LAYOUT.sealed_range(index, len);
            let segment = Segment {
                index,
                last: plain.end == len,
                start: plain.start,
                len: usize::try_from(sealed.end - sealed.start).unwrap_or(usize::MAX),
            };
            index += 1;
            Some(segment)
        })
    }
}

const LAYOUT: SegmentLayout = SegmentLayout::NATIVE;

/// A piece of the body that is fetched at once.
#[derive(Debug, Clone)]
struct Span {
    body: Range<u64>,
    stored: Range<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    index: u64,
    last: bool,
    /// Body position of the segment's first byte.
    start: u64,
    /// Sealed length, tag included.
    len: usize,
}

fn at(part: Part, position: u64) -> ErrorLocation {
    ErrorLocation { part, position }
}

/// Bytes of the body and their position.
type Positioned = (u64, Bytes);

/// A piece of the stored stream for a worker.
enum Job {
    Plain(Positioned),
    Segment { opener: Arc<Opener>, segment: Segment, bytes: Vec<Bytes>, pool: SlabPool },
}

impl Job {
    /// Length of what is sealed.
    fn len(&self) -> u64 {
        match self {
            Self::Plain(_) => 0,
            Self::Segment { bytes, .. } => bytes.iter().map(|piece| piece.len() as u64).sum(),
        }
    }
}

fn open(job: Job) -> Result<Positioned, SealError> {
    match job {
        Job::Plain(piece) => Ok(piece),
        Job::Segment { opener, segment, bytes, pool } => {
            let plain = open_segment(&opener, segment.index, segment.last, &bytes, &pool)?;
            Ok((segment.start, plain))
        }
    }
}

/// Takes the bytes that [`Body::stored`] names for `runs`, in order and in pieces of any length,
/// and passes the plain bytes of all data frames in these runs to `sink`, with their offset in the
/// source, in order. Each run must start and end at a frame boundary.
///
/// A `None` item of `ranges` means that the source has failed. Only frames of source 0 are passed
/// on. Every byte passed to `sink` has been checked by checksum or seal; only `Ok` proves that all
/// requested bytes were passed on.
///
/// # Errors
/// [`UnpackError`], the first cause.
pub fn unpack_parts<I, S, E>(
    ranges: I,
    body: &Body,
    runs: Vec<Range<u64>>,
    plan: &UnpackPlan,
    observer: &Observer,
    mut sink: S,
) -> Result<(), UnpackError<E>>
where
    I: Iterator<Item = Option<Bytes>> + Send + 'static,
    S: FnMut(u64, Bytes) -> Result<(), E>,
{
    let pool = SlabPool::new(SLAB, plan.depth + 2);
    let (submit, mut results) = ordered_by("frame", plan.threads, plan.depth, || {
        let mut decoder = FrameDecoder::new(pool.clone());
        let observer = observer.clone();
        move |frame: Frame| {
            let (offset, bytes) = (frame.header.plain_offset, frame.len());
            (offset, observer.working(Work::Decode, bytes, || decoder.decode(frame)))
        }
    });
    let counting = observer.clone();
    let counted = ranges
        .inspect(move |range| counting.add_stored(range.as_ref().map_or(0, |r| r.len() as u64)));
    let working = observer.clone();
    let open = move |job: Job| working.working(Work::Open, job.len(), || open(job));
    let (to_open, mut opened) = ordered("open", plan.threads, plan.depth, open);
    let spans = body.spans(&runs);
    let splitting = body.clone();
    let splitter: JoinHandle<Result<(), NoMoreFrames>> = std::thread::Builder::new()
        .name("segments".into())
        .spawn(move || split(counted, &splitting, &spans, &to_open))
        .map_err(UnpackError::Thread)?;
    let (header, observing) = (body.header.clone(), observer.clone());
    let finder: JoinHandle<Result<(), NoMoreFrames>> = std::thread::Builder::new()
        .name("frames".into())
        .spawn(move || {
            let pieces = std::iter::from_fn(|| opened.recv());
            let found = find(pieces, &header, &runs, &submit, &observing);
            drop(opened);
            // If the splitter stopped, too few bytes arrived, and the splitter has the cause.
            let split = splitter.join().unwrap_or(Err(NoMoreFrames::Worker(WorkerDied)));
            match (found, split) {
                (Err(NoMoreFrames::Source), Err(cause)) => Err(cause),
                (found, _) => found,
            }
        })
        .map_err(UnpackError::Thread)?;
    let mut outcome = Ok(());
    while let Some(result) = results.recv() {
        outcome = match result {
            Err(died) => Err(UnpackError::Worker(died)),
            Ok((_, Err(undecoded))) => Err(undecoded.into()),
            Ok((mut offset, Ok(pieces))) => pieces.into_iter().try_for_each(|piece| {
                let len = piece.len() as u64;
                let taken =
                    observer.waiting(Wait::Sink, || sink(offset, piece)).map_err(UnpackError::Sink);
                offset += len;
                taken
            }),
        };
        if outcome.is_err() {
            break;
        }
    }
    drop(results);
    outcome?;
    Ok(finder.join().unwrap_or(Err(NoMoreFrames::Worker(WorkerDied)))?)
}

/// Cuts the fetched bytes into segments for the workers.
fn split(
    mut ranges: impl Iterator<Item = Option<Bytes>>,
    body: &Body,
    spans: &[Span],
    submit: &Submit<Job, Result<Positioned, SealError>>,
) -> Result<(), NoMoreFrames> {
    let mut held = Bytes::new();
    // Returns at most `most` of the next bytes.
    let mut take = |most: usize| -> Result<Bytes, NoMoreFrames> {
        while held.is_empty() {
            held = ranges.next().flatten().ok_or(NoMoreFrames::Source)?;
        }
        Ok(held.split_to(most.min(held.len())))
    };
    let pool = SlabPool::new(SLAB, 64);
    for span in spans {
        match &body.opener {
            None => {
                let mut position = span.body.start;
                while position < span.body.end {
                    let left = usize::try_from(span.body.end - position).unwrap_or(usize::MAX);
                    let piece = take(left)?;
                    let begin = position;
                    position += piece.len() as u64;
                    submit.send(Job::Plain((begin, piece)))?;
                }
            }
            Some(opener) => {
                for segment in body.segments(span) {
                    let (mut bytes, mut left) = (Vec::new(), segment.len);
                    while left > 0 {
                        let piece = take(left)?;
                        left -= piece.len();
                        bytes.push(piece);
                    }
                    let (opener, pool) = (Arc::clone(opener), pool.clone());
                    submit.send(Job::Segment { opener, segment, bytes, pool })?;
                }
            }
        }
    }
    Ok(())
}

/// Finds the frames of the runs, and passes data frames to the workers.
fn find(
    mut pieces: impl Iterator<Item = Result<Result<Positioned, SealError>, WorkerDied>>,
    stream: &StreamHeader,
    runs: &[Range<u64>],
    submit: &Submit<Frame, (u64, Result<Vec<Bytes>, FrameDecodeError>)>,
    observer: &Observer,
) -> Result<(), NoMoreFrames> {
    // The current piece and its position; bytes before a run are skipped.
    let mut held: Positioned = (0, Bytes::new());
    let mut take = |position: u64, most: usize| -> Result<Bytes, NoMoreFrames> {
        loop {
            let end = held.0 + held.1.len() as u64;
            if held.0 <= position && position < end {
                let skip = usize::try_from(position - held.0).unwrap_or(usize::MAX);
                let _ = held.1.split_to(skip.min(held.1.len()));
                let piece = held.1.split_to(most.min(held.1.len()));
                held.0 = position + piece.len() as u64;
                return Ok(piece);
            }
            held = match observer.waiting(Wait::Source, || pieces.next()) {
                Some(Ok(Ok(piece))) => piece,
                Some(Ok(Err(error))) => return Err(NoMoreFrames::Seal(error)),
                Some(Err(died)) => return Err(NoMoreFrames::Worker(died)),
                None => return Err(NoMoreFrames::Source),
            };
        }
    };
    let most = u32::try_from(SLAB).unwrap_or(u32::MAX);
    if stream.max_plain() > most {
        return Err(NoMoreFrames::Frame(FrameError::Range {
            place: at(Part::StreamHeader, 0),
            field: "largest plain length of a frame",
            min: 1,
            max: most.into(),
            got: stream.max_plain().into(),
        }));
    }
    for run in runs {
        let mut position = run.start;
        while position < run.end {
            let mut head = [0; FRAME_HEADER_LEN];
            let mut filled = 0;
            while filled < head.len() {
                let piece = take(position + filled as u64, head.len() - filled)?;
                head[filled..filled + piece.len()].copy_from_slice(&piece);
                filled += piece.len();
            }
            let header = FrameHeader::parse(&head, stream, position)?;
            let end = position + header.frame_len();
            if end > run.end {
                return Err(NoMoreFrames::Frame(FrameError::Truncated { place: header.place() }));
            }
            position += FRAME_HEADER_LEN as u64;
            let mut payload = Vec::new();
            while position < end {
                let left = usize::try_from(end - position).unwrap_or(usize::MAX);
                let piece = take(position, left)?;
                position += piece.len() as u64;
                payload.push(piece);
            }
            if header.kind == Kind::Data && header.source == 0 {
                observer.waiting(Wait::Workers, || {
                    submit.send(Frame { header, payload, crc32c: None })
                })?;
            }
        }
    }
    Ok(())
}
