//! Advice for errors that have several causes.

use xb_pipeline::StreamError;
use xb_reader::{DecodeError, OrderError};

/// How the system, MariaDB and InnoDB say that a disk or a quota is full.
const FULL: [&str; 2] = ["No space left on device", "Disk quota exceeded"];
/// Words before the number of an error of the system.
const NUMBERED: [&str; 3] = ["error ", "error number ", "rcode: "];
/// The number of a full disk. The number of a full quota is not used: storage engines use it for another error.
const FULL_NUMBER: &str = "28";

/// Possible removers of objects that a run has stored, for messages.
pub(crate) const REMOVERS: &str = "a lifecycle rule or another program";

/// How `xb_process::how_it_ended` says that a program was killed: by an operator, or by the system if memory runs out.
pub(crate) const KILLED: &str = "was killed by signal 9";

/// Name in errors of the server that is started on a clone.
pub(crate) const CLONE_SERVER: &str = "the server on the restored clone";

/// Returns whether a message says that a disk is full.
pub(crate) fn says_full(text: &str) -> bool {
    let mut behind = NUMBERED.iter().flat_map(|words| text.split(words).skip(1));
    let is_full = |rest: &str| {
        let after = rest.strip_prefix(FULL_NUMBER);
        after.is_some_and(|after| !after.starts_with(|c: char| c.is_ascii_digit()))
    };
    FULL.iter().any(|words| text.contains(words)) || behind.any(is_full)
}

/// Returns advice about keys.
pub(crate) fn keys_hint(what: &str) -> &'static str {
    if what.starts_with("key command") {
        return "correct --key-command, and try the program by hand";
    }
    // Of a slot of a backup or a stream.
    if what.contains(": key command ") {
        return "run the command again; if the program of --key-command fails again, try it by hand";
    }
    if what.contains(": checking the passphrase needs ") {
        return "raise --memory, and run the command again";
    }
    if what.contains(" of the archive: ") {
        return "give the key of this stream, too: an identity file may hold several identities (of several --identity-file, the last one counts); without it, name a stop that does not need the stream, or a later backup";
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
        StreamError::Order(OrderError::RenameUnknown { .. }) => {
            "take a new backup while no table is renamed: none was made, because the backup program did not copy this table before its name changed"
        }
        StreamError::Name { .. } => {
            "store the input unchecked with --raw if you need it; no backup was made, because it could not be restored"
        }
        _ => "take a new backup, because none was made",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rename_without_data_names_the_table_and_what_to_do() {
        let name = |name: &str| xb_reader::RelPath::new(name.as_bytes()).unwrap();
        let (path, to) = (name("shop/old.MAD"), name("shop/new.MAD"));
        let error = StreamError::Order(OrderError::RenameUnknown { position: 7, path, to });
        assert!(error.to_string().ends_with("the data of shop/new.MAD is missing"), "{error}");
        assert!(stream_hint(&error).contains("while no table is renamed"));
    }

    #[test]
    fn a_full_disk_is_known_by_the_words_of_each_program() {
        for text in [
            "/x/t.ibd: No space left on device (os error 28)",
            "Disk quota exceeded (os error 122)",
            "InnoDB: preallocating 12582912 bytes for file ./ib_logfile0 failed with error 28",
            "InnoDB: Operating system error number 28 in a file operation.",
            "Error writing file './mysql/x' (Errcode: 28)",
        ] {
            assert!(says_full(text), "{text}");
        }
        for text in [
            "exit status 1",
            "InnoDB: Operating system error number 280 in a file operation.",
            "mariadbd: Error writing file (Errcode: 1228)",
            "read failed with error 2",
            "error 5 at page 28",
        ] {
            assert!(!says_full(text), "{text}");
        }
    }
}
