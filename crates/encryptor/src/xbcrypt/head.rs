//! The head of a chunk.

use super::version::MAGIC_LEN;
use super::{ErrorLocation, MAX_SIZE, Version, XbcryptError};

/// Length of the IV of an AES chunk in bytes.
pub const IV_LEN: usize = 16;

const MAGIC_START: [u8; 7] = *b"XBCRYP0";

/// Magic, reserved, two sizes, CRC; in versions 2 and 3 also the length of the IV.
const LEN_V1: usize = 36;
const LEN: usize = 44;

/// Length of the longest head.
pub(super) const MAX_HEAD: usize = LEN + IV_LEN;

/// Length of a head that we write.
pub(super) fn head_len(encrypted: bool) -> usize {
    if encrypted { MAX_HEAD } else { LEN }
}

/// Returns whether `prefix`, the first bytes of an input, begins an xbcrypt file. Pass at least eight
/// bytes.
#[must_use]
pub fn is_xbcrypt(prefix: &[u8]) -> bool {
    prefix.first_chunk().is_some_and(|magic| Version::of(*magic).is_some())
}

/// Returns whether fewer than eight bytes could be the beginning of a chunk.
pub(super) fn could_begin(prefix: &[u8]) -> bool {
    prefix.iter().zip(&MAGIC_START).all(|(a, b)| a == b)
}

/// The checked fields of a chunk's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// Number and offset of the chunk.
    pub place: ErrorLocation,
    /// Version of the chunk.
    pub version: Version,
    /// Length of the payload after the head, 1 to 2^31 - 1.
    pub payload_len: u64,
    /// CRC-32 of the payload.
    pub crc: u32,
    /// The IV, if the chunk has one.
    pub iv: Option<[u8; IV_LEN]>,
}

impl Head {
    /// Number of plain bytes in the chunk.
    #[must_use]
    pub fn plain_len(&self) -> u64 {
        self.payload_len - self.version.overhead()
    }

    /// Length of the head itself.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.version {
            Version::V1 => LEN_V1,
            Version::V2 | Version::V3 => LEN + self.iv.map_or(0, |iv| iv.len()),
        }
    }

    /// Always false: a head has at least 36 bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Encodes a version 3 head.
    pub(super) fn encode(&self) -> impl Iterator<Item = u8> {
        let iv_len = self.iv.map_or(0_u64, |_| IV_LEN as u64);
        let size = self.payload_len.to_le_bytes();
        let fixed = self.version.magic().into_iter().chain([0; 8]).chain(size).chain(size);
        let sums = fixed.chain(self.crc.to_le_bytes()).chain(iv_len.to_le_bytes());
        sums.chain(self.iv.into_iter().flatten())
    }
}

/// The result of [`parse_head`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parsed {
    /// A head; the payload begins after [`Head::len`] bytes.
    Head(Head),
    /// No error so far; at least this many bytes are needed to continue.
    Needs(usize),
}

/// Limits on the contents of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest payload of one chunk in bytes; a whole chunk must fit into memory. Default 64 MiB.
    /// The stock tools write 64 KiB by default, and read up to 2^31 - 1.
    pub max_chunk: u64,
    /// Whether to accept versions 1 and 2, which cannot detect a wrong key. Default false.
    pub allow_unhashed: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_chunk: 64 << 20, allow_unhashed: false }
    }
}

impl Limits {
    /// Everything that the format allows.
    pub const ALL: Limits = Limits { max_chunk: MAX_SIZE, allow_unhashed: true };
}

/// Parses the head of the chunk at the front of `bytes`. All fields are checked against the format
/// and `limits` before they are returned.
///
/// # Errors
/// [`XbcryptError::Magic`], [`Sizes`](XbcryptError::Sizes), [`TooLarge`](XbcryptError::TooLarge),
/// [`Limit`](XbcryptError::Limit), [`TooShort`](XbcryptError::TooShort),
/// [`IvLength`](XbcryptError::IvLength), [`NoHash`](XbcryptError::NoHash).
pub fn parse_head(
    bytes: &[u8],
    place: ErrorLocation,
    limits: &Limits,
) -> Result<Parsed, XbcryptError> {
    let Some(magic) = bytes.first_chunk::<MAGIC_LEN>() else {
        return Ok(Parsed::Needs(LEN_V1));
    };
    let version =
        Version::of(*magic).ok_or_else(|| XbcryptError::Magic { place, got: magic.to_vec() })?;
    if !version.has_hash() && !limits.allow_unhashed {
        return Err(XbcryptError::NoHash { place, version });
    }
    // After the magic there are 8 reserved bytes that no reader uses.
    let (Some(original), Some(encrypted), Some(crc)) =
        (field(bytes, 16), field(bytes, 24), field(bytes, 32))
    else {
        return Ok(Parsed::Needs(LEN_V1));
    };
    let payload_len = check_sizes(place, version, original, encrypted, limits)?;
    let mut head = Head { place, version, payload_len, crc: u32::from_le_bytes(crc), iv: None };
    if version == Version::V1 {
        return Ok(Parsed::Head(head));
    }
    let Some(iv_len) = field(bytes, LEN_V1) else {
        return Ok(Parsed::Needs(LEN));
    };
    match u64::from_le_bytes(iv_len) {
        0 => {}
        16 => {
            let Some(iv) = field(bytes, LEN) else {
                return Ok(Parsed::Needs(MAX_HEAD));
            };
            head.iv = Some(iv);
        }
        got => return Err(XbcryptError::IvLength { place, got }),
    }
    Ok(Parsed::Head(head))
}

fn check_sizes(
    place: ErrorLocation,
    version: Version,
    original: [u8; 8],
    encrypted: [u8; 8],
    limits: &Limits,
) -> Result<u64, XbcryptError> {
    let (original, encrypted) = (u64::from_le_bytes(original), u64::from_le_bytes(encrypted));
    let size = original.max(encrypted);
    if size > MAX_SIZE {
        return Err(XbcryptError::TooLarge { place, size });
    }
    if original != encrypted {
        return Err(XbcryptError::Sizes { place, original, encrypted });
    }
    if size > limits.max_chunk {
        return Err(XbcryptError::Limit { place, size, limit: limits.max_chunk });
    }
    let least = version.overhead() + 1;
    if size < least {
        return Err(XbcryptError::TooShort { place, size, version, least });
    }
    Ok(size)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
