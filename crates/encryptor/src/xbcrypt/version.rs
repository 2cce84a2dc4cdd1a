//! Versions of the format.

use std::fmt;

/// The largest size in a head: 2^31 - 1.
pub const MAX_SIZE: u64 = i32::MAX as u64;

/// Length of the SHA-256 at the end of a version 3 payload.
pub(super) const HASH_LEN: usize = 32;

/// Length of the magic, whose last digit is the version.
pub(super) const MAGIC_LEN: usize = 8;

/// Version of a chunk; one file can contain several versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Version {
    /// No IV in the chunk; the counter starts at zero.
    V1,
    /// An unused IV; the counter starts at zero.
    V2,
    /// The counter starts at the IV; an encrypted SHA-256 of the plain bytes follows them.
    V3,
}

impl Version {
    /// Returns whether the chunk contains a hash, which shows a wrong key.
    #[must_use]
    pub(crate) fn has_hash(self) -> bool {
        self == Version::V3
    }

    pub(super) fn magic(self) -> [u8; MAGIC_LEN] {
        match self {
            Version::V1 => *b"XBCRYP01",
            Version::V2 => *b"XBCRYP02",
            Version::V3 => *b"XBCRYP03",
        }
    }

    pub(super) fn of(magic: [u8; MAGIC_LEN]) -> Option<Self> {
        [Version::V1, Version::V2, Version::V3].into_iter().find(|v| v.magic() == magic)
    }

    /// Length of a payload beyond its plain bytes.
    pub(super) fn overhead(self) -> u64 {
        if self.has_hash() { HASH_LEN as u64 } else { 0 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::V1 => "1",
            Version::V2 => "2",
            Version::V3 => "3",
        })
    }
}
