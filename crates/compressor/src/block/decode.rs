//! Decodes blocks.

use std::fmt;

use flate2::{Decompress, FlushDecompress, Status};

use crate::block_codec::{BlockCodec, MAX_BLOCK_PLAIN};
use crate::error::{CodecError, ErrorLocation, Format, lz4_error};
use crate::zstd;

/// Decodes blocks of any codec.
///
/// Create one per worker thread: a context is created when a block first needs it, and then kept.
#[derive(Default)]
pub struct BlockDecoder {
    zlib: Option<Decompress>,
    zstd: Option<zstd::BlockDecoder>,
}

impl BlockDecoder {
    /// Creates a decoder without any contexts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes one block, which must fill `out` exactly and use up all of `stored`.
    ///
    /// `out` must have the announced length of the plain bytes, at most [`MAX_BLOCK_PLAIN`].
    /// Nothing is written beyond it and, whatever the block states, no other buffer of that size is
    /// allocated. After an error the content of `out` is undefined.
    ///
    /// # Errors
    ///
    /// - [`CodecError::TooLong`], [`CodecError::TooShort`]: the block decodes to another length.
    /// - [`CodecError::Mismatch`]: the block states another length.
    /// - [`CodecError::Trailing`]: there is data after the end of the block.
    /// - [`CodecError::Damaged`], [`CodecError::Magic`], [`CodecError::Range`],
    ///   [`CodecError::Unsupported`]: the bytes are not a block of this codec, or of a form that
    ///   native frames do not allow.
    /// - [`CodecError::Caller`]: `out` is longer than a block can be.
    /// - [`CodecError::Failed`]: no memory for a context.
    pub fn decode(
        &mut self,
        codec: BlockCodec,
        stored: &[u8],
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        if out.len() > MAX_BLOCK_PLAIN {
            return Err(CodecError::Caller {
                place: ErrorLocation::block(codec.format()),
                field: "plain block",
                min: 0,
                max: MAX_BLOCK_PLAIN,
                got: out.len(),
            });
        }
        match codec {
            BlockCodec::Lz4 => lz4(stored, out),
            BlockCodec::Snappy => snappy(stored, out),
            BlockCodec::Zlib => {
                zlib(self.zlib.get_or_insert_with(|| Decompress::new(true)), stored, out)
            }
            BlockCodec::Zstd => {
                if self.zstd.is_none() {
                    self.zstd = Some(zstd::BlockDecoder::new()?);
                }
                self.zstd.as_mut().map_or(Ok(()), |decoder| decoder.decode(stored, out))
            }
        }
    }
}

fn lz4(stored: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
    let place = ErrorLocation::block(Format::Lz4Block);
    let got = lz4_flex::block::decompress_into(stored, out)
        .map_err(|error| lz4_error(place, &error, out.len()))?;
    filled(place, out.len(), got)
}

fn snappy(stored: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
    let place = ErrorLocation::block(Format::SnappyBlock);
    let damaged = |what| CodecError::Damaged { place, what };
    let stated = snap::raw::decompress_len(stored)
        .map_err(|_| damaged("the length at its start is invalid"))?;
    if stated != out.len() {
        let (expected, got) = (out.len() as u64, stated as u64);
        return Err(CodecError::Mismatch { place, field: "plain length", expected, got });
    }
    let got = snap::raw::Decoder::new().decompress(stored, out).map_err(|error| {
        damaged(match error {
            snap::Error::Literal { .. } => "literals extend past the end",
            snap::Error::CopyRead { .. } => "the block ends inside a copy",
            snap::Error::CopyWrite { .. } => "a copy extends past the plain length",
            snap::Error::Offset { .. } => "a copy refers to data before the start",
            snap::Error::HeaderMismatch { .. } => "the block ends before the plain length",
            _ => "not a snappy block",
        })
    })?;
    filled(place, out.len(), got)
}

fn zlib(stream: &mut Decompress, stored: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
    let place = ErrorLocation::block(Format::ZlibStream);
    stream.reset(true);
    let status = stream.decompress(stored, out, FlushDecompress::Finish);
    let all_in = stream.total_in() == stored.len() as u64;
    match status {
        Ok(Status::StreamEnd) if !all_in => Err(CodecError::Trailing { place }),
        Ok(Status::StreamEnd) => {
            filled(place, out.len(), usize::try_from(stream.total_out()).unwrap_or(usize::MAX))
        }
        Ok(Status::Ok | Status::BufError) => {
            // It stopped because input or output ran out: check whether there is more output.
            let (len, mut one) = (stream.total_out(), [0]);
            let more = stream.decompress(&[], &mut one, FlushDecompress::Finish);
            if all_in && (more.is_err() || stream.total_out() == len) {
                return Err(CodecError::Cut { place, part: "the stream" });
            }
            Err(CodecError::TooLong { place, expected: out.len() as u64 })
        }
        Err(error) if error.needs_dictionary().is_some() => Err(CodecError::Unsupported {
            place,
            field: "preset dictionary",
            got: error.needs_dictionary().unwrap_or_default().into(),
        }),
        Err(_) => {
            Err(CodecError::Damaged { place, what: "not a zlib stream, or its Adler-32 is wrong" })
        }
    }
}

fn filled(place: ErrorLocation, expected: usize, got: usize) -> Result<(), CodecError> {
    if got == expected {
        return Ok(());
    }
    Err(CodecError::TooShort { place, expected: expected as u64, got: got as u64 })
}

impl fmt::Debug for BlockDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockDecoder").finish_non_exhaustive()
    }
}
