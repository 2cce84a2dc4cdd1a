//! Members as our programs write them: pieces of 4 MiB, each a complete frame.

use std::fmt;

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use twox_hash::XxHash32;

use super::input_buffer::{OutputWindow, take};
use super::lz4_frame::{
    CONTENT_CHECKSUM, CONTENT_SIZE, END_MARK, INDEPENDENT, MAGIC, RAW, VERSION_1, block_max,
    descriptor_sum,
};
use super::{FileTotals, Member, Progress, State};
use crate::ZstdLevel;
use crate::error::{CodecError, ErrorLocation, Format};
use crate::zstd;

/// Plain bytes in one frame of a member: 4 MiB; only the last frame has fewer.
///
/// The stock reader keeps a whole compressed frame in memory and scans it again with every write,
/// so frames must not be large. Separate frames can also be written and read in parallel.
pub const PIECE_PLAIN: usize = 4 << 20;

/// The codec of members that we write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileCodec {
    /// LZ4 frames as xtrabackup writes them: independent blocks of 64 KiB, content size and content
    /// checksum.
    Lz4,
    /// Zstandard frames with content size and checksum.
    Zstd(ZstdLevel),
}

impl FileCodec {
    /// The resulting format, which determines the extension of the name.
    #[must_use]
    pub fn member(self) -> Member {
        match self {
            FileCodec::Lz4 => Member::Lz4,
            FileCodec::Zstd(_) => Member::Zstd,
        }
    }
}

/// Encodes each piece of a member as one complete frame.
///
/// Pieces are independent: several encoders can work on the pieces of one member, and the frames
/// are then concatenated in order. The same piece always results in the same bytes.
pub struct PieceEncoder {
    codec: FileCodec,
    inner: Inner,
}

enum Inner {
    Lz4(CompressTable),
    Zstd(zstd::Encoder),
}

impl PieceEncoder {
    /// Creates an encoder, to be used for many pieces.
    ///
    /// # Errors
    ///
    /// [`CodecError::Failed`] when the codec cannot allocate memory.
    pub fn new(codec: FileCodec) -> Result<Self, CodecError> {
        let inner = match codec {
            FileCodec::Lz4 => Inner::Lz4(CompressTable::large()),
            FileCodec::Zstd(level) => {
                let place = ErrorLocation::new(Format::Zstd, 0);
                Inner::Zstd(zstd::Encoder::new(place, level, zstd::Checksum::Yes)?)
            }
        };
        Ok(Self { codec, inner })
    }

    /// Length that `out` must have in [`PieceEncoder::encode`] for `plain_len` plain bytes.
    #[must_use]
    pub fn max_encoded_len(&self, plain_len: usize) -> usize {
        match self.inner {
            Inner::Lz4(_) => {
                let blocks = plain_len.div_ceil(LZ4_BLOCK);
                // The last block needs its maximum size until it is known that it shrinks.
                let last = get_maximum_output_size(LZ4_BLOCK) - LZ4_BLOCK;
                LZ4_HEAD + plain_len + 4 * blocks + last + LZ4_TAIL
            }
            Inner::Zstd(_) => ::zstd::zstd_safe::compress_bound(plain_len) + ZSTD_CHECKSUM,
        }
    }

    /// Encodes one piece into the front of `out`. Returns the frame's length.
    ///
    /// An empty piece results in a frame, too: an empty member consists of one.
    ///
    /// # Errors
    ///
    /// [`CodecError::Caller`] when `plain` is longer than [`PIECE_PLAIN`] or `out` shorter than
    /// [`PieceEncoder::max_encoded_len`], [`CodecError::Failed`] when the codec cannot allocate
    /// memory.
    pub fn encode(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, CodecError> {
        let place = ErrorLocation::new(self.codec.member().format(), 0);
        let caller = |field, min, max, got| CodecError::Caller { place, field, min, max, got };
        if plain.len() > PIECE_PLAIN {
            return Err(caller("piece", 0, PIECE_PLAIN, plain.len()));
        }
        let needed = self.max_encoded_len(plain.len());
        let too_small = caller("output", needed, usize::MAX, out.len());
        if out.len() < needed {
            return Err(too_small);
        }
        match &mut self.inner {
            Inner::Lz4(table) => lz4_frame(table, plain, out).ok_or(too_small),
            Inner::Zstd(encoder) => encoder.encode(plain, out)?.ok_or(too_small),
        }
    }
}

const LZ4_HEAD: usize = 15;
const LZ4_TAIL: usize = 8;
const LZ4_FLAGS: u8 = VERSION_1 | INDEPENDENT | CONTENT_SIZE | CONTENT_CHECKSUM;
const LZ4_BLOCK_CODE: u8 = 4;
const LZ4_BLOCK: usize = 64 << 10;
const ZSTD_CHECKSUM: usize = 4;

/// Writes one frame. Returns `None` if `out` is too small.
fn lz4_frame(table: &mut CompressTable, plain: &[u8], out: &mut [u8]) -> Option<usize> {
    debug_assert_eq!(block_max(LZ4_BLOCK_CODE), Some(LZ4_BLOCK));
    let (head, mut rest) = out.split_first_chunk_mut::<LZ4_HEAD>()?;
    let (magic, descriptor) = head.split_first_chunk_mut()?;
    *magic = MAGIC.to_le_bytes();
    let (sum, fields) = descriptor.split_last_mut()?;
    let ([flags, sizes], content_size) = fields.split_first_chunk_mut()?;
    *flags = LZ4_FLAGS;
    *sizes = LZ4_BLOCK_CODE << 4;
    content_size.copy_from_slice(&(plain.len() as u64).to_le_bytes());
    *sum = descriptor_sum(fields);

    let mut len = LZ4_HEAD;
    for block in plain.chunks(LZ4_BLOCK) {
        let (head, room) = rest.split_first_chunk_mut()?;
        let packed = compress_into_with_table(block, room, table).ok()?;
        let (stored, flag) = match packed < block.len() {
            true => (packed, 0),
            false => {
                room.get_mut(..block.len())?.copy_from_slice(block);
                (block.len(), RAW)
            }
        };
        *head = (u32::try_from(stored).ok()? | flag).to_le_bytes();
        len += head.len() + stored;
        rest = room.get_mut(stored..)?;
    }
    let (end, rest) = rest.split_first_chunk_mut()?;
    *end = END_MARK.to_le_bytes();
    *rest.first_chunk_mut()? = XxHash32::oneshot(0, plain).to_le_bytes();
    Some(len + LZ4_TAIL)
}

/// Writes one compressed member from pieces of any size, into buffers of any size.
///
/// The output depends on the bytes only, not on how they were cut, and is the same as that of
/// [`PieceEncoder`]s for pieces of [`PIECE_PLAIN`] bytes. Call [`FileEncoder::finish`] at the
/// end: otherwise at least the last frame is missing.
///
/// The encoder holds one piece and one frame, 8 MiB.
pub struct FileEncoder {
    pieces: PieceEncoder,
    piece: Vec<u8>,
    held: OutputWindow,
    totals: FileTotals,
    failed: Option<CodecError>,
}

impl FileEncoder {
    /// Creates an encoder at the start of a member.
    ///
    /// # Errors
    ///
    /// [`CodecError::Failed`] when the codec cannot allocate memory.
    pub fn new(codec: FileCodec) -> Result<Self, CodecError> {
        Ok(Self {
            pieces: PieceEncoder::new(codec)?,
            piece: Vec::new(),
            held: OutputWindow::default(),
            totals: FileTotals { stored: 0, plain: 0 },
            failed: None,
        })
    }

    /// Takes bytes from the front of `input` and writes compressed ones to the front of `out`,
    /// until one of the two is used up. Never returns [`State::Finished`].
    ///
    /// `out` must not be empty. A piece is held back until more input follows it, so that
    /// [`FileEncoder::finish`] writes the last one.
    ///
    /// # Errors
    ///
    /// [`CodecError::Failed`] when the codec cannot allocate memory, and again with every later
    /// call.
    pub fn encode(&mut self, input: &mut &[u8], out: &mut [u8]) -> Result<Progress, CodecError> {
        let mut written = 0;
        loop {
            if let Some(error) = &self.failed {
                return Err(error.clone());
            }
            if !self.held.is_empty() {
                let given = self.held.give(out.get_mut(written..).unwrap_or_default());
                self.totals.stored += given as u64;
                written += given;
            }
            if written == out.len() {
                return Ok(Progress { written, state: State::OutputFull });
            }
            if input.is_empty() {
                return Ok(Progress { written, state: State::NeedsInput });
            }
            if self.piece.len() == PIECE_PLAIN {
                self.frame()?;
                continue;
            }
            let taken = take(input, PIECE_PLAIN - self.piece.len());
            self.totals.plain += taken.len() as u64;
            self.piece.extend_from_slice(taken);
        }
    }

    /// Encodes the collected piece as a frame, which is then held for output.
    fn frame(&mut self) -> Result<(), CodecError> {
        let room = self.held.room(self.pieces.max_encoded_len(self.piece.len()));
        let result = self.pieces.encode(&self.piece, room);
        self.piece.clear();
        match result {
            Ok(len) => {
                self.held.hold(len);
                Ok(())
            }
            Err(error) => {
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Ends the member. Returns the remaining bytes, which are never empty and must be written
    /// after all earlier output, and the sizes of the whole member.
    ///
    /// # Errors
    ///
    /// [`CodecError::Failed`] when the codec could not allocate memory, now or before.
    pub fn finish(mut self) -> Result<(Vec<u8>, FileTotals), CodecError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let mut tail = self.held.take();
        self.frame()?;
        tail.append(&mut self.held.take());
        self.totals.stored += tail.len() as u64;
        Ok((tail, self.totals))
    }
}

impl fmt::Debug for PieceEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PieceEncoder").field("codec", &self.codec).finish_non_exhaustive()
    }
}

impl fmt::Debug for FileEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileEncoder")
            .field("codec", &self.pieces.codec)
            .field("totals", &self.totals)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
