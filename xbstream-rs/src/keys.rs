//! Converts the key options to a cipher. All errors are found before any input is read.

use std::sync::Arc;

use xb_cli::{Failure, KeyOptions, Log};
use xb_encryptor::xbcrypt::{Algorithm, AlgorithmError, Cipher};
use xb_encryptor::{Backend, KeyBytes};
use xb_pipeline::Decrypt;

/// Interprets `--decrypt` and the key options.
pub(crate) fn decrypt(
    decrypt: Option<&str>,
    options: &KeyOptions,
    log: &Log,
) -> Result<Decrypt, Failure> {
    let algorithm = match decrypt {
        None => Algorithm::None,
        Some(text) => text
            .parse()
            .map_err(|error: AlgorithmError| Failure::usage(format!("--decrypt: {error}")))?,
    };
    let key = key(options, log)?;
    if algorithm == Algorithm::None {
        if decrypt.is_none() && key.is_some() {
            return Err(Failure::usage("a key is given, but --decrypt is not")
                .hint("add --decrypt=AES256, or remove the key"));
        }
        return Ok(Decrypt::Leave);
    }
    let cipher = Cipher::new(algorithm, key.as_ref(), Backend::default()).map_err(|_| {
        Failure::usage("--decrypt needs a key").hint("give it with --encrypt-key-file=FILE")
    })?;
    Ok(Decrypt::With(Arc::new(cipher)))
}

fn key(options: &KeyOptions, log: &Log) -> Result<Option<KeyBytes>, Failure> {
    if options.encrypt_key.is_some() && options.encrypt_key_file.is_some() {
        return Err(Failure::usage("--encrypt-key and --encrypt-key-file cannot be combined"));
    }
    options.key(log)
}
