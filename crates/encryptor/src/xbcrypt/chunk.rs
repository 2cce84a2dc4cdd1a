//! Sealing and opening one chunk in memory.

use subtle::ConstantTimeEq;

use super::head::head_len;
use super::version::HASH_LEN;
use super::{Cipher, ErrorLocation, Head, IV_LEN, MAX_SIZE, Version, XbcryptError};
use crate::random::{self, NoRandom};

/// Returns a new random IV. Every chunk needs its own.
///
/// # Errors
/// [`NoRandom`]
pub fn new_iv() -> Result<[u8; IV_LEN], NoRandom> {
    random::bytes()
}

/// Length of the version 3 chunk that holds `plain_len` bytes: 92 more with AES, 76 with NONE.
#[must_use]
pub fn sealed_len(cipher: &Cipher, plain_len: usize) -> usize {
    plain_len.saturating_add(head_len(cipher.encrypts()) + HASH_LEN)
}

/// Writes a version 3 chunk of these plain bytes into `out`, which must have exactly
/// [`sealed_len`] bytes. The IV must be fresh ([`new_iv`]); with NONE it is not used.
///
/// # Errors
/// [`XbcryptError::Plain`] for no bytes or more than a chunk holds, [`XbcryptError::Room`],
/// [`XbcryptError::Cipher`].
pub fn seal_chunk(
    cipher: &Cipher,
    iv: &[u8; IV_LEN],
    plain: &[u8],
    out: &mut [u8],
) -> Result<(), XbcryptError> {
    let payload_len = plain.len() as u64 + HASH_LEN as u64;
    if plain.is_empty() || payload_len > MAX_SIZE {
        return Err(XbcryptError::Plain { got: plain.len() });
    }
    let (expected, got) = (sealed_len(cipher, plain.len()), out.len());
    let room = XbcryptError::Room { expected, got };
    if got != expected {
        return Err(room);
    }
    let (front, payload) = out.split_at_mut_checked(head_len(cipher.encrypts())).ok_or(room)?;
    let hash = cipher.hash(plain);
    if let Some((text, tail)) = payload.split_at_mut_checked(plain.len()) {
        text.copy_from_slice(plain);
        tail.copy_from_slice(&hash);
    }
    cipher.apply(iv, payload)?;
    let head = Head {
        place: ErrorLocation::default(),
        version: Version::V3,
        payload_len,
        crc: crc32(payload),
        iv: cipher.encrypts().then_some(*iv),
    };
    front.iter_mut().zip(head.encode()).for_each(|(to, from)| *to = from);
    Ok(())
}

/// Opens a chunk in place: `payload` is everything after its head. Returns the number of plain
/// bytes, which are then at the front of `payload`. The CRC and, in version 3, the hash are
/// checked; versions 1 and 2 result in noise with a wrong key.
///
/// # Errors
/// [`XbcryptError::Crc`], [`Hash`](XbcryptError::Hash), [`Algorithm`](XbcryptError::Algorithm),
/// [`PayloadLength`](XbcryptError::PayloadLength), [`Cipher`](XbcryptError::Cipher). After an error `payload` holds no plain bytes.
pub fn open_chunk(cipher: &Cipher, head: &Head, payload: &mut [u8]) -> Result<usize, XbcryptError> {
    let place = head.place;
    if payload.len() as u64 != head.payload_len {
        let (expected, got) = (head.payload_len, payload.len());
        return Err(XbcryptError::PayloadLength { place, expected, got });
    }
    // In version 1, no IV shows whether the chunk is encrypted.
    if head.version != Version::V1 && head.iv.is_some() != cipher.encrypts() {
        return Err(XbcryptError::Algorithm { place, encrypted: head.iv.is_some() });
    }
    let got = crc32(payload);
    if got != head.crc {
        return Err(XbcryptError::Crc { place, expected: head.crc, got });
    }
    let start = match head.version {
        Version::V3 => head.iv.unwrap_or_default(),
        Version::V1 | Version::V2 => [0; IV_LEN],
    };
    cipher.apply(&start, payload)?;
    if !head.version.has_hash() {
        return Ok(payload.len());
    }
    let fits = payload.split_last_chunk::<HASH_LEN>().and_then(|(plain, hash)| {
        bool::from(cipher.hash(plain).ct_eq(hash)).then_some(plain.len())
    });
    fits.ok_or_else(|| {
        payload.fill(0);
        XbcryptError::Hash { place }
    })
}

#[allow(clippy::cast_possible_truncation, reason = "the upper half of a CRC-32 is zero")]
fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}
