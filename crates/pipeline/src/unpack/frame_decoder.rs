//! Checks and decodes one frame.

use bytes::Bytes;
use xb_compressor::{BlockCodec, BlockDecoder, CodecError};
use xb_frame::{Codec, ErrorLocation, FrameError, FrameHeader};

use crate::flow::checksum;
use crate::flow::slab::SlabPool;

/// A frame as slices of the ranges.
pub(crate) struct Frame {
    pub(crate) header: FrameHeader,
    pub(crate) payload: Vec<Bytes>,
    /// CRC-32C of the payload, if it was computed on arrival.
    pub(crate) crc32c: Option<u32>,
}

impl Frame {
    /// Length of the payload as stored.
    pub(crate) fn len(&self) -> u64 {
        self.payload.iter().map(|piece| piece.len() as u64).sum()
    }

    /// Returns whether a worker has something to do: a payload to decode, or to read for its checksum.
    pub(crate) fn needs_worker(&self) -> bool {
        let unread = self.header.payload_crc32c.is_some() && self.crc32c.is_none();
        unread || block_codec(self.header.codec).is_some()
    }

    /// Compares the payload with its checksum, if there is one.
    pub(crate) fn check(&self) -> Result<(), FrameDecodeError> {
        if self.header.payload_crc32c.is_none() {
            return Ok(());
        }
        let read = || checksum::crc32c_of(self.payload.iter().map(AsRef::as_ref));
        let sum = self.crc32c.unwrap_or_else(read);
        self.header.check_payload_crc(sum).map_err(FrameDecodeError::Frame)
    }
}

/// Reason why a frame could not be decoded.
pub(crate) enum FrameDecodeError {
    Frame(FrameError),
    Codec(ErrorLocation, CodecError),
}

/// State of one worker.
pub(crate) struct FrameDecoder {
    blocks: BlockDecoder,
    /// Buffer that joins a payload that is in several slices.
    scratch: Vec<u8>,
    pool: SlabPool,
}

impl FrameDecoder {
    /// Creates a decoder that writes its output to slabs of `pool`.
    pub(crate) fn new(pool: SlabPool) -> Self {
        Self { blocks: BlockDecoder::new(), scratch: Vec::new(), pool }
    }

    /// Checks a frame and returns its plain bytes.
    pub(crate) fn decode(&mut self, frame: Frame) -> Result<Vec<Bytes>, FrameDecodeError> {
        frame.check()?;
        let Frame { header, payload, .. } = frame;
        let Some(codec) = block_codec(header.codec) else { return Ok(payload) };
        let stored: &[u8] = match payload.as_slice() {
            [whole] => whole,
            pieces => {
                self.scratch.clear();
                pieces.iter().for_each(|piece| self.scratch.extend_from_slice(piece));
                &self.scratch
            }
        };
        let mut slab = self.pool.take(None);
        let len = usize::try_from(header.plain_len).unwrap_or(usize::MAX).min(slab.room().len());
        slab.advance(len);
        self.blocks
            .decode(codec, stored, &mut slab)
            .map_err(|error| FrameDecodeError::Codec(header.place(), error))?;
        Ok(vec![slab.freeze()])
    }
}

fn block_codec(codec: Codec) -> Option<BlockCodec> {
    BlockCodec::from_number(codec.number())
}
