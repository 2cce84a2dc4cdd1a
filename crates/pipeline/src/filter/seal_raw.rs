//! Seals input that is neither an xbstream nor compressed.
//!
//! Each frame is read into the segment that will hold it, right behind its header, and sealed
//! there. The pipeline for other input copies every byte once more, and passes it between threads
//! three more times.

use std::io::{self, Read};
use std::thread::JoinHandle;

use xb_encryptor::{SealError, Sealer, SegmentToSeal, TAG_LEN};
use xb_frame::{Codec, FRAME_HEADER_LEN, StreamHeader, StreamWriter, Summary, Tail};

use crate::flow::hold_ups::Wait;

use crate::flow::observer::Observer;
use crate::flow::ordered_pool::{Results, Submit, WorkerDied, ordered};
use crate::flow::plan::SLAB;
use crate::flow::slab::{Slab, SlabPool};
use crate::pack::error::PackError;

/// Minimum space in a segment in which a frame begins. Only index frames leave less.
const LEAST_ROOM: usize = 4096;

/// Reason why the input was not sealed.
pub(super) enum SealRawError {
    Pack(PackError),
    Write(io::Error),
}

impl From<PackError> for SealRawError {
    fn from(error: PackError) -> Self {
        Self::Pack(error)
    }
}

/// A segment before it is sealed.
type Job = (Slab, SegmentToSeal);
/// A segment as it is stored.
type Sealed = Result<Slab, SealError>;

/// Seals everything that `source` returns, and passes the bytes of the stream to `write`.
pub(super) fn seal_raw<R: Read + Send + 'static>(
    source: R,
    header: &StreamHeader,
    sealer: Sealer,
    threads: usize,
    observer: &Observer,
    write: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<Summary, SealRawError> {
    let framing = Framing { writer: StreamWriter::new(header), least_room: LEAST_ROOM };
    seal_frames(source, header, framing, sealer, threads, observer, write)
}

/// Settings of the frames.
struct Framing {
    writer: StreamWriter,
    /// Minimum space in a segment for a frame that is read into it.
    least_room: usize,
}

fn seal_frames<R: Read + Send + 'static>(
    source: R,
    header: &StreamHeader,
    framing: Framing,
    sealer: Sealer,
    threads: usize,
    observer: &Observer,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<Summary, SealRawError> {
    let depth = threads.max(1) * 2;
    let (submit, sealed) = ordered("seal", threads, depth, |(mut slab, segment): Job| {
        slab.advance(TAG_LEN);
        segment.seal(&mut slab)?;
        Ok(slab)
    });
    write(&header.encode()).map_err(SealRawError::Write)?;
    write(&sealer.head()).map_err(SealRawError::Write)?;
    // Those of the pool, one being filled and one being written.
    let pool = SlabPool::new(SLAB, depth + 2);
    let segments = Segments { pool, current: None, sealer, submit };
    let framer = Framer {
        source,
        position: 0,
        writer: framing.writer,
        least_room: framing.least_room,
        segments,
        observer: observer.clone(),
    };
    let reader = std::thread::Builder::new()
        .name("read".into())
        .spawn(move || framer.run())
        .map_err(PackError::Thread)?;
    let written = write_all(sealed, &mut write);
    if let Err(error @ SealRawError::Write(_)) = written {
        // The source may be stalled, so the reader is not waited for.
        return Err(error);
    }
    let tail = match (end_of(reader), written) {
        (Ok(tail), Ok(())) => tail,
        // Closed is a consequence.
        (Ok(_) | Err(PackError::Closed(_)), Err(cause)) => return Err(cause),
        (Err(cause), _) => return Err(cause.into()),
    };
    write(tail.trailer()).map_err(SealRawError::Write)?;
    Ok(tail.summary)
}

fn write_all(
    mut sealed: Results<Sealed>,
    write: &mut impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), SealRawError> {
    while let Some(segment) = sealed.recv() {
        let segment: Slab = segment.map_err(PackError::from)?.map_err(PackError::from)?;
        write(&segment).map_err(SealRawError::Write)?;
    }
    Ok(())
}

fn end_of(reader: JoinHandle<Result<Tail, PackError>>) -> Result<Tail, PackError> {
    reader.join().unwrap_or(Err(PackError::Worker(WorkerDied)))
}

/// Reads the source and makes frames of it.
struct Framer<R> {
    source: R,
    position: u64,
    writer: StreamWriter,
    least_room: usize,
    segments: Segments,
    observer: Observer,
}

impl<R: Read> Framer<R> {
    fn run(mut self) -> Result<Tail, PackError> {
        while self.frame()? {
            if self.writer.index_due()
                && let Some(frame) = self.writer.index_frame()
            {
                self.segments.push(&frame)?;
            }
        }
        let tail = self.writer.finish();
        // The end frame is never empty, so there is a last segment.
        self.segments.push(tail.body())?;
        self.segments.send(true)?;
        Ok(tail)
    }

    /// Reads one frame. Returns false at the end of the source.
    fn frame(&mut self) -> Result<bool, PackError> {
        let (slab, room) = self.segments.fill()?;
        if room < FRAME_HEADER_LEN + self.least_room {
            return self.copied_frame();
        }
        let (place, payload) = slab.room()[..room].split_at_mut(FRAME_HEADER_LEN);
        let len = read_full(&mut self.source, payload, &mut self.position, &self.observer)?;
        if len > 0 {
            place.copy_from_slice(&header(&mut self.writer, len)?);
            slab.advance(FRAME_HEADER_LEN + len);
        }
        Ok(len > 0)
    }

    /// Like [`frame`](Self::frame), for a frame that begins in one segment and ends in the next.
    fn copied_frame(&mut self) -> Result<bool, PackError> {
        let mut payload = vec![0; LEAST_ROOM];
        let len = read_full(&mut self.source, &mut payload, &mut self.position, &self.observer)?;
        if len > 0 {
            self.segments.push(&header(&mut self.writer, len)?)?;
            self.segments.push(payload.get(..len).unwrap_or_default())?;
        }
        Ok(len > 0)
    }
}

/// The header of a frame of `len` bytes.
fn header(writer: &mut StreamWriter, len: usize) -> Result<[u8; FRAME_HEADER_LEN], PackError> {
    // At most the length of a segment, far below 4 GiB.
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    // The tags of the seal prove more than a checksum of the frame.
    Ok(writer.data_frame(0, Codec::None, len, len, 0)?)
}

/// Reads until `room` is full or the source ends. Returns the number of bytes.
fn read_full(
    source: &mut impl Read,
    room: &mut [u8],
    position: &mut u64,
    observer: &Observer,
) -> Result<usize, PackError> {
    let mut len = 0;
    while let Some(rest) = room.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match observer.waiting(Wait::Source, || source.read(rest)) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => {
                return Err(PackError::Read { position: *position + len as u64, source });
            }
        }
    }
    *position += len as u64;
    observer.add_bytes(len as u64);
    Ok(len)
}

/// Fills segments, and hands each to the workers when more bytes show that it is not the last.
struct Segments {
    pool: SlabPool,
    current: Option<Slab>,
    sealer: Sealer,
    submit: Submit<Job, Sealed>,
}

impl Segments {
    /// Returns the segment to fill, and how many bytes still fit into it: at least one.
    fn fill(&mut self) -> Result<(&mut Slab, usize), PackError> {
        if self.current.as_ref().is_some_and(|slab| slab.len() >= self.sealer.capacity()) {
            self.send(false)?;
        }
        let slab = self.current.get_or_insert_with(|| self.pool.take(None));
        let room = self.sealer.capacity().saturating_sub(slab.len());
        Ok((slab, room))
    }

    fn push(&mut self, mut bytes: &[u8]) -> Result<(), PackError> {
        while !bytes.is_empty() {
            let (slab, room) = self.fill()?;
            let (mut now, later) = bytes.split_at(room.min(bytes.len()));
            slab.fill_from(&mut now);
            bytes = later;
        }
        Ok(())
    }

    fn send(&mut self, last: bool) -> Result<(), PackError> {
        if let Some(slab) = self.current.take() {
            self.submit.send((slab, self.sealer.next_segment(last)?))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use xb_encryptor::{Backend, FreshKey, SealContext};
    use xb_frame::{Seal, StreamId};

    use super::*;
    use crate::flow::plan::UnpackPlan;
    use crate::unpack::unpack;

    /// Seals `plain` with an index frame after every data frame, and opens it again.
    fn there_and_back(plain: &[u8], least_room: usize) -> Vec<u8> {
        let fresh = FreshKey::generate().unwrap();
        let stream_id = [7; 16];
        let commitment = fresh.key().commitment(&stream_id);
        let header =
            StreamHeader::new(StreamId(stream_id)).with_seal(Seal::Aes256GcmHkdf1Mb, commitment);
        let bytes = header.encode();
        let context = SealContext { stream_id, commitment, header: &bytes };
        let (sealer, key) = fresh.sealer(&context, Backend::default()).unwrap();
        let writer = StreamWriter::new(&header).with_index_target(1);
        let mut stored = Vec::new();
        let sealed = seal_frames(
            io::Cursor::new(plain.to_vec()),
            &header,
            Framing { writer, least_room },
            sealer,
            2,
            &Observer::default(),
            |bytes| {
                stored.extend_from_slice(bytes);
                Ok(())
            },
        );
        let Ok(summary) = sealed else { panic!("not sealed") };
        assert_eq!(summary.end.plain_bytes, plain.len() as u64);
        assert_eq!(summary.stream_len, stored.len() as u64);

        let plan = UnpackPlan::new(64 << 20, 2, 1).unwrap();
        let mut out = Vec::new();
        unpack(
            std::iter::once(Some(Bytes::from(stored))),
            Some(Arc::new(key)),
            &plan,
            &Observer::default(),
            |bytes| {
                out.extend_from_slice(&bytes);
                Ok::<_, ()>(())
            },
        )
        .unwrap();
        out
    }

    #[test]
    fn frames_fit_into_segments_with_index_frames_between_them() {
        let plain: Vec<u8> =
            (0..5_000_000_u32).map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()[2]).collect();
        let full = SLAB - TAG_LEN - FRAME_HEADER_LEN;
        for len in [0, 1, full - 40, full - 39, full, 2 * full, plain.len()] {
            for least_room in [1, LEAST_ROOM, SLAB - 10_000, SLAB] {
                assert!(there_and_back(&plain[..len], least_room) == plain[..len], "{len}");
            }
        }
    }
}
