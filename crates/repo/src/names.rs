//! Names of backups, and the keys of their objects.
//!
//! | key | content |
//! |---|---|
//! | `ROOT/NAME/RUN/claim` | written first, refreshed while the run is alive |
//! | `ROOT/NAME/RUN/keys` | the wrapped data key of a sealed backup |
//! | `ROOT/NAME/RUN/sums` | the checksum of each data object of a packed backup |
//! | `ROOT/NAME/RUN/NNNNNNNNN` | data objects of a packed backup |
//! | `ROOT/NAME/PATH.NNNNNNNNNNNNNNNNNNNN` | data objects of a classic backup |
//! | `ROOT/.xb-catalog/NAME` | the manifest, written last: the one commit point |
//! | `ROOT/.xb-catalog/@claims/NAME/NNNNNN` | claim of a classic run, whose objects have no RUN; `NNNNNN-HOLDER` in a store without conditional writes |
//! | `ROOT/.xb-catalog/@sums/NAME/RUN` | the checksum of each data object of a classic backup |
//!
//! No key is the folder of another key, so directories and buckets can hold the same keys.

use std::fmt;

use crate::hex::{hex, unhex};

/// Name of the claim in the folder of a packed run.
pub const CLAIM: &str = "claim";

/// Name of the keys object in the folder of a packed run.
pub const KEYS: &str = "keys";

/// Name of the list of object checksums in the folder of a packed run.
pub const SUMS: &str = "sums";

/// Folder of manifests below ROOT.
pub const CATALOG: &str = ".xb-catalog";

/// Folder of the claims of classic runs, below [`CATALOG`].
pub(crate) const CLAIMS: &str = "@claims";

/// Name of a backup: the last component of its URL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackupName(String);

/// A name that is not allowed for a backup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a valid backup name: {reason}")]
pub struct NameError {
    name: String,
    reason: &'static str,
}

impl BackupName {
    /// Longest name in bytes: a path component must hold the name and a suffix.
    pub const MAX_LEN: usize = 200;

    /// Checks a name.
    ///
    /// # Errors
    /// [`NameError`] if the name is empty, too long, reserved, or has characters that some stores
    /// do not accept.
    pub fn new(name: &str) -> Result<Self, NameError> {
        let refuse = |reason| Err(NameError { name: name.to_owned(), reason });
        match name {
            "" => refuse("it is empty"),
            "." | ".." => refuse("it refers to a directory"),
            "latest" => refuse("it means the newest backup"),
            _ if name.len() > Self::MAX_LEN => refuse("it is longer than 200 bytes"),
            _ if name.starts_with('@') || name.starts_with(".xb") => {
                refuse("names starting with @ or .xb are reserved")
            }
            _ if name.chars().any(|c| c.is_control() || c == '/' || c == '\\') => {
                refuse("slashes, backslashes and control characters are not allowed")
            }
            _ => Ok(Self(name.to_owned())),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BackupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Run ID: 128 random bits that distinguish a run from every other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub [u8; 16]);

impl RunId {
    /// Creates a random ID.
    ///
    /// # Errors
    /// When the system provides no random bytes.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Parses the 32 lower-case hexadecimal digits that [`fmt::Display`] writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        unhex(text).map(Self)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// Key of the manifest of `name`, below ROOT.
#[must_use]
pub fn manifest_key(name: &BackupName) -> String {
    format!("{CATALOG}/{name}")
}

/// Folder of the claims of the classic runs of `name`, below ROOT.
#[must_use]
pub fn claims_folder(name: &BackupName) -> String {
    format!("{CATALOG}/{CLAIMS}/{name}")
}

/// Folder of the checksum lists of the classic backups of `name`, below ROOT.
#[must_use]
pub fn sums_folder(name: &BackupName) -> String {
    format!("{CATALOG}/@sums/{name}")
}

/// Key of object `number` of the file `path` in a classic backup, below the backup's folder.
#[must_use]
pub fn classic_key(path: &str, number: u64) -> String {
    format!("{path}.{number:020}")
}

/// Splits a classic key, below the backup's folder, into path and number.
#[must_use]
pub fn parse_classic_key(key: &str) -> Option<(&str, u64)> {
    let (path, digits) = key.split_at_checked(key.len().checked_sub(20)?)?;
    let path = path.strip_suffix('.')?;
    if path.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some((path, digits.parse().ok()?))
}

/// Returns whether a key below a backup's folder belongs to a classic backup.
pub fn of_classic(key: &str) -> bool {
    parse_classic_key(key).is_some()
}

/// Returns whether a key below a backup's folder belongs to a packed run.
pub fn of_packed_run(key: &str) -> bool {
    key.split_once('/')
        .is_some_and(|(run, object)| RunId::parse(run).is_some() && in_packed_run(object))
}

/// Returns whether a key below the folder of a packed run belongs to the run.
pub fn in_packed_run(object: &str) -> bool {
    matches!(object, CLAIM | KEYS | SUMS) || is_data_object(object)
}

/// Returns whether a key below the folder of a packed run is that of a data object.
pub fn is_data_object(object: &str) -> bool {
    object.len() == 9 && object.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_would_get_in_the_way_are_refused() {
        for good in [
            "n",
            "nightly-2026.11.21_03",
            "shop@03",
            "a#b$c",
            ".hidden",
            "ps-2006-01-02-15:04:05-full",
            "a b",
            "50%?*&+",
            "Sicherung-ä",
        ] {
            assert!(BackupName::new(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            ".",
            "..",
            "latest",
            "@2026",
            ".xb-catalog",
            "a/b",
            "a\\b",
            "a\nb",
            "a\u{85}b",
            &"n".repeat(201),
        ] {
            assert!(BackupName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn classic_keys_are_taken_apart_at_the_last_dot() {
        assert_eq!(parse_classic_key("a/b.ibd.00000000000000000012"), Some(("a/b.ibd", 12)));
        for bad in [
            "",
            "x",
            ".00000000000000000001",
            "a/b.0000000000000000001",
            "a.0000000000000000000x",
            "a.99999999999999999999",
        ] {
            assert_eq!(parse_classic_key(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn keys_and_run_ids_come_back(path in "[a-z./]{1,40}", number: u64, run: [u8; 16]) {
            let key = classic_key(&path, number);
            prop_assert_eq!(parse_classic_key(&key), Some((path.as_str(), number)));
            prop_assert_eq!(RunId::parse(&RunId(run).to_string()), Some(RunId(run)));
        }

        #[test]
        fn arbitrary_keys_do_not_panic(key in ".*") {
            let _ = parse_classic_key(&key);
            let _ = RunId::parse(&key);
        }
    }
}
