//! Native files: a keys block, then a native stream whose body is sealed.

use std::io::{self, Cursor, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use crossbeam_channel::bounded;
use xb_compressor::Algorithm;
use xb_encryptor::{
    BLOCK_HEAD_LEN, Backend, BlockHead, DataKey, FreshKey, KeySlots, Keys, KeysObject,
    KeysObjectError, NoRandom, OpenError, SealContext, SealError, WrapError, is_keys_block,
    new_stream_id, parse_block,
};
use xb_frame::{FrameError, STREAM_HEADER_LEN, Seal, StreamHeader, StreamId, Summary, is_native};
use xb_reader::Dialect;

use super::MAGIC_LEN;
use super::seal_raw::{SealRawError, seal_raw};
use crate::flow::budget::Budget;
use crate::flow::observer::Observer;
use crate::flow::ordered_pool::Closed;
use crate::flow::plan::{
    ObjectSize, PackPlan, PackSizing, PartLimits, PlanError, SLAB, UnpackPlan,
};
use crate::flow::slab::SlabPool;
use crate::layout::ObjectLayout;
use crate::pack::error::PackError;
use crate::pack::input::{Content, NativeStream, XbstreamInput};
use crate::pack::packer::Part;
use crate::pack::result::PackOutput;
use crate::scan::end_rule::EndRule;
use crate::start_pack::{PackSettings, start_pack};
use crate::unpack::error::UnpackError;
use crate::unpack::unpack;

/// Memory for four parts of the size of a slab, each with a slab at both ends.
const FOR_PARTS: u64 = 8 * SLAB as u64;
/// A file is a single object of the largest possible size.
const ONE_OBJECT: ObjectSize = ObjectSize::new(1 << 62);
/// Maximum number of ranges between the reader and the workers.
const RANGES: usize = 4;

/// Options of [`seal_file`].
#[derive(Debug)]
pub struct SealFile<'a> {
    /// Key slots of the file, at least one.
    pub key_slots: &'a KeySlots,
    /// Codec of the frames.
    pub compress: Algorithm,
    /// Worker threads.
    pub threads: usize,
    /// Whether to accept any input. Otherwise, input that starts like an xbstream must be a valid
    /// one, and complete as far as that can be checked: every chunk correct, every file with its
    /// end.
    pub raw: bool,
}

/// Reason why no native file was created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealFileError {
    /// There is no key slot, or one cannot be created.
    #[error(transparent)]
    Wrap(#[from] WrapError),
    /// The key slots do not fit into a keys block.
    #[error(transparent)]
    KeysObject(#[from] KeysObjectError),
    /// Sealing cannot start.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// No random bytes are available.
    #[error(transparent)]
    Random(#[from] NoRandom),
    /// The number of threads is too high.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Packing failed; [`PackError::Read`] is an error of the source.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// The output cannot be written.
    #[error("cannot write: {0}")]
    Write(#[source] io::Error),
}

impl From<SealRawError> for SealFileError {
    fn from(error: SealRawError) -> Self {
        match error {
            SealRawError::Pack(error) => Self::Pack(error),
            SealRawError::Write(error) => Self::Write(error),
        }
    }
}

/// Creates a native file from `source`: keys block, header, sealed frames, trailer. Every call uses
/// a new data key. The output is not flushed.
///
/// # Errors
/// [`SealFileError`], the first cause. The bytes written by then are an incomplete file, which
/// readers reject.
pub fn seal_file<R, W>(
    mut source: R,
    out: &mut W,
    settings: &SealFile<'_>,
    observer: &Observer,
) -> Result<Summary, SealFileError>
where
    R: Read + Send + 'static,
    W: Write,
{
    let stream_id = new_stream_id()?;
    let fresh = FreshKey::generate()?;
    let commitment = fresh.key().commitment(&stream_id);
    let header =
        StreamHeader::new(StreamId(stream_id)).with_seal(Seal::Aes256GcmHkdf1Mb, commitment);
    let block =
        KeysObject::seal(fresh.key(), stream_id, &settings.key_slots.list())?.encode_block()?;
    let bytes = header.encode();
    let context = SealContext { stream_id, commitment, header: &bytes };
    let (sealer, _) = fresh.sealer(&context, Backend::default())?;

    let mut start = Vec::new();
    source
        .by_ref()
        .take(MAGIC_LEN as u64)
        .read_to_end(&mut start)
        .map_err(|source| PackError::Read { position: start.len() as u64, source })?;
    let content = if start == xb_reader::MAGIC && !settings.raw {
        Content::Xbstream(XbstreamInput { rule: EndRule::AnyEnd, dialect: Dialect::Auto })
    } else {
        Content::Raw
    };
    let source = Cursor::new(start).chain(source);
    let stream = NativeStream { header, compress: settings.compress.into(), sealer: Some(sealer) };
    let write = |bytes: &[u8]| out.write_all(bytes);
    pack_file(source, &block, content, stream, settings, observer, write)
}

/// Creates a native stream without a keys block from `source`: header, frames, trailer. With `seal`, the ID
/// of the stream and its key, the frames are sealed. The output is not flushed.
///
/// # Errors
/// As [`seal_file`].
pub fn write_stream<R, W>(
    source: R,
    out: &mut W,
    seal: Option<([u8; 16], FreshKey)>,
    settings: &SealFile<'_>,
    observer: &Observer,
) -> Result<Summary, SealFileError>
where
    R: Read + Send + 'static,
    W: Write,
{
    let (header, sealer) = match seal {
        Some((stream_id, fresh)) => {
            let commitment = fresh.key().commitment(&stream_id);
            let header = StreamHeader::new(StreamId(stream_id))
                .with_seal(Seal::Aes256GcmHkdf1Mb, commitment);
            let bytes = header.encode();
            let context = SealContext { stream_id, commitment, header: &bytes };
            let (sealer, _) = fresh.sealer(&context, Backend::default())?;
            (header, Some(sealer))
        }
        None => (StreamHeader::new(StreamId(new_stream_id()?)), None),
    };
    let stream = NativeStream { header, compress: settings.compress.into(), sealer };
    let write = |bytes: &[u8]| out.write_all(bytes);
    pack_file(source, &[], Content::Raw, stream, settings, observer, write)
}

/// Writes `front`, then the native stream of `source`.
fn pack_file<R: Read + Send + 'static>(
    source: R,
    front: &[u8],
    content: Content,
    mut stream: NativeStream,
    settings: &SealFile<'_>,
    observer: &Observer,
    mut out: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<Summary, SealFileError> {
    let plan = put_plan(settings.threads)?;
    let mut write = |bytes: &[u8]| {
        observer.add_stored(bytes.len() as u64);
        out(bytes)
    };
    if matches!(content, Content::Raw)
        && settings.compress == Algorithm::None
        && let Some(sealer) = stream.sealer.take()
    {
        write(front).map_err(SealFileError::Write)?;
        return Ok(seal_raw(source, &stream.header, sealer, settings.threads, observer, write)?);
    }
    let put = PackSettings { plan, layout: ObjectLayout::Packed { content, stream } };
    let (parts, arriving) = bounded(1);
    let sink = move |part: Part| parts.send(part.payload).map_err(|_| Closed);
    let putting = start_pack(source, put, &Budget::new(plan.memory), observer, sink)?;
    write(front).map_err(SealFileError::Write)?;
    for part in arriving {
        part.iter().try_for_each(|bytes| write(bytes)).map_err(SealFileError::Write)?;
    }
    match putting.join()?.output {
        PackOutput::Packed { summary, .. } => Ok(summary),
        // No other layout was requested.
        _ => Err(PackError::Closed(Closed).into()),
    }
}

fn put_plan(threads: usize) -> Result<PackPlan, PlanError> {
    let slabs = (threads.max(1) as u64).saturating_mul(3).saturating_add(1);
    let memory = slabs.saturating_mul(SLAB as u64).saturating_add(FOR_PARTS);
    let limits =
        PartLimits { min: 1, max: SLAB as u64, count: u64::MAX, object: u64::MAX, equal: false };
    PackPlan::new(PackSizing {
        memory,
        codec_memory: 0,
        object_size: ONE_OBJECT,
        threads,
        parallel: 1,
        limits,
    })
}

/// Options of [`open_file`].
#[derive(Debug, Clone, Copy)]
pub struct OpenFile {
    /// Worker threads.
    pub threads: usize,
    /// Limit on the memory for trying a passphrase, in bytes.
    pub max_memory: u64,
}

/// Reason why a native file could not be opened, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenFileError {
    /// The input could not be read.
    #[error("cannot read at offset {position}: {source}")]
    Read {
        /// Offset in the input.
        position: u64,
        /// System error.
        source: io::Error,
    },
    /// The file starts neither with a keys block nor with a stream header.
    #[error("not a native file: it starts with \"{}\"", got.escape_ascii())]
    Magic {
        /// First bytes of the file.
        got: Vec<u8>,
    },
    /// The file ends before its first frame.
    #[error("the file is truncated: it ends in its {part}")]
    Cut {
        /// The part in which it ends.
        part: &'static str,
    },
    /// The keys block cannot be read, or belongs to another stream.
    #[error(transparent)]
    KeysObject(#[from] KeysObjectError),
    /// The file is sealed, and no key was given.
    #[error("no key was given; the file opens with: {}", kept_for.join(", "))]
    NoKey {
        /// Key slots of the file.
        kept_for: Vec<String>,
    },
    /// None of the given keys opens the file.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The stream is sealed and has no keys block.
    #[error("the stream is sealed, but has no keys block in front")]
    NoKeysObject,
    /// A key was given, but the file is not sealed, so its bytes are not authenticated.
    #[error("the stream is not sealed, but a key was given")]
    NotSealed,
    /// The stream is damaged, cut, or does not match its keys.
    #[error(transparent)]
    Stream(UnpackError<io::Error>),
    /// The number of threads is too high.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The output cannot be written.
    #[error("cannot write: {0}")]
    Write(#[source] io::Error),
}

/// Opens a native file, or an unsealed native stream, and writes its plain bytes. Nothing is
/// written before a key has opened the file, and every byte is authenticated or checked before it
/// is written.
///
/// # Errors
/// [`OpenFileError`], the first cause. The bytes written by then are genuine, but incomplete.
pub fn open_file<R, W>(
    mut source: R,
    out: &mut W,
    keys: &Keys,
    settings: OpenFile,
    observer: &Observer,
) -> Result<Summary, OpenFileError>
where
    R: Read + Send + 'static,
    W: Write,
{
    let plan = get_plan(settings.threads)?;
    let mut front = Front { source: &mut source, position: 0 };
    let magic = front.bytes(MAGIC_LEN, "first bytes")?;
    let (header, key) = if is_keys_block(&magic) {
        let keys_object = front.keys_object(magic)?;
        let key = unlock(&keys_object, keys, settings.max_memory)?;
        let header = front.bytes(STREAM_HEADER_LEN, "stream header")?;
        let commitment = *parse(&header)?.key_commitment().ok_or(OpenFileError::NotSealed)?;
        keys_object.belongs_to(&parse(&header)?.id().0, &commitment)?;
        (header, Some(Arc::new(key)))
    } else if is_native(&magic) {
        let rest = front.bytes(STREAM_HEADER_LEN - MAGIC_LEN, "stream header")?;
        let header = [magic, rest].concat();
        match (parse(&header)?.is_sealed(), keys.is_empty()) {
            (true, _) => return Err(OpenFileError::NoKeysObject),
            (false, false) => return Err(OpenFileError::NotSealed),
            (false, true) => (header, None),
        }
    } else {
        return Err(OpenFileError::Magic { got: magic });
    };
    let start = front.position - header.len() as u64;
    unpack_file(Cursor::new(header).chain(source), start, out, key, plan, observer)
}

/// Opens a native stream without a keys block, and writes its plain bytes, as [`open_file`] does. A sealed
/// stream needs its `key`; with a key, the stream must be sealed.
///
/// # Errors
/// [`OpenFileError`], the first cause. The bytes written by then are genuine, but incomplete.
pub fn read_stream<R, W>(
    source: R,
    out: &mut W,
    key: Option<DataKey>,
    settings: OpenFile,
    observer: &Observer,
) -> Result<Summary, OpenFileError>
where
    R: Read + Send + 'static,
    W: Write,
{
    let plan = get_plan(settings.threads)?;
    unpack_file(source, 0, out, key.map(Arc::new), plan, observer)
}

fn unpack_file<R, W>(
    source: R,
    start: u64,
    out: &mut W,
    key: Option<Arc<DataKey>>,
    plan: UnpackPlan,
    observer: &Observer,
) -> Result<Summary, OpenFileError>
where
    R: Read + Send + 'static,
    W: Write,
{
    let failed = Failed::default();
    let ranges = Ranges {
        source,
        pool: SlabPool::new(SLAB, plan.depth + RANGES),
        position: start,
        failed: Arc::clone(&failed),
        observer: observer.clone(),
    };
    let sink = |bytes: Bytes| {
        out.write_all(&bytes)?;
        observer.add_stored(bytes.len() as u64);
        Ok(())
    };
    // The counts are reversed: `unpack` regards its source as the store.
    unpack(ranges, key, &plan, &Observer::default(), sink).map_err(|error| match error {
        UnpackError::Sink(error) => OpenFileError::Write(error),
        error => match failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some((position, source)) => OpenFileError::Read { position, source },
            None => OpenFileError::Stream(error),
        },
    })
}

fn get_plan(threads: usize) -> Result<UnpackPlan, PlanError> {
    let slabs = (threads.max(1) as u64).saturating_mul(3).saturating_add(1 + RANGES as u64);
    let memory = slabs.saturating_mul(SLAB as u64);
    UnpackPlan::new(memory, threads, 1)
}

fn unlock(
    keys_object: &KeysObject,
    keys: &Keys,
    max_memory: u64,
) -> Result<DataKey, OpenFileError> {
    match keys.open(keys_object, max_memory) {
        Some(opened) => Ok(opened?),
        None => {
            let kept_for = keys_object.slots().map(|slot| slot.to_string()).collect();
            Err(OpenFileError::NoKey { kept_for })
        }
    }
}

fn parse(header: &[u8]) -> Result<StreamHeader, OpenFileError> {
    StreamHeader::parse(header)
        .map_err(|error: FrameError| OpenFileError::Stream(UnpackError::Frame(error)))
}

/// Reads the bytes before the first frame piece by piece.
struct Front<'a, R> {
    source: &'a mut R,
    position: u64,
}

impl<R: Read> Front<'_, R> {
    fn bytes(&mut self, len: usize, part: &'static str) -> Result<Vec<u8>, OpenFileError> {
        let mut bytes = Vec::with_capacity(len);
        self.source
            .take(len as u64)
            .read_to_end(&mut bytes)
            .map_err(|source| OpenFileError::Read { position: self.position, source })?;
        self.position += bytes.len() as u64;
        if bytes.len() == len { Ok(bytes) } else { Err(OpenFileError::Cut { part }) }
    }

    fn keys_object(&mut self, magic: Vec<u8>) -> Result<KeysObject, OpenFileError> {
        const PART: &str = "keys";
        let mut block = magic;
        block.extend(self.bytes(BLOCK_HEAD_LEN - MAGIC_LEN, PART)?);
        let head = block.first_chunk().ok_or(OpenFileError::Cut { part: PART })?;
        // Checksum and limits of the head have been checked at this point.
        let len = BlockHead::parse(head)?.block_len;
        block.extend(self.bytes(len.saturating_sub(BLOCK_HEAD_LEN), PART)?);
        Ok(parse_block(&block)?)
    }
}

/// Offset and error of a failed source.
type Failed = Arc<Mutex<Option<(u64, io::Error)>>>;

/// Iterator over a source in slabs.
struct Ranges<R> {
    source: R,
    pool: SlabPool,
    position: u64,
    failed: Failed,
    observer: Observer,
}

impl<R: Read> Iterator for Ranges<R> {
    type Item = Option<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut slab = self.pool.take(None);
        if let Err(error) = slab.read_from(&mut self.source) {
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            *failed = Some((self.position + slab.len() as u64, error));
            return Some(None);
        }
        self.position += slab.len() as u64;
        self.observer.add_bytes(slab.len() as u64);
        (!slab.is_empty()).then(|| Some(slab.freeze()))
    }
}
