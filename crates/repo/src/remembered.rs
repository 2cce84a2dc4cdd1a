//! Backups that this host has stored, as it remembers them. No store can take that away.

use crate::names::BackupName;

/// An incremental backup that this host has stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedIncrement {
    /// Name of the backup.
    pub name: BackupName,
    /// Run that made its base.
    pub base: String,
}
