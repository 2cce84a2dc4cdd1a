//! The 32 bytes in front of every frame (`docs/format.md`, "Frames").

use crate::fields::{Fields, Layout, check_closing_crc, crc32c, same, within};
use crate::limits::{
    END_FIXED_LEN, FRAME_HEADER_LEN, INDEX_HEAD_LEN, MAX_END_PLAIN, MAX_INDEX_PLAIN, MAX_POSITION,
    MAX_SOURCES,
};
use crate::{FrameError, Part, Place, StreamHeader};

/// The first four bytes of every frame.
pub const FRAME_MAGIC: [u8; 4] = *b"XBRF";

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A piece of a source.
    Data,
    /// Records that say where files, chunks and frames lie; see [`crate::index`].
    Index,
    /// The last frame of a body, with its totals.
    End,
}

impl Kind {
    /// The number in the frame header.
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

/// How a data frame's payload is stored. This crate carries the number; it runs no codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Codec {
    /// As it is.
    None,
    /// One LZ4 block, without frame and without a length in front.
    Lz4,
    /// One raw Snappy block.
    Snappy,
    /// One zlib stream (RFC 1950).
    Zlib,
    /// One Zstandard frame (RFC 8878) without dictionary.
    Zstd,
}

impl Codec {
    /// The number in the frame header.
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

/// One frame's header.
///
/// Lengths are bytes and hold what the kind allows once a header has come out of
/// [`FrameHeader::parse`], so that a buffer of `stored_len` or `plain_len` may be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameHeader {
    /// Where the frame begins, a body position. Not stored, but covered by the header's checksum.
    pub position: u64,
    /// What the frame is.
    pub kind: Kind,
    /// How the payload is stored; always [`Codec::None`] in index and end frames.
    pub codec: Codec,
    /// Number of the source that a data frame belongs to; 0 in other frames.
    pub source: u16,
    /// Length of the payload once decoded.
    pub plain_len: u32,
    /// Length of the payload in the body; never more than `plain_len`.
    pub stored_len: u32,
    /// Data: place of the first plain byte in its source. Index: body position of the index frame
    /// before this one, `u64::MAX` in the first ([`FrameHeader::previous_index`]). End: 0.
    pub plain_offset: u64,
    /// CRC-32C of the stored payload; `None` beneath a seal.
    pub payload_crc32c: Option<u32>,
}

impl FrameHeader {
    /// Bytes that the frame takes in the body, header included.
    #[must_use]
    pub fn frame_len(&self) -> u64 {
        FRAME_HEADER_LEN as u64 + u64::from(self.stored_len)
    }

    /// Body position of the index frame before this one, if this is an index frame that has one.
    #[must_use]
    pub fn previous_index(&self) -> Option<u64> {
        (self.kind == Kind::Index && self.plain_offset != NO_POSITION).then_some(self.plain_offset)
    }

    /// The header's bytes in a stream that has this stream header.
    ///
    /// [`StreamWriter`](crate::StreamWriter) makes the headers of a stream; this is for one who
    /// builds or repairs single frames.
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

    /// Reads the header that stands at body position `position` of a stream with this stream
    /// header. Nothing in it is believed before its checksum, and every length is bounded.
    ///
    /// # Errors
    /// [`FrameError::Magic`], [`FrameError::Checksum`] (also for a frame of another stream
    /// or from another place),
    /// [`FrameError::Unknown`], [`FrameError::Range`], [`FrameError::Mismatch`].
    pub fn parse(
        bytes: &[u8; FRAME_HEADER_LEN],
        stream: &StreamHeader,
        position: u64,
    ) -> Result<Self, FrameError> {
        let place = Place::new(Part::FrameHeader, position);
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
            same(place, "payload checksum beneath a seal", 0, crc.into())?;
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
    /// [`FrameError::Mismatch`] or [`FrameError::Checksum`], with the frame's place.
    pub fn check_payload(&self, payload: &[u8]) -> Result<(), FrameError> {
        let place = self.place();
        same(place, "stored length", self.stored_len.into(), payload.len() as u64)?;
        match self.payload_crc32c {
            Some(_) => self.check_payload_crc(crc32c(payload)),
            None => Ok(()),
        }
    }

    /// As [`FrameHeader::check_payload`], for a caller that has the payload's CRC-32C.
    ///
    /// # Errors
    /// [`FrameError::Checksum`] with the frame's place.
    pub fn check_payload_crc(&self, got: u32) -> Result<(), FrameError> {
        match self.payload_crc32c {
            Some(expected) if expected != got => {
                Err(FrameError::Checksum { place: self.place(), expected, got })
            }
            _ => Ok(()),
        }
    }

    /// The frame's place as errors name it.
    #[must_use]
    pub fn place(&self) -> Place {
        Place::new(self.kind.part(), self.position)
    }

    /// The rules on single headers, for both sides: `docs/format.md`, "Frames".
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
            // A frame that does not shrink is stored as it is.
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
                // Backwards only, so that following the chain comes to an end.
                let last = self.position.saturating_sub(1);
                within(place, "place of the index frame before", 0, last, self.plain_offset)
            }
            Kind::End => same(place, "plain offset", 0, self.plain_offset),
            _ => Ok(()),
        }
    }
}

/// What a frame header's checksum covers before the header itself. It ties the frame to its stream
/// and to its place, so that one that was imported or moved is noticed without a seal.
fn seed(stream: &StreamHeader, position: u64) -> [u8; 24] {
    let mut seed = [0; 24];
    let (id, place) = seed.split_at_mut(16);
    id.copy_from_slice(&stream.id().0);
    place.copy_from_slice(&position.to_le_bytes());
    seed
}

/// Means "no such frame" where a body position is expected.
pub(crate) const NO_POSITION: u64 = u64::MAX;
