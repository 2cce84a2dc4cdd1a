//! The data key of a stream, and the keys derived from it.

use std::fmt;

use hmac::Mac;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::kdf;
use crate::random::{self, NoRandom};

/// Length of a stream id in bytes.
pub const STREAM_ID_LEN: usize = 16;

/// Returns the id of a new stream: random, and new for every try.
///
/// # Errors
/// [`NoRandom`]
pub fn new_stream_id() -> Result<[u8; STREAM_ID_LEN], NoRandom> {
    random::bytes()
}

const COMMITMENT_INFO: &[u8] = b"xbrs key commitment 1";
const MANIFEST_INFO: &[u8] = b"xbrs manifest mac 1";
const KEYS_OBJECT_INFO: &[u8] = b"xbrs keys mac 1";

/// The 32 random bytes that seal one stream, once.
///
/// A `DataKey` comes from an [`KeysObject`](crate::KeysObject). It can open its stream, check its
/// manifest, and be wrapped in a new keys object. It cannot seal: only a
/// [`FreshKey`](crate::FreshKey) can. It has no `Clone`, prints as `DataKey(***)`, and is wiped
/// when dropped.
pub struct DataKey(Box<[u8; DataKey::LEN]>);

impl DataKey {
    /// Length of the key in bytes.
    pub const LEN: usize = 32;

    pub(crate) fn new(bytes: &[u8; DataKey::LEN]) -> Self {
        // On the heap, so that moving the key leaves no copies on the stack.
        let mut key = Box::new([0; DataKey::LEN]);
        key.copy_from_slice(bytes);
        Self(key)
    }

    pub(crate) fn bytes(&self) -> &[u8; DataKey::LEN] {
        &self.0
    }

    /// Returns the commitment, as in the header of the stream with this id (`docs/spec/format.md`,
    /// section 8). It reveals nothing about the key, but no other key has it.
    #[must_use]
    pub fn commitment(&self, stream_id: &[u8; STREAM_ID_LEN]) -> [u8; 32] {
        *kdf::derive(self.bytes(), stream_id, COMMITMENT_INFO)
    }

    /// Returns whether `commitment` is that of this key, for the stream with this id. Takes constant time.
    #[must_use]
    pub fn fits(&self, stream_id: &[u8; STREAM_ID_LEN], commitment: &[u8; 32]) -> bool {
        self.commitment(stream_id).ct_eq(commitment).into()
    }

    /// Returns the key that authenticates the manifest of the backup whose stream has this id.
    #[must_use]
    pub fn manifest_key(&self, stream_id: &[u8; STREAM_ID_LEN]) -> MacKey {
        MacKey(kdf::derive(self.bytes(), stream_id, MANIFEST_INFO))
    }

    /// Returns the key that authenticates the keys object.
    pub(crate) fn slots_key(&self, stream_id: &[u8; STREAM_ID_LEN]) -> MacKey {
        MacKey(kdf::derive(self.bytes(), stream_id, KEYS_OBJECT_INFO))
    }
}

impl Drop for DataKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl ZeroizeOnDrop for DataKey {}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey(***)")
    }
}

/// A key for HMAC-SHA-256, derived from a data key.
pub struct MacKey(Zeroizing<[u8; 32]>);

impl MacKey {
    pub(crate) fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// Computes the authentication code of these bytes.
    #[must_use]
    pub fn code(&self, bytes: &[u8]) -> [u8; 32] {
        kdf::hmac(&self.0).chain_update(bytes).finalize().into_bytes().into()
    }

    /// Returns whether `code` is the authentication code of these bytes. Takes constant time.
    #[must_use]
    pub fn verify(&self, bytes: &[u8], code: &[u8; 32]) -> bool {
        kdf::hmac(&self.0).chain_update(bytes).verify(code.into()).is_ok()
    }
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacKey(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FreshKey;

    /// The expected values were computed with Python's hmac module and the formula of RFC 5869.
    #[test]
    fn derived_keys_are_those_of_the_documents() {
        let key = DataKey::new(&std::array::from_fn(|n| n as u8));
        let id: [u8; 16] = std::array::from_fn(|n| 0xa0 + n as u8);
        assert_eq!(crate::hex::encode(&key.commitment(&id)), COMMITMENT);
        assert_eq!(crate::hex::encode(&key.manifest_key(&id).code(b"abc")), MANIFEST_CODE);
        assert_eq!(crate::hex::encode(&key.slots_key(&id).code(b"abc")), SLOTS_CODE);
    }

    const COMMITMENT: &str = "36b7885feb56ca8785b88c81b31bee908755ae1f7d90fd384f63365ae2b7c7a5";
    const MANIFEST_CODE: &str = "50fa57699fed2cf20d1afc8661065a3e4e9cd39fc20c45f2666cef26b1b859f1";
    const SLOTS_CODE: &str = "b455876f5bd35f4b9a38ef3351866c422e14a2d160a64eed424809a30fe54dc7";

    #[test]
    fn a_commitment_fits_one_key_and_one_stream() {
        let key = DataKey::new(&[1; 32]);
        let commitment = key.commitment(&[2; 16]);
        assert!(key.fits(&[2; 16], &commitment));
        assert!(!key.fits(&[3; 16], &commitment));
        assert!(!DataKey::new(&[4; 32]).fits(&[2; 16], &commitment));
    }

    #[test]
    fn codes_hold_for_one_key_and_one_text() {
        let key = DataKey::new(&[1; 32]).manifest_key(&[2; 16]);
        let code = key.code(b"text");
        assert!(key.verify(b"text", &code));
        assert!(!key.verify(b"texT", &code));
        assert!(!DataKey::new(&[1; 32]).manifest_key(&[3; 16]).verify(b"text", &code));
    }

    #[test]
    fn nothing_shows_the_key() {
        let key = FreshKey::from_bytes(&[0x41; 32]);
        let shown = format!("{:?} {:?} {:?}", key, key.key(), key.key().manifest_key(&[0; 16]));
        assert_eq!(shown, "FreshKey(DataKey(***)) DataKey(***) MacKey(***)");
    }
}
