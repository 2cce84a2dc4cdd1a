//! Environment variables that hold secrets of this project's programs. No child program needs them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

/// Names that our programs read and that hold a secret. The ID of a key is removed with the key:
/// half a pair makes other programs fail where none lets them use their own keys.
const NAMES: [&str; 12] = [
    "ACCESS_KEY_ID",
    "AWS_ACCESS_KEY_ID",
    "S3_ACCESS_KEY_ID",
    "SECRET_ACCESS_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "S3_SECRET_ACCESS_KEY",
    "SESSION_TOKEN",
    "AWS_SESSION_TOKEN",
    "S3_SESSION_TOKEN",
    "AZURE_ACCESS_KEY",
    "AZURE_CLIENT_SECRET",
    "AZURE_STORAGE_SAS_TOKEN",
];

/// Prefixes of names that only our programs read.
const PREFIXES: [&str; 3] = ["XBCLOUD_", "XBCRYPT_", "XBSTREAM_"];

/// Returns the variables in our environment that a child program must not inherit.
pub(crate) fn secrets() -> Vec<OsString> {
    std::env::vars_os().map(|(name, _)| name).filter(|name| is_secret(name)).collect()
}

fn is_secret(name: &OsStr) -> bool {
    NAMES.iter().any(|secret| name == *secret)
        || PREFIXES.iter().any(|prefix| name.as_bytes().starts_with(prefix.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_secrets_are_removed() {
        for name in ["AWS_SECRET_ACCESS_KEY", "XBCLOUD_S3_SECRET_KEY", "XBCRYPT_ENCRYPTION_KEY"] {
            assert!(is_secret(OsStr::new(name)), "{name}");
        }
        for name in [
            "PATH",
            "HOME",
            "MYSQL_PWD",
            "AWS_PROFILE",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "VAULT_TOKEN",
            "WSREP_SST_OPT_AUTH",
            "MY_XBCLOUD_",
        ] {
            assert!(!is_secret(OsStr::new(name)), "{name}");
        }
    }
}
