//! Advice for errors that have several causes.

use xb_pipeline::StreamError;
use xb_reader::DecodeError;

/// Returns advice about keys.
pub(crate) fn keys_hint(what: &str) -> &'static str {
    if what.starts_with("key command") {
        return "correct --key-command, and try the program by hand";
    }
    "give the key that the backup was sealed for: --encrypt-key-file, --identity-file, --passphrase-file or --key-command"
}

/// Returns advice about a stream that is not a whole backup.
pub(crate) fn stream_hint(error: &StreamError) -> &'static str {
    match error {
        StreamError::NotWhole(_) => {
            "read the producer's messages, and take a new backup: none was made. If another program made the stream, name its last file with --last-file=GLOB, or accept any end with --unsafe-any-end"
        }
        StreamError::Unfinished(_) => {
            "read the producer's messages, because it stopped early, and take a new backup: none was made"
        }
        StreamError::Decode(DecodeError::Magic { .. }) => {
            "run mariadb-backup or xtrabackup with --stream=xbstream, and let nothing else write to its stdout"
        }
        StreamError::Name { .. } => {
            "store the input unchecked with --raw if you need it; no backup was made, because it could not be restored"
        }
        _ => "take a new backup, because none was made",
    }
}
