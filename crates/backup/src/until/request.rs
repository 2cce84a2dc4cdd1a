//! Request of a restore to a stop.

use std::collections::BTreeSet;
use std::path::PathBuf;

use xb_binlog::AnyGtid;
use xb_repo::archive::stop::RestoreStop;
use xb_repo::names::BackupName;

/// Where to stop, and what to leave out.
#[derive(Debug, Clone)]
pub struct UntilRequest {
    /// The backup; the newest that fits, if not given.
    pub name: Option<BackupName>,
    /// Server whose archive and backups are meant; if not given, that of the backup, or the only one.
    pub server: Option<String>,
    /// Where to stop.
    pub stop: RestoreStop,
    /// Transactions to leave out. Each must be on the way.
    pub leave_out: BTreeSet<AnyGtid>,
    /// Whether one of them may change the definition of something.
    pub may_leave_out_ddl: bool,
    /// Folder in which a receiver on this host records its last segment: the archive must not end before it.
    pub state: Option<PathBuf>,
    /// Whether the stop `latest` may be the end of what is stored, although nothing shows that the archive ends
    /// there.
    pub accept_lost_end: bool,
}
