//! Packs streams into memory and unpacks them.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, reason = "tests fail by panic")]

pub(crate) mod wrapped;

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use xb_compressor::Compression;
use xb_encryptor::{Backend, DataKey, FreshKey, SealContext};
use xb_frame::{Seal, StreamHeader, StreamId};
use xb_pipeline::{
    AutoCodec, BlockSums, Budget, ClassicLayout, ClassicObjects, Content, EndRule,
    FrameCompression, NativeStream, ObjectLayout, ObjectSize, Observer, PackError, PackPlan,
    PackResult, PackSettings, PackSizing, Part, PartLimits, PlanError, Received, UnpackPlan,
    XbstreamInput, start_pack, unpack,
};
use xb_reader::{ChunkWriter, Dialect};

pub(crate) const LIMITS: PartLimits =
    PartLimits { min: 1, max: u64::MAX, count: u64::MAX, object: u64::MAX, equal: false };

pub(crate) fn pack_plan(
    memory: u64,
    object_size: u64,
    threads: usize,
    parallel: usize,
    limits: PartLimits,
) -> Result<PackPlan, PlanError> {
    let object_size = ObjectSize::new(object_size);
    PackPlan::new(PackSizing { memory, codec_memory: 0, object_size, threads, parallel, limits })
}

pub(crate) type Objects = BTreeMap<String, Vec<u8>>;

/// A reader that returns its bytes in reads of at most `step`.
pub(crate) struct Steps(pub(crate) Bytes, pub(crate) usize);

impl Read for Steps {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.0.len().min(self.1).min(buffer.len());
        buffer[..n].copy_from_slice(&self.0.split_to(n));
        Ok(n)
    }
}

pub(crate) fn stream(files: &[(&str, usize)], chunk: usize) -> Vec<u8> {
    let mut writer = ChunkWriter::new(Vec::new());
    for (name, len) in files {
        let content: Vec<u8> =
            (0..*len).map(|n| u8::try_from((n * 31 + n / 251) % 256).unwrap()).collect();
        for (n, piece) in content.chunks(chunk).enumerate() {
            writer.payload(*name, (n * chunk) as u64, piece).unwrap();
        }
        writer.end(*name).unwrap();
    }
    writer.finish().unwrap()
}

pub(crate) fn put(
    input: Vec<u8>,
    step: usize,
    plan: PackPlan,
    layout: ObjectLayout,
    rule: EndRule,
) -> (Objects, Result<PackResult, PackError>) {
    let objects = Arc::new(Mutex::new(Objects::new()));
    let collected = Arc::clone(&objects);
    let budget = Budget::new(plan.memory);
    let sink = move |part: Part| {
        collected
            .lock()
            .unwrap()
            .entry(part.object.to_string())
            .or_default()
            .extend(part.payload.concat());
        Ok(())
    };
    let settings = PackSettings { plan, layout: with_rule(layout, rule) };
    let putting =
        start_pack(Steps(input.into(), step), settings, &budget, &Observer::default(), sink)
            .unwrap();
    let result = putting.join();
    all_comes_back(&budget);
    (Arc::try_unwrap(objects).unwrap().into_inner().unwrap(), result)
}

/// Checks that every lease is returned, even by a worker that is still busy after a failed run.
pub(crate) fn all_comes_back(budget: &Budget) {
    let (done, waiting) = std::sync::mpsc::channel();
    let budget = budget.clone();
    std::thread::spawn(move || done.send(budget.lease(budget.total()).bytes() == budget.total()));
    let all = waiting.recv_timeout(std::time::Duration::from_secs(60));
    assert_eq!(all, Ok(true), "every lease comes back");
}

/// How to read an xbstream, unless [`with_rule`] sets another rule.
pub(crate) fn input() -> XbstreamInput {
    XbstreamInput { rule: EndRule::KnownProducer, dialect: Dialect::Auto }
}

fn with_rule(mut layout: ObjectLayout, rule: EndRule) -> ObjectLayout {
    match &mut layout {
        ObjectLayout::Packed { content: Content::Xbstream(input), .. }
        | ObjectLayout::Classic { input, .. } => input.rule = rule,
        ObjectLayout::Packed { content: Content::Raw, .. } => {}
    }
    layout
}

fn packed_as(stream: NativeStream) -> ObjectLayout {
    ObjectLayout::Packed { content: Content::Xbstream(input()), stream }
}

pub(crate) fn packed() -> ObjectLayout {
    packed_as(NativeStream::plain(StreamHeader::new(StreamId([9; 16]))))
}

pub(crate) fn one_object_per_chunk() -> ObjectLayout {
    let files = ClassicLayout { objects: ClassicObjects::OnePerChunk, transform: None };
    ObjectLayout::Classic { input: input(), files }
}

/// A native stream with this codec, sealed or not, and the key if it is sealed.
pub(crate) fn native(compress: &str, sealed: bool) -> (ObjectLayout, Option<Arc<DataKey>>) {
    let compress = match compress.parse().unwrap() {
        Compression::Fixed(algorithm) => FrameCompression::Fixed(algorithm),
        Compression::Auto => FrameCompression::Auto(AutoCodec::new(|| 0)),
    };
    let header = StreamHeader::new(StreamId([9; 16]));
    if !sealed {
        return (packed_as(NativeStream { header, compress, sealer: None }), None);
    }
    let fresh = FreshKey::generate().unwrap();
    let commitment = fresh.key().commitment(&[9; 16]);
    let header = header.with_seal(Seal::Aes256GcmHkdf1Mb, commitment);
    let bytes = header.encode();
    let context = SealContext { stream_id: [9; 16], commitment, header: &bytes };
    let (sealer, key) = fresh.sealer(&context, Backend::default()).unwrap();
    let stream = NativeStream { header, compress, sealer: Some(sealer) };
    (packed_as(stream), Some(Arc::new(key)))
}

/// The key of another stream with the same id.
pub(crate) fn native_key() -> Arc<DataKey> {
    native("none", true).1.unwrap()
}

pub(crate) const CODECS: [&str; 6] = ["none", "lz4", "snappy", "gzip:1", "zstd:1", "auto"];

pub(crate) fn get(native: Bytes, range: usize) -> Result<Vec<u8>, String> {
    open(native, range, None)
}

/// A range whose checksums were computed on arrival, in pieces as a connection delivers them.
pub(crate) fn arrived(bytes: Bytes) -> Received {
    let mut sums = BlockSums::default();
    bytes.chunks(50_021).for_each(|piece| sums.update(piece));
    Received::with_sums(bytes, sums)
}

pub(crate) fn open(
    native: Bytes,
    range: usize,
    key: Option<Arc<DataKey>>,
) -> Result<Vec<u8>, String> {
    let plan = UnpackPlan::new(64 << 20, 2, 2).unwrap();
    // As from a store: some ranges have the checksums of their arrival.
    let ranges: Vec<_> = (0..native.len())
        .step_by(range)
        .enumerate()
        .map(|(n, at)| {
            let bytes = native.slice(at..native.len().min(at + range));
            Some(if n % 3 == 2 { bytes.into() } else { arrived(bytes) })
        })
        .collect();
    let mut plain = Vec::new();
    unpack(ranges.into_iter(), key, &plan, &Observer::default(), |piece| {
        plain.extend_from_slice(&piece);
        Ok::<_, std::convert::Infallible>(())
    })
    .map_err(|error| error.to_string())?;
    Ok(plain)
}
