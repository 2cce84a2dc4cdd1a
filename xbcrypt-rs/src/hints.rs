//! Hints for errors.

use std::io;
use std::path::Path;

use xb_cli::{Failure, interrupted};
use xb_encryptor::xbcrypt::XbcryptError;
use xb_encryptor::{KeysObjectError, OpenError, SlotFault};
use xb_pipeline::filter::{OpenFileError, SealFileError, XbcryptFilterError};
use xb_reader::TargetError;

const DAMAGED: &str = "the file was damaged in transit or on disk; fetch it again";
const CUT: &str = "the file was not written or copied completely; fetch it again";
const FOREIGN: &str =
    "this is not an encrypted file; check what its producer wrote, and keep its stderr separate";
const NAME_A_KEY: &str =
    "give its key: -f KEYFILE, --identity-file, --passphrase-file or --key-command";

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
        XbcryptFilterError::Read { .. } => {
            Some("check the program that writes the input".to_owned())
        }
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
        XbcryptError::Hash { .. } => "give the key that the file was made with",
        XbcryptError::Algorithm { encrypted: true, .. } => {
            "add --encrypt-algo=AES256 and a key; the length of the key decides which AES"
        }
        XbcryptError::Algorithm { encrypted: false, .. } => {
            "accept it with --encrypt-algo=NONE, but an encrypting producer would not have written it"
        }
        XbcryptError::NoHash { .. } => {
            "accept it with --allow-unhashed, and check the output: nothing proves that the key is right"
        }
        XbcryptError::Random(_) | XbcryptError::Plain { .. } | XbcryptError::Room { .. } => {
            "this is a bug; please report it"
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
        OpenFileError::Read { .. } => "check the program that writes the input".to_owned(),
        OpenFileError::Write(error) => write(error),
        OpenFileError::Magic { .. } => FOREIGN.to_owned(),
        OpenFileError::Cut { .. } => CUT.to_owned(),
        OpenFileError::NoKey { .. } => NAME_A_KEY.to_owned(),
        OpenFileError::Open(error) => open(error).to_owned(),
        OpenFileError::NoKeysObject => {
            "its keys object is in the store; open the backup there with: xbcloud-rs get".to_owned()
        }
        OpenFileError::NotSealed => {
            "leave out the key to accept the file; it is then not authenticated".to_owned()
        }
        OpenFileError::KeysObject(error) => keys_object(error).to_owned(),
        OpenFileError::Stream(_) => format!("{DAMAGED}; the output written so far is authentic"),
        _ => "this is a bug; please report it".to_owned(),
    };
    failed("decrypt", error.to_string(), Some(hint))
}

pub(crate) fn keys_object(error: &KeysObjectError) -> &'static str {
    match error {
        KeysObjectError::TooNew { .. } => "install a newer version of this program",
        KeysObjectError::Foreign { .. } | KeysObjectError::ForeignCommitment => {
            "the keys block and the data come from two different files; combine the matching ones"
        }
        _ => DAMAGED,
    }
}

pub(crate) fn open(error: &OpenError) -> &'static str {
    match error {
        OpenError::NoSlot { .. } | OpenError::NotForThis { .. } => {
            "give one of these keys; list them with: xbcrypt-rs inspect FILE"
        }
        OpenError::Slot { fault: SlotFault::Memory { .. }, .. } => {
            "use another key, or open it with age -d on a machine with enough memory"
        }
        OpenError::Slot { fault: SlotFault::Command(_), .. } => {
            "read the messages of the key command"
        }
        OpenError::Altered => "the key slots were tampered with; fetch the file again",
        _ => "give the key that the file was made with",
    }
}

fn write(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::BrokenPipe => {
            "the program that reads the output has ended; read its messages"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room, or write elsewhere with -o FILE"
        }
        io::ErrorKind::FileTooLarge => {
            "raise the file size limit (ulimit -f), or write to another file system"
        }
        _ => "check the disk and the system log",
    }
    .to_owned()
}

/// Converts the error of an output file that cannot be created or completed.
pub(crate) fn output_failure(path: &Path, error: &TargetError) -> Failure {
    let hint = match error {
        TargetError::Exists { .. } => {
            "choose another name, or remove that file; nothing is overwritten"
        }
        TargetError::Open { .. } => "create the directory, or make it writable",
        _ => "check the disk and the system log",
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
