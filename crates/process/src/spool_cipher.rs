//! The cipher of a spool: only the process that wrote its file can read it.

use std::fmt;
use std::io;

use aes::Aes256;
use aes::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use ctr::Ctr128BE;
use zeroize::Zeroizing;

/// AES-256 in counter mode, with a random key that is nowhere but in memory. A position of a spool is written once, so
/// no part of the key stream is used for two texts.
pub(crate) struct SpoolCipher(Zeroizing<[u8; 32]>);

impl SpoolCipher {
    pub(crate) fn new() -> io::Result<Self> {
        let mut key = Zeroizing::new([0_u8; 32]);
        getrandom::fill(&mut *key).map_err(io::Error::other)?;
        Ok(Self(key))
    }

    /// Encrypts or decrypts what lies at this position.
    pub(crate) fn apply(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let cipher = Ctr128BE::<Aes256>::new_from_slices(&self.0[..], &[0; 16]);
        let mut cipher = cipher.map_err(io::Error::other)?;
        cipher
            .try_seek(at)
            .and_then(|()| cipher.try_apply_keystream(bytes))
            .map_err(io::Error::other)
    }
}

/// Without the key.
impl fmt::Debug for SpoolCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpoolCipher").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_position_is_encrypted_by_itself_and_each_spool_has_its_own_key() {
        let cipher = SpoolCipher::new().unwrap();
        let mut whole = [0; 1000];
        cipher.apply(&mut whole, 5).unwrap();
        let mut part = [0; 100];
        cipher.apply(&mut part, 105).unwrap();
        assert_eq!(part, whole[100..200]);
        assert_ne!(part, whole[..100]);
        let mut other = [0; 1000];
        SpoolCipher::new().unwrap().apply(&mut other, 5).unwrap();
        assert_ne!(other, whole);
        cipher.apply(&mut whole, 5).unwrap();
        assert_eq!(whole, [0; 1000]);
    }
}
