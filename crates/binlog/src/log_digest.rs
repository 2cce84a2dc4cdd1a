//! Recognises a log by its bytes up to a position.
//!
//! Names, offsets and GTIDs repeat: a server that was restored writes them again, with other
//! transactions. The bytes do not: each event has its time, its server and its checksum.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Bytes that count at the beginning of a log, and before the position.
const WINDOW: u64 = 4096;
/// Where the flags of the first event are in a log: the server changes them when it closes the log.
const FLAGS: Range<usize> = 21..23;
/// Text of [`LogDigest::Shorter`].
const SHORTER: &str = "shorter";

/// Identity of a log up to a position. Serialized as text: 64 hexadecimal digits, or `shorter`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum LogDigest {
    /// SHA-256 of the bytes of [`LogDigest::windows`], without the flags of the first event.
    Bytes([u8; 32]),
    /// The log ends before the position.
    Shorter,
    /// A text of another kind. It equals itself.
    Other(String),
}

impl LogDigest {
    /// Returns the bytes of a log that count for a position: at the beginning, and before the position.
    #[must_use]
    pub fn windows(offset: u64) -> [Range<u64>; 2] {
        let head = offset.min(WINDOW);
        // A position within the first window has no other window.
        let tail = (offset - head).min(WINDOW);
        [0..head, offset - tail..offset]
    }

    /// Returns the digest of the bytes in both windows.
    #[must_use]
    pub fn of(mut head: Vec<u8>, tail: &[u8]) -> Self {
        if let Some(flags) = head.get_mut(FLAGS) {
            flags.fill(0);
        }
        Self::Bytes(Sha256::new().chain_update(&head).chain_update(tail).finalize().into())
    }
}

impl fmt::Display for LogDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(digest) => digest.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::Shorter => f.write_str(SHORTER),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl From<&str> for LogDigest {
    fn from(text: &str) -> Self {
        // In lower case, as it is printed.
        let digits = |text| base16ct::lower::decode_vec(text).ok()?.try_into().ok();
        match text {
            SHORTER => Self::Shorter,
            text => digits(text).map_or_else(|| Self::Other(text.to_owned()), Self::Bytes),
        }
    }
}

impl From<String> for LogDigest {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<LogDigest> for String {
    fn from(digest: LogDigest) -> Self {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_printed_as_it_was_read() {
        let digest = "0123456789abcdef".repeat(4);
        for (text, is_digest) in [
            (digest.as_str(), true),
            (&digest.to_uppercase(), false),
            (&digest[1..], false),
            (&format!("{digest}00"), false),
            ("shorter", false),
            ("", false),
            ("aa", false),
        ] {
            let parsed = LogDigest::from(text);
            assert_eq!(parsed.to_string(), text);
            assert_eq!(matches!(parsed, LogDigest::Bytes(_)), is_digest, "{text}");
        }
        assert_eq!(LogDigest::from("shorter"), LogDigest::Shorter);
    }

    #[test]
    fn the_windows_lie_before_the_position() {
        for (offset, windows) in [
            (0, [0..0, 0..0]),
            (100, [0..100, 100..100]),
            (4096, [0..4096, 4096..4096]),
            (4097, [0..4096, 4096..4097]),
            (9000, [0..4096, 4904..9000]),
            (u64::MAX, [0..4096, u64::MAX - 4096..u64::MAX]),
        ] {
            assert_eq!(LogDigest::windows(offset), windows);
        }
    }

    /// Digests are stored in manifests, so they must not change. Computed with Python's hashlib.
    #[test]
    fn a_digest_is_that_of_the_bytes_in_both_windows() {
        let log: Vec<u8> = (0_u8..251).cycle().take(20_000).collect();
        for (offset, expected) in [
            (100, "4d074e974496f4e6e9550c4f9a40a8ce7988b5766b11ed6255b11fa204eec594"),
            (4096, "63d0dafc6ea2737d5f0bee129517fb76f9f2bec42e42b66ec3ed111c2259f4c9"),
            (9000, "4fe425db3bbe6833875b17b5f9b4945ee8a5d0b87be80816cbb8ce735ab34cf7"),
        ] {
            let bytes = LogDigest::windows(offset).map(|window| {
                let place =
                    usize::try_from(window.start).unwrap()..usize::try_from(window.end).unwrap();
                log[place].to_vec()
            });
            let [head, tail] = bytes;
            assert_eq!(LogDigest::of(head, &tail).to_string(), expected);
        }
    }
}
