//! From the options to a cipher. Whatever is wrong with them is found before anything is read.

use std::sync::Arc;

use xb_cli::{Failure, Log};
use xb_encryptor::xbcrypt::{Algorithm, AlgorithmError, Cipher};
use xb_encryptor::{Backend, KeyBytes, KeyFile};
use xb_pipeline::Decrypt;

use crate::args::Line;

/// What `--decrypt` and the key options mean.
pub(crate) fn decrypt(line: &Line, log: &Log) -> Result<Decrypt, Failure> {
    let algorithm = match &line.decrypt {
        None => Algorithm::None,
        Some(text) => text
            .parse()
            .map_err(|error: AlgorithmError| Failure::usage(format!("--decrypt: {error}")))?,
    };
    let key = key(line, log)?;
    if algorithm == Algorithm::None {
        if line.decrypt.is_none() && key.is_some() {
            return Err(Failure::usage("a key is given, and nothing is to be decrypted")
                .hint("say --decrypt=AES256, or leave the key away"));
        }
        return Ok(Decrypt::Leave);
    }
    let cipher = Cipher::new(algorithm, key.as_ref(), Backend::default()).map_err(|_| {
        Failure::usage("--decrypt needs a key").hint("name it with --encrypt-key-file=FILE")
    })?;
    Ok(Decrypt::With(Arc::new(cipher)))
}

fn key(line: &Line, log: &Log) -> Result<Option<KeyBytes>, Failure> {
    match (&line.encrypt_key_file, &line.encrypt_key) {
        (Some(_), Some(_)) => {
            Err(Failure::usage("--encrypt-key and --encrypt-key-file do not go together"))
        }
        (Some(path), None) => {
            let file = KeyFile::read(path)
                .map_err(|error| Failure::usage(format!("--encrypt-key-file: {error}")))?;
            if file.newline_dropped {
                log.warn(format_args!(
                    "{}: the newline at its end was not taken for a part of the key",
                    path.display()
                ));
            }
            if file.open_to_others {
                log.warn(format_args!("{}: others than its owner can read it", path.display()));
            }
            Ok(Some(file.key))
        }
        (None, Some(text)) => KeyBytes::from_text(text.expose().as_bytes())
            .map(Some)
            .map_err(|error| Failure::usage(format!("--encrypt-key: {error}"))),
        (None, None) => Ok(None),
    }
}
