//! Encodes plain bytes as blocks.

use std::fmt;

use flate2::{Compress, Compression, FlushCompress, Status};
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

use super::probe::RandomnessTest;
use crate::block_codec::MAX_BLOCK_PLAIN;
use crate::error::{CodecError, ErrorLocation, Format};
use crate::zstd;
use crate::{Algorithm, BlockCodec, ZstdLevel};

/// Encodes plain bytes as independent blocks.
///
/// Create one per worker thread: tables and contexts are reused, and nothing is allocated after the
/// first block. The same bytes always result in the same block.
pub struct BlockEncoder {
    algorithm: Algorithm,
    inner: Inner,
}

enum Inner {
    None,
    Lz4(CompressTable),
    Snappy(Box<snap::raw::Encoder>),
    Zlib(Compress, RandomnessTest),
    Zstd(zstd::Encoder),
    SlowZstd(zstd::Encoder, RandomnessTest),
}

/// From this level on zstd is slow on data that does not shrink.
const SLOW_ZSTD: u8 = 13;

impl BlockEncoder {
    /// Creates an encoder for this algorithm; with [`Algorithm::None`] every block is stored as it
    /// is.
    ///
    /// # Errors
    ///
    /// [`CodecError::Failed`] when the codec cannot allocate memory.
    pub fn new(algorithm: Algorithm) -> Result<Self, CodecError> {
        let inner = match algorithm {
            Algorithm::None => Inner::None,
            Algorithm::Lz4 => Inner::Lz4(CompressTable::large()),
            Algorithm::Snappy => Inner::Snappy(Box::new(snap::raw::Encoder::new())),
            Algorithm::Gzip(level) => {
                let stream = Compress::new(Compression::new(level.get().into()), true);
                Inner::Zlib(stream, RandomnessTest::new())
            }
            Algorithm::Zstd(level) => {
                // The native frame around the block has a checksum, or is sealed.
                let place = ErrorLocation::block(Format::ZstdFrame);
                let encoder = zstd::Encoder::new(place, level, zstd::Checksum::No)?;
                match level.get() < SLOW_ZSTD {
                    true => Inner::Zstd(encoder),
                    false => Inner::SlowZstd(encoder, RandomnessTest::new()),
                }
            }
        };
        Ok(Self { algorithm, inner })
    }

    /// The algorithm of this encoder.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Changes the level of a zstd encoder; blocks from now on have it.
    ///
    /// # Errors
    ///
    /// [`CodecError::Failed`] when the codec cannot allocate memory. Encoders of other algorithms
    /// become zstd encoders.
    pub fn set_zstd_level(&mut self, level: ZstdLevel) -> Result<(), CodecError> {
        let same_test = |old: u8| (old < SLOW_ZSTD) == (level.get() < SLOW_ZSTD);
        match (&mut self.inner, self.algorithm) {
            (_, Algorithm::Zstd(old)) if old == level => Ok(()),
            (Inner::Zstd(encoder) | Inner::SlowZstd(encoder, _), Algorithm::Zstd(old))
                if same_test(old.get()) =>
            {
                self.algorithm = Algorithm::Zstd(level);
                encoder.set_level(level)
            }
            _ => {
                *self = Self::new(Algorithm::Zstd(level))?;
                Ok(())
            }
        }
    }

    /// Length that `out` must have in [`BlockEncoder::encode`] for `plain_len` plain bytes.
    ///
    /// At least `plain_len`; up to a fifth more for codecs that cannot be stopped at a limit.
    #[must_use]
    pub fn max_encoded_len(&self, plain_len: usize) -> usize {
        match self.inner {
            Inner::None | Inner::Zstd(_) => plain_len,
            Inner::Lz4(_) => get_maximum_output_size(plain_len),
            Inner::Zlib(..) | Inner::SlowZstd(..) => RandomnessTest::room(plain_len),
            Inner::Snappy(_) => snap::raw::max_compress_len(plain_len),
        }
    }

    /// Encodes one block into the front of `out`. Returns its length, or `None` when the block
    /// would not be shorter than `plain`: then the plain bytes must be stored as they are.
    ///
    /// Slow codecs give up at once on bytes that look random, where they could save one percent at
    /// most. After `None` the content of `out` is undefined.
    ///
    /// # Errors
    ///
    /// [`CodecError::Caller`] when `plain` is longer than [`MAX_BLOCK_PLAIN`] or `out` shorter than
    /// [`BlockEncoder::max_encoded_len`], [`CodecError::Failed`] when the codec cannot allocate
    /// memory.
    pub fn encode(&mut self, plain: &[u8], out: &mut [u8]) -> Result<Option<usize>, CodecError> {
        let Some(codec) = self.algorithm.block_codec() else { return Ok(None) };
        let place = ErrorLocation::block(codec.format());
        let caller = |field, min, max, got| Err(CodecError::Caller { place, field, min, max, got });
        if plain.len() > MAX_BLOCK_PLAIN {
            return caller("plain block", 0, MAX_BLOCK_PLAIN, plain.len());
        }
        let needed = self.max_encoded_len(plain.len());
        if out.len() < needed {
            return caller("output", needed, usize::MAX, out.len());
        }
        if plain.is_empty() {
            return Ok(None);
        }
        if let Inner::Zlib(_, probe) | Inner::SlowZstd(_, probe) = &mut self.inner
            && probe.is_random(plain, out)
        {
            return Ok(None);
        }
        // One byte less than the input, so that codecs with a limit stop there.
        let shorter = plain.len() - 1;
        let len = match &mut self.inner {
            Inner::None => None,
            Inner::Lz4(table) => compress_into_with_table(plain, out, table).ok(),
            Inner::Snappy(encoder) => encoder.compress(plain, out).ok(),
            Inner::Zlib(stream, _) => {
                zlib(stream, plain, out.get_mut(..shorter).unwrap_or_default())?
            }
            Inner::Zstd(encoder) | Inner::SlowZstd(encoder, _) => {
                encoder.encode(plain, out.get_mut(..shorter).unwrap_or_default())?
            }
        };
        Ok(len.filter(|&len| len < plain.len()))
    }
}

/// Returns the length, or `None` when the stream does not fit.
fn zlib(stream: &mut Compress, plain: &[u8], out: &mut [u8]) -> Result<Option<usize>, CodecError> {
    stream.reset();
    match stream.compress(plain, out, FlushCompress::Finish) {
        Ok(Status::StreamEnd) => Ok(usize::try_from(stream.total_out()).ok()),
        Ok(Status::Ok | Status::BufError) => Ok(None),
        Err(_) => Err(CodecError::Failed {
            place: ErrorLocation::block(BlockCodec::Zlib.format()),
            what: "the deflate encoder failed",
        }),
    }
}

impl fmt::Debug for BlockEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockEncoder").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}
