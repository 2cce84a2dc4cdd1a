//! The key of a stream of a binlog archive, from which each of its segments has a key of its own.

use crate::key::{DataKey, MacKey, STREAM_ID_LEN, new_stream_id};
use crate::random::NoRandom;
use crate::{FreshKey, kdf};

const SEGMENT_INFO: &[u8] = b"xbrs binlog segment 1";
const HEAD_INFO: &[u8] = b"xbrs binlog mac 1";

/// A key under which any number of segments are sealed: each with a key that is derived for its own stream
/// ID, so that no key seals twice. Whoever has only the derived keys cannot find this one.
#[derive(Debug)]
pub struct ArchiveKey(DataKey);

impl ArchiveKey {
    /// Generates a random key.
    ///
    /// # Errors
    /// [`NoRandom`]
    pub fn generate() -> Result<Self, NoRandom> {
        Ok(Self(FreshKey::generate()?.into_key()))
    }

    /// The key itself: for its keys object, and for readers.
    #[must_use]
    pub fn key(&self) -> &DataKey {
        &self.0
    }

    /// Returns the stream ID of a new segment, and the key that seals it.
    ///
    /// # Errors
    /// [`NoRandom`]
    pub fn fresh_segment(&self) -> Result<([u8; STREAM_ID_LEN], FreshKey), NoRandom> {
        let id = new_stream_id()?;
        Ok((id, FreshKey::of(self.0.segment_key(&id))))
    }
}

impl DataKey {
    /// Returns the key of the archive's segment whose native stream has this ID.
    #[must_use]
    pub fn segment_key(&self, segment: &[u8; STREAM_ID_LEN]) -> DataKey {
        DataKey::new(&kdf::derive(self.bytes(), segment, SEGMENT_INFO))
    }

    /// Returns the key that authenticates the heads of the archive's stream with this ID.
    #[must_use]
    pub fn archive_mac(&self, stream: &[u8; STREAM_ID_LEN]) -> MacKey {
        MacKey::new(kdf::derive(self.bytes(), stream, HEAD_INFO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with Python's hmac module and the formula of RFC 5869.
    #[test]
    fn derived_keys_are_those_of_the_specification() {
        let key = DataKey::new(&std::array::from_fn(|n| u8::try_from(n).unwrap()));
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(key.segment_key(&[7; 16]).bytes()), SEGMENT);
        assert_eq!(hex(&key.archive_mac(&[7; 16]).code(b"head")), CODE);
    }

    const SEGMENT: &str = "f6eeb0d204ed482f9d0f4dbfa15132cb60073525802284c1ac18f52401ec8d7f";
    const CODE: &str = "6c53bfe196178c03a96767a4f337368532cd5628c34c20c5b0da9cb24915111a";

    #[test]
    fn every_segment_has_a_key_of_its_own() {
        let key = ArchiveKey::generate().unwrap();
        let (one, two) = (key.fresh_segment().unwrap(), key.fresh_segment().unwrap());
        assert_ne!(one.0, two.0);
        assert_ne!(one.1.key().bytes(), two.1.key().bytes());
        assert_eq!(one.1.key().bytes(), key.key().segment_key(&one.0).bytes());
    }
}
