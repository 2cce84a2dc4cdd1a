//! Opens the seal on the way down: takes ranges and returns the unsealed stream, in order.

use std::sync::Arc;

use bytes::Bytes;
use xb_encryptor::{Backend, DataKey, Opener, SEAL_HEAD_LEN, SealContext, SealError};
use xb_frame::{FrameError, STREAM_HEADER_LEN, StreamHeader, TRAILER_LEN};

use crate::flow::observer::Observer;
use crate::flow::ordered_pool::{Results, Submit, ordered};
use crate::flow::plan::{SLAB, UnpackPlan};
use crate::flow::slab::SlabPool;
use crate::flow::work::Work;
use crate::unpack::error::{NoMoreFrames, not_sealed};

/// A piece of the stream for a worker.
enum Job {
    /// Bytes outside the sealed body.
    Plain(Bytes),
    Segment {
        opener: Arc<Opener>,
        index: u64,
        last: bool,
        pieces: Vec<Bytes>,
    },
}

impl Job {
    /// Length of what is sealed.
    fn len(&self) -> u64 {
        match self {
            Self::Plain(_) => 0,
            Self::Segment { pieces, .. } => pieces.iter().map(|piece| piece.len() as u64).sum(),
        }
    }
}

/// The unsealed stream.
pub(crate) struct Unsealed {
    results: Results<Result<Bytes, SealError>>,
    feeder: Option<std::thread::JoinHandle<Result<(), NoMoreFrames>>>,
}

impl Unsealed {
    /// Starts to open the sealed stream in `ranges`, with segments in parallel.
    pub(crate) fn start<I>(
        ranges: I,
        key: Arc<DataKey>,
        plan: &UnpackPlan,
        observer: &Observer,
    ) -> std::io::Result<Self>
    where
        I: Iterator<Item = Option<Bytes>> + Send + 'static,
    {
        let observer = observer.clone();
        let pool = SlabPool::new(SLAB, 64);
        let open = move |job: Job| observer.working(Work::Open, job.len(), || open(job, &pool));
        let (submit, results) = ordered("open", plan.threads, plan.depth, open);
        let feeder = std::thread::Builder::new()
            .name("segments".into())
            .spawn(move || Splitter::new(key).feed(ranges, &submit))?;
        Ok(Self { results, feeder: Some(feeder) })
    }
}

impl Iterator for Unsealed {
    type Item = Result<Bytes, NoMoreFrames>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.results.recv() {
            Some(Ok(Ok(bytes))) => Some(Ok(bytes)),
            Some(Ok(Err(error))) => Some(Err(NoMoreFrames::Seal(error))),
            Some(Err(died)) => Some(Err(NoMoreFrames::Worker(died))),
            None => match self.feeder.take()?.join() {
                Ok(Ok(())) => None,
                Ok(Err(stop)) => Some(Err(stop)),
                Err(_) => Some(Err(NoMoreFrames::Worker(crate::flow::ordered_pool::WorkerDied))),
            },
        }
    }
}

/// Opens one segment; called by a worker.
fn open(job: Job, pool: &SlabPool) -> Result<Bytes, SealError> {
    match job {
        Job::Plain(bytes) => Ok(bytes),
        Job::Segment { opener, index, last, pieces } => {
            open_segment(&opener, index, last, &pieces, pool)
        }
    }
}

/// Opens a segment that has arrived in `pieces`, to a slab of `pool`. Only a segment that lies in
/// two ranges is copied first.
pub(crate) fn open_segment(
    opener: &Opener,
    index: u64,
    last: bool,
    pieces: &[Bytes],
    pool: &SlabPool,
) -> Result<Bytes, SealError> {
    let mut slab = pool.take(None);
    if let [whole] = pieces {
        let plain = opener.open_segment_into(index, last, whole, slab.room())?;
        slab.advance(plain);
    } else {
        pieces.iter().for_each(|piece| slab.fill_from(&mut &piece[..]));
        let plain = opener.open_segment(index, last, &mut slab)?;
        slab.truncate(plain);
    }
    Ok(slab.freeze())
}

/// Finds the segments. The end of the stream is not known in advance, so the splitter always holds
/// back the length of a trailer, and a segment until more bytes than both have arrived.
struct Splitter {
    key: Arc<DataKey>,
    /// Bytes not yet passed on, in pieces of the ranges.
    held: Vec<Bytes>,
    held_len: usize,
    opener: Option<Arc<Opener>>,
    index: u64,
}

impl Splitter {
    fn new(key: Arc<DataKey>) -> Self {
        Self { key, held: Vec::new(), held_len: 0, opener: None, index: 0 }
    }

    /// Takes the first `len` of the held bytes, or all of fewer.
    fn take(&mut self, len: usize) -> Vec<Bytes> {
        let (mut taken, mut left) = (Vec::new(), len);
        while left > 0 && !self.held.is_empty() {
            let first = &mut self.held[0];
            let piece = first.split_to(left.min(first.len()));
            if first.is_empty() {
                self.held.remove(0);
            }
            left -= piece.len();
            self.held_len -= piece.len();
            taken.push(piece);
        }
        taken
    }

    /// Takes all held bytes as one piece. They are few.
    fn take_joined(&mut self) -> Bytes {
        self.take(self.held_len).concat().into()
    }

    fn feed(
        mut self,
        ranges: impl Iterator<Item = Option<Bytes>>,
        submit: &Submit<Job, Result<Bytes, SealError>>,
    ) -> Result<(), NoMoreFrames> {
        for range in ranges {
            let Some(mut input) = range else { return Err(NoMoreFrames::Source) };
            while !input.is_empty() {
                let room = self.wanted() - self.held_len;
                let now = input.split_to(room.min(input.len()));
                self.held_len += now.len();
                self.held.push(now);
                // One more byte shows that this is not the end of the stream.
                if self.held_len == self.wanted() && !input.is_empty() {
                    self.full(submit)?;
                }
            }
        }
        self.end(submit)
    }

    /// Number of bytes to hold before something can be passed on.
    fn wanted(&self) -> usize {
        match &self.opener {
            None => STREAM_HEADER_LEN + SEAL_HEAD_LEN,
            Some(_) => self.segment_len() + TRAILER_LEN,
        }
    }

    /// Length of the current segment when it is full, tag included.
    fn segment_len(&self) -> usize {
        if self.index == 0 { SLAB - SEAL_HEAD_LEN } else { SLAB }
    }

    /// Handles a full buffer that is followed by more bytes.
    fn full(&mut self, submit: &Submit<Job, Result<Bytes, SealError>>) -> Result<(), NoMoreFrames> {
        if self.opener.is_none() {
            return self.begin(submit);
        }
        let len = self.segment_len();
        self.segment(len, false, submit)
    }

    fn begin(
        &mut self,
        submit: &Submit<Job, Result<Bytes, SealError>>,
    ) -> Result<(), NoMoreFrames> {
        let truncated = || FrameError::Truncated {
            place: xb_frame::ErrorLocation { part: xb_frame::Part::StreamHeader, position: 0 },
        };
        let front = self.take_joined();
        let Some((header, head)) = front.split_at_checked(STREAM_HEADER_LEN) else {
            return Err(NoMoreFrames::Frame(truncated()));
        };
        let stream = StreamHeader::parse(header)?;
        let Some(commitment) = stream.key_commitment() else { return Err(not_sealed()) };
        let Ok(head) = head.try_into() else { return Err(NoMoreFrames::Frame(truncated())) };
        let context = SealContext { stream_id: stream.id().0, commitment: *commitment, header };
        let opener = Opener::new(&self.key, &context, head, Backend::default())
            .map_err(NoMoreFrames::Seal)?;
        submit.send(Job::Plain(front.slice_ref(header)))?;
        self.opener = Some(Arc::new(opener));
        Ok(())
    }

    fn segment(
        &mut self,
        len: usize,
        last: bool,
        submit: &Submit<Job, Result<Bytes, SealError>>,
    ) -> Result<(), NoMoreFrames> {
        let Some(opener) = self.opener.clone() else { return Ok(()) };
        let pieces = self.take(len);
        submit.send(Job::Segment { opener, index: self.index, last, pieces })?;
        self.index += 1;
        Ok(())
    }

    /// Ends the input: the buffer holds the last segment and the trailer.
    fn end(mut self, submit: &Submit<Job, Result<Bytes, SealError>>) -> Result<(), NoMoreFrames> {
        if self.opener.is_none() {
            if self.held_len < STREAM_HEADER_LEN + SEAL_HEAD_LEN {
                // The reader of frames reports how far the stream got.
                submit.send(Job::Plain(self.take_joined()))?;
                return Ok(());
            }
            self.begin(submit)?;
        }
        // Too short for a trailer, so there is none, and the last segment is unknown.
        let last = self.held_len.saturating_sub(TRAILER_LEN);
        if last > 0 {
            self.segment(last, true, submit)?;
        }
        submit.send(Job::Plain(self.take_joined()))?;
        Ok(())
    }
}
