//! The cipher and its key: AES in counter mode, or none.

use std::fmt;
use std::str::FromStr;

use aes::cipher::{InvalidLength, KeyIvInit, StreamCipher};
use aes::{Aes128, Aes192, Aes256};
use ctr::Ctr128BE;
use sha2::{Digest, Sha256};

use super::{IV_LEN, XbcryptError};
use crate::{Backend, KeyBytes};

/// The value of `--encrypt-algo`.
///
/// The three AES names are equivalent: the length of the key determines which AES is used, as with
/// the stock tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Chunks with unencrypted payload.
    None,
    /// AES; the length of the key determines the variant.
    Aes128,
    /// AES; the length of the key determines the variant.
    Aes192,
    /// AES; the length of the key determines the variant.
    Aes256,
}

const NAMES: [(&str, Algorithm); 4] = [
    ("NONE", Algorithm::None),
    ("AES128", Algorithm::Aes128),
    ("AES192", Algorithm::Aes192),
    ("AES256", Algorithm::Aes256),
];

/// Text that matches no algorithm, or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown algorithm: use NONE, AES128, AES192 or AES256")]
pub struct AlgorithmError;

impl Algorithm {
    fn of_key(key: &KeyBytes) -> Self {
        match key.len() {
            16 => Algorithm::Aes128,
            24 => Algorithm::Aes192,
            _ => Algorithm::Aes256,
        }
    }
}

impl FromStr for Algorithm {
    type Err = AlgorithmError;

    /// Parses the same values as the stock option: the name in any case, an unambiguous prefix, or
    /// the number from 0.
    fn from_str(text: &str) -> Result<Self, AlgorithmError> {
        if let Ok(number) = text.parse::<usize>() {
            return NAMES.get(number).map(|(_, found)| *found).ok_or(AlgorithmError);
        }
        let wanted = text.to_ascii_uppercase();
        let mut fits = NAMES.iter().filter(|(name, _)| name.starts_with(&wanted));
        match (fits.next(), fits.next()) {
            (Some((_, found)), None) => Ok(*found),
            _ => Err(AlgorithmError),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, this)| this == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// An AES algorithm was given without a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} needs a key")]
pub struct NoKey(pub Algorithm);

/// A cipher with its key, for the chunks of one or more files. Threads can share it.
pub struct Cipher {
    algorithm: Algorithm,
    key: Option<Key>,
    backend: Backend,
}

enum Key {
    Portable(KeyBytes),
    #[cfg(feature = "aws-lc")]
    AwsLc(Box<aws_lc_rs::cipher::EncryptingKey>),
}

impl Cipher {
    /// Creates a cipher for this algorithm. The length of the key determines which AES is used;
    /// with [`Algorithm::None`] the key is not used.
    ///
    /// # Errors
    /// [`NoKey`] for AES without a key.
    pub fn new(
        algorithm: Algorithm,
        key: Option<&KeyBytes>,
        backend: Backend,
    ) -> Result<Self, NoKey> {
        let (algorithm, key) = match (algorithm, key) {
            (Algorithm::None, _) => (algorithm, None),
            (_, Some(key)) => (Algorithm::of_key(key), Some(Key::new(key, backend))),
            (_, None) => return Err(NoKey(algorithm)),
        };
        Ok(Self { algorithm, key, backend })
    }

    /// The actual algorithm, with the AES variant by the length of the key.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns whether the cipher encrypts at all.
    #[must_use]
    pub fn encrypts(&self) -> bool {
        self.key.is_some()
    }

    /// Encrypts or decrypts in place; in counter mode both are the same.
    ///
    /// # Errors
    /// [`XbcryptError::Cipher`]; `bytes` are zeros then.
    pub(super) fn apply(&self, iv: &[u8; IV_LEN], bytes: &mut [u8]) -> Result<(), XbcryptError> {
        let applied = match &self.key {
            None => true,
            Some(Key::Portable(key)) => portable(key, iv, bytes).is_ok(),
            #[cfg(feature = "aws-lc")]
            Some(Key::AwsLc(key)) => {
                use aws_lc_rs::cipher::EncryptionContext;
                let context = EncryptionContext::Iv128((*iv).into());
                key.less_safe_encrypt(bytes, context).is_ok()
            }
        };
        if !applied {
            bytes.fill(0);
            return Err(XbcryptError::Cipher);
        }
        Ok(())
    }

    /// Computes SHA-256 of the plain bytes.
    pub(super) fn hash(&self, bytes: &[u8]) -> [u8; 32] {
        match self.backend {
            Backend::Portable => Sha256::digest(bytes).into(),
            #[cfg(feature = "aws-lc")]
            Backend::AwsLc => {
                use aws_lc_rs::digest::{SHA256, digest};
                let mut hash = [0; 32];
                let found = digest(&SHA256, bytes);
                hash.iter_mut().zip(found.as_ref()).for_each(|(to, from)| *to = *from);
                hash
            }
        }
    }
}

impl Key {
    fn new(key: &KeyBytes, backend: Backend) -> Self {
        match backend {
            Backend::Portable => Key::Portable(key.clone()),
            #[cfg(feature = "aws-lc")]
            Backend::AwsLc => {
                use aws_lc_rs::cipher::{
                    AES_128, AES_192, AES_256, EncryptingKey, UnboundCipherKey,
                };
                let algorithm = match key.len() {
                    16 => &AES_128,
                    24 => &AES_192,
                    _ => &AES_256,
                };
                match UnboundCipherKey::new(algorithm, key.expose()).and_then(EncryptingKey::ctr) {
                    Ok(key) => Key::AwsLc(Box::new(key)),
                    // Only for a key of another length. The other backend gives the same bytes.
                    Err(_) => Key::Portable(key.clone()),
                }
            }
        }
    }
}

fn portable(key: &KeyBytes, iv: &[u8; IV_LEN], bytes: &mut [u8]) -> Result<(), InvalidLength> {
    fn with<C: KeyIvInit + StreamCipher>(
        key: &[u8],
        iv: &[u8; IV_LEN],
        bytes: &mut [u8],
    ) -> Result<(), InvalidLength> {
        C::new_from_slices(key, iv).map(|mut cipher| cipher.apply_keystream(bytes))
    }
    let key = key.expose();
    match key.len() {
        16 => with::<Ctr128BE<Aes128>>(key, iv, bytes),
        24 => with::<Ctr128BE<Aes192>>(key, iv, bytes),
        _ => with::<Ctr128BE<Aes256>>(key, iv, bytes),
    }
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cipher")
            .field("encrypts", &self.encrypts())
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_prefixes_and_numbers() {
        for (text, want) in [
            ("NONE", Some(Algorithm::None)),
            ("n", Some(Algorithm::None)),
            ("aes256", Some(Algorithm::Aes256)),
            ("AES2", Some(Algorithm::Aes256)),
            ("Aes12", Some(Algorithm::Aes128)),
            ("0", Some(Algorithm::None)),
            ("3", Some(Algorithm::Aes256)),
            ("4", None),
            ("AES1", None),
            ("AES", None),
            ("", None),
            ("AES2567", None),
            ("-1", None),
        ] {
            assert_eq!(text.parse().ok(), want, "{text}");
        }
        assert_eq!(Algorithm::Aes192.to_string(), "AES192");
    }

    #[test]
    fn aes_without_a_key_is_an_error() {
        let error = Cipher::new(Algorithm::Aes256, None, Backend::Portable).unwrap_err();
        assert_eq!(error.to_string(), "AES256 needs a key");
        let key = KeyBytes::new(&[1; 24]).unwrap();
        let cipher = Cipher::new(Algorithm::Aes256, Some(&key), Backend::Portable).unwrap();
        assert_eq!(cipher.algorithm(), Algorithm::Aes192);
        assert!(!Cipher::new(Algorithm::None, None, Backend::Portable).unwrap().encrypts());
    }

    /// The counter is 128 bits wide and wraps as a whole, in every backend.
    #[test]
    fn backends_agree_also_when_the_counter_wraps() {
        let plain: Vec<u8> = (0..1000).map(|n| (n % 251) as u8).collect();
        for len in [16, 24, 32] {
            let key = KeyBytes::new(&vec![0x5a; len]).unwrap();
            for iv in [
                [0; 16],
                [0xff; 16],
                [0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe],
            ] {
                let results = Backend::ALL.iter().map(|&backend| {
                    let mut bytes = plain.clone();
                    let cipher = Cipher::new(Algorithm::Aes128, Some(&key), backend).unwrap();
                    cipher.apply(&iv, &mut bytes).unwrap();
                    (bytes, cipher.hash(&plain))
                });
                let results: Vec<_> = results.collect();
                assert!(results.iter().all(|result| *result == results[0]), "{len} {iv:?}");
                assert_ne!(results[0].0, plain);
            }
        }
    }
}
