//! Work of a worker on each slab while it is in the CPU cache: checksums and codec.

use std::ops::Range;

use bytes::Bytes;
use xb_compressor::{Algorithm, BlockEncoder, CodecError};
use xb_frame::Codec;
use xb_reader::PieceCheck;

use crate::flow::checksum;
use crate::flow::plan::SLAB;
use crate::flow::slab::Slab;
use crate::scan::scanner::{Notes, Scanned, sum_pieces};

/// A slab of the stream with what the scanner found in it.
pub(crate) struct ScannedSlab {
    /// The slab; `None` after the last byte.
    pub(crate) slab: Option<Slab>,
    pub(crate) notes: Notes,
    /// Result of scanning the whole stream; only at its end.
    pub(crate) end: Option<Box<Scanned>>,
}

/// An encoded slab, or the error of the codec.
pub(crate) type Encoded = Result<EncodedSlab, CodecError>;

/// A slab with its checksums.
pub(crate) struct EncodedSlab {
    pub(crate) content: SlabContent,
    /// Checksums of the pieces of chunks, in order.
    pub(crate) sums: Vec<PieceCheck>,
    pub(crate) notes: Notes,
    /// Result of scanning the whole stream; only at its end.
    pub(crate) end: Option<Box<Scanned>>,
}

/// Bytes of a slab in the form that the layout needs.
pub(crate) enum SlabContent {
    /// Unchanged.
    Plain(Bytes),
    /// Payload of a frame.
    Frame(FramePayload),
}

impl SlabContent {
    /// Returns a piece of the slab; empty if the slab was not kept unchanged.
    pub(crate) fn piece(&self, range: &Range<usize>) -> Bytes {
        match self {
            Self::Plain(bytes) if range.end <= bytes.len() => bytes.slice(range.clone()),
            _ => Bytes::new(),
        }
    }
}

/// Payload of a frame, with the values that its header and its object need.
pub(crate) struct FramePayload {
    pub(crate) stored: Slab,
    pub(crate) codec: Codec,
    pub(crate) plain_len: usize,
    /// Zero if the stream is sealed, because the seal proves more.
    pub(crate) crc32c: u32,
    /// Zero if the payload does not go straight to the packer.
    pub(crate) crc64: u64,
}

/// Encoding of the slabs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Encoding {
    /// Slabs stay unchanged.
    Plain,
    /// A slab becomes the payload of a frame.
    Frame {
        /// Codec. A payload that does not shrink is stored uncompressed.
        compress: Algorithm,
        crc32c: bool,
        crc64: bool,
    },
}

/// State of one worker.
pub(crate) struct SlabEncoder {
    encoding: Encoding,
    encoder: BlockEncoder,
    scratch: Vec<u8>,
}

impl SlabEncoder {
    pub(crate) fn new(encoding: Encoding) -> Result<Self, CodecError> {
        let compress = match encoding {
            Encoding::Frame { compress, .. } => compress,
            Encoding::Plain => Algorithm::None,
        };
        let encoder = BlockEncoder::new(compress)?;
        let room = if compress == Algorithm::None { 0 } else { encoder.max_encoded_len(SLAB) };
        Ok(Self { encoding, encoder, scratch: vec![0; room] })
    }

    pub(crate) fn encode(&mut self, scanned: ScannedSlab) -> Encoded {
        let ScannedSlab { slab, notes, end } = scanned;
        let (sums, content) = match slab {
            Some(slab) => (sum_pieces(&slab, &notes.steps), self.content(slab)?),
            None => (Vec::new(), SlabContent::Plain(Bytes::new())),
        };
        Ok(EncodedSlab { content, sums, notes, end })
    }

    fn content(&mut self, mut slab: Slab) -> Result<SlabContent, CodecError> {
        let Encoding::Frame { compress, crc32c, crc64 } = self.encoding else {
            return Ok(SlabContent::Plain(slab.freeze()));
        };
        let plain_len = slab.len();
        let mut codec = Codec::None;
        if let Some(block) = compress.block_codec()
            && let Some(len) = self.encoder.encode(&slab, &mut self.scratch)?
        {
            // Back into the slab it came from, whose memory is leased.
            slab.truncate(len);
            slab.copy_from_slice(&self.scratch[..len]);
            codec = frame_codec(block);
        }
        let crc32c = if crc32c { checksum::crc32c(&slab) } else { 0 };
        let crc64 = if crc64 { checksum::crc64(&slab) } else { 0 };
        Ok(SlabContent::Frame(FramePayload { stored: slab, codec, plain_len, crc32c, crc64 }))
    }
}

/// Maps the codec numbers of the two crates, which are the same but defined independently.
fn frame_codec(block: xb_compressor::BlockCodec) -> Codec {
    use xb_compressor::BlockCodec;
    match block {
        BlockCodec::Lz4 => Codec::Lz4,
        BlockCodec::Snappy => Codec::Snappy,
        BlockCodec::Zlib => Codec::Zlib,
        BlockCodec::Zstd => Codec::Zstd,
        _ => Codec::None,
    }
}
