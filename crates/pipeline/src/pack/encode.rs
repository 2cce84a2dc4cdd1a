//! Work of a worker on each slab while it is in the CPU cache: checksums and codec.

use std::ops::Range;

use bytes::Bytes;
use xb_compressor::{Algorithm, BlockCodec, BlockEncoder, CodecError};
use xb_frame::Codec;
use xb_reader::PieceCheck;

use crate::auto_codec::{AutoCodec, AutoEncoder, FrameCompression};
use crate::flow::checksum;
use crate::flow::observer::Waiting;
use crate::flow::plan::SLAB;
use crate::flow::slab::Slab;
use crate::scan::scanner::{Notes, Scanned, sum_pieces};

/// A slab of the stream with what the scanner found in it.
pub(crate) struct ScannedSlab {
    /// The slab; `None` after the last byte, and if there is none to be passed on.
    pub(crate) slab: Option<Slab>,
    pub(crate) notes: Notes,
    /// Only at the end of the stream.
    pub(crate) end: Option<Box<StreamEnd>>,
    /// Whether no stage may keep any of the bytes up to here.
    pub(crate) pass_on: bool,
}

/// End of a complete stream.
pub(crate) struct StreamEnd {
    /// Result of scanning the whole stream.
    pub(crate) scanned: Scanned,
    /// The run waits for the stages after the reader until they have passed on everything.
    pub(crate) rest: Waiting,
}

impl ScannedSlab {
    /// Length in bytes; 0 after the last byte.
    pub(crate) fn len(&self) -> u64 {
        self.slab.as_ref().map_or(0, |slab| slab.len() as u64)
    }
}

/// An encoded slab, or the error of the codec.
pub(crate) type Encoded = Result<EncodedSlab, CodecError>;

/// A slab with its checksums.
pub(crate) struct EncodedSlab {
    pub(crate) content: SlabContent,
    /// Checksums of the pieces of chunks, in order.
    pub(crate) sums: Vec<PieceCheck>,
    pub(crate) notes: Notes,
    /// Only at the end of the stream.
    pub(crate) end: Option<Box<StreamEnd>>,
    /// Whether no stage may keep any of the bytes up to here.
    pub(crate) pass_on: bool,
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
    /// CRC-64/NVME of a payload that can go straight to the packer: uncompressed, and not to be
    /// sealed.
    pub(crate) crc64: Option<u64>,
}

/// Encoding of the slabs.
#[derive(Debug, Clone)]
pub(crate) enum Encoding {
    /// Slabs stay unchanged.
    Plain,
    /// A slab becomes the payload of a frame.
    Frame {
        /// Codec. A payload that does not shrink is stored uncompressed.
        compress: FrameCompression,
        /// Whether the frame will be sealed: then it needs no checksums.
        sealed: bool,
    },
}

impl Encoding {
    /// Returns what chooses the codec of each frame, if there is no fixed one.
    pub(crate) fn auto_codec(&self) -> Option<AutoCodec> {
        match self {
            Self::Frame { compress: FrameCompression::Auto(codec), .. } => Some(codec.clone()),
            _ => None,
        }
    }
}

/// State of one worker.
pub(crate) struct SlabEncoder {
    /// Whether the frames will be sealed; `None` if slabs stay unchanged.
    sealed: Option<bool>,
    codec: FrameEncoder,
    scratch: Vec<u8>,
}

enum FrameEncoder {
    Fixed(Box<BlockEncoder>),
    Auto(Box<AutoEncoder>),
}

impl SlabEncoder {
    pub(crate) fn new(encoding: Encoding) -> Result<Self, CodecError> {
        let (sealed, compress) = match encoding {
            Encoding::Frame { compress, sealed } => (Some(sealed), compress),
            Encoding::Plain => (None, Algorithm::None.into()),
        };
        let codec = match compress {
            FrameCompression::Fixed(algorithm) => {
                FrameEncoder::Fixed(Box::new(BlockEncoder::new(algorithm)?))
            }
            FrameCompression::Auto(codec) => FrameEncoder::Auto(Box::new(AutoEncoder::new(codec)?)),
        };
        let room = match &codec {
            FrameEncoder::Fixed(encoder) if encoder.algorithm() == Algorithm::None => 0,
            FrameEncoder::Fixed(encoder) => encoder.max_encoded_len(SLAB),
            FrameEncoder::Auto(encoder) => encoder.room(),
        };
        Ok(Self { sealed, codec, scratch: vec![0; room] })
    }

    pub(crate) fn encode(&mut self, scanned: ScannedSlab) -> Encoded {
        let ScannedSlab { slab, notes, end, pass_on } = scanned;
        if let FrameEncoder::Auto(encoder) = &mut self.codec {
            encoder.begin();
        }
        let (sums, content) = match slab {
            Some(slab) => (sum_pieces(&slab, &notes.steps), self.content(slab)?),
            None => (Vec::new(), SlabContent::Plain(Bytes::new())),
        };
        Ok(EncodedSlab { content, sums, notes, end, pass_on })
    }

    fn content(&mut self, mut slab: Slab) -> Result<SlabContent, CodecError> {
        let Some(sealed) = self.sealed else {
            return Ok(SlabContent::Plain(slab.freeze()));
        };
        let plain_len = slab.len();
        let mut codec = Codec::None;
        let encoded = match &mut self.codec {
            FrameEncoder::Fixed(encoder) => {
                encoder.encode(&slab, &mut self.scratch)?.zip(encoder.algorithm().block_codec())
            }
            FrameEncoder::Auto(encoder) => encoder.encode(&slab, &mut self.scratch)?,
        };
        if let Some((len, block)) = encoded {
            // Back into the slab it came from, whose memory is leased.
            slab.truncate(len);
            slab.copy_from_slice(&self.scratch[..len]);
            codec = frame_codec(block);
        }
        let crc32c = if sealed { 0 } else { checksum::crc32c(&slab) };
        let crc64 = (!sealed && codec == Codec::None).then(|| checksum::crc64(&slab));
        Ok(SlabContent::Frame(FramePayload { stored: slab, codec, plain_len, crc32c, crc64 }))
    }
}

/// Maps the codec numbers of the two crates, which are the same but defined independently.
fn frame_codec(block: BlockCodec) -> Codec {
    match block {
        BlockCodec::Lz4 => Codec::Lz4,
        BlockCodec::Snappy => Codec::Snappy,
        BlockCodec::Zlib => Codec::Zlib,
        BlockCodec::Zstd => Codec::Zstd,
        _ => Codec::None,
    }
}
