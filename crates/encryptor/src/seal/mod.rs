//! The seal of a native stream: exactly Tink's AES256-GCM-HKDF streaming format in segments of
//! 1 MiB (`docs/spec/format.md`, section 8).

mod error;
mod layout;
mod open;
mod push;
#[cfg(test)]
mod tests;
mod write;

use sha2::{Digest, Sha256};

pub use error::{ExpectedLength, SealError};
pub use layout::{SEAL_HEAD_LEN, SEGMENT_LEN, SegmentLayout, SegmentPlace};
pub use open::Opener;
pub use push::{OpenStream, SealStream};
pub use write::{Sealer, SegmentToSeal};

use crate::aead::{Aead, TAG_LEN};
use crate::key::STREAM_ID_LEN;
use crate::{Backend, DataKey, kdf};

const SALT_LEN: usize = 32;
const PREFIX_LEN: usize = 7;
#[allow(clippy::cast_possible_truncation, reason = "40")]
const HEAD_BYTE: u8 = SEAL_HEAD_LEN as u8;

/// The fields that tie a seal to its stream; all of them are in the stream header.
#[derive(Debug, Clone, Copy)]
pub struct SealContext<'a> {
    /// The stream's id.
    pub stream_id: [u8; STREAM_ID_LEN],
    /// The commitment to the data key, from [`DataKey::commitment`].
    pub commitment: [u8; 32],
    /// The whole stream header as stored in the stream, all 128 bytes.
    pub header: &'a [u8],
}

/// The key and nonce prefix of one sealed body.
struct Segments {
    aead: Aead,
    prefix: [u8; PREFIX_LEN],
    layout: SegmentLayout,
}

impl Segments {
    fn new(key: &DataKey, header: &[u8], head: &Head, backend: Backend) -> Self {
        let associated: [u8; 32] = Sha256::digest(header).into();
        let derived = kdf::derive(key.bytes(), &head.salt, &associated);
        Self {
            aead: Aead::new(backend, &derived),
            prefix: head.prefix,
            layout: SegmentLayout::NATIVE,
        }
    }

    fn nonce(&self, index: u32, last: bool) -> [u8; 12] {
        let mut nonce = [0; 12];
        let fields = self.prefix.into_iter().chain(index.to_be_bytes()).chain([u8::from(last)]);
        nonce.iter_mut().zip(fields).for_each(|(byte, field)| *byte = field);
        nonce
    }

    /// Checks the length of a segment, including its tag.
    fn check_len(&self, index: u32, last: bool, len: usize) -> Result<(), SealError> {
        let index = u64::from(index);
        let capacity = self.layout.capacity(index);
        let text = len.checked_sub(TAG_LEN);
        // Only an empty body has an empty segment.
        let least = usize::from(index > 0);
        let (fits, expected) = if last {
            let fits = text.is_some_and(|len| (least..=capacity).contains(&len));
            (fits, ExpectedLength::Within(least, capacity))
        } else {
            (text == Some(capacity), ExpectedLength::Full(capacity))
        };
        let (offset, got) = (self.layout.sealed_start(index), text.unwrap_or(0));
        if fits { Ok(()) } else { Err(SealError::Length { index, offset, got, expected }) }
    }
}

/// The first 40 bytes of a sealed body.
struct Head {
    salt: [u8; SALT_LEN],
    prefix: [u8; PREFIX_LEN],
}

impl Head {
    fn encode(&self) -> [u8; SEAL_HEAD_LEN] {
        let mut head = [HEAD_BYTE; SEAL_HEAD_LEN];
        let fields = self.salt.iter().chain(&self.prefix);
        head.iter_mut().skip(1).zip(fields).for_each(|(byte, field)| *byte = *field);
        head
    }

    fn parse(bytes: &[u8; SEAL_HEAD_LEN]) -> Result<Self, SealError> {
        let [first, fields @ ..] = bytes;
        if *first != HEAD_BYTE {
            return Err(SealError::Head { got: *first });
        }
        let (mut salt, mut prefix) = ([0; SALT_LEN], [0; PREFIX_LEN]);
        let places = salt.iter_mut().chain(&mut prefix);
        places.zip(fields).for_each(|(place, byte)| *place = *byte);
        Ok(Self { salt, prefix })
    }
}
