//! From frames to the packer: as they are, or side by side in segments that are sealed.

use std::thread::JoinHandle;

use bytes::Bytes;
use xb_encryptor::{SealError, Sealer, SegmentToSeal, TAG_LEN};
use xb_frame::{FRAME_HEADER_LEN, StreamHeader, Tail};

use crate::flow::checksum;
use crate::flow::ordered_pool::{Closed, Results, Submit, WorkerDied, ordered};
use crate::flow::plan::{PutPlan, SLAB};
use crate::flow::slab::{Slab, SlabPool};
use crate::pack::PutError;
use crate::pack::coalesce::Gather;
use crate::pack::packer::{Packed, Packer, PartSink};

/// Takes the bytes of one stream in order.
#[derive(Debug)]
pub(crate) enum Body<S> {
    /// Frames that no codec touched go on in the slab they were read into.
    Direct { packer: Packer, sink: S },
    /// The body is copied together into segments; workers seal them and sum them up.
    Dense(Dense),
}

#[derive(Debug)]
pub(crate) struct Dense {
    gather: Gather,
    sealer: Option<Sealer>,
    segments: Submit<Segment, Result<Segmented, SealError>>,
    cutter: JoinHandle<Result<Packed, PutError>>,
}

#[derive(Debug)]
enum Segment {
    /// Bytes outside the body.
    Plain(Bytes),
    /// A piece of the body.
    Body(Slab, Option<SegmentToSeal>),
}

#[derive(Debug)]
struct Segmented {
    bytes: Bytes,
    crc64: u64,
}

impl<S: PartSink + Send + 'static> Body<S> {
    /// Bytes go to the packer as they come.
    pub(crate) fn direct(plan: &PutPlan, sink: S) -> Self {
        Self::Direct { packer: Packer::new(plan.chunk, plan.part), sink }
    }

    /// Bytes go into segments, which `sealer` seals where there is one.
    pub(crate) fn dense(
        plan: &PutPlan,
        sealer: Option<Sealer>,
        pool: SlabPool,
        mut sink: S,
    ) -> std::io::Result<Self> {
        let (segments, sealed) = ordered("seal", plan.threads, plan.depth, seal);
        let mut packer = Packer::new(plan.chunk, plan.part);
        let cutter = std::thread::Builder::new().name("cut".into()).spawn(move || {
            cut(sealed, &mut packer, &mut sink)?;
            Ok(packer.finish(&mut sink)?)
        })?;
        let (first, then) = match &sealer {
            Some(sealer) => (sealer.capacity(), SLAB - TAG_LEN),
            None => (SLAB, SLAB),
        };
        Ok(Self::Dense(Dense { gather: Gather::new(pool, first, then), sealer, segments, cutter }))
    }

    /// The stream's header, which stands before the body.
    pub(crate) fn header(&mut self, header: &StreamHeader) -> Result<(), PutError> {
        let header = Bytes::copy_from_slice(&header.encode());
        match self {
            Self::Direct { packer, sink } => packer.push(header, None, sink)?,
            Self::Dense(dense) => {
                dense.segments.send(Segment::Plain(header))?;
                if let Some(sealer) = &dense.sealer {
                    dense.segments.send(Segment::Plain(Bytes::copy_from_slice(&sealer.head())))?;
                }
            }
        }
        Ok(())
    }

    /// A data frame.
    pub(crate) fn frame(
        &mut self,
        header: &[u8; FRAME_HEADER_LEN],
        mut payload: Slab,
        crc64: u64,
    ) -> Result<(), PutError> {
        match self {
            Self::Direct { packer, sink } => {
                packer.push(Bytes::copy_from_slice(header), None, sink)?;
                packer.push(payload.freeze(), Some(crc64), sink)?;
            }
            Self::Dense(dense) => {
                dense.push(header, None)?;
                let permit = payload.take_permit();
                dense.push(&payload, permit)?;
            }
        }
        Ok(())
    }

    /// A frame of ours, whole.
    pub(crate) fn own(&mut self, frame: Vec<u8>) -> Result<(), PutError> {
        match self {
            Self::Direct { packer, sink } => Ok(packer.push(frame.into(), None, sink)?),
            Self::Dense(dense) => dense.push(&frame, None),
        }
    }

    /// The end of the body and what follows it.
    pub(crate) fn finish(self, tail: Tail) -> Result<Packed, PutError> {
        match self {
            Self::Direct { mut packer, mut sink } => {
                packer.push(Bytes::from(tail.bytes), None, &mut sink)?;
                Ok(packer.finish(&mut sink)?)
            }
            Self::Dense(mut dense) => {
                dense.push(tail.body(), None)?;
                let Dense { gather, mut sealer, segments, cutter } = dense;
                // The end frame is never empty, so there is a last segment.
                if let Some(slab) = gather.finish() {
                    segments.send(segment(slab, &mut sealer, true)?)?;
                }
                segments.send(Segment::Plain(Bytes::copy_from_slice(tail.trailer())))?;
                drop(segments);
                cutter.join().unwrap_or(Err(PutError::Worker(WorkerDied)))
            }
        }
    }

    /// Why a call answered [`PutError::Closed`], when the cause lies here and not behind.
    pub(crate) fn cause(self) -> PutError {
        match self {
            Self::Direct { .. } => PutError::Closed(Closed),
            Self::Dense(Dense { segments, cutter, .. }) => {
                drop(segments);
                match cutter.join() {
                    Ok(Ok(_)) => PutError::Closed(Closed),
                    Ok(Err(cause)) => cause,
                    Err(_) => PutError::Worker(WorkerDied),
                }
            }
        }
    }
}

impl Dense {
    fn push(
        &mut self,
        bytes: &[u8],
        permit: Option<crate::flow::budget::Permit>,
    ) -> Result<(), PutError> {
        let Self { gather, sealer, segments, .. } = self;
        gather.push(bytes, permit, |slab| Ok(segments.send(segment(slab, sealer, false)?)?))
    }
}

/// Takes the next segment's number: numbers are given in order, sealing is done in any.
fn segment(slab: Slab, sealer: &mut Option<Sealer>, last: bool) -> Result<Segment, PutError> {
    let right = sealer.as_mut().map(|sealer| sealer.next_segment(last)).transpose()?;
    Ok(Segment::Body(slab, right))
}

/// The work of a worker.
fn seal(segment: Segment) -> Result<Segmented, SealError> {
    let bytes = match segment {
        Segment::Plain(bytes) => bytes,
        Segment::Body(slab, None) => slab.freeze(),
        Segment::Body(mut slab, Some(right)) => {
            slab.advance(TAG_LEN);
            right.seal(&mut slab)?;
            slab.freeze()
        }
    };
    Ok(Segmented { crc64: checksum::crc64(&bytes), bytes })
}

fn cut(
    mut sealed: Results<Result<Segmented, SealError>>,
    packer: &mut Packer,
    sink: &mut impl PartSink,
) -> Result<(), PutError> {
    while let Some(segmented) = sealed.recv() {
        let Segmented { bytes, crc64 } = segmented??;
        packer.push(bytes, Some(crc64), sink)?;
    }
    Ok(())
}
