//! The last 64 bytes of a stream, in plaintext even if the body is sealed (`docs/spec/format.md`,
//! "Trailer").

use crate::end_frame::{IndexPlace, stream_len};
use crate::fields::{Fields, Layout, check_closing_crc, same, within};
use crate::limits::{END_FIXED_LEN, MAX_END_PLAIN};
use crate::{
    ErrorLocation, FRAME_HEADER_LEN, FrameError, Part, StreamHeader, StreamId, Summary, TRAILER_LEN,
};

/// The first eight bytes of the trailer.
pub const TRAILER_MAGIC: [u8; 8] = *b"XBREND01";

/// Positions of the parts of a stream, for a reader that starts at the end or has no key.
///
/// The trailer of a sealed stream is not authenticated: it is a hint that [`Trailer::check`] and
/// the end frame confirm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trailer {
    /// The stream's id, as in its header.
    pub id: StreamId,
    /// Length of the whole stored stream in bytes, header and trailer included.
    pub stream_len: u64,
    /// Length of the unsealed body in bytes.
    pub body_len: u64,
    /// Body position of the end frame, which extends to the end of the body.
    pub end_position: u64,
    /// The last index frame; `None` when there is none.
    pub last_index: Option<IndexPlace>,
}

impl Trailer {
    /// Builds the trailer for a stream with this summary.
    #[must_use]
    pub fn of(summary: &Summary) -> Self {
        Self {
            id: summary.id,
            stream_len: summary.stream_len,
            body_len: summary.body_len,
            end_position: summary.end_position,
            last_index: summary.end.last_index,
        }
    }

    /// Encodes the trailer.
    #[must_use]
    pub fn encode(&self) -> [u8; TRAILER_LEN] {
        let (index_position, index_len) = IndexPlace::fields(self.last_index);
        Layout::new()
            .put(&TRAILER_MAGIC)
            .put(&self.id.0)
            .put(&self.stream_len.to_le_bytes())
            .put(&self.body_len.to_le_bytes())
            .put(&self.end_position.to_le_bytes())
            .put(&index_position.to_le_bytes())
            .put(&index_len.to_le_bytes())
            .crc(&[])
    }

    /// Parses a trailer and checks that its numbers are consistent. Use [`Trailer::check`] to
    /// compare them with the stream.
    ///
    /// # Errors
    /// [`FrameError::Magic`], [`FrameError::Checksum`], [`FrameError::Range`],
    /// [`FrameError::Mismatch`].
    pub fn parse(bytes: &[u8; TRAILER_LEN]) -> Result<Self, FrameError> {
        let mut fields = Fields::of(bytes);
        let magic: [u8; 8] = fields.bytes();
        let place = ErrorLocation::new(Part::Trailer, 0);
        if magic != TRAILER_MAGIC {
            return Err(FrameError::Magic { place, got: magic.to_vec() });
        }
        check_closing_crc(bytes, &[], place)?;
        let id = StreamId(fields.bytes());
        let (stream_len, body_len, end_position) = (fields.u64(), fields.u64(), fields.u64());
        let (index_position, index_len) = (fields.u64(), fields.u32());

        let place = ErrorLocation::new(Part::Trailer, body_len);
        let header = FRAME_HEADER_LEN as u64;
        let (min, max) = (header + END_FIXED_LEN as u64, header + MAX_END_PLAIN as u64);
        let end_len = body_len.saturating_sub(end_position);
        within(place, "length of the end frame", min, max, end_len)?;
        let last_index = IndexPlace::from_fields(index_position, index_len, end_position, place)?;
        Ok(Self { id, stream_len, body_len, end_position, last_index })
    }

    /// Checks that this trailer belongs to the stream that begins with `header` and is `stream_len`
    /// bytes long. Without the key, nothing more can be proven of a sealed stream.
    ///
    /// # Errors
    /// [`FrameError::StreamId`] or [`FrameError::Mismatch`].
    pub fn check(&self, header: &StreamHeader, stream_len: u64) -> Result<(), FrameError> {
        if self.id != header.id() {
            return Err(FrameError::StreamId { expected: header.id(), got: self.id });
        }
        let place = ErrorLocation::new(Part::Trailer, self.body_len);
        same(place, "stream length", stream_len, self.stream_len)?;
        let from_body = self::stream_len(header, self.body_len).unwrap_or(u64::MAX);
        same(place, "stream length for its body", from_body, self.stream_len)
    }
}
