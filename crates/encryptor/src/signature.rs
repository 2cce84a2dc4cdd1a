//! Signatures of the host that writes a backup: Ed25519 ([RFC 8032](https://www.rfc-editor.org/rfc/rfc8032)).
//!
//! Whoever has a recipient's public key can seal a backup. A signature tells which host did.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, ParsedPublicKey};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use zeroize::Zeroizing;

use crate::hex;

/// Length of a signature in bytes.
pub const SIGNATURE_LEN: usize = 64;
/// Length of a public key in bytes.
const PUBLIC_LEN: usize = 32;
/// Longest file of a key that is read, in bytes.
const MAX_FILE: u64 = 1 << 16;
/// Beginning of the text of a public key.
const SCHEME: &str = "ed25519:";
/// Characters in a line of PEM.
const PEM_LINE: usize = 64;

/// A public key with which signatures are verified, `ed25519:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VerifyingKey([u8; PUBLIC_LEN]);

/// A text that is no public key for signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a public key for signatures (ed25519: and 64 hexadecimal digits)")]
pub struct VerifyingKeyError;

impl VerifyingKey {
    /// Returns whether the holder of the private key has signed these bytes.
    #[must_use]
    pub fn verifies(&self, bytes: &[u8], signature: &[u8; SIGNATURE_LEN]) -> bool {
        let key = ParsedPublicKey::new(&ED25519, self.0);
        key.is_ok_and(|key| key.verify_sig(bytes, signature).is_ok())
    }
}

impl FromStr for VerifyingKey {
    type Err = VerifyingKeyError;

    fn from_str(text: &str) -> Result<Self, VerifyingKeyError> {
        let digits = text.trim().strip_prefix(SCHEME).ok_or(VerifyingKeyError)?;
        let bytes = hex::decode_array(digits).ok_or(VerifyingKeyError)?;
        match ParsedPublicKey::new(&ED25519, bytes) {
            Ok(_) => Ok(Self(bytes)),
            Err(_) => Err(VerifyingKeyError),
        }
    }
}

impl fmt::Display for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", hex::encode(&self.0))
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifyingKey({self})")
    }
}

/// A private key that signs.
pub struct SigningKey(Ed25519KeyPair);

/// A private key that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SigningKeyError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The text is no such key.
    #[error("not a private key for signatures (Ed25519 as PKCS#8 in PEM)")]
    Malformed,
    /// The file has no such key.
    #[error("{}: not a private key for signatures (Ed25519 as PKCS#8 in PEM)", .0.display())]
    MalformedFile(PathBuf),
    /// There are no random numbers.
    #[error("the system has no random numbers")]
    NoRandom,
}

impl SigningKey {
    /// Generates a key, and its text for a file: PKCS#8 in PEM, as `openssl genpkey -algorithm ed25519` writes it.
    ///
    /// # Errors
    /// [`SigningKeyError::NoRandom`]
    pub fn generate() -> Result<(Self, Zeroizing<String>), SigningKeyError> {
        let key = Ed25519KeyPair::generate().map_err(|_| SigningKeyError::NoRandom)?;
        // Version 1, which OpenSSL reads.
        let document = key.to_pkcs8v1().map_err(|_| SigningKeyError::NoRandom)?;
        let encoded = Zeroizing::new(BASE64_STANDARD.encode(document.as_ref()));
        let mut text = Zeroizing::new("-----BEGIN PRIVATE KEY-----\n".to_owned());
        let mut rest = &**encoded;
        while !rest.is_empty() {
            let (line, behind) = rest.split_at(rest.len().min(PEM_LINE));
            text.push_str(line);
            text.push('\n');
            rest = behind;
        }
        text.push_str("-----END PRIVATE KEY-----\n");
        Ok((Self(key), text))
    }

    /// Parses PKCS#8 in PEM. Text around it is ignored.
    ///
    /// # Errors
    /// [`SigningKeyError::Malformed`]
    pub fn parse(text: &[u8]) -> Result<Self, SigningKeyError> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(text);
        let der = der.map_err(|_| SigningKeyError::Malformed)?;
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der());
        key.map(Self).map_err(|_| SigningKeyError::Malformed)
    }

    /// Reads a file of at most 64 KiB, as [`SigningKey::parse`] does.
    ///
    /// # Errors
    /// [`SigningKeyError`]
    pub fn read(path: &Path) -> Result<Self, SigningKeyError> {
        let failed = |source| SigningKeyError::Read { path: path.to_owned(), source };
        let mut text = Zeroizing::new(Vec::new());
        let file = File::open(path).map_err(failed)?;
        file.take(MAX_FILE).read_to_end(&mut text).map_err(failed)?;
        Self::parse(&text).map_err(|_| SigningKeyError::MalformedFile(path.to_owned()))
    }

    /// The public key.
    #[must_use]
    pub fn verifying_key(&self) -> VerifyingKey {
        let mut bytes = [0; PUBLIC_LEN];
        let public = self.0.public_key().as_ref();
        // It always has this length.
        bytes.iter_mut().zip(public).for_each(|(to, from)| *to = *from);
        VerifyingKey(bytes)
    }

    /// Signs these bytes.
    #[must_use]
    pub fn sign(&self, bytes: &[u8]) -> [u8; SIGNATURE_LEN] {
        let mut signature = [0; SIGNATURE_LEN];
        let signed = self.0.sign(bytes);
        // It always has this length.
        signature.iter_mut().zip(signed.as_ref()).for_each(|(to, from)| *to = *from);
        signature
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.verifying_key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_of_one_key_and_one_text() {
        let (key, text) = SigningKey::generate().unwrap();
        let (other, _) = SigningKey::generate().unwrap();
        let signature = SigningKey::parse(text.as_bytes()).unwrap().sign(b"text");
        let public: VerifyingKey = key.verifying_key().to_string().parse().unwrap();
        assert!(public.verifies(b"text", &signature));
        assert!(!public.verifies(b"texts", &signature));
        assert!(!other.verifying_key().verifies(b"text", &signature));
        for at in 0..SIGNATURE_LEN {
            let mut changed = signature;
            changed[at] ^= 1;
            assert!(!public.verifies(b"text", &changed), "{at}");
        }
    }

    /// RFC 8032, section 7.1, test 2, with its key as PKCS#8 by OpenSSL.
    #[test]
    fn the_signature_of_the_standard_is_made() {
        const KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
            MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7\n\
            -----END PRIVATE KEY-----\n";
        let key = SigningKey::parse(KEY.as_bytes()).unwrap();
        assert_eq!(
            key.verifying_key().to_string(),
            "ed25519:3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
        );
        assert_eq!(
            hex::encode(&key.sign(&[0x72])),
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        );
    }

    #[test]
    fn a_malformed_key_is_refused() {
        for bad in ["", "ed25519:", "ed25519:00", &format!("ed25519:{}", "zz".repeat(32))] {
            assert_eq!(bad.parse::<VerifyingKey>(), Err(VerifyingKeyError), "{bad}");
        }
        for bad in ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
            assert!(SigningKey::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
