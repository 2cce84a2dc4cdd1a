//! Hints for errors.

use std::io;

use xb_cli::Failure;
use xb_encryptor::xbcrypt::XbcryptError;
use xb_pipeline::{ExtractCause, FifoError, FileDecodeError};
use xb_reader::{DecodeError, OrderError, Printable, ReadError, TargetError, Unfinished};

/// Input that is mistaken for an xbstream: magic, name, and the command that unpacks it.
const OTHERS: [(&[u8], &str); 9] = [
    (b"\x1f\x8b", "decompress the input first: gzip -dc < FILE | xbstream-rs ..."),
    (b"\x28\xb5\x2f\xfd", "decompress the input first: zstd -dc < FILE | xbstream-rs ..."),
    (b"\x04\x22\x4d\x18", "decompress the input first: lz4 -dc < FILE | xbstream-rs ..."),
    (b"\xfd7zXZ", "decompress the input first: xz -dc < FILE | xbstream-rs ..."),
    (b"BZh", "decompress the input first: bzip2 -dc < FILE | xbstream-rs ..."),
    (
        b"qpress10",
        "give the whole stream; this is a qpress archive, a single compressed file of a backup",
    ),
    (b"XBCRYP", "decrypt the input first: xbcrypt -d ... < FILE | xbstream-rs ..."),
    (b"XBRSTR", "restore it with `xbcloud-rs restore`; this is a native stream"),
    (b"XBCLOUD", "give the whole stream; this is an object of xbcloud"),
];

const CUT: &str =
    "fetch the complete stream again, or add --allow-truncated to keep the complete files";
const DAMAGED: &str = "the stream was damaged in transit or on disk; fetch it again";
const HOSTILE: &str =
    "do not use this stream: it is damaged or malicious, because no backup program writes this";
const DISORDER: &str =
    "fetch the stream again: parts of it are missing, duplicated or mixed with another stream";

/// Converts a failed extraction, with the number of files that were kept.
pub(crate) fn extract_failure(cause: &ExtractCause, files: u64) -> Failure {
    let mut hint = match cause {
        ExtractCause::Decode(error) => decode(error),
        ExtractCause::Order(error) => order(error),
        ExtractCause::Unfinished(error) => unfinished(error),
        ExtractCause::Target { source, .. } | ExtractCause::Sync(source) => target(source),
        ExtractCause::FileDecoding { source, .. } => decoding(source).to_owned(),
        ExtractCause::Read { source, .. } => {
            FifoError::within(source).map_or_else(|| unreadable(source), FifoError::hint).to_owned()
        }
        _ => "this is a bug; please report it".to_owned(),
    };
    match files {
        0 => {}
        1 => hint.push_str("; 1 complete file was kept"),
        n => hint.push_str(&format!("; {n} complete files were kept")),
    }
    Failure::new(cause.to_string()).stage("extract").hint(hint)
}

/// Converts a failed listing.
pub(crate) fn read_failure(error: &ReadError) -> Failure {
    let hint = match error {
        ReadError::Decode(error) => decode(error),
        ReadError::Order(error) => order(error),
        ReadError::Unfinished(error) => unfinished(error),
        _ => "check the program that writes the stream".to_owned(),
    };
    Failure::new(error.to_string()).stage("list").hint(hint)
}

fn decode(error: &DecodeError) -> String {
    match error {
        DecodeError::Magic { position: 0, found } => other_format(found),
        DecodeError::Magic { .. } => {
            "keep the producer's stderr separate from the stream: one of its messages is between the chunks, or the stream is damaged".to_owned()
        }
        DecodeError::Truncated { .. } => CUT.to_owned(),
        DecodeError::Path { .. } | DecodeError::PathLength { .. } => HOSTILE.to_owned(),
        DecodeError::UnknownType { .. } => {
            "fetch the stream again, or install a newer version of this program, if the producer is newer".to_owned()
        }
        DecodeError::MapEntries { .. } | DecodeError::MapSum { .. } | DecodeError::MapEmptyEntry { .. } => {
            format!("{DAMAGED}; if it is intact and from MariaDB, try --dialect=mariadb")
        }
        _ => DAMAGED.to_owned(),
    }
}

fn other_format(found: &Printable) -> String {
    let start = found.as_bytes();
    let known = OTHERS.iter().find(|(magic, _)| start.starts_with(magic));
    known
        .map_or(
            "this is not an xbstream; check what the producer wrote, and keep its stderr separate",
            |(_, hint)| hint,
        )
        .to_owned()
}

fn order(error: &OrderError) -> String {
    match error {
        OrderError::AfterEnd { .. } => "check how the stream was made: it contains the same file twice, or is two streams in one".to_owned(),
        OrderError::RenameUnknown { .. } => "take a new backup while no table is renamed: the producer did not copy this one before its name changed".to_owned(),
        _ => DISORDER.to_owned(),
    }
}

fn unreadable(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            "extract again once the input file is complete and no program changes it"
        }
        _ => "check the program that writes the stream",
    }
}

fn unfinished(error: &Unfinished) -> String {
    match error {
        Unfinished::Empty => "the producer wrote nothing; read its messages".to_owned(),
        _ => CUT.to_owned(),
    }
}

fn decoding(error: &FileDecodeError) -> &'static str {
    match error {
        FileDecodeError::Xbcrypt(XbcryptError::Hash { .. }) => {
            "give the key that the backup was made with: --encrypt-key-file"
        }
        FileDecodeError::Xbcrypt(XbcryptError::NoHash { .. }) => {
            "extract without --decrypt, and decrypt these files with `xbcrypt-rs -d --allow-unhashed`"
        }
        FileDecodeError::Xbcrypt(XbcryptError::Algorithm { .. }) => {
            "set --decrypt=NONE for files that are not encrypted, and an AES cipher for others"
        }
        FileDecodeError::Memory { .. } => {
            "raise --memory; the largest file can use five eighths of it"
        }
        FileDecodeError::Taken { .. } => {
            "extract without --decompress and --decrypt, unless the stream mixes two backups"
        }
        FileDecodeError::Codec(_) | FileDecodeError::Xbcrypt(_) => {
            "the stream is intact, so the file was damaged before, or its suffix is wrong; extract it unchanged, without --decompress and --decrypt"
        }
        _ => "extract without --decompress and --decrypt, and inspect the file",
    }
}

fn target(error: &TargetError) -> String {
    match error {
        TargetError::Exists { .. } => {
            "extract into an empty directory with -C DIR; nothing is overwritten".to_owned()
        }
        TargetError::NotADirectory { .. } => {
            "extract into an empty directory with -C DIR: a file, or a symbolic link, which is never followed, is in the way".to_owned()
        }
        TargetError::Reserved { .. } => HOSTILE.to_owned(),
        TargetError::Open { .. } => {
            "give an existing, writable directory with -C".to_owned()
        }
        TargetError::Write { source, .. }
        | TargetError::Create { source, .. }
        | TargetError::Commit { source, .. }
        | TargetError::Sync { source } => system(source),
        _ => "check which other program writes to that directory".to_owned(),
    }
}

/// Hint for an error of the operating system.
fn system(error: &io::Error) -> String {
    if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) {
        return "raise the limit of open files (ulimit -n)".to_owned();
    }
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room, or extract elsewhere with -C DIR".to_owned()
        }
        io::ErrorKind::FileTooLarge => {
            "raise the file size limit (ulimit -f), or extract to another file system".to_owned()
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "extract into a writable directory with -C DIR".to_owned()
        }
        _ => "check the disk and the system log".to_owned(),
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
