//! A record of the archive: one line of JSON, a line `sha256:`, and in a sealed stream a line
//! `hmac-sha256:`, as behind a manifest.

use serde::Serialize;
use serde::de::DeserializeOwned;
use xb_encryptor::MacKey;

pub use crate::archive::digest::RecordDigest;
use crate::manifest::signed_text::{CheckLineError, SignedText, attest};

/// Largest record, in bytes.
pub const MAX_LEN: usize = 256 << 10;
/// Version of most records. A reader of it knows no other server than the one that an archive began with.
pub const FORMAT: u32 = 1;
/// Version of the head of a stream that continues that of another server. Readers refuse a higher one.
pub const FORMAT_OF_ANOTHER: u32 = 2;

/// Reason why a record cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It has no check lines, or is cut.
    #[error("not a record of the archive, or cut")]
    NoCheck,
    /// Its bytes were changed.
    #[error("damaged: its SHA-256 is {got} instead of {expected}")]
    Damaged {
        /// Digest that it states.
        expected: String,
        /// Digest of its bytes.
        got: String,
    },
    /// Its content is not that of such a record.
    #[error("malformed: {0}")]
    Malformed(String),
    /// A later version wrote it.
    #[error("format {0} is that of a later version: update this program")]
    TooNew(u32),
    /// It is not from the holder of the key.
    #[error("not authentic: no holder of the stream's key wrote it")]
    NotAuthentic,
}

/// A content that a record can have.
pub trait Content: Serialize + DeserializeOwned {
    /// Version of the format that it states.
    fn format(&self) -> u32;

    /// Returns the fault of its fields; `None` if there is none.
    fn flaw(&self) -> Option<&'static str>;
}

/// A record as it was read.
#[derive(Debug, Clone)]
pub struct Record<T> {
    /// The content.
    pub content: T,
    /// SHA-256 of all its bytes: what names it in another record.
    pub digest: RecordDigest,
    signed: Option<Box<SignedBytes>>,
}

/// The bytes that an authentication code covers, and the code.
#[derive(Debug, Clone)]
struct SignedBytes {
    bytes: Vec<u8>,
    code: [u8; 32],
}

impl<T: Content> Record<T> {
    /// Encodes a record; `mac` authenticates it.
    ///
    /// # Errors
    /// [`RecordError::Malformed`] if it is too large.
    pub fn encode(content: &T, mac: Option<&MacKey>) -> Result<Vec<u8>, RecordError> {
        let malformed = |what: String| RecordError::Malformed(what);
        let mut text = serde_json::to_vec(content).map_err(|e| malformed(e.to_string()))?;
        text.push(b'\n');
        let bytes = attest(text, mac);
        match bytes.len() <= MAX_LEN {
            true => Ok(bytes),
            false => Err(malformed(format!("it has {} bytes", bytes.len()))),
        }
    }

    /// Reads a record, which is all of `bytes`.
    ///
    /// # Errors
    /// [`RecordError`], except [`RecordError::NotAuthentic`].
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        if bytes.len() > MAX_LEN {
            return Err(RecordError::NoCheck);
        }
        let signed = SignedText::read(bytes).map_err(|flaw| match flaw {
            CheckLineError::NoCheck | CheckLineError::WrongSignature => RecordError::NoCheck,
            CheckLineError::Damaged { expected, got } => RecordError::Damaged { expected, got },
        })?;
        let malformed = |e: serde_json::Error| RecordError::Malformed(e.to_string());
        #[derive(serde::Deserialize)]
        struct Version {
            format: u32,
        }
        let version: Version = serde_json::from_slice(signed.text).map_err(malformed)?;
        if version.format > FORMAT_OF_ANOTHER {
            return Err(RecordError::TooNew(version.format));
        }
        let content: T = serde_json::from_slice(signed.text).map_err(malformed)?;
        if let Some(flaw) = content.flaw() {
            return Err(RecordError::Malformed(flaw.to_owned()));
        }
        let signature = signed.mac().map(|(bytes, code)| {
            let bytes = bytes.to_vec();
            Box::new(SignedBytes { bytes, code })
        });
        Ok(Self { content, digest: RecordDigest::of(bytes), signed: signature })
    }

    /// Checks that a holder of the key wrote it.
    ///
    /// # Errors
    /// [`RecordError::NotAuthentic`].
    pub fn authenticate(&self, key: &MacKey) -> Result<(), RecordError> {
        match &self.signed {
            Some(signed) if key.verify(&signed.bytes, &signed.code) => Ok(()),
            _ => Err(RecordError::NotAuthentic),
        }
    }

    /// Returns whether it claims to be authenticated.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        self.signed.is_some()
    }
}

/// SHA-256, hexadecimal.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    RecordDigest::of(bytes).to_string()
}

/// Length of the record at the front of `bytes`; `None` if it does not end there.
#[must_use]
pub fn front(bytes: &[u8]) -> Option<usize> {
    let mut end = 0;
    let mut line = || {
        let rest = bytes.get(end..)?;
        end += rest.iter().position(|byte| *byte == b'\n')? + 1;
        Some(end)
    };
    line()?;
    let plain = line()?;
    // The magic of a native stream follows, or the second check line. Either needs eight bytes to show.
    let next = bytes.get(plain..plain + 8)?;
    if next == b"hmac-sha" { line() } else { Some(plain) }
}
