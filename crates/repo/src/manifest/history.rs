//! Evidence of a server's history in a manifest: facts that a restore of the server changes.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use xb_binlog::LogDigest;

/// Evidence of a server's history, collected when a backup was taken. Each part is present if it
/// could be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// `server_uuid` of a MySQL server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_uuid: Option<String>,
    /// The redo log, unchanged from the producer's start to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redo: Option<RedoLog>,
    /// The first file of the system tablespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_file: Option<FileBirth>,
    /// Digest of the binary log at the end of this backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binlog: Option<LogDigest>,
    /// The same digest at the end of the base, as it was when this increment was taken, or
    /// `shorter`. Absent if the server no longer had that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binlog_at_base: Option<LogDigest>,
    /// Highest numbers that the server had given when the backup ended (MariaDB). In an increment on a base that has them,
    /// they also say that no tablespace was imported since that base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest: Option<HighestNumbers>,
    /// `innodb_undo_tablespaces` when the backup was taken: with another number, mariadb-backup takes no increment on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo_tablespaces: Option<u32>,
    /// A table whose tablespace was imported since the base; such an increment is not stored.
    #[serde(skip)]
    pub imported: Option<String>,
    /// Whether the user accepted a base whose history was unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accepted: bool,
    /// Of a full backup that was merged from a chain: whether the user knows that no tablespace was imported, and the chain does
    /// not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accepted_imports: bool,
}

/// Highest numbers of a server's tables and tablespaces. A new table has a new number and a new tablespace. DISCARD and
/// IMPORT TABLESPACE give a table a new number, and it keeps its tablespace: this shows that pages came past the redo
/// log, and so past the log positions by which an increment finds changed pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HighestNumbers {
    /// Of all tables.
    pub table: u64,
    /// Of all tablespaces of tables.
    pub space: u32,
}

impl History {
    /// Returns whether an increment with this history is known to have all tablespaces that were imported since the backup
    /// with the history `base`, because there are none.
    #[must_use]
    pub fn rules_out_imports(&self, base: Option<&Self>) -> bool {
        self.highest.is_some() && base.is_some_and(|base| base.highest.is_some())
    }
}

/// Identity of a redo log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedoLog {
    /// The file, if the log is one file for all its life (MariaDB).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileBirth>,
    /// Log position at which the log was created (MariaDB 10.8 and later).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_lsn: Option<u64>,
    /// Random number of the log (MySQL 8.0.30 and later).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
}

/// Identity of a file on its file system; another file may get the inode, but not the birth time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileBirth {
    /// Inode number.
    pub inode: u64,
    /// Time at which the file system created the file.
    pub born: Timestamp,
}

impl RedoLog {
    /// Returns whether both are one log; `None` if that cannot be told.
    pub fn is(&self, other: &Self) -> Option<bool> {
        let same = |equal: bool| Some(equal);
        match (self.number, other.number, self.file, other.file) {
            (Some(one), Some(two), _, _) => same(one == two),
            (_, _, Some(one), Some(two)) => {
                same(one == two && self.created_lsn == other.created_lsn)
            }
            _ => None,
        }
    }
}
