//! xbcrypt files, with many chunks in parallel.
//!
//! Chunks may be small, so they are processed in batches of about a slab. A batch is written after
//! all of it is proven, so damage in one chunk holds back its whole batch.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::thread::JoinHandle;

use xb_encryptor::xbcrypt::{
    ChunkSize, Cipher, Decoder, Event, Head, Limits, XbcryptError, new_iv, open_chunk, seal_chunk,
    sealed_len,
};

use crate::flow::budget::{Budget, Permit};
use crate::flow::observer::Observer;
use crate::flow::ordered_pool::{Closed, Results, Submit, WorkerDied, ordered};
use crate::flow::plan::SLAB;

/// Length of a batch of small chunks in bytes; a larger chunk is a batch of its own.
const BATCH: usize = SLAB;
/// Limit on the batches held at a time, in bytes of their input. A larger chunk is processed alone.
const BUDGET: u64 = 64 << 20;
/// Length of one read, in bytes.
const READ: usize = 1 << 20;

/// Reason why a filter run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XbcryptFilterError {
    /// The input could not be read.
    #[error("cannot read at offset {position}: {source}")]
    Read {
        /// Offset in the input.
        position: u64,
        /// System error.
        source: io::Error,
    },
    /// The file is damaged or cut, or the key is wrong.
    #[error(transparent)]
    Xbcrypt(#[from] XbcryptError),
    /// The output cannot be written.
    #[error("cannot write: {0}")]
    Write(#[source] io::Error),
    /// The system cannot start a thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// A worker thread died.
    #[error(transparent)]
    Worker(#[from] WorkerDied),
    /// The next stage stopped and has the cause.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// Options of [`xbcrypt_encrypt`].
#[derive(Debug)]
pub struct XbcryptWrite {
    /// Algorithm and key.
    pub cipher: Cipher,
    /// Plain bytes per chunk.
    pub chunk: ChunkSize,
    /// A chunk also ends after this many bytes of input, as with `--read-buffer-size`.
    pub block: u64,
    /// Worker threads.
    pub threads: usize,
}

/// Options of [`xbcrypt_decrypt`].
#[derive(Debug)]
pub struct XbcryptRead {
    /// Algorithm and key.
    pub cipher: Cipher,
    /// Limits on the content of the file.
    pub limits: Limits,
    /// Worker threads.
    pub threads: usize,
}

/// Encrypts `source` into version 3 chunks. However the source is divided into reads, only the last
/// chunk of a block is short. Empty input gives empty output.
///
/// # Errors
/// [`XbcryptFilterError`], the first cause.
pub fn xbcrypt_encrypt<R, W>(
    source: R,
    out: &mut W,
    settings: XbcryptWrite,
    observer: &Observer,
) -> Result<(), XbcryptFilterError>
where
    R: Read + Send + 'static,
    W: Write,
{
    let XbcryptWrite { cipher, chunk, block, threads } = settings;
    let cipher = Arc::new(cipher);
    let size = chunk.get();
    let work = move |batch: Batch<()>| encrypt(&cipher, size, batch);
    let (submit, results) = ordered("xbcrypt", threads, threads.saturating_mul(2), work);
    let most = (BATCH / size).max(1).saturating_mul(size);
    let mut input = Input::new(source, observer);
    let reader = spawn(move || {
        let budget = Budget::new(BUDGET);
        let mut left = block.max(1);
        loop {
            let want = most.min(usize::try_from(left).unwrap_or(usize::MAX));
            let permit = budget.lease(want as u64);
            let mut bytes = Vec::new();
            input.take(want, &mut bytes)?;
            let len = bytes.len();
            if len > 0 {
                submit.send(Batch { bytes, chunks: (), permit })?;
            }
            if len < want {
                return Ok(());
            }
            left -= len as u64;
            if left == 0 {
                left = block.max(1);
            }
        }
    })?;
    write_all(results, reader, out, |bytes| observer.add_stored(bytes))
}

/// Decrypts an xbcrypt file. Missing chunks, between two others or at the end, cannot be detected:
/// the format only protects against accidental damage.
///
/// # Errors
/// [`XbcryptFilterError`], the first cause. Nothing of the failed batch has been written.
pub fn xbcrypt_decrypt<R, W>(
    source: R,
    out: &mut W,
    settings: XbcryptRead,
    observer: &Observer,
) -> Result<(), XbcryptFilterError>
where
    R: Read + Send + 'static,
    W: Write,
{
    let XbcryptRead { cipher, limits, threads } = settings;
    let cipher = Arc::new(cipher);
    let work = move |batch: Batch<Vec<Head>>| decrypt(&cipher, batch);
    let (submit, results) = ordered("xbcrypt", threads, threads.saturating_mul(2), work);
    let mut input = Input::new(source, observer);
    let reader = spawn(move || find(&mut input, limits, &submit))?;
    write_all(results, reader, out, |bytes| observer.add_stored(bytes))
}

/// Several chunks: plain bytes, or consecutive payloads with the heads that preceded them.
struct Batch<C> {
    bytes: Vec<u8>,
    chunks: C,
    permit: Permit,
}

type Worked = Result<(Vec<u8>, Permit), XbcryptError>;

/// Encrypts a batch; called by a worker.
fn encrypt(cipher: &Cipher, size: usize, batch: Batch<()>) -> Worked {
    let pieces = batch.bytes.chunks(size);
    let mut out = vec![0; pieces.clone().map(|piece| sealed_len(cipher, piece.len())).sum()];
    let mut rest = &mut out[..];
    for piece in pieces {
        let (place, later) = rest.split_at_mut(sealed_len(cipher, piece.len()));
        seal_chunk(cipher, &new_iv()?, piece, place)?;
        rest = later;
    }
    Ok((out, batch.permit))
}

/// Decrypts a batch; called by a worker.
fn decrypt(cipher: &Cipher, batch: Batch<Vec<Head>>) -> Worked {
    let Batch { mut bytes, chunks, permit } = batch;
    let (mut from, mut to) = (0, 0);
    for head in chunks {
        // This many bytes were gathered for the head.
        let len = usize::try_from(head.payload_len).unwrap_or(usize::MAX);
        let plain = open_chunk(cipher, &head, &mut bytes[from..from + len])?;
        bytes.copy_within(from..from + plain, to);
        from += len;
        to += plain;
    }
    bytes.truncate(to);
    Ok((bytes, permit))
}

/// Finds chunks and passes them on in batches.
fn find<R: Read>(
    input: &mut Input<R>,
    limits: Limits,
    submit: &Submit<Batch<Vec<Head>>, Worked>,
) -> Result<(), XbcryptFilterError> {
    let budget = Budget::new(BUDGET);
    let mut decoder = Decoder::new(limits);
    let mut batch: Option<Batch<Vec<Head>>> = None;
    let mut bytes = Vec::with_capacity(READ);
    loop {
        bytes.clear();
        input.take(READ, &mut bytes)?;
        if bytes.is_empty() {
            break;
        }
        let mut rest = &bytes[..];
        while let Some(event) = decoder.next(&mut rest)? {
            match event {
                Event::Head(head) => {
                    let needed = |have: usize| (have as u64).saturating_add(head.payload_len);
                    if let Some(full) =
                        batch.take_if(|batch| needed(batch.bytes.len()) > BATCH as u64)
                    {
                        submit.send(full)?;
                    }
                    batch.get_or_insert_with(|| Batch {
                        bytes: Vec::new(),
                        chunks: Vec::new(),
                        permit: budget.lease(needed(0).max(BATCH as u64)),
                    });
                }
                // Grows with the bytes received, not with the length that a head states.
                Event::Data(piece) => {
                    if let Some(batch) = &mut batch {
                        batch.bytes.extend_from_slice(piece);
                    }
                }
                Event::ChunkEnd(head) => {
                    if let Some(batch) = &mut batch {
                        batch.chunks.push(head);
                    }
                }
            }
        }
    }
    decoder.finish()?;
    batch.map_or(Ok(()), |last| Ok(submit.send(last)?))
}

type Reader = JoinHandle<Result<(), XbcryptFilterError>>;

fn spawn(
    read: impl FnOnce() -> Result<(), XbcryptFilterError> + Send + 'static,
) -> Result<Reader, XbcryptFilterError> {
    let thread = std::thread::Builder::new().name("read".into());
    thread.spawn(read).map_err(XbcryptFilterError::Thread)
}

fn write_all(
    mut results: Results<Worked>,
    reader: Reader,
    out: &mut impl Write,
    wrote: impl Fn(u64),
) -> Result<(), XbcryptFilterError> {
    while let Some(worked) = results.recv() {
        let (bytes, _permit) = worked??;
        out.write_all(&bytes).map_err(XbcryptFilterError::Write)?;
        wrote(bytes.len() as u64);
    }
    // The submitter is gone, so the reader has ended.
    reader.join().unwrap_or(Err(XbcryptFilterError::Worker(WorkerDied)))
}

/// A source that counts bytes and repeats short reads.
struct Input<R> {
    source: R,
    position: u64,
    observer: Observer,
}

impl<R: Read> Input<R> {
    fn new(source: R, observer: &Observer) -> Self {
        Self { source, position: 0, observer: observer.clone() }
    }

    /// Appends the next `want` bytes; fewer only at the end of the input.
    fn take(&mut self, want: usize, bytes: &mut Vec<u8>) -> Result<(), XbcryptFilterError> {
        let before = bytes.len();
        bytes.reserve(want.min(BATCH));
        let read = (&mut self.source).take(want as u64).read_to_end(bytes);
        let came = (bytes.len() - before) as u64;
        self.position += came;
        self.observer.add_bytes(came);
        match read {
            Ok(_) => Ok(()),
            Err(source) => Err(XbcryptFilterError::Read { position: self.position, source }),
        }
    }
}
