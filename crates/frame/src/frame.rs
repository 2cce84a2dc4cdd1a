//! The 32-byte header in front of every frame (`docs/spec/format.md`, "Frames").

use crate::fields::{Fields, Layout, check_closing_crc, crc32c, same, within};
use crate::limits::{
    END_FIXED_LEN, FRAME_HEADER_LEN, INDEX_HEAD_LEN, MAX_END_PLAIN, MAX_INDEX_PLAIN, MAX_POSITION,
    MAX_SOURCES,
};
use crate::{ErrorLocation, FrameError, Part, StreamHeader};

/// The first four bytes of every frame.
pub const FRAME_MAGIC: [u8; 4] = *b"XBRF";

/// Kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A piece of a source.
    Data,
    /// Records that locate files, chunks and frames; see [`crate::index`].
    Index,
    /// The last frame of a body, which holds the totals.
    End,
}

impl Kind {
    /// Number of this kind in the frame header.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Kind::Data => 1,
            Kind::Index => 2,
            Kind::End => 3,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Kind::Data),
            2 => Some(Kind::Index),
            3 => Some(Kind::End),
            _ => None,
        }
    }

    pub(crate) fn part(self) -> Part {
        match self {
            Kind::Data => Part::Data,
            Kind::Index => Part::Index,
            Kind::End => Part::End,
        }
    }
}

/// Compression of a data frame's payload. This crate only stores the number; it runs no codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Codec {
    /// Uncompressed.
    None,
    /// One LZ4 block, without a frame and without a length prefix.
    Lz4,
    /// One raw Snappy block.
    Snappy,
    /// One zlib stream (RFC 1950).
    Zlib,
    /// One Zstandard frame (RFC 8878) without a dictionary.
    Zstd,
}

impl Codec {
    /// Number of this codec in the frame header.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Codec::None => 0,
            Codec::Lz4 => 1,
            Codec::Snappy => 2,
            Codec::Zlib => 3,
            Codec::Zstd => 4,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Codec::None),
            1 => Some(Codec::Lz4),
            2 => Some(Codec::Snappy),
            3 => Some(Codec::Zlib),
            4 => Some(Codec::Zstd),
            _ => None,
        }
    }
}

/// Header of one frame.
///
/// [`FrameHeader::parse`] checks that the lengths, in bytes, are within the limits of the frame's
/// kind, so it is safe to allocate a buffer of `stored_len` or `plain_len`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameHeader {
    /// Body position of the frame. Not stored, but covered by the header's checksum.
    pub position: u64,
    /// Kind of the frame.
    pub kind: Kind,
    /// Codec of the payload; always [`Codec::None`] in index and end frames.
    pub codec: Codec,
    /// Number of the source that a data frame belongs to; 0 in other frames.
    pub source: u16,
    /// Length of the decoded payload.
    pub plain_len: u32,
    /// Length of the payload in the body; never more than `plain_len`.
    pub stored_len: u32,
    /// Data: offset of the first plain byte in its source. Index: body position of the previous
    /// index frame, `u64::MAX` in the first ([`FrameHeader::previous_index`]). End: 0.
    pub plain_offset: u64,
    /// CRC-32C of the stored payload; `None` in a sealed stream.
    pub payload_crc32c: Option<u32>,
}

impl FrameHeader {
    /// Length of the whole frame in the body, header included.
    #[must_use]
    pub fn frame_len(&self) -> u64 {
        FRAME_HEADER_LEN as u64 + u64::from(self.stored_len)
    }

    /// Body position of the previous index frame; `None` in the first one and in other frames.
    #[must_use]
    pub fn previous_index(&self) -> Option<u64> {
        (self.kind == Kind::Index && self.plain_offset != NO_POSITION).then_some(self.plain_offset)
    }

    /// Encodes this header for a stream with the header `stream`.
    ///
    /// [`StreamWriter`](crate::StreamWriter) creates the headers of a stream. Use this method only
    /// to build or repair single frames.
    #[must_use]
    pub fn encode(&self, stream: &StreamHeader) -> [u8; FRAME_HEADER_LEN] {
        Layout::new()
            .put(&FRAME_MAGIC)
            .put(&[self.kind.number(), self.codec.number()])
            .put(&self.source.to_le_bytes())
            .put(&self.plain_len.to_le_bytes())
            .put(&self.stored_len.to_le_bytes())
            .put(&self.plain_offset.to_le_bytes())
            .put(&self.payload_crc32c.unwrap_or(0).to_le_bytes())
            .crc(&seed(stream, self.position))
    }

    /// Parses the header at body position `position` of a stream with the header `stream`. The
    /// checksum is compared first, and every length is checked against its limit.
    ///
    /// # Errors
    /// [`FrameError::Magic`], [`FrameError::Checksum`] (also for a frame from another stream or
    /// another position), [`FrameError::Unknown`], [`FrameError::Range`], [`FrameError::Mismatch`].
    pub fn parse(
        bytes: &[u8; FRAME_HEADER_LEN],
        stream: &StreamHeader,
        position: u64,
    ) -> Result<Self, FrameError> {
        let place = ErrorLocation::new(Part::FrameHeader, position);
        let mut fields = Fields::of(bytes);
        let magic: [u8; 4] = fields.bytes();
        if magic != FRAME_MAGIC {
            return Err(FrameError::Magic { place, got: magic.to_vec() });
        }
        check_closing_crc(bytes, &seed(stream, position), place)?;

        let (kind, codec) = (fields.u8(), fields.u8());
        let unknown = |field, got: u8| FrameError::Unknown { place, field, got: got.into() };
        let kind = Kind::from_number(kind).ok_or_else(|| unknown("frame kind", kind))?;
        let codec = Codec::from_number(codec).ok_or_else(|| unknown("codec", codec))?;
        let source = fields.u16();
        let (plain_len, stored_len) = (fields.u32(), fields.u32());
        let plain_offset = fields.u64();
        let crc = fields.u32();
        if stream.is_sealed() {
            same(place, "payload checksum of a sealed frame", 0, crc.into())?;
        }
        let payload_crc32c = (!stream.is_sealed()).then_some(crc);
        let header = Self {
            position,
            kind,
            codec,
            source,
            plain_len,
            stored_len,
            plain_offset,
            payload_crc32c,
        };
        header.check_fields(stream)?;
        Ok(header)
    }

    /// Checks a whole stored payload against this header: its length and, unless the stream is
    /// sealed, its CRC-32C.
    ///
    /// # Errors
    /// [`FrameError::Mismatch`] or [`FrameError::Checksum`], with the location of the frame.
    pub fn check_payload(&self, payload: &[u8]) -> Result<(), FrameError> {
        let place = self.place();
        same(place, "stored length", self.stored_len.into(), payload.len() as u64)?;
        match self.payload_crc32c {
            Some(_) => self.check_payload_crc(crc32c(payload)),
            None => Ok(()),
        }
    }

    /// Like [`FrameHeader::check_payload`], for a caller that has already computed the CRC-32C.
    ///
    /// # Errors
    /// [`FrameError::Checksum`], with the location of the frame.
    pub fn check_payload_crc(&self, got: u32) -> Result<(), FrameError> {
        match self.payload_crc32c {
            Some(expected) if expected != got => {
                Err(FrameError::Checksum { place: self.place(), expected, got })
            }
            _ => Ok(()),
        }
    }

    /// Location of the frame, for errors.
    #[must_use]
    pub fn place(&self) -> ErrorLocation {
        ErrorLocation::new(self.kind.part(), self.position)
    }

    /// Checks the format's rules for a single header, on both sides: `docs/spec/format.md`, "Frames".
    pub(crate) fn check_fields(&self, stream: &StreamHeader) -> Result<(), FrameError> {
        let place = self.place();
        let (plain, stored) = (u64::from(self.plain_len), u64::from(self.stored_len));
        let (min, max) = match self.kind {
            Kind::Data => (1, stream.max_plain().into()),
            Kind::Index => (INDEX_HEAD_LEN as u64, MAX_INDEX_PLAIN as u64),
            Kind::End => (END_FIXED_LEN as u64, MAX_END_PLAIN as u64),
        };
        within(place, "plain length", min, max, plain)?;
        match self.codec {
            Codec::None => same(place, "stored length", plain, stored)?,
            // A payload that does not shrink is stored uncompressed.
            _ => within(place, "stored length", 1, plain - 1, stored)?,
        }
        let end = self.position.saturating_add(self.frame_len());
        within(place, "end of the frame", 0, MAX_POSITION, end)?;
        if self.kind == Kind::Data {
            within(place, "source number", 0, u64::from(MAX_SOURCES) - 1, self.source.into())?;
            let room = MAX_POSITION - plain;
            return within(place, "plain offset", 0, room, self.plain_offset);
        }
        same(place, "codec", 0, self.codec.number().into())?;
        same(place, "source number", 0, self.source.into())?;
        match self.kind {
            Kind::Index if self.plain_offset != NO_POSITION => {
                // The chain only leads backwards, so following it terminates.
                let last = self.position.saturating_sub(1);
                within(place, "position of the previous index frame", 0, last, self.plain_offset)
            }
            Kind::End => same(place, "plain offset", 0, self.plain_offset),
            _ => Ok(()),
        }
    }
}

/// Bytes that a frame header's checksum covers in front of the header itself. They tie the frame to
/// its stream and position, so that a frame copied from elsewhere or moved is detected even without
/// a seal.
fn seed(stream: &StreamHeader, position: u64) -> [u8; 24] {
    let mut seed = [0; 24];
    let (id, place) = seed.split_at_mut(16);
    id.copy_from_slice(&stream.id().0);
    place.copy_from_slice(&position.to_le_bytes());
    seed
}

/// Marks "no such frame" in a body position field.
pub(crate) const NO_POSITION: u64 = u64::MAX;
