//! Request of a verification.

use xb_encryptor::Keys;
use xb_repo::names::BackupName;
use xb_repo::verification::Level;

use crate::read::unlock::{Accept, ReadKeys};

/// Request to verify a backup.
#[derive(Debug)]
pub struct VerifyRequest {
    /// Name of the backup.
    pub name: BackupName,
    /// Highest level to check. For [`Level::Restore`] call [`verify_by_restore`](crate::verify_by_restore); [`verify`](crate::verify) stops
    /// at [`Level::Pages`].
    pub level: Level,
    /// Keys to open the backup; up to [`Level::Checksum`] none are needed. If there are any, the
    /// backup must be sealed, and one of them must authenticate its manifest.
    pub keys: Keys,
    /// Unauthenticated backups that are verified nevertheless.
    pub accept: Accept,
    /// Program and version for the verification record; without it, no record is written.
    pub record: Option<String>,
}

impl VerifyRequest {
    pub(super) fn given(&self, memory: u64) -> ReadKeys<'_> {
        ReadKeys { keys: &self.keys, accept: self.accept, memory }
    }
}
