//! The one-time secret, and the fingerprint of a certificate.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::hex::{from_hex, to_hex};

/// Bytes of a one-time secret: 128 bits, so that the server's line stays short.
const SECRET_LEN: usize = 16;

/// Secret that the joiner passes to the donor through the servers' own channel. It is never sent on
/// the connection; it is wiped when dropped, and `Debug` shows `***`.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; SECRET_LEN]>);

impl Secret {
    /// Creates a secret from the system's random numbers.
    pub(crate) fn new() -> Result<Self, getrandom::Error> {
        let mut bytes = Zeroizing::new([0; SECRET_LEN]);
        getrandom::fill(&mut *bytes)?;
        Ok(Self(bytes))
    }

    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = Zeroizing::new([0; SECRET_LEN]);
        from_hex(text, &mut *bytes)?;
        Some(Self(bytes))
    }

    pub(crate) fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(to_hex(&*self.0))
    }

    pub(crate) fn bytes(&self) -> &[u8; SECRET_LEN] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.bytes().ct_eq(other.bytes()).into()
    }
}

impl Eq for Secret {}

/// SHA-256 of a certificate as it is sent (DER). Displayed as 64 hexadecimal digits, as `openssl
/// x509 -noout -fingerprint -sha256` does without its colons.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(crate) fn of(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }

    pub(crate) fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        from_hex(text, &mut bytes)?;
        Some(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}
