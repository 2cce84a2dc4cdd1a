//! Text with a last line that detects damage, and another that authenticates it.
//!
//! `sha256:HEX` over the exact bytes before that line detects accidental damage. In a sealed
//! backup, `hmac-sha256:HEX` over everything before it follows, with a key that only holders of the
//! data key have. If the writer has a key to sign with, `ed25519:KEY:SIGNATURE` over everything before it is the last
//! line, both in hexadecimal.

use sha2::{Digest, Sha256};
use xb_encryptor::{MacKey, SIGNATURE_LEN, SigningKey, VerifyingKey};

use crate::hex::{hex, unhex};

const CHECK: &str = "sha256:";
const MAC: &str = "hmac-sha256:";
const SIGNATURE: &str = "ed25519:";

/// Defect of the check lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckLineError {
    /// The lines are missing or malformed.
    NoCheck,
    /// The digest differs.
    Damaged {
        /// Digest that the text states.
        expected: String,
        /// Digest of the text.
        got: String,
    },
    /// The last line has a signature of another text.
    WrongSignature,
}

/// Text with a matching digest, and its HMAC, if any.
#[derive(Debug, Clone)]
pub struct SignedText<'a> {
    /// The text without the check lines.
    pub text: &'a [u8],
    mac: Option<(&'a [u8], [u8; 32])>,
    signature: Option<Signature<'a>>,
}

/// Signature of the host that wrote a text.
#[derive(Debug, Clone)]
struct Signature<'a> {
    key: VerifyingKey,
    signed: &'a [u8],
    value: [u8; SIGNATURE_LEN],
}

/// Appends the check lines to `text`, which must end with a line feed.
pub fn attest(mut text: Vec<u8>, key: Option<&MacKey>) -> Vec<u8> {
    let line = format!("{CHECK}{}\n", hex(&Sha256::digest(&text)));
    text.extend_from_slice(line.as_bytes());
    if let Some(key) = key {
        let line = format!("{MAC}{}\n", hex(&key.code(&text)));
        text.extend_from_slice(line.as_bytes());
    }
    text
}

/// Appends the line of the host that writes an attested text.
pub fn sign(mut text: Vec<u8>, key: &SigningKey) -> Vec<u8> {
    let line = format!("{}:{}\n", key.verifying_key(), hex(&key.sign(&text)));
    text.extend_from_slice(line.as_bytes());
    text
}

impl<'a> SignedText<'a> {
    /// Strips the check lines and compares the digest. Nothing else is verified here.
    pub fn read(bytes: &'a [u8]) -> Result<Self, CheckLineError> {
        let (mut before, mut line) = last_line(bytes)?;
        let mut signature = None;
        if line.starts_with(SIGNATURE) {
            let (key, value) = line.rsplit_once(':').ok_or(CheckLineError::NoCheck)?;
            let key = key.parse().map_err(|_| CheckLineError::NoCheck)?;
            let value = unhex(value).ok_or(CheckLineError::NoCheck)?;
            signature = Some(Signature { key, signed: before, value });
            (before, line) = last_line(before)?;
        }
        let mut mac = None;
        if let Some(digits) = line.strip_prefix(MAC) {
            mac = Some((before, unhex(digits).ok_or(CheckLineError::NoCheck)?));
            (before, line) = last_line(before)?;
        }
        let expected = line.strip_prefix(CHECK).ok_or(CheckLineError::NoCheck)?;
        let got = hex(&Sha256::digest(before));
        if got != expected {
            return Err(CheckLineError::Damaged { expected: expected.to_owned(), got });
        }
        Ok(Self { text: before, mac, signature })
    }

    /// The key of the host that has signed the text, if one has.
    pub fn signer(&self) -> Result<Option<VerifyingKey>, CheckLineError> {
        let Some(Signature { key, signed, value }) = &self.signature else { return Ok(None) };
        key.verifies(signed, value).then_some(Some(*key)).ok_or(CheckLineError::WrongSignature)
    }

    /// Returns whether the holder of the data key wrote the text.
    pub(crate) fn is_by(&self, key: &MacKey) -> bool {
        self.mac.as_ref().is_some_and(|(bytes, mac)| key.verify(bytes, mac))
    }

    /// The bytes that the HMAC covers, and the HMAC.
    pub fn mac(&self) -> Option<(&'a [u8], [u8; 32])> {
        self.mac
    }
}

/// Splits off the last line, without its line feed.
fn last_line(bytes: &[u8]) -> Result<(&[u8], &str), CheckLineError> {
    let body = bytes.strip_suffix(b"\n").ok_or(CheckLineError::NoCheck)?;
    let at = body.iter().rposition(|b| *b == b'\n').ok_or(CheckLineError::NoCheck)? + 1;
    let (before, line) = body.split_at(at);
    Ok((before, std::str::from_utf8(line).map_err(|_| CheckLineError::NoCheck)?))
}
