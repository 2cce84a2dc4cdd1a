//! From key options to keys. Whatever is wrong with one is found before the producer starts.

use std::path::Path;
use std::sync::Arc;

use xb_backup::{Keys, WaysIn};
use xb_cli::{Failure, Log};
use xb_encryptor::xbcrypt::{Algorithm, AlgorithmError, ChunkSize, Cipher};
use xb_encryptor::{Backend, Identities, KeyBytes, KeyCommand, KeyFile, Passphrase, Recipient};
use xb_pipeline::FileCipher;

use crate::args::{KeyOptions, PutOptions};

/// Who shall be able to open a new backup. Nobody named: it is not sealed.
pub(crate) fn ways_in(put: &PutOptions, keys: &KeyOptions, log: &Log) -> Result<WaysIn, Failure> {
    let mut recipients = Vec::new();
    for text in &put.recipient {
        recipients.push(text.parse::<Recipient>().map_err(|error| refused("--recipient", &error))?);
    }
    if let Some(path) = &put.recipients_file {
        recipients.extend(
            Recipient::read_list(path).map_err(|error| refused("--recipients-file", &error))?,
        );
    }
    let ways = WaysIn {
        key: seal_key(keys, log)?,
        recipients,
        passphrase: passphrase(keys)?,
        command: command(keys)?,
    };
    match put.encrypt.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None => Ok(ways),
        Some("none") if ways.is_empty() => Ok(ways),
        Some("none") => Err(Failure::usage("--encrypt=none and a key contradict each other")),
        Some("aes-256-gcm") if ways.is_empty() => Err(Failure::usage(
            "--encrypt needs somebody who can decrypt",
        )
        .hint("name a --recipient, an --encrypt-key-file, a --passphrase-file or a --key-command")),
        Some("aes-256-gcm") => Ok(ways),
        Some(other) => {
            Err(Failure::usage(format!("--encrypt={other} is not a cipher of the packed layout"))
                .hint("aes-256-gcm is; AES128, AES192 and AES256 go with --layout=classic"))
        }
    }
}

/// How the files of a classic backup are to be encrypted, if at all.
pub(crate) fn file_cipher(
    put: &PutOptions,
    keys: &KeyOptions,
    log: &Log,
) -> Result<Option<FileCipher>, Failure> {
    let others = put.recipients_file.is_some()
        || !put.recipient.is_empty()
        || keys.passphrase_file.is_some()
        || keys.key_command.is_some();
    if others {
        return Err(Failure::usage("files of a classic backup are encrypted with a key only")
            .hint("name it with --encrypt-key-file, or take the packed layout"));
    }
    let key = key(keys, log)?;
    let asked = match put.encrypt.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None => None,
        Some("aes-256-gcm") => {
            return Err(Failure::usage(
                "--encrypt=aes-256-gcm is not a cipher of the classic layout",
            )
            .hint("AES256 is, which stock readers know; aes-256-gcm goes with --layout=packed"));
        }
        Some(text) => Some(
            text.parse()
                .map_err(|error: AlgorithmError| Failure::usage(format!("--encrypt: {error}")))?,
        ),
    };
    let algorithm = match (asked, &key) {
        (None | Some(Algorithm::None), None) => {
            return match put.encrypt_chunk_size {
                Some(_) => Err(Failure::usage("--encrypt-chunk-size wants something to encrypt")),
                None => Ok(None),
            };
        }
        (Some(Algorithm::None), Some(_)) => {
            return Err(Failure::usage("--encrypt=none and a key contradict each other"));
        }
        (asked, _) => asked.unwrap_or(Algorithm::Aes256),
    };
    let cipher = Cipher::new(algorithm, key.as_ref(), Backend::default()).map_err(|_| {
        Failure::usage("--encrypt needs a key").hint("name it with --encrypt-key-file")
    })?;
    if asked.is_some_and(|asked| asked != cipher.algorithm()) {
        log.warn(format_args!(
            "the length of the key makes it {}, whatever --encrypt says, as with the stock tools",
            cipher.algorithm()
        ));
    }
    let chunk = match put.encrypt_chunk_size {
        None => ChunkSize::default(),
        Some(size) => {
            ChunkSize::new(size.bytes()).map_err(|error| refused("--encrypt-chunk-size", &error))?
        }
    };
    if chunk.was_raised() {
        log.warn(format_args!("--encrypt-chunk-size is raised to {}", ChunkSize::MIN));
    }
    Ok(Some(FileCipher { cipher: Arc::new(cipher), chunk }))
}

/// What there is to open a backup with. `for_files`: the key may be one for single files.
pub(crate) fn keys(
    for_files: bool,
    identity_file: Option<&Path>,
    keys: &KeyOptions,
    log: &Log,
) -> Result<Keys, Failure> {
    let identities = identity_file
        .map(Identities::read)
        .transpose()
        .map_err(|error| refused("--identity-file", &error))?;
    Ok(Keys {
        key: if for_files { key(keys, log)? } else { seal_key(keys, log)? },
        identities,
        passphrase: passphrase(keys)?,
        command: command(keys)?,
    })
}

fn refused(option: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::usage(format!("{option}: {error}"))
}

fn key(options: &KeyOptions, log: &Log) -> Result<Option<KeyBytes>, Failure> {
    match (&options.encrypt_key_file, &options.encrypt_key) {
        (Some(path), _) => {
            let file =
                KeyFile::read(path).map_err(|error| refused("--encrypt-key-file", &error))?;
            if file.newline_dropped {
                log.warn(format!(
                    "{}: the newline at its end was not taken for a part of the key",
                    path.display()
                ));
            }
            if file.open_to_others {
                log.warn(format!("{}: others than its owner can read it", path.display()));
            }
            Ok(Some(file.key))
        }
        (None, Some(text)) => KeyBytes::from_text(text.expose().as_bytes())
            .map(Some)
            .map_err(|error| refused("--encrypt-key", &error)),
        (None, None) => Ok(None),
    }
}

/// A key for the seal.
fn seal_key(options: &KeyOptions, log: &Log) -> Result<Option<KeyBytes>, Failure> {
    match key(options, log)? {
        Some(key) if key.len() != 32 => {
            Err(Failure::usage(format!("the key has {} bytes, aes-256-gcm wants 32", key.len()))
                .hint("openssl rand -out KEYFILE 32 makes one"))
        }
        key => Ok(key),
    }
}

fn passphrase(options: &KeyOptions) -> Result<Option<Passphrase>, Failure> {
    let Some(path) = &options.passphrase_file else { return Ok(None) };
    let content = std::fs::read(path)
        .map_err(|error| refused("--passphrase-file", &format!("{}: {error}", path.display())))?;
    let passphrase = Passphrase::from_file(&content);
    passphrase.map(Some).ok_or_else(|| {
        Failure::usage(format!("--passphrase-file: {} holds no passphrase", path.display()))
    })
}

fn command(options: &KeyOptions) -> Result<Option<KeyCommand>, Failure> {
    let Some(text) = &options.key_command else { return Ok(None) };
    let words = text.split_whitespace().map(Into::into);
    KeyCommand::new(words).map(Some).ok_or_else(|| Failure::usage("--key-command names no program"))
}
