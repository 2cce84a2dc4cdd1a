//! Packing: converts a stream to objects.
//!
//! ```text
//! source ──► slabs ──────► encoded ─────────► laid out ────────────────► sealed ──► cut ────► sink
//!            chunk heads   checksums, frames  packed: frames, index    packed:    objects,  parts
//!            found         compressed         classic: chunks by file  segments   parts
//!            "read"        n "frame"          "pack"                   n "seal"   "cut"
//! ```
//!
//! Names in quotation marks are threads. A packed stream without codec and seal needs no segments:
//! its frames stay in the slabs into which they were read, and "pack" cuts. With a codec, so do long
//! runs of frames that it does not shrink. The classic layouts cut
//! by file; if files are transformed, more workers run in between ([`classic`](crate::classic)).

use std::io::Read;
use std::thread::JoinHandle;

use crate::classic::fixed_size::{FixedSizeCutter, Sizes, Untransformed};
use crate::classic::one_object_per_chunk::StreamCutter;
use crate::classic::transform::{ChunkAssembler, TransformStage};
use crate::flow::budget::Budget;
use crate::flow::observer::Observer;
use crate::flow::ordered_pool::{Results, Submit, ordered, ordered_by};
use crate::flow::plan::{PackPlan, SLAB};
use crate::flow::slab::SlabPool;
use crate::flow::work::Work;
use crate::layout::{ClassicLayout, ClassicObjects, ObjectLayout};
use crate::pack::body::{Body, Sealed, Segment, ToSeal, cut, seal};
use crate::pack::chunk_sink::{PlainSlabs, drive};
use crate::pack::encode::{Encoded, Encoding, ScannedSlab, SlabEncoder};
use crate::pack::error::PackError;
use crate::pack::frame_sink::FrameSink;
use crate::pack::packer::{Packer, PartSink, watched};
use crate::pack::result::PackHandle;
use crate::pack::slab_reader::{InputScanner, SlabReader};

/// Settings of [`start_pack`].
#[derive(Debug)]
pub struct PackSettings {
    /// Sizes and degrees of parallelism.
    pub plan: PackPlan,
    /// Kind of input, and its layout in objects.
    pub layout: ObjectLayout,
}

/// Starts to read `source` and to pass parts of objects to `sink`, both in threads of their own.
///
/// # Errors
/// The system cannot start a thread, or the plan's memory is too small for the layout.
pub fn start_pack<R, S>(
    source: R,
    settings: PackSettings,
    budget: &Budget,
    observer: &Observer,
    sink: S,
) -> Result<PackHandle, PackError>
where
    R: Read + Send + 'static,
    S: PartSink + Send + 'static,
{
    let PackSettings { plan, layout } = settings;
    let memory = layout.memory(&plan, budget)?;
    let sink = watched(sink, observer);

    // Read: fill slabs from the source and find the chunks in them.
    let slabs = SlabPool::for_memory(SLAB, plan.memory);
    let (reader_budget, lease_waits_for) = (memory.slabs.clone(), memory.slabs_wait_for());
    let (pool, watching) = (slabs.clone(), observer.clone());
    let reader = SlabReader { source, pool, budget: reader_budget, lease_waits_for, watching };
    let scanner = InputScanner::new(layout.content());

    // Encode: compute checksums of chunk pieces; run the codec and the checksum of a frame.
    let encoding = layout.encoding();
    let auto = encoding.auto_codec();
    if let Some(auto) = &auto {
        auto.start(plan.threads, plan.part_size, observer);
    }
    let transformed = memory.transform.is_some();
    let (to_workers, encoded) = encoders(encoding, &plan, (!transformed).then_some(observer));
    let reader = spawn("read", move || {
        if let Some(auto) = auto {
            auto.reader_is_here();
        }
        reader.read_all(scanner, &to_workers)
    })?;

    let plain = if transformed { PlainSlabs::Transformed } else { PlainSlabs::Stored };
    let watching = observer.clone();
    let packer = match layout {
        // Frames, cut into objects directly.
        ObjectLayout::Packed { stream, .. } if stream.is_plain() => {
            let body = Body::direct(Packer::new(plan.object_size, plan.part_size), sink);
            spawn("pack", move || {
                drive(encoded, plain, &watching, FrameSink::new(stream.header, body))
            })
        }
        // Frames, joined into segments, sealed, and cut into objects.
        ObjectLayout::Packed { stream, .. } => {
            let (segments, sealed) = sealers(&plan, observer);
            let objects = Packer::new(plan.object_size, plan.part_size);
            let cutter = spawn("cut", move || cut(sealed, objects, sink))?;
            let body = Body::<S>::segmented(slabs, plan.memory, stream.sealer, segments, cutter);
            spawn("pack", move || {
                drive(encoded, plain, &watching, FrameSink::new(stream.header, body))
            })
        }
        // Chunks by file, compressed and encrypted if requested, and cut into objects.
        ObjectLayout::Classic { files: ClassicLayout { objects, transform }, .. } => {
            match (objects, transform.zip(memory.transform)) {
                (ClassicObjects::OnePerChunk, None) => {
                    let cutter = StreamCutter::new(plan.part_size, sink);
                    spawn("pack", move || drive(encoded, plain, &watching, cutter))
                }
                (ClassicObjects::OnePerChunk, Some((transform, memory))) => {
                    let cutter = ChunkAssembler::new(plan.part_size, memory.idle, sink);
                    let files = TransformStage::start(&transform, memory, observer, cutter)?;
                    spawn("pack", move || drive(encoded, plain, &watching, files))
                }
                (ClassicObjects::FixedSize, None) => {
                    let cutter = Untransformed::new(&plan, memory.slabs, sink)?;
                    spawn("pack", move || drive(encoded, plain, &watching, cutter))
                }
                (ClassicObjects::FixedSize, Some((transform, memory))) => {
                    let cutter =
                        FixedSizeCutter::new(Sizes::new(&plan, memory.idle), memory.idle, sink);
                    let files = TransformStage::start(&transform, memory, observer, cutter)?;
                    spawn("pack", move || drive(encoded, plain, &watching, files))
                }
            }
        }
    };
    Ok(PackHandle { reader: Some(reader), packer: packer? })
}

/// Starts the workers that encode slabs, and counts their work if there is an observer. Where files
/// are transformed later, that is the work to count: here is only a checksum.
fn encoders(
    encoding: Encoding,
    plan: &PackPlan,
    observer: Option<&Observer>,
) -> (Submit<ScannedSlab, Encoded>, Results<Encoded>) {
    ordered_by("frame", plan.threads, plan.depth, || {
        // A codec without memory fails at its first job, in stream order like every failure.
        let mut encoder = SlabEncoder::new(encoding.clone());
        let observer = observer.cloned();
        move |slab: ScannedSlab| {
            let bytes = slab.len();
            let encode =
                || encoder.as_mut().map_err(|e| e.clone()).and_then(|encoder| encoder.encode(slab));
            match &observer {
                Some(observer) => observer.working(Work::Encode, bytes, encode),
                None => encode(),
            }
        }
    })
}

/// Starts the workers that seal segments, and counts their work.
fn sealers(plan: &PackPlan, observer: &Observer) -> (ToSeal, Results<Sealed>) {
    let observer = observer.clone();
    ordered("seal", plan.threads, plan.depth, move |segment: Segment| match segment.right {
        Some(_) => observer.working(Work::Seal, segment.slab.len() as u64, || seal(segment)),
        None => seal(segment),
    })
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> Result<T, PackError> + Send + 'static,
) -> Result<JoinHandle<Result<T, PackError>>, PackError> {
    std::thread::Builder::new().name(name.into()).spawn(work).map_err(PackError::Thread)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};
    use std::time::{Duration, Instant};

    use bytes::Bytes;
    use xb_compressor::Algorithm;
    use xb_frame::{StreamHeader, StreamId};

    use super::*;
    use crate::flow::hold_ups::Wait;
    use crate::flow::ordered_pool::Closed;
    use crate::flow::plan::{ObjectSize, PackSizing, PartLimits, UnpackPlan};
    use crate::pack::input::{Content, NativeStream};
    use crate::pack::packer::Part;
    use crate::pack::pass_on::PassOn;
    use crate::unpack::unpack;

    /// Packs `len` bytes in objects of 1 MiB with one worker and far more memory than they need.
    /// Every object takes the sink this long.
    fn packed(len: usize, compress: &str, sink_takes: Duration) -> Observer {
        let limits =
            PartLimits { min: 1, max: u64::MAX, count: u64::MAX, object: u64::MAX, equal: false };
        let plan = PackPlan::new(PackSizing {
            memory: 256 << 20,
            codec_memory: 0,
            object_size: ObjectSize::new(1 << 20),
            threads: 1,
            parallel: 8,
            limits,
        })
        .unwrap();
        let mut stream = NativeStream::plain(StreamHeader::new(StreamId([7; 16])));
        stream.compress = compress.parse::<Algorithm>().unwrap().into();
        let layout = ObjectLayout::Packed { content: Content::Raw, stream };
        let (budget, observer) = (Budget::new(plan.memory), Observer::default());
        let sink = move |_: Part| {
            let begin = Instant::now();
            while begin.elapsed() < sink_takes {
                std::thread::yield_now();
            }
            Ok(())
        };
        // Bytes that a codec has to work on.
        let bytes = (0..len).map(|n| u8::try_from((n * n / 77) % 251).unwrap());
        let source = std::io::Cursor::new(bytes.collect::<Vec<u8>>());
        let settings = PackSettings { plan, layout };
        start_pack(source, settings, &budget, &observer, sink).unwrap().join().unwrap();
        observer
    }

    /// Without it, a source that waits for the fate of a few bytes would wait forever.
    #[test]
    fn bytes_of_a_waiting_source_reach_the_sink() {
        /// Returns a stream in pieces, and none before the one before it has reached the sink.
        struct Waiting {
            pieces: std::vec::IntoIter<Vec<u8>>,
            has_passed_on: bool,
            arrived: Receiver<Vec<u8>>,
        }
        impl Read for Waiting {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                if !std::mem::replace(&mut self.has_passed_on, true) {
                    return Err(PassOn.into());
                }
                // The first one is the header of the stream.
                self.arrived.recv().map_err(std::io::Error::other)?;
                let Some(piece) = self.pieces.next() else { return Ok(0) };
                buffer[..piece.len()].copy_from_slice(&piece);
                self.has_passed_on = false;
                Ok(piece.len())
            }
        }
        for compress in ["none", "zstd:1"] {
            let limits =
                PartLimits { min: 1, max: 1 << 20, count: u64::MAX, object: u64::MAX, equal: true };
            let plan = PackPlan {
                threads: 2,
                depth: 4,
                object_size: ObjectSize::new(u64::MAX),
                part_size: 1 << 20,
                parallel: 1,
                memory: 32 << 20,
                limits,
            };
            let mut stream = NativeStream::plain(StreamHeader::new(StreamId([7; 16])));
            stream.compress = compress.parse::<Algorithm>().unwrap().into();
            let layout = ObjectLayout::Packed { content: Content::Raw, stream };
            let pieces: Vec<Vec<u8>> = (1..200_u8).map(|n| vec![n; usize::from(n) * 7]).collect();
            let whole = pieces.concat();
            let (to_source, arrived) = channel();
            let source = Waiting { pieces: pieces.into_iter(), has_passed_on: false, arrived };
            let (to_test, parts) = channel();
            let sink = move |part: Part| {
                to_test.send(Bytes::from(part.payload.concat())).unwrap();
                // The source is gone before the end of the stream.
                let _ = to_source.send(part.payload.concat());
                Ok(())
            };
            let (budget, observer) = (Budget::new(plan.memory), Observer::default());
            let settings = PackSettings { plan, layout };
            start_pack(source, settings, &budget, &observer, sink).unwrap().join().unwrap();
            let parts: Vec<Bytes> = parts.iter().collect();
            assert!(parts.len() >= 200, "{}", parts.len());
            let mut plain = Vec::new();
            let plan =
                UnpackPlan { threads: 1, depth: 2, range: 1 << 20, parallel: 1, memory: 8 << 20 };
            let ranges = parts.into_iter().map(Some);
            unpack(ranges, None, &plan, &observer, |bytes| {
                plain.extend_from_slice(&bytes);
                Ok::<(), Closed>(())
            })
            .unwrap();
            assert!(plain == whole, "{compress}");
        }
    }

    /// The reader waits for a place in the workers' queue, because the packer takes nothing out.
    #[test]
    fn a_slow_sink_holds_up_the_run_and_not_the_workers_it_blocks() {
        let observer = packed(12 << 20, "none", Duration::from_millis(10));
        assert_eq!(observer.snapshot().slowest_stage, Some(Wait::Sink));
        assert!(observer.held_up(Wait::Sink) >= Duration::from_millis(120));
        assert!(observer.held_up(Wait::Workers) < observer.held_up(Wait::Sink) / 2);
    }

    /// The queue of the workers has room for the whole source, so the reader never waits for them.
    #[test]
    fn workers_hold_up_the_run_after_the_last_byte_is_read() {
        let observer = packed(1 << 20, "zstd:19", Duration::ZERO);
        assert_eq!(observer.snapshot().slowest_stage, Some(Wait::Workers));
        let busy = observer.worked(Work::Encode).busy;
        assert!(observer.held_up(Wait::Workers) > busy / 2, "{busy:?}");
    }
}
