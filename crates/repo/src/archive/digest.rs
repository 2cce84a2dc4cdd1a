//! The SHA-256 by which a record is named in another one.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::hex::{hex, unhex};

/// SHA-256 of a record. Its text is lower-case hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordDigest([u8; 32]);

impl RecordDigest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Reads its text; `None` if that is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        unhex(text).map(Self)
    }
}

impl PartialEq<str> for RecordDigest {
    fn eq(&self, other: &str) -> bool {
        Self::parse(other) == Some(*self)
    }
}

impl PartialEq<String> for RecordDigest {
    fn eq(&self, other: &String) -> bool {
        *self == **other
    }
}

impl fmt::Display for RecordDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for RecordDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_digest_reads_back() {
        let digest = RecordDigest::of(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!((digest.to_string().as_str(), RecordDigest::parse(text)), (text, Some(digest)));
        assert!(digest == *text && digest != *"" && digest != text.to_uppercase());
    }
}
