//! Hints for errors.

use std::io;

use xb_cli::Failure;
use xb_encryptor::xbcrypt::XbcryptError;
use xb_pipeline::{ExtractCause, FileDecodeError};
use xb_reader::{DecodeError, OrderError, Printable, ReadError, TargetError, Unfinished};

/// Input that is mistaken for an xbstream: magic, name, and the command that unpacks it.
const OTHERS: [(&[u8], &str); 9] = [
    (b"\x1f\x8b", "this is gzip: gzip -dc < FILE | xbstream-rs ..."),
    (b"\x28\xb5\x2f\xfd", "this is zstd: zstd -dc < FILE | xbstream-rs ..."),
    (b"\x04\x22\x4d\x18", "this is lz4: lz4 -dc < FILE | xbstream-rs ..."),
    (b"\xfd7zXZ", "this is xz: xz -dc < FILE | xbstream-rs ..."),
    (b"BZh", "this is bzip2: bzip2 -dc < FILE | xbstream-rs ..."),
    (b"qpress10", "this is a qpress archive, a single compressed file of a backup"),
    (b"XBCRYP", "this is encrypted: xbcrypt -d ... < FILE | xbstream-rs ..."),
    (b"XBRSTR", "this is a stream of xbcloud-rs: xbcloud-rs restore makes files of it"),
    (b"XBCLOUD", "this is a file of xbcloud, not a stream"),
];

const CUT: &str = "get the stream again from where it is whole; --allow-truncated keeps the files that are complete";
const DAMAGED: &str = "the stream was damaged on its way or on disk: get it again";
const HOSTILE: &str = "no backup program writes this: the stream is damaged, or made to do harm";
const DISORDER: &str = "parts of the stream are missing, doubled or mixed with another one";

/// Converts a failed extraction, with the number of files that were kept.
pub(crate) fn extract_failure(cause: &ExtractCause, files: u64) -> Failure {
    let mut hint = match cause {
        ExtractCause::Decode(error) => decode(error),
        ExtractCause::Order(error) => order(error),
        ExtractCause::Unfinished(error) => unfinished(error),
        ExtractCause::Target { source, .. } | ExtractCause::Sync(source) => target(source),
        ExtractCause::Undo { source, .. } => undo(source).to_owned(),
        ExtractCause::Read { .. } => "look at what writes the stream".to_owned(),
        _ => "this should not happen; please report it".to_owned(),
    };
    match files {
        0 => {}
        1 => hint.push_str("; 1 file before it is whole and stays"),
        n => hint.push_str(&format!("; {n} files before it are whole and stay")),
    }
    Failure::new(cause.to_string()).stage("extract").hint(hint)
}

/// Converts a failed listing.
pub(crate) fn read_failure(error: &ReadError) -> Failure {
    let hint = match error {
        ReadError::Decode(error) => decode(error),
        ReadError::Order(error) => order(error),
        ReadError::Unfinished(error) => unfinished(error),
        _ => "look at what writes the stream".to_owned(),
    };
    Failure::new(error.to_string()).stage("list").hint(hint)
}

fn decode(error: &DecodeError) -> String {
    match error {
        DecodeError::Magic { position: 0, found } => other_format(found),
        DecodeError::Magic { .. } => {
            "a message of the producer between the chunks, or damage: keep its stderr apart from the stream".to_owned()
        }
        DecodeError::Truncated { .. } => CUT.to_owned(),
        DecodeError::Path { .. } | DecodeError::PathLength { .. } => HOSTILE.to_owned(),
        DecodeError::UnknownType { .. } => {
            "the stream is damaged, or of a newer producer than this program knows".to_owned()
        }
        DecodeError::MapEntries { .. } | DecodeError::MapSum { .. } | DecodeError::MapEmptyEntry { .. } => {
            format!("{DAMAGED}; if it is whole and from MariaDB, try --dialect=mariadb")
        }
        _ => DAMAGED.to_owned(),
    }
}

fn other_format(found: &Printable) -> String {
    let start = found.as_bytes();
    let known = OTHERS.iter().find(|(magic, _)| start.starts_with(magic));
    known
        .map_or(
            "this is no xbstream: see what the producer wrote, and keep its stderr apart",
            |(_, hint)| hint,
        )
        .to_owned()
}

fn order(error: &OrderError) -> String {
    match error {
        OrderError::AfterEnd { .. } => "two streams in one, or the same file twice".to_owned(),
        _ => DISORDER.to_owned(),
    }
}

fn unfinished(error: &Unfinished) -> String {
    match error {
        Unfinished::Empty => "the producer wrote nothing: look at its messages".to_owned(),
        _ => CUT.to_owned(),
    }
}

fn undo(error: &FileDecodeError) -> &'static str {
    match error {
        FileDecodeError::Xbcrypt(XbcryptError::Hash { .. }) => {
            "give the key that the backup was made with: --encrypt-key-file"
        }
        FileDecodeError::Xbcrypt(XbcryptError::NoHash { .. }) => {
            "extract it without --decrypt; files of such old versions need a tool that takes them"
        }
        FileDecodeError::Xbcrypt(XbcryptError::Algorithm { .. }) => {
            "--decrypt must be NONE for files that are not encrypted, and AES for others"
        }
        FileDecodeError::Memory { .. } => {
            "raise --memory: five eighths of it are for the largest file"
        }
        FileDecodeError::Taken { .. } => {
            "the stream mixes two backups, or extract it without --decompress and --decrypt"
        }
        FileDecodeError::Codec(_) | FileDecodeError::Xbcrypt(_) => {
            "the stream came over whole, so the file was damaged before, or is of another kind \
             than its name says; without --decompress and --decrypt it stays as it is"
        }
        _ => "extract it without --decompress and --decrypt, and look at the file",
    }
}

fn target(error: &TargetError) -> String {
    match error {
        TargetError::Exists { .. } => {
            "nothing is overwritten: extract into an empty directory, -C DIR".to_owned()
        }
        TargetError::NotADirectory { .. } => {
            "a file or a symbolic link (never followed) is in the way: extract into an empty directory, -C DIR".to_owned()
        }
        TargetError::Reserved { .. } => HOSTILE.to_owned(),
        TargetError::Open { .. } => {
            "-C wants a directory that exists and can be written to".to_owned()
        }
        TargetError::Write { source, .. }
        | TargetError::Create { source, .. }
        | TargetError::Commit { source, .. }
        | TargetError::Sync { source } => system(source),
        _ => "see what else works in that directory".to_owned(),
    }
}

/// Hint for an error of the operating system.
fn system(error: &io::Error) -> String {
    if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) {
        return "the stream has more files open at once than this process may have: ulimit -n"
            .to_owned();
    }
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room, or extract elsewhere: -C DIR".to_owned()
        }
        io::ErrorKind::FileTooLarge => {
            "the file system or a limit (ulimit -f) takes no larger file".to_owned()
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "extract where you may write: -C DIR".to_owned()
        }
        _ => "check the disk and the system's log".to_owned(),
    }
}

/// Converts an error of the target directory.
pub(crate) fn target_failure(error: &TargetError) -> Failure {
    Failure::new(error.to_string()).stage("extract").hint(target(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_formats_are_recognised_by_their_first_bytes() {
        let hint = |bytes: &[u8]| other_format(&Printable::new(bytes));
        assert!(hint(b"\x1f\x8b\x08").contains("gzip -dc"));
        assert!(hint(b"\x28\xb5\x2f\xfd..").contains("zstd -dc"));
        assert!(hint(b"XBCRYP03").contains("xbcrypt"));
        assert!(hint(b"mysql: [Warning]").contains("stderr"));
        assert!(hint(b"").contains("stderr"));
    }
}
