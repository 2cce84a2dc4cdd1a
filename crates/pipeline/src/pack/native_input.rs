//! A native stream as input: it is cut into objects without changes.
//!
//! In an unsealed stream every checksum is checked. In a sealed stream only header and trailer can
//! be: that they belong together and match the length. The rest can only be proven with the key,
//! which may be elsewhere.

use std::io::Read;

use xb_frame::{
    ErrorLocation, Event, FrameError, Kind, Limits, Part as Where, STREAM_HEADER_LEN, StreamHeader,
    StreamReader, TRAILER_LEN, Trailer,
};

use crate::flow::budget::Budget;
use crate::flow::checksum::{self, Crc32c};
use crate::flow::hold_ups::Wait;
use crate::flow::observer::Observer;
use crate::flow::plan::{PackPlan, SLAB};
use crate::flow::slab::SlabPool;
use crate::pack::error::PackError;
use crate::pack::packer::{Packer, PartSink, watched};
use crate::pack::result::{PackHandle, PackOutput, PackResult};
use crate::scan::end_rule::EndProof;
use crate::scan::scanner::Scanned;

/// Starts to read a native stream from `source` and to pass parts of equal objects to `sink`, in a
/// thread of its own. The output of the result is [`PackOutput::Native`].
///
/// # Errors
/// The system cannot start a thread.
pub fn start_pack_native<R, S>(
    source: R,
    plan: PackPlan,
    budget: &Budget,
    observer: &Observer,
    sink: S,
) -> Result<PackHandle, PackError>
where
    R: Read + Send + 'static,
    S: PartSink + Send + 'static,
{
    let sink = watched(sink, observer);
    let (budget, observer) = (budget.clone(), observer.clone());
    let packer = std::thread::Builder::new()
        .name("pack".into())
        .spawn(move || pack_native(source, &plan, &budget, &observer, sink))
        .map_err(PackError::Thread)?;
    Ok(PackHandle { reader: None, packer })
}

fn pack_native(
    mut source: impl Read,
    plan: &PackPlan,
    budget: &Budget,
    observer: &Observer,
    mut sink: impl PartSink,
) -> Result<PackResult, PackError> {
    let pool = SlabPool::for_memory(SLAB, plan.memory);
    let mut packer = Packer::new(plan.object_size, plan.part_size);
    let mut ends = TrailerWindow::default();
    let mut proof = None;
    loop {
        let permit = observer.waiting(Wait::Sink, || budget.lease(SLAB as u64));
        let mut slab = pool.take(Some(permit));
        observer
            .waiting(Wait::Source, || slab.read_from(&mut source))
            .map_err(|source| PackError::Read { position: ends.len + slab.len() as u64, source })?;
        if slab.is_empty() {
            break;
        }
        ends.add(&slab);
        let proof = match &mut proof {
            Some(proof) => proof,
            // The first slab holds the whole header, unless the stream is shorter; then the check
            // at the end fails.
            None => proof.insert(StreamProof::of(&slab)?),
        };
        proof.check(&slab)?;
        observer.add_bytes(slab.len() as u64);
        let crc = checksum::crc64(&slab);
        packer.push(slab.freeze(), Some(crc), &mut sink)?;
    }
    let Some(StreamProof { header, reader }) = proof else {
        return Err(cut(Where::StreamHeader, 0));
    };
    let trailer = match reader {
        Some(reader) => Trailer::of(&reader.finish()?),
        None => ends.trailer(&header)?,
    };
    let packed = packer.finish(&mut sink)?;
    let scanned = Scanned::unread(packed.bytes, EndProof::Trailer);
    Ok(PackResult { scanned, output: PackOutput::Native { header, trailer, packed } })
}

fn cut(part: Where, position: u64) -> PackError {
    FrameError::Truncated { place: ErrorLocation { part, position } }.into()
}

/// Checks of the stream, as far as they are possible.
struct StreamProof {
    header: StreamHeader,
    /// Checks all frames of an unsealed stream.
    reader: Option<FrameChecker>,
}

impl StreamProof {
    fn of(start: &[u8]) -> Result<Self, PackError> {
        let Some(header) = start.first_chunk::<STREAM_HEADER_LEN>() else {
            return Err(cut(Where::StreamHeader, 0));
        };
        let header = StreamHeader::parse(header)?;
        let reader = (!header.is_sealed()).then(FrameChecker::default);
        Ok(Self { header, reader })
    }

    fn check(&mut self, bytes: &[u8]) -> Result<(), FrameError> {
        self.reader.as_mut().map_or(Ok(()), |reader| reader.check(bytes))
    }
}

/// Checks every frame of an unsealed stream.
struct FrameChecker {
    reader: StreamReader,
    sum: Crc32c,
}

impl Default for FrameChecker {
    fn default() -> Self {
        // As large as our readers accept: a stored stream must be readable again.
        let most = u32::try_from(SLAB).unwrap_or(u32::MAX);
        Self {
            reader: StreamReader::new(Limits::default().with_max_plain(most)),
            sum: Crc32c::default(),
        }
    }
}

impl FrameChecker {
    fn check(&mut self, mut bytes: &[u8]) -> Result<(), FrameError> {
        while let Some(event) = self.reader.next(&mut bytes)? {
            match event {
                Event::Frame(_) => self.sum = Crc32c::default(),
                Event::Payload(piece) => self.sum.update(piece),
                Event::FrameEnd(header) if header.kind == Kind::Data => {
                    header.check_payload_crc(self.sum.finish())?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn finish(&self) -> Result<xb_frame::Summary, FrameError> {
        self.reader.finish()
    }
}

/// Length of the stream so far, and its last bytes.
#[derive(Default)]
struct TrailerWindow {
    len: u64,
    tail: Vec<u8>,
}

impl TrailerWindow {
    fn add(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        let last = &bytes[bytes.len().saturating_sub(TRAILER_LEN)..];
        self.tail.extend_from_slice(last);
        let old = self.tail.len().saturating_sub(TRAILER_LEN);
        self.tail.drain(..old);
    }

    fn trailer(&self, header: &StreamHeader) -> Result<Trailer, PackError> {
        let Some(bytes) = self.tail.first_chunk::<TRAILER_LEN>() else {
            return Err(cut(Where::Trailer, self.len));
        };
        // The last bytes are no trailer: the stream was cut, or other bytes follow it.
        let trailer = Trailer::parse(bytes).map_err(|_| cut(Where::Trailer, self.len))?;
        trailer.check(header, self.len)?;
        Ok(trailer)
    }
}
