//! Hints for errors.

use std::io;
use std::path::Path;

use xb_cli::{Failure, interrupted};
use xb_encryptor::xbcrypt::XbcryptError;
use xb_encryptor::{EnvelopeError, OpenError, SlotFault};
use xb_pipeline::filter::{OpenFileError, SealFileError, XbcryptFilterError};
use xb_reader::TargetError;

const DAMAGED: &str = "the file was damaged on its way or on disk: get it again";
const CUT: &str = "the file was not written or copied to its end: get it again";
const FOREIGN: &str =
    "this is no encrypted file: see what its producer wrote, and keep its stderr apart";
const NAME_A_KEY: &str =
    "give what opens it: -f KEYFILE, --identity-file, --passphrase-file or --key-command";

/// Converts a failed encryption or decryption; `stage` is its name.
fn failed(stage: &str, message: String, hint: Option<String>) -> Failure {
    // The signal is the cause of any other error.
    if let Some(signal) = interrupted() {
        return Failure::interrupted(signal);
    }
    let failure = Failure::new(message).stage(stage);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

pub(crate) fn xbcrypt_failure(stage: &str, error: &XbcryptFilterError) -> Failure {
    let hint = match error {
        XbcryptFilterError::Read { .. } => Some("look at what writes the input".to_owned()),
        XbcryptFilterError::Write(error) => Some(write(error)),
        XbcryptFilterError::Xbcrypt(error) => Some(xbcrypt(error).to_owned()),
        _ => None,
    };
    failed(stage, error.to_string(), hint)
}

fn xbcrypt(error: &XbcryptError) -> &'static str {
    match error {
        XbcryptError::Magic { place, .. } if place.offset == 0 => FOREIGN,
        XbcryptError::Cut { .. } => CUT,
        XbcryptError::Hash { .. } => "take the key that the file was made with",
        XbcryptError::Algorithm { encrypted: true, .. } => {
            "say --encrypt-algo=AES256 and which key: the key's length decides"
        }
        XbcryptError::Algorithm { encrypted: false, .. } => {
            "--encrypt-algo=NONE takes it; but whoever encrypts would not have written this"
        }
        XbcryptError::NoHash { .. } => {
            "--allow-unhashed takes it; look at what comes out, nothing here proves the key"
        }
        XbcryptError::Random(_) | XbcryptError::Plain { .. } | XbcryptError::Room { .. } => {
            "this should not happen; please report it"
        }
        _ => DAMAGED,
    }
}

pub(crate) fn seal_failure(error: &SealFileError) -> Failure {
    let hint = match error {
        SealFileError::Write(error) => Some(write(error)),
        _ => None,
    };
    failed("encrypt", error.to_string(), hint)
}

pub(crate) fn open_failure(error: &OpenFileError) -> Failure {
    let hint = match error {
        OpenFileError::Read { .. } => "look at what writes the input".to_owned(),
        OpenFileError::Write(error) => write(error),
        OpenFileError::Magic { .. } => FOREIGN.to_owned(),
        OpenFileError::Cut { .. } => CUT.to_owned(),
        OpenFileError::NoKey { .. } => NAME_A_KEY.to_owned(),
        OpenFileError::Open(error) => open(error).to_owned(),
        OpenFileError::NoEnvelope => {
            "its keys are kept beside it in the store: xbcloud-rs get opens it there".to_owned()
        }
        OpenFileError::NotSealed => {
            "without a key it is taken as it is, and nobody vouches for it".to_owned()
        }
        OpenFileError::Envelope(error) => envelope(error).to_owned(),
        OpenFileError::Stream(_) => format!("{DAMAGED}; what was written before is genuine"),
        _ => "this should not happen; please report it".to_owned(),
    };
    failed("decrypt", error.to_string(), Some(hint))
}

pub(crate) fn envelope(error: &EnvelopeError) -> &'static str {
    match error {
        EnvelopeError::TooNew { .. } => "take a newer version of this program",
        EnvelopeError::Foreign { .. } | EnvelopeError::ForeignCommitment => {
            "keys and data are of two files: put together what belongs together"
        }
        _ => DAMAGED,
    }
}

pub(crate) fn open(error: &OpenError) -> &'static str {
    match error {
        OpenError::NoSlot { .. } | OpenError::NotForThis { .. } => {
            "take one of those; xbcrypt-rs inspect FILE shows them, too"
        }
        OpenError::Slot { fault: SlotFault::Memory { .. }, .. } => {
            "open it by another way in, or with age -d where there is the memory"
        }
        OpenError::Slot { fault: SlotFault::Command(_), .. } => "see what the command said",
        OpenError::Altered => "somebody changed who can open the file: get it again",
        _ => "take the key that the file was made with",
    }
}

fn write(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::BrokenPipe => "whoever reads the output has gone: look at its messages",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room, or write elsewhere: -o FILE"
        }
        io::ErrorKind::FileTooLarge => {
            "the file system or a limit (ulimit -f) takes no larger file"
        }
        _ => "check the disk and the system's log",
    }
    .to_owned()
}

/// Converts the error of an output file that cannot be created or completed.
pub(crate) fn output_failure(path: &Path, error: &TargetError) -> Failure {
    let hint = match error {
        TargetError::Exists { .. } => "nothing is overwritten: take another name, or remove it",
        TargetError::Open { .. } => "the folder must be there, and writable",
        _ => "check the disk and the system's log",
    };
    let message = match error {
        TargetError::Open { .. } | TargetError::Sync { .. } => error.to_string(),
        // Adds the folder before the name.
        _ => match path.parent() {
            Some(folder) if folder != Path::new("") => format!("{}/{error}", folder.display()),
            _ => error.to_string(),
        },
    };
    failed("output", message, Some(hint.to_owned()))
}
