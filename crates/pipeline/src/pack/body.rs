//! Body of a native stream on its way to the packer: plain frames, or segments, which may be
//! sealed.

use std::thread::JoinHandle;

use bytes::Bytes;
use xb_encryptor::{SealError, Sealer, SegmentToSeal, TAG_LEN};
use xb_frame::{FRAME_HEADER_LEN, StreamHeader, Tail};

use crate::flow::checksum;
use crate::flow::ordered_pool::{Closed, Results, Submit, WorkerDied};
use crate::flow::plan::SLAB;
use crate::flow::slab::{Slab, SlabPool};
use crate::pack::coalesce::Coalescer;
use crate::pack::error::PackError;
use crate::pack::packer::{PackedTotals, Packer, PartSink};

/// Writes the bytes of one stream in order.
#[derive(Debug)]
pub(crate) enum Body<S> {
    /// Frames without a codec stay in the slab into which they were read.
    Direct { packer: Packer, sink: S },
    /// Frames are copied into segments, which workers seal and checksum. In a long run of frames
    /// that are neither compressed nor to be sealed, frames stay in their slab here, too.
    Segmented(Segments),
}

#[derive(Debug)]
pub(crate) struct Segments {
    coalescer: Coalescer,
    unchanged: Unchanged,
    sealer: Option<Sealer>,
    segments: ToSeal,
    cutter: JoinHandle<Result<PackedTotals, PackError>>,
}

/// Counts frames in a row that could stay in the slab they were read into.
///
/// Before such a frame, the slab that is being filled must be passed on, and a slab that is partly
/// filled occupies more memory than its lease. So the first frames of a row are copied: of `long`
/// slabs, at most one is partly filled.
#[derive(Debug)]
struct Unchanged {
    run: u64,
    long: u64,
}

/// Memory in bytes that partly filled slabs may occupy beyond their leases.
const UNPAID: u64 = 32 << 20;

impl Unchanged {
    /// Smallest number of frames that are copied.
    const SHORTEST: u64 = 8;

    /// Starts to count. All slabs together occupy `memory` bytes, a `long`-th of it at most in partly
    /// filled ones.
    fn new(memory: u64) -> Self {
        Self { run: 0, long: (memory / UNPAID).max(Self::SHORTEST) }
    }

    /// Adds a frame; returns whether it stays in its slab.
    fn stays(&mut self, could: bool) -> bool {
        self.run = if could { self.run + 1 } else { 0 };
        self.run > self.long
    }
}

/// Sender to the sealing workers.
pub(crate) type ToSeal = Submit<Segment, Sealed>;

/// Result of a sealing worker.
pub(crate) type Sealed = Result<SealedSegment, SealError>;

/// A job for a sealing worker: a piece of the body, and the right to seal it if it is to be sealed.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) slab: Slab,
    pub(crate) right: Option<SegmentToSeal>,
}

/// A segment as it is stored.
#[derive(Debug)]
pub(crate) struct SealedSegment {
    bytes: Bytes,
    crc64: u64,
    /// Whether the part ends here, however short it is.
    pass_on: bool,
}

impl SealedSegment {
    fn new(bytes: Bytes) -> Self {
        Self { crc64: checksum::crc64(&bytes), bytes, pass_on: false }
    }
}

impl<S: PartSink> Body<S> {
    /// Creates a body whose bytes go straight to the packer.
    pub(crate) fn direct(packer: Packer, sink: S) -> Self {
        Self::Direct { packer, sink }
    }

    /// Creates a body of segments, which may occupy `memory` bytes. `sealer`, if given, seals them;
    /// `cutter` passes them to the packer.
    pub(crate) fn segmented(
        pool: SlabPool,
        memory: u64,
        sealer: Option<Sealer>,
        segments: ToSeal,
        cutter: JoinHandle<Result<PackedTotals, PackError>>,
    ) -> Self {
        let (first, then) = match &sealer {
            Some(sealer) => (sealer.capacity(), SLAB - TAG_LEN),
            None => (SLAB, SLAB),
        };
        let coalescer = Coalescer::new(pool, first, then);
        let unchanged = Unchanged::new(memory);
        Self::Segmented(Segments { coalescer, unchanged, sealer, segments, cutter })
    }

    /// Writes the stream's header.
    pub(crate) fn header(&mut self, header: &StreamHeader) -> Result<(), PackError> {
        let header = Bytes::copy_from_slice(&header.encode());
        match self {
            Self::Direct { packer, sink } => packer.push(header, None, sink)?,
            Self::Segmented(body) => {
                body.plain(header, None)?;
                if let Some(sealer) = &body.sealer {
                    body.plain(Bytes::copy_from_slice(&sealer.head()), None)?;
                }
            }
        }
        Ok(())
    }

    /// Writes a data frame. `crc64` is known if the payload is neither compressed nor to be sealed.
    pub(crate) fn data_frame(
        &mut self,
        header: &[u8; FRAME_HEADER_LEN],
        mut payload: Slab,
        crc64: Option<u64>,
    ) -> Result<(), PackError> {
        match self {
            Self::Direct { packer, sink } => {
                packer.push(Bytes::copy_from_slice(header), None, sink)?;
                packer.push(payload.freeze(), crc64, sink)?;
            }
            Self::Segmented(body) => {
                if body.unchanged.stays(crc64.is_some() && payload.is_full()) {
                    body.flush()?;
                    body.plain(Bytes::copy_from_slice(header), None)?;
                    body.plain(payload.freeze(), crc64)?;
                } else {
                    body.push(header, None)?;
                    let permit = payload.take_permit();
                    body.push(&payload, permit)?;
                }
            }
        }
        Ok(())
    }

    /// Writes an index frame, header and payload.
    pub(crate) fn index_frame(&mut self, frame: Vec<u8>) -> Result<(), PackError> {
        match self {
            Self::Direct { packer, sink } => Ok(packer.push(frame.into(), None, sink)?),
            // In a long run, it must not begin a slab that the next frame would flush.
            Self::Segmented(body) if body.sealer.is_none() && body.coalescer.is_flushed() => {
                body.plain(frame.into(), None)
            }
            Self::Segmented(body) => body.push(&frame, None),
        }
    }

    /// Passes on everything written so far, in a part that may be short. A sealed body keeps it: its segments have one
    /// length.
    pub(crate) fn pass_on(&mut self) -> Result<(), PackError> {
        match self {
            Self::Direct { packer, sink } => Ok(packer.pass_on(sink)?),
            Self::Segmented(body) if body.sealer.is_none() => {
                body.flush()?;
                let end = SealedSegment { pass_on: true, ..SealedSegment::new(Bytes::new()) };
                Ok(body.segments.done(Ok(end))?)
            }
            Self::Segmented(_) => Ok(()),
        }
    }

    /// Writes the end of the body and the trailer.
    pub(crate) fn finish(self, tail: Tail) -> Result<PackedTotals, PackError> {
        match self {
            Self::Direct { mut packer, mut sink } => {
                packer.push(Bytes::from(tail.bytes), None, &mut sink)?;
                Ok(packer.finish(&mut sink)?)
            }
            Self::Segmented(mut body) => {
                body.push(tail.body(), None)?;
                let Segments { coalescer, mut sealer, segments, cutter, .. } = body;
                // The end frame is never empty, so there is a last segment.
                if let Some(slab) = coalescer.finish() {
                    segments.send(segment(slab, &mut sealer, true)?)?;
                }
                let trailer = Bytes::copy_from_slice(tail.trailer());
                segments.done(Ok(SealedSegment::new(trailer)))?;
                drop(segments);
                cutter.join().unwrap_or(Err(PackError::Worker(WorkerDied)))
            }
        }
    }

    /// Returns the cause of a [`PackError::Closed`] of this body.
    pub(crate) fn cause(self) -> PackError {
        match self {
            Self::Direct { .. } => PackError::Closed(Closed),
            Self::Segmented(Segments { segments, cutter, .. }) => {
                drop(segments);
                match cutter.join() {
                    Ok(Ok(_)) => PackError::Closed(Closed),
                    Ok(Err(cause)) => cause,
                    Err(_) => PackError::Worker(WorkerDied),
                }
            }
        }
    }
}

impl Segments {
    fn push(
        &mut self,
        bytes: &[u8],
        permit: Option<crate::flow::budget::Permit>,
    ) -> Result<(), PackError> {
        let Self { coalescer, sealer, segments, .. } = self;
        coalescer.push(bytes, permit, |slab| Ok(segments.send(segment(slab, sealer, false)?)?))
    }

    /// Passes the slab that is being filled on, so that other bytes can follow it.
    fn flush(&mut self) -> Result<(), PackError> {
        if let Some(slab) = self.coalescer.flush() {
            self.segments.send(segment(slab, &mut self.sealer, false)?)?;
        }
        Ok(())
    }

    /// Passes bytes on that stay as they are.
    fn plain(&mut self, bytes: Bytes, crc64: Option<u64>) -> Result<(), PackError> {
        let segment = match crc64 {
            Some(crc64) => SealedSegment { bytes, crc64, pass_on: false },
            None => SealedSegment::new(bytes),
        };
        Ok(self.segments.done(Ok(segment))?)
    }
}

/// Assigns the next segment number. Numbers are assigned in order; sealing happens in any order.
fn segment(slab: Slab, sealer: &mut Option<Sealer>, last: bool) -> Result<Segment, PackError> {
    let right = sealer.as_mut().map(|sealer| sealer.next_segment(last)).transpose()?;
    Ok(Segment { slab, right })
}

/// Seals one segment and computes its checksum.
pub(crate) fn seal(Segment { mut slab, right }: Segment) -> Sealed {
    if let Some(right) = right {
        slab.advance(TAG_LEN);
        right.seal(&mut slab)?;
    }
    Ok(SealedSegment::new(slab.freeze()))
}

/// Cuts the sealed segments into objects.
pub(crate) fn cut(
    mut sealed: Results<Sealed>,
    mut packer: Packer,
    mut sink: impl PartSink,
) -> Result<PackedTotals, PackError> {
    while let Some(segment) = sealed.recv() {
        let SealedSegment { bytes, crc64, pass_on } = segment??;
        packer.push(bytes, Some(crc64), &mut sink)?;
        if pass_on {
            packer.pass_on(&mut sink)?;
        }
    }
    Ok(packer.finish(&mut sink)?)
}
