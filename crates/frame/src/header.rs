//! The stream header: 128 bytes in front of the body (`docs/spec/format.md`, "Stream header").

use std::fmt;

use crate::fields::{Fields, Layout, check_closing_crc, same, within};
use crate::{ErrorLocation, FrameError, Part, StreamId};

/// The first eight bytes of every native stream; its last two digits are the major version.
pub const MAGIC: [u8; 8] = *b"XBRSTR01";

/// Length of the stream header in bytes.
pub const STREAM_HEADER_LEN: usize = 128;

/// Plain bytes in a data frame unless the writer asks for another size.
pub const DEFAULT_FRAME_PLAIN: usize = 1 << 20;

/// Largest number of plain bytes per data frame that a stream may declare.
pub const MAX_FRAME_PLAIN: u32 = 16 << 20;

const MAJOR: u8 = 1;
const MINOR: u8 = 0;
const FLAG_SEALED: u32 = 1;

/// Returns whether `prefix`, the first bytes of some input, starts a native stream of this major
/// version. Pass at least eight bytes.
#[must_use]
pub fn is_native(prefix: &[u8]) -> bool {
    prefix.starts_with(&MAGIC)
}

/// Seal of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Seal {
    /// No seal: the body is not encrypted.
    None,
    /// Tink's AES256-GCM-HKDF streaming format in segments of 1 MiB (`docs/spec/format.md`, "Seal").
    Aes256GcmHkdf1Mb,
}

impl Seal {
    /// Number of this seal in the stream header.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Seal::None => 0,
            Seal::Aes256GcmHkdf1Mb => 1,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Seal::None),
            1 => Some(Seal::Aes256GcmHkdf1Mb),
            _ => None,
        }
    }

    /// Stored length of a body of `body_len` bytes; `None` if it exceeds a u64.
    #[must_use]
    pub fn sealed_len(self, body_len: u64) -> Option<u64> {
        match self {
            Seal::None => Some(body_len),
            Seal::Aes256GcmHkdf1Mb => {
                // Segments of 1 MiB, each with a 16-byte tag; the first also holds the 40-byte
                // head.
                const SEGMENT: u64 = 1 << 20;
                const HEAD: u64 = 40;
                const TAG: u64 = 16;
                const FIRST: u64 = SEGMENT - HEAD - TAG;
                let segments = 1 + body_len.saturating_sub(FIRST).div_ceil(SEGMENT - TAG);
                body_len.checked_add(HEAD)?.checked_add(segments.checked_mul(TAG)?)
            }
        }
    }
}

/// Contents of the stream header.
///
/// The SHA-256 of its encoded bytes is the associated data of the seal, so any change to the header
/// of a sealed stream is detected.
#[derive(Clone, PartialEq, Eq)]
pub struct StreamHeader {
    id: StreamId,
    minor: u8,
    max_plain: u32,
    seal: Seal,
    key_commitment: [u8; 32],
}

impl StreamHeader {
    /// Creates the header of an unsealed stream with data frames of at most [`DEFAULT_FRAME_PLAIN`]
    /// bytes.
    #[must_use]
    pub fn new(id: StreamId) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "a constant far below 4 GiB")]
        let max_plain = DEFAULT_FRAME_PLAIN as u32;
        Self { id, minor: MINOR, max_plain, seal: Seal::None, key_commitment: [0; 32] }
    }

    /// Sets the maximum number of plain bytes in a data frame, 1 to [`MAX_FRAME_PLAIN`].
    ///
    /// # Errors
    /// [`FrameError::Range`] outside that range.
    pub fn with_max_plain(mut self, max_plain: u32) -> Result<Self, FrameError> {
        within(PLACE, MAX_PLAIN_FIELD, 1, MAX_FRAME_PLAIN.into(), max_plain.into())?;
        self.max_plain = max_plain;
        Ok(self)
    }

    /// Declares that the caller will seal the body with a key that has this commitment. The frames
    /// of such a stream carry no payload checksums.
    #[must_use]
    pub fn with_seal(mut self, seal: Seal, key_commitment: [u8; 32]) -> Self {
        self.seal = seal;
        self.key_commitment = if seal == Seal::None { [0; 32] } else { key_commitment };
        self
    }

    /// The stream's id.
    #[must_use]
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Maximum number of plain bytes in a data frame of this stream.
    #[must_use]
    pub fn max_plain(&self) -> u32 {
        self.max_plain
    }

    /// Seal of the body.
    #[must_use]
    pub fn seal(&self) -> Seal {
        self.seal
    }

    /// Returns whether the body is sealed.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.seal != Seal::None
    }

    /// Commitment to the data key; `None` if the body is not sealed.
    #[must_use]
    pub fn key_commitment(&self) -> Option<&[u8; 32]> {
        self.is_sealed().then_some(&self.key_commitment)
    }

    /// Minor format version; this crate writes 0. A higher minor version only adds data that a
    /// reader may skip (`docs/spec/format.md`, "Versions").
    #[must_use]
    pub fn minor(&self) -> u8 {
        self.minor
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; STREAM_HEADER_LEN] {
        let flags = if self.is_sealed() { FLAG_SEALED } else { 0 };
        Layout::new()
            .put(&MAGIC)
            .put(&LEN_FIELD.to_le_bytes())
            .put(&[MAJOR, self.minor])
            .put(&flags.to_le_bytes())
            .put(&self.id.0)
            .put(&self.max_plain.to_le_bytes())
            .put(&[self.seal.number()])
            .reserved(3)
            .put(&self.key_commitment)
            .reserved(52)
            .crc(&[])
    }

    /// Parses a header from the front of `bytes` and ignores the bytes after it.
    ///
    /// # Errors
    /// [`FrameError::NotNative`] for other bytes; [`FrameError::Truncated`] for fewer than
    /// [`STREAM_HEADER_LEN`] bytes; [`FrameError::Checksum`]; and for an intact header that cannot
    /// be read [`FrameError::Version`], [`FrameError::Unknown`], [`FrameError::Range`],
    /// [`FrameError::Mismatch`] or [`FrameError::Reserved`].
    pub fn parse(bytes: &[u8]) -> Result<Self, FrameError> {
        if let Some(magic) = bytes.first_chunk::<8>()
            && *magic != MAGIC
        {
            return Err(FrameError::NotNative { got: *magic });
        }
        let Some(bytes) = bytes.first_chunk::<STREAM_HEADER_LEN>() else {
            return Err(FrameError::Truncated { place: PLACE });
        };
        check_closing_crc(bytes, &[], PLACE)?;

        let mut fields = Fields::of(bytes);
        let _magic: [u8; 8] = fields.bytes();
        let header_len = fields.u16();
        let (major, minor) = (fields.u8(), fields.u8());
        if major != MAJOR {
            return Err(FrameError::Version { major, minor });
        }
        same(PLACE, "header length", LEN_FIELD.into(), header_len.into())?;
        let flags = fields.u32();
        if flags & !FLAG_SEALED != 0 {
            return Err(FrameError::Unknown { place: PLACE, field: "flags", got: flags.into() });
        }
        let id = StreamId(fields.bytes());
        let max_plain = fields.u32();
        within(PLACE, MAX_PLAIN_FIELD, 1, MAX_FRAME_PLAIN.into(), max_plain.into())?;
        let number = fields.u8();
        let seal = Seal::from_number(number).ok_or(FrameError::Unknown {
            place: PLACE,
            field: "seal algorithm",
            got: number.into(),
        })?;
        let sealed = u32::from(seal != Seal::None);
        same(PLACE, "sealed flag", sealed.into(), (flags & FLAG_SEALED).into())?;
        let pad: [u8; 3] = fields.bytes();
        let key_commitment: [u8; 32] = fields.bytes();
        let reserved: [u8; 52] = fields.bytes();
        // A later minor version may assign the reserved bytes a meaning that readers may ignore.
        let unused_commitment = seal == Seal::None && key_commitment != [0; 32];
        if unused_commitment || (minor == MINOR && (pad != [0; 3] || reserved != [0; 52])) {
            return Err(FrameError::Reserved { place: PLACE });
        }
        Ok(Self { id, minor, max_plain, seal, key_commitment })
    }
}

const PLACE: ErrorLocation = ErrorLocation { part: Part::StreamHeader, position: 0 };
const MAX_PLAIN_FIELD: &str = "largest plain length of a frame";
#[allow(clippy::cast_possible_truncation, reason = "128")]
const LEN_FIELD: u16 = STREAM_HEADER_LEN as u16;

impl fmt::Debug for StreamHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamHeader")
            .field("id", &self.id)
            .field("minor", &self.minor)
            .field("max_plain", &self.max_plain)
            .field("seal", &self.seal)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> StreamHeader {
        StreamHeader::new(StreamId([0xa5; 16]))
    }

    fn refit(mut bytes: [u8; STREAM_HEADER_LEN]) -> [u8; STREAM_HEADER_LEN] {
        let sum = crate::crc32c(&bytes[..124]);
        bytes[124..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn headers_return() {
        let sealed = sample().with_seal(Seal::Aes256GcmHkdf1Mb, [9; 32]);
        for header in [sample(), sample().with_max_plain(1).unwrap(), sealed] {
            assert_eq!(StreamHeader::parse(&header.encode()).unwrap(), header);
            assert!(is_native(&header.encode()));
        }
        assert!(!is_native(b"XBSTCK01"));
        assert!(!is_native(b"XBRSTR0"));
    }

    #[test]
    fn frame_size_is_bounded() {
        assert!(sample().with_max_plain(0).is_err());
        assert!(sample().with_max_plain(MAX_FRAME_PLAIN).is_ok());
        assert!(sample().with_max_plain(MAX_FRAME_PLAIN + 1).is_err());
    }

    /// Checks every rule of the document that makes an intact header unreadable.
    #[test]
    fn refuses_what_it_does_not_know() {
        let changes: [(usize, u8, &str); 11] = [
            (8, 129, "header length"),
            (9, 1, "header length"),
            (10, 2, "format version 2.0"),
            (12, 2, "unknown flags 2"),
            (15, 0x80, "unknown flags"),
            (12, 1, "sealed flag is 1, expected 0"),
            (35, 2, "largest plain length"),
            (36, 2, "unknown seal algorithm 2"),
            (37, 1, "reserved"),
            (71, 1, "reserved"),
            (123, 1, "reserved"),
        ];
        for (at, value, message) in changes {
            let mut bytes = sample().encode();
            bytes[at] = value;
            let error = StreamHeader::parse(&refit(bytes)).unwrap_err().to_string();
            assert!(error.contains(message), "byte {at}: {error}");
        }
        let mut bytes = sample().with_seal(Seal::Aes256GcmHkdf1Mb, [9; 32]).encode();
        bytes[12] = 0;
        let error = StreamHeader::parse(&refit(bytes)).unwrap_err().to_string();
        assert!(error.contains("sealed flag is 0, expected 1"), "{error}");
    }

    #[test]
    fn a_later_minor_version_may_use_reserved_bytes() {
        let mut bytes = sample().encode();
        (bytes[11], bytes[100]) = (1, 7);
        let header = StreamHeader::parse(&refit(bytes)).unwrap();
        assert_eq!((header.minor(), header.id()), (1, sample().id()));
    }

    /// Expected lengths come from the `tink` package on PyPI with AES256_GCM_HKDF_1MB.
    #[test]
    fn sealed_length_is_that_of_tink() {
        for (body, sealed) in [
            (0, 56),
            (1, 57),
            (281, 337),
            (1_048_519, 1_048_575),
            (1_048_520, 1_048_576),
            (1_048_521, 1_048_593),
            (2_097_079, 2_097_151),
            (2_097_080, 2_097_152),
            (2_097_081, 2_097_169),
            (3_145_728, 3_145_832),
        ] {
            assert_eq!(Seal::Aes256GcmHkdf1Mb.sealed_len(body), Some(sealed));
        }
        assert_eq!(Seal::Aes256GcmHkdf1Mb.sealed_len(u64::MAX), None);
        assert_eq!(Seal::None.sealed_len(281), Some(281));
    }
}
