//! Opens the seal on the way down: takes ranges and returns the unsealed stream, in order.

use std::sync::Arc;

use bytes::Bytes;
use xb_encryptor::{Backend, DataKey, Opener, SEAL_HEAD_LEN, SealContext, SealError};
use xb_frame::{FrameError, STREAM_HEADER_LEN, StreamHeader, TRAILER_LEN};

use crate::flow::observer::Observer;
use crate::flow::ordered_pool::{Results, Submit, ordered};
use crate::flow::plan::{SLAB, UnpackPlan};
use crate::flow::slab::{Slab, SlabPool};
use crate::flow::work::Work;
use crate::unpack::error::{Stop, not_sealed};

/// A piece of the stream for a worker.
enum Job {
    /// Bytes outside the sealed body.
    Plain(Bytes),
    Segment {
        opener: Arc<Opener>,
        index: u64,
        last: bool,
        slab: Slab,
    },
}

impl Job {
    /// Length of what is sealed.
    fn len(&self) -> u64 {
        match self {
            Self::Plain(_) => 0,
            Self::Segment { slab, .. } => slab.len() as u64,
        }
    }
}

/// The unsealed stream.
pub(crate) struct Unsealed {
    results: Results<Result<Bytes, SealError>>,
    feeder: Option<std::thread::JoinHandle<Result<(), Stop>>>,
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
        let open = move |job: Job| observer.working(Work::Open, job.len(), || open(job));
        let (submit, results) = ordered("open", plan.threads, plan.depth, open);
        let feeder = std::thread::Builder::new()
            .name("segments".into())
            .spawn(move || Splitter::new(key).feed(ranges, &submit))?;
        Ok(Self { results, feeder: Some(feeder) })
    }
}

impl Iterator for Unsealed {
    type Item = Result<Bytes, Stop>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.results.recv() {
            Some(Ok(Ok(bytes))) => Some(Ok(bytes)),
            Some(Ok(Err(error))) => Some(Err(Stop::Seal(error))),
            Some(Err(died)) => Some(Err(Stop::Worker(died))),
            None => match self.feeder.take()?.join() {
                Ok(Ok(())) => None,
                Ok(Err(stop)) => Some(Err(stop)),
                Err(_) => Some(Err(Stop::Worker(crate::flow::ordered_pool::WorkerDied))),
            },
        }
    }
}

/// Opens one segment; called by a worker.
fn open(job: Job) -> Result<Bytes, SealError> {
    match job {
        Job::Plain(bytes) => Ok(bytes),
        Job::Segment { opener, index, last, mut slab } => {
            let plain = opener.open_segment(index, last, &mut slab)?;
            slab.truncate(plain);
            Ok(slab.freeze())
        }
    }
}

/// Finds the segments. The end of the stream is not known in advance, so the splitter always holds
/// back the length of a trailer, and a segment until more bytes than both have arrived.
struct Splitter {
    key: Arc<DataKey>,
    pool: SlabPool,
    /// Bytes not yet passed on. A segment is collected in the slab in which it is opened later.
    held: Slab,
    opener: Option<Arc<Opener>>,
    index: u64,
}

impl Splitter {
    fn new(key: Arc<DataKey>) -> Self {
        let pool = SlabPool::new(SLAB + TRAILER_LEN, 64);
        Self { key, held: pool.take(None), pool, opener: None, index: 0 }
    }

    fn feed(
        mut self,
        ranges: impl Iterator<Item = Option<Bytes>>,
        submit: &Submit<Job, Result<Bytes, SealError>>,
    ) -> Result<(), Stop> {
        for range in ranges {
            let Some(range) = range else { return Err(Stop::Source) };
            let mut input = &range[..];
            while !input.is_empty() {
                let room = self.wanted() - self.held.len();
                let (mut now, later) = input.split_at(room.min(input.len()));
                self.held.fill_from(&mut now);
                input = later;
                // One more byte shows that this is not the end of the stream.
                if self.held.len() == self.wanted() && !input.is_empty() {
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
    fn full(&mut self, submit: &Submit<Job, Result<Bytes, SealError>>) -> Result<(), Stop> {
        if self.opener.is_none() {
            return self.begin(submit);
        }
        let len = self.segment_len();
        self.segment(len, false, submit)
    }

    fn begin(&mut self, submit: &Submit<Job, Result<Bytes, SealError>>) -> Result<(), Stop> {
        let truncated = || FrameError::Truncated {
            place: xb_frame::ErrorLocation { part: xb_frame::Part::StreamHeader, position: 0 },
        };
        let Some((header, head)) = self.held.split_at_checked(STREAM_HEADER_LEN) else {
            return Err(Stop::Frame(truncated()));
        };
        let stream = StreamHeader::parse(header)?;
        let Some(commitment) = stream.key_commitment() else { return Err(not_sealed()) };
        let Ok(head) = head.try_into() else { return Err(Stop::Frame(truncated())) };
        let context = SealContext { stream_id: stream.id().0, commitment: *commitment, header };
        let opener =
            Opener::new(&self.key, &context, head, Backend::default()).map_err(Stop::Seal)?;
        submit.send(Job::Plain(Bytes::copy_from_slice(header)))?;
        self.opener = Some(Arc::new(opener));
        self.held.truncate(0);
        Ok(())
    }

    fn segment(
        &mut self,
        len: usize,
        last: bool,
        submit: &Submit<Job, Result<Bytes, SealError>>,
    ) -> Result<(), Stop> {
        let Some(opener) = &self.opener else { return Ok(()) };
        let mut next = self.pool.take(None);
        next.fill_from(&mut &self.held[len..]);
        let mut slab = std::mem::replace(&mut self.held, next);
        slab.truncate(len);
        submit.send(Job::Segment { opener: Arc::clone(opener), index: self.index, last, slab })?;
        self.index += 1;
        Ok(())
    }

    /// Ends the input: the buffer holds the last segment and the trailer.
    fn end(mut self, submit: &Submit<Job, Result<Bytes, SealError>>) -> Result<(), Stop> {
        if self.opener.is_none() {
            if self.held.len() < STREAM_HEADER_LEN + SEAL_HEAD_LEN {
                // The reader of frames reports how far the stream got.
                submit.send(Job::Plain(self.held.freeze()))?;
                return Ok(());
            }
            self.begin(submit)?;
        }
        // Too short for a trailer, so there is none, and the last segment is unknown.
        let last = self.held.len().saturating_sub(TRAILER_LEN);
        if last > 0 {
            self.segment(last, true, submit)?;
        }
        submit.send(Job::Plain(self.held.freeze()))?;
        Ok(())
    }
}
