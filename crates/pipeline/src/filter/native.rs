//! Native files: a keys block, then a native stream whose body is sealed.

use std::io::{self, Cursor, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use crossbeam_channel::bounded;
use xb_compressor::Algorithm;
use xb_encryptor::{
    BLOCK_HEAD_LEN, Backend, BlockHead, DataKey, Envelope, EnvelopeError, FreshKey, Keys, NoRandom,
    OpenError, SealContext, SealError, WaysIn, WrapError, is_keys_block, new_stream_id,
    parse_block,
};
use xb_frame::{FrameError, STREAM_HEADER_LEN, Seal, StreamHeader, StreamId, Summary, is_native};
use xb_reader::Dialect;

use super::MAGIC_LEN;
use crate::flow::budget::Budget;
use crate::flow::observer::Observer;
use crate::flow::ordered_pool::Closed;
use crate::flow::plan::{GetPlan, ObjectSize, PackPlan, PackSizing, PartLimits, PlanError, SLAB};
use crate::flow::slab::SlabPool;
use crate::pack::error::PackError;
use crate::pack::layout::{Content, NativeStream, ObjectLayout, XbstreamInput};
use crate::pack::packer::Part;
use crate::pack::result::PackOutput;
use crate::pack::{PackSettings, start_pack};
use crate::scan::end_rule::EndRule;
use crate::unpack::error::GetError;
use crate::unpack::unpack;

/// Room for four parts of a slab, each with a slab at its ends.
const FOR_PARTS: u64 = 8 * SLAB as u64;
/// A file is one object: the largest that there is.
const ONE_OBJECT: ObjectSize = ObjectSize::new(1 << 62);
/// Ranges that may lie between the reader and the workers.
const RANGES: usize = 4;

/// How [`seal_file`] is to work.
#[derive(Debug)]
pub struct SealFile<'a> {
    /// The key slots of the file, at least one.
    pub ways_in: &'a WaysIn,
    /// Codec of the frames.
    pub compress: Algorithm,
    /// Worker threads.
    pub threads: usize,
    /// Whether to take the input as it is. Otherwise one that begins as an xbstream must be one, and
    /// whole as far as that shows: every chunk sound, every file with its end.
    pub raw: bool,
}

/// Why no native file was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealFileError {
    /// There is no key slot, or a key slot cannot be made.
    #[error(transparent)]
    Wrap(#[from] WrapError),
    /// The keys do not go into a block.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// The seal cannot be begun.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// No random bytes.
    #[error(transparent)]
    Random(#[from] NoRandom),
    /// The number of threads is out of reason.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The way up failed; [`PackError::Read`] is an error of the source.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// The output was not taken.
    #[error("cannot write: {0}")]
    Write(#[source] io::Error),
}

/// Makes a native file of `source`: keys block, header, frames in a seal, trailer. Every call takes a
/// new data key. Flushes nothing.
///
/// # Errors
/// [`SealFileError`], the first cause. What was written then is no whole file, and readers say so.
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
    let block = Envelope::seal(fresh.key(), stream_id, &settings.ways_in.list())?.encode_block()?;
    let bytes = header.encode();
    let context = SealContext { stream_id, commitment, header: &bytes };
    let (sealer, _) = fresh.sealer(&context, Backend::default())?;

    let plan = put_plan(settings.threads)?;
    let stream = NativeStream { header, compress: settings.compress, sealer: Some(sealer) };
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
    let put = PackSettings { plan, layout: ObjectLayout::Packed { content, stream } };
    let (parts, arriving) = bounded(1);
    let sink = move |part: Part| parts.send(part.payload).map_err(|_| Closed);
    let putting = start_pack(source, put, &Budget::new(plan.memory), observer, sink)?;
    let mut write = |bytes: &[u8]| {
        observer.add_stored(bytes.len() as u64);
        out.write_all(bytes).map_err(SealFileError::Write)
    };
    write(&block)?;
    for part in arriving {
        part.iter().try_for_each(|bytes| write(bytes))?;
    }
    match putting.join()?.output {
        PackOutput::Packed { summary, .. } => Ok(summary),
        // Only this was asked for.
        _ => Err(PackError::Closed(Closed).into()),
    }
}

fn put_plan(threads: usize) -> Result<PackPlan, PlanError> {
    let slabs = (threads.max(1) as u64).saturating_mul(3).saturating_add(1);
    let memory = slabs.saturating_mul(SLAB as u64).saturating_add(FOR_PARTS);
    let limits = PartLimits { min: 1, max: SLAB as u64, count: u64::MAX, equal: false };
    PackPlan::new(PackSizing { memory, object_size: ONE_OBJECT, threads, parallel: 1, limits })
}

/// How [`open_file`] is to work.
#[derive(Debug, Clone, Copy)]
pub struct OpenFile {
    /// Worker threads.
    pub threads: usize,
    /// Memory that trying a passphrase may take, in bytes.
    pub max_memory: u64,
}

/// Why a native file did not open, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenFileError {
    /// The input could not be read.
    #[error("cannot read at offset {position}: {source}")]
    Read {
        /// Offset in the input.
        position: u64,
        /// Error of the system.
        source: io::Error,
    },
    /// It begins neither with a keys block nor with a stream header.
    #[error("this is no native file: it begins with \"{}\"", got.escape_ascii())]
    Magic {
        /// Its first bytes.
        got: Vec<u8>,
    },
    /// It ends before its first frame.
    #[error("the file was cut: it ends in its {part}")]
    Cut {
        /// What it ends in.
        part: &'static str,
    },
    /// The keys in front cannot be read, or belong to another stream.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// It is sealed, and there is nothing to try.
    #[error("no key is given; the file opens with: {}", kept_for.join(", "))]
    NoKey {
        /// The key slots of the file.
        kept_for: Vec<String>,
    },
    /// None of the keys opens it.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A sealed stream whose keys are elsewhere.
    #[error("a sealed stream without its keys in front")]
    NoEnvelope,
    /// A key is given, and nothing vouches for the bytes.
    #[error("the stream is not sealed, and a key was given")]
    NotSealed,
    /// The stream is damaged, cut or foreign.
    #[error(transparent)]
    Stream(GetError<io::Error>),
    /// The number of threads is out of reason.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The output was not taken.
    #[error("cannot write: {0}")]
    Write(#[source] io::Error),
}

/// Opens a native file, or a native stream that is not sealed, and writes its plain bytes. Nothing is
/// written before a key has opened the file, and never a byte that was not proved.
///
/// # Errors
/// [`OpenFileError`], the first cause. What was written then is genuine, but not all.
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
        let envelope = front.envelope(magic)?;
        let key = unlock(&envelope, keys, settings.max_memory)?;
        let header = front.bytes(STREAM_HEADER_LEN, "stream header")?;
        let commitment = *parse(&header)?.key_commitment().ok_or(OpenFileError::NotSealed)?;
        envelope.belongs_to(&parse(&header)?.id().0, &commitment)?;
        (header, Some(Arc::new(key)))
    } else if is_native(&magic) {
        let rest = front.bytes(STREAM_HEADER_LEN - MAGIC_LEN, "stream header")?;
        let header = [magic, rest].concat();
        match (parse(&header)?.is_sealed(), keys.is_empty()) {
            (true, _) => return Err(OpenFileError::NoEnvelope),
            (false, false) => return Err(OpenFileError::NotSealed),
            (false, true) => (header, None),
        }
    } else {
        return Err(OpenFileError::Magic { got: magic });
    };
    let start = front.position - header.len() as u64;
    let failed = Failed::default();
    let ranges = Ranges {
        source: Cursor::new(header).chain(source),
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
    // It counts the other way round: to it the source is the store.
    unpack(ranges, key, &plan, &Observer::default(), sink).map_err(|error| match error {
        GetError::Sink(error) => OpenFileError::Write(error),
        error => match failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some((position, source)) => OpenFileError::Read { position, source },
            None => OpenFileError::Stream(error),
        },
    })
}

fn get_plan(threads: usize) -> Result<GetPlan, PlanError> {
    let slabs = (threads.max(1) as u64).saturating_mul(3).saturating_add(1 + RANGES as u64);
    let memory = slabs.saturating_mul(SLAB as u64);
    GetPlan::new(memory, threads, 1)
}

fn unlock(envelope: &Envelope, keys: &Keys, max_memory: u64) -> Result<DataKey, OpenFileError> {
    match keys.open(envelope, max_memory) {
        Some(opened) => Ok(opened?),
        None => {
            let kept_for = envelope.slots().map(|slot| slot.to_string()).collect();
            Err(OpenFileError::NoKey { kept_for })
        }
    }
}

fn parse(header: &[u8]) -> Result<StreamHeader, OpenFileError> {
    StreamHeader::parse(header)
        .map_err(|error: FrameError| OpenFileError::Stream(GetError::Frame(error)))
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

    fn envelope(&mut self, magic: Vec<u8>) -> Result<Envelope, OpenFileError> {
        const PART: &str = "keys";
        let mut block = magic;
        block.extend(self.bytes(BLOCK_HEAD_LEN - MAGIC_LEN, PART)?);
        let head = block.first_chunk().ok_or(OpenFileError::Cut { part: PART })?;
        // The head's checksum and bounds have been checked then.
        let len = BlockHead::parse(head)?.block_len;
        block.extend(self.bytes(len.saturating_sub(BLOCK_HEAD_LEN), PART)?);
        Ok(parse_block(&block)?)
    }
}

/// Where and why the source failed.
type Failed = Arc<Mutex<Option<(u64, io::Error)>>>;

/// A source in slabs.
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
