//! Turns key options into keys. Faulty keys are found before the producer starts.

use std::sync::Arc;

use xb_backup::{KeySlots, Keys};
use xb_cli::{Failure, IdentityOptions, KeyOptions, Log, sealing};
use xb_encryptor::Backend;
use xb_encryptor::xbcrypt::{Algorithm, AlgorithmError, ChunkSize, Cipher};
use xb_pipeline::FileCipher;

use crate::args::{OpeningOptions, PutOptions};

/// Key slots of a new backup. Without any, the backup is not sealed.
pub(crate) fn key_slots(
    put: &PutOptions,
    keys: &KeyOptions,
    log: &Log,
) -> Result<KeySlots, Failure> {
    let ways = keys.key_slots(&put.recipients, log)?;
    match put.encrypt.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None => Ok(ways),
        Some("none") if ways.is_empty() => Ok(ways),
        Some("none") => Err(Failure::usage("--encrypt=none and a key cannot be combined")),
        Some("aes-256-gcm") if ways.is_empty() => {
            Err(Failure::usage("--encrypt needs a key or a recipient")
                .hint("give --recipient, --encrypt-key-file, --passphrase-file or --key-command"))
        }
        Some("aes-256-gcm") => Ok(ways),
        Some(other) => {
            Err(Failure::usage(format!("--encrypt={other} does not work in the packed layout"))
                .hint("use aes-256-gcm; AES128, AES192 and AES256 need --layout=classic"))
        }
    }
}

/// Encryption of the files of a classic backup, if any.
pub(crate) fn file_cipher(
    put: &PutOptions,
    keys: &KeyOptions,
    log: &Log,
) -> Result<Option<FileCipher>, Failure> {
    let others = put.recipients.recipients_file.is_some()
        || !put.recipients.recipient.is_empty()
        || keys.passphrase_file.is_some()
        || keys.key_command.is_some();
    if others {
        return Err(Failure::usage("the classic layout encrypts only with a key, not with recipients, a passphrase or a key command")
            .hint("give --encrypt-key-file, or use --layout=packed"));
    }
    let key = keys.key(log)?;
    let asked = match put.encrypt.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None => None,
        Some("aes-256-gcm") => {
            return Err(Failure::usage(
                "--encrypt=aes-256-gcm does not work in the classic layout",
            )
            .hint("use AES256, which the stock tools can read, or --layout=packed"));
        }
        Some(text) => Some(
            text.parse()
                .map_err(|error: AlgorithmError| Failure::usage(format!("--encrypt: {error}")))?,
        ),
    };
    let algorithm = match (asked, &key) {
        (None | Some(Algorithm::None), None) => {
            return match put.classic.encrypt_chunk_size {
                Some(_) => {
                    Err(Failure::usage("--encrypt-chunk-size is given, but nothing is encrypted"))
                }
                None => Ok(None),
            };
        }
        (Some(Algorithm::None), Some(_)) => {
            return Err(Failure::usage("--encrypt=none and a key cannot be combined"));
        }
        (asked, _) => asked.unwrap_or(Algorithm::Aes256),
    };
    let cipher = Cipher::new(algorithm, key.as_ref(), Backend::default()).map_err(|_| {
        Failure::usage("--encrypt needs a key").hint("give it with --encrypt-key-file")
    })?;
    if asked.is_some_and(|asked| asked != cipher.algorithm()) {
        log.warn(format_args!(
            "encrypting with {}: the length of the key decides, not --encrypt, as with the stock tools",
            cipher.algorithm()
        ));
    }
    let chunk = match put.classic.encrypt_chunk_size {
        None => ChunkSize::default(),
        Some(size) => {
            ChunkSize::new(size.bytes()).map_err(|error| refused("--encrypt-chunk-size", &error))?
        }
    };
    if chunk.was_raised() {
        log.warn(format_args!("--encrypt-chunk-size is too small, using {}", ChunkSize::MIN));
    }
    Ok(Some(FileCipher { cipher: Arc::new(cipher), chunk_size: chunk }))
}

/// Keys to open a backup. With `for_files`, the key may be one for single files.
pub(crate) fn keys(
    for_files: bool,
    identities: &IdentityOptions,
    keys: &KeyOptions,
    log: &Log,
) -> Result<Keys, Failure> {
    let mut keys = keys.keys(identities, log)?;
    if !for_files {
        keys.key = keys.key.take().map(sealing).transpose()?;
    }
    Ok(keys)
}

/// Keys to open a backup for reading.
pub(crate) fn opening(
    for_files: bool,
    options: &OpeningOptions,
    log: &Log,
) -> Result<Keys, Failure> {
    keys(for_files, &options.identities, &options.keys, log)
}

fn refused(option: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::usage(format!("{option}: {error}"))
}
