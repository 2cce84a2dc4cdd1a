//! Wraps and unwraps a data key for each of the four kinds of slot.

use std::io::{BufReader, Read, Write};
use std::iter;

use age::armor::{ArmoredReader, ArmoredWriter, Format};
use age::{Decryptor, Encryptor, scrypt};
use zeroize::Zeroizing;

use super::error::{SlotFault, WrapError};
use crate::aead::{Aead, TAG_LEN};
use crate::command::{CommandError, CommandFault, KeyCommand, Verb};
use crate::identity::{Identities, Passphrase, Recipient};
use crate::key::STREAM_ID_LEN;
use crate::{Backend, DataKey, KeyBytes, hex, kdf, random};

const KEY_FILE_INFO: &[u8] = b"xbrs key file wrap 1";
const KEY_ID_INFO: &[u8] = b"xbrs key file id 1";
const KEY_FILE_KIND: &[u8] = b"key-file";

/// Nonce of a key-file slot.
pub(super) const NONCE_LEN: usize = 12;
/// Length of a data key wrapped by a key file.
pub(super) const WRAPPED_LEN: usize = DataKey::LEN + TAG_LEN;
/// Bytes in the id of a slot.
pub(super) const ID_LEN: usize = 8;

/// log2 N of scrypt for passphrase slots: 64 MiB.
const WORK_FACTOR: u8 = 16;

/// Memory that scrypt needs for N = 1, in bytes: r is always 8 in age files.
const SCRYPT_UNIT: u64 = 1024;

/// Returns the id of a key file. It identifies the slot, and reveals nothing about the key.
pub(super) fn key_id(key: &[u8; 32]) -> [u8; ID_LEN] {
    let derived = kdf::derive(key, &[], KEY_ID_INFO);
    derived.first_chunk().copied().unwrap_or_default()
}

/// The fields of a key-file slot, in hex.
pub(super) struct ByKeyFile {
    pub(super) id: String,
    pub(super) nonce: String,
    pub(super) wrapped: String,
}

pub(super) fn by_key_file(
    data_key: &DataKey,
    key: &KeyBytes,
    stream_id: &[u8; STREAM_ID_LEN],
) -> Result<ByKeyFile, WrapError> {
    let key = key.full().ok_or(WrapError::KeyLength { got: key.len() })?;
    let nonce: [u8; NONCE_LEN] = random::bytes()?;
    let mut wrapped = vec![0; WRAPPED_LEN];
    if let Some(place) = wrapped.first_chunk_mut() {
        *place = *data_key.bytes();
    }
    let aead = key_file_aead(key, stream_id);
    aead.seal(&nonce, &associated(stream_id), &mut wrapped).ok_or(WrapError::Cipher)?;
    let (id, nonce) = (hex::encode(&key_id(key)), hex::encode(&nonce));
    Ok(ByKeyFile { id, nonce, wrapped: hex::encode(&wrapped) })
}

pub(super) fn open_by_key_file(
    key: &KeyBytes,
    stream_id: &[u8; STREAM_ID_LEN],
    id: &str,
    nonce: &str,
    wrapped: &str,
) -> Result<DataKey, SlotFault> {
    let key = key.full().ok_or(SlotFault::KeyLength { got: key.len() })?;
    if hex::decode_array(id) != Some(key_id(key)) {
        return Err(SlotFault::NotForThis);
    }
    let (Some(nonce), Some(wrapped)) = (hex::decode_array(nonce), hex::decode(wrapped)) else {
        return Err(SlotFault::Damaged);
    };
    let mut wrapped = Zeroizing::new(wrapped);
    let aead = key_file_aead(key, stream_id);
    aead.open(&nonce, &associated(stream_id), &mut wrapped).ok_or(SlotFault::Damaged)?;
    wrapped.first_chunk().map(DataKey::new).ok_or(SlotFault::Damaged)
}

fn key_file_aead(key: &[u8; 32], stream_id: &[u8; STREAM_ID_LEN]) -> Aead {
    Aead::new(Backend::default(), &kdf::derive(key, stream_id, KEY_FILE_INFO))
}

fn associated(stream_id: &[u8; STREAM_ID_LEN]) -> Vec<u8> {
    [KEY_FILE_KIND, stream_id].concat()
}

/// Wraps the data key as an armored age file for one recipient.
pub(super) fn by_recipient(data_key: &DataKey, to: &Recipient) -> Result<String, WrapError> {
    age_file(data_key, &to.key)
}

/// Wraps the data key as an armored age file for a passphrase.
pub(super) fn by_passphrase(
    data_key: &DataKey,
    passphrase: &Passphrase,
) -> Result<String, WrapError> {
    let mut recipient = scrypt::Recipient::new(passphrase.secret());
    recipient.set_work_factor(WORK_FACTOR);
    age_file(data_key, &recipient)
}

fn age_file(data_key: &DataKey, recipient: &dyn age::Recipient) -> Result<String, WrapError> {
    let fault = |_| WrapError::Cipher;
    let encryptor =
        Encryptor::with_recipients(iter::once(recipient)).map_err(|_| WrapError::Cipher)?;
    let armor = ArmoredWriter::wrap_output(Vec::new(), Format::AsciiArmor).map_err(fault)?;
    let mut writer = encryptor.wrap_output(armor).map_err(fault)?;
    writer.write_all(data_key.bytes()).map_err(fault)?;
    let text = writer.finish().and_then(ArmoredWriter::finish).map_err(fault)?;
    String::from_utf8(text).map_err(|_| WrapError::Cipher)
}

pub(super) fn open_by_identities(
    identities: &Identities,
    text: &str,
) -> Result<DataKey, SlotFault> {
    open_age(text, identities.0.iter().map(|identity| identity as &dyn age::Identity))
}

pub(super) fn open_by_passphrase(
    passphrase: &Passphrase,
    max_memory: u64,
    text: &str,
) -> Result<DataKey, SlotFault> {
    let mut identity = scrypt::Identity::new(passphrase.secret());
    let factor = (max_memory / SCRYPT_UNIT).checked_ilog2().unwrap_or(0);
    identity.set_max_work_factor(u8::try_from(factor).unwrap_or(0));
    open_age(text, iter::once(&identity as &dyn age::Identity)).map_err(|fault| match fault {
        SlotFault::Memory { needed, .. } => SlotFault::Memory { needed, limit: max_memory },
        SlotFault::Damaged => SlotFault::WrongPassphrase,
        other => other,
    })
}

fn open_age<'a>(
    text: &str,
    identities: impl Iterator<Item = &'a dyn age::Identity>,
) -> Result<DataKey, SlotFault> {
    let armor = ArmoredReader::new(text.as_bytes());
    let decryptor = Decryptor::new_buffered(BufReader::new(armor)).map_err(age_fault)?;
    let reader = decryptor.decrypt(identities).map_err(age_fault)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(DataKey::LEN + 1));
    let read = reader.take(DataKey::LEN as u64 + 1).read_to_end(&mut bytes);
    match (read, bytes.as_slice().try_into()) {
        (Ok(_), Ok(key)) => Ok(DataKey::new(key)),
        _ => Err(SlotFault::Damaged),
    }
}

fn age_fault(error: age::DecryptError) -> SlotFault {
    match error {
        age::DecryptError::NoMatchingKeys => SlotFault::NotForThis,
        age::DecryptError::ExcessiveWork { required, .. } => {
            let needed = SCRYPT_UNIT.checked_shl(required.into()).filter(|n| *n >= SCRYPT_UNIT);
            SlotFault::Memory { needed: needed.unwrap_or(u64::MAX), limit: 0 }
        }
        _ => SlotFault::Damaged,
    }
}

/// Wraps the data key with a program, and returns its output.
pub(super) fn by_command(data_key: &DataKey, command: &KeyCommand) -> Result<Vec<u8>, WrapError> {
    let wrapped = command.run(Verb::Wrap, data_key.bytes())?;
    let fault = |what| WrapError::Command(CommandError::new(command, Verb::Wrap, what));
    if wrapped.is_empty() {
        return Err(fault(CommandFault::Nothing));
    }
    // A program that only echoes its input would put the plain key into the bucket.
    let text = Zeroizing::new(hex::encode(data_key.bytes()));
    let lower = Zeroizing::new(wrapped.to_ascii_lowercase());
    if holds(&wrapped, data_key.bytes()) || holds(&lower, text.as_bytes()) {
        return Err(fault(CommandFault::NotWrapped));
    }
    Ok(wrapped.to_vec())
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

pub(super) fn open_by_command(command: &KeyCommand, wrapped: &str) -> Result<DataKey, SlotFault> {
    let wrapped = hex::decode(wrapped).ok_or(SlotFault::Damaged)?;
    let key = command.run(Verb::Unwrap, &wrapped)?;
    key.as_slice().try_into().map(DataKey::new).map_err(|_| {
        let fault = CommandFault::NotAKey(key.len());
        SlotFault::Command(CommandError::new(command, Verb::Unwrap, fault))
    })
}
