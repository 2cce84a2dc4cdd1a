//! The text of a keys object: JSON, a line with a checksum against accidental damage, and a line that
//! authenticates it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::slot::{MAX_SLOTS, MAX_SLOW_SLOTS, Slot, too_many_slow};
use super::{KeysObjectError, WrapError};
use crate::key::STREAM_ID_LEN;
use crate::{DataKey, hex};

/// Longest keys object in bytes.
pub const MAX_KEYS_OBJECT: usize = 256 << 10;

const TYPE: &str = "xbrs-keys";
const FORMAT: u32 = 1;
const DIGEST_LINE: &str = "sha256:";
const MAC_LINE: &str = "hmac-sha256:";
/// 64 hex digits and the line feed.
const VALUE_LEN: usize = 65;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    r#type: String,
    format: u32,
    stream: String,
    commitment: String,
    slots: Vec<Value>,
}

/// The fields that tell a later format from other content.
#[derive(Deserialize)]
struct Front {
    r#type: String,
    format: u32,
}

/// A keys object as stored, with the authenticated length and its code.
#[derive(Clone)]
pub(super) struct Text {
    bytes: Vec<u8>,
    authenticated: usize,
    code: [u8; 32],
}

impl Text {
    pub(super) fn write(
        data_key: &DataKey,
        stream_id: &[u8; STREAM_ID_LEN],
        commitment: &[u8; 32],
        slots: &[Slot],
    ) -> Result<Self, WrapError> {
        let slots = slots.iter().map(Slot::value).collect::<Result<_, _>>();
        let content = Content {
            r#type: TYPE.to_owned(),
            format: FORMAT,
            stream: hex::encode(stream_id),
            commitment: hex::encode(commitment),
            slots: slots.map_err(|_| WrapError::Cipher)?,
        };
        let mut text = serde_json::to_string_pretty(&content).map_err(|_| WrapError::Cipher)?;
        text.push('\n');
        let digest = Sha256::digest(text.as_bytes());
        text.push_str(&format!("{DIGEST_LINE}{}\n", hex::encode(&digest)));
        let authenticated = text.len();
        let code = data_key.slots_key(stream_id).code(text.as_bytes());
        text.push_str(&format!("{MAC_LINE}{}\n", hex::encode(&code)));
        if text.len() > MAX_KEYS_OBJECT {
            return Err(WrapError::TooLong { len: text.len(), max: MAX_KEYS_OBJECT });
        }
        Ok(Self { bytes: text.into_bytes(), authenticated, code })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn is_genuine(&self, data_key: &DataKey, stream_id: &[u8; STREAM_ID_LEN]) -> bool {
        let bytes = self.bytes.get(..self.authenticated).unwrap_or_default();
        data_key.slots_key(stream_id).verify(bytes, &self.code)
    }
}

/// The parsed fields of a text.
pub(super) struct Parsed {
    pub(super) stream_id: [u8; STREAM_ID_LEN],
    pub(super) commitment: [u8; 32],
    pub(super) slots: Vec<Slot>,
    pub(super) text: Text,
}

pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, KeysObjectError> {
    if bytes.len() > MAX_KEYS_OBJECT {
        return Err(KeysObjectError::TooLong { len: bytes.len(), max: MAX_KEYS_OBJECT });
    }
    let (front, code) = closing_line(bytes, MAC_LINE).ok_or(KeysObjectError::NoCheck)?;
    let (json, expected) = closing_line(front, DIGEST_LINE).ok_or(KeysObjectError::NoCheck)?;
    let got: [u8; 32] = Sha256::digest(json).into();
    if got != expected {
        let (expected, got) = (hex::encode(&expected), hex::encode(&got));
        return Err(KeysObjectError::Damaged { expected, got });
    }
    // Parsed before the rest, so that a later format is reported as such.
    let front_fields: Front = serde_json::from_slice(json).map_err(malformed)?;
    if front_fields.r#type != TYPE {
        return Err(reason("its type is not xbrs-keys"));
    }
    match front_fields.format {
        FORMAT => {}
        0 => return Err(reason("format 0 does not exist")),
        found => return Err(KeysObjectError::TooNew { found, known: FORMAT }),
    }
    let content: Content = serde_json::from_slice(json).map_err(malformed)?;
    let stream_id =
        hex::decode_array(&content.stream).ok_or_else(|| reason("the stream ID is invalid"))?;
    let commitment = hex::decode_array(&content.commitment)
        .ok_or_else(|| reason("the commitment is invalid"))?;
    if content.slots.is_empty() || content.slots.len() > MAX_SLOTS {
        let (got, max) = (content.slots.len(), MAX_SLOTS);
        return Err(reason(&format!("it has {got} slots, allowed range 1 to {max}")));
    }
    let slots = content.slots.into_iter().enumerate().map(|(slot, value)| {
        Slot::parse(value).map_err(|reason| KeysObjectError::Slot { slot, reason })
    });
    let slots: Vec<Slot> = slots.collect::<Result<_, _>>()?;
    if let Some(got) = too_many_slow(&slots) {
        let max = MAX_SLOW_SLOTS;
        return Err(reason(&format!(
            "it has {got} passphrase or command slots, more than the limit of {max}"
        )));
    }
    let text = Text { bytes: bytes.to_vec(), authenticated: front.len(), code };
    Ok(Parsed { stream_id, commitment, slots, text })
}

/// Splits off the last line: `NAME` and 64 digits.
fn closing_line<'a>(bytes: &'a [u8], name: &str) -> Option<(&'a [u8], [u8; 32])> {
    let at = bytes.len().checked_sub(name.len() + VALUE_LEN)?;
    let (front, line) = bytes.split_at_checked(at)?;
    let digits = line.strip_prefix(name.as_bytes())?.strip_suffix(b"\n")?;
    let code = hex::decode_array(std::str::from_utf8(digits).ok()?)?;
    front.ends_with(b"\n").then_some((front, code))
}

fn malformed(error: serde_json::Error) -> KeysObjectError {
    reason(&error.to_string())
}

fn reason(text: &str) -> KeysObjectError {
    KeysObjectError::Malformed { reason: text.to_owned() }
}
