//! Request and report of a replay.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use xb_binlog::{GtidState, LogPosition, RelayPlan, Repeats, SystemZone};

/// Logs to replay, and the data.
#[derive(Debug, Clone)]
pub struct ReplayRequest {
    /// A prepared data directory that no server runs on.
    pub data: PathBuf,
    /// Names or paths of the server's program, of the series that made the data. The first that can be
    /// started is.
    pub programs: Vec<PathBuf>,
    /// Options of the server that change what statements mean and that the logs lack
    /// ([`origin_options`](crate::origin_options)), and those that the operator adds. They come last,
    /// and win.
    pub settings: Vec<OsString>,
    /// Local time of the origin's system, which statements in the logs may mean. If not given: that of this host.
    pub system_zone: Option<SystemZone>,
    /// Engines that the origin has. Without one of them, a server may give a new table another engine.
    pub engines: Vec<String>,
    /// Existing files or directories that the server may write to besides the data directory.
    pub writable: Vec<PathBuf>,
    /// The position in the logs that the data has. The first piece must begin there.
    pub position: LogPosition,
    /// The transactions that the data has, where to stop, and what to leave out.
    pub plan: RelayPlan,
    /// Memory of the server, in bytes; at least 128 MiB are used.
    pub memory: u64,
    /// Number of transactions that are applied at once. 0 and 1: one after the other.
    pub threads: u32,
    /// Time for which the server may do nothing at all before the replay is given up.
    pub patience: Duration,
}

/// A piece of the logs to replay, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// The logs that follow are those of another server, which has the same transactions up to here, and some of them
    /// again.
    NextServer(Option<Repeats>),
    /// A log begins, or continues after another one.
    Log {
        /// Its name, on its server.
        name: String,
        /// Its format description, with header and checksum.
        format: Vec<u8>,
        /// Offset of the bytes that follow: 4, its beginning, or a boundary between two transactions.
        offset: u64,
    },
    /// From here on, between two transactions, the origin had these values of variables of
    /// [`ORIGIN_SETTINGS`](crate::ORIGIN_SETTINGS).
    Settings(Vec<(String, String)>),
    /// The next bytes of that log, cut anywhere.
    Bytes(Vec<u8>),
}

/// Progress of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Relay logs are written: so many bytes, and transactions.
    Writing(u64, u64),
    /// The server starts.
    Starting,
    /// The server has applied the first number of bytes of the second.
    Applying(u64, u64),
    /// A transaction failed, and is tried again alone, with those after it one after the other.
    Serially,
    /// The server stops.
    Stopping,
}

/// The caller's eyes and hands while a replay runs.
pub struct Watch<'a> {
    /// Called with each progress, up to ten times a second.
    pub progress: &'a mut dyn FnMut(Progress),
    /// Whether the replay is to be given up. The server is killed then.
    pub is_cancelled: &'a dyn Fn() -> bool,
    /// Makes the note that [`noted_end`](crate::noted_end) returns after a success, until
    /// [`remove_note`](crate::remove_note) removes it. Called with all but the time of the whole replay.
    pub note: &'a dyn Fn(&ReplayReport) -> Vec<u8>,
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// Report of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayReport {
    /// The transactions that the data has now.
    pub gtids: GtidState,
    /// The position in the logs up to which they were replayed, or left out.
    pub position: LogPosition,
    /// Number of transactions that were applied.
    pub transactions: u64,
    /// Number of transactions that were left out.
    pub left_out: u64,
    /// Number of transactions that were applied after the first one that was left out.
    pub later: u64,
    /// XA transactions that are prepared, and neither committed nor rolled back, as `XA RECOVER` prints
    /// them.
    pub prepared_xa: Vec<String>,
    /// XA transactions that the data had prepared ahead of its GTIDs, and that were rolled back before the logs began them.
    pub ahead_xa: Vec<String>,
    /// Events of the event scheduler that the replay created or changed, as `schema.name`. The server has
    /// disabled them, as those of a replica, and does not tell which of them the origin ran.
    pub disabled_events: Vec<String>,
    /// Events, as `schema.name`, whose one time came before the last transaction, and which the data still had: the origin may
    /// have run them, which it does not log. They are disabled, too.
    pub past_events: Vec<String>,
    /// Versioned tables, as `schema.table`, whose rows foreign keys may have changed. No log has the times of that, so the
    /// history of the data has others.
    pub cascaded_history: Vec<String>,
    /// Versioned tables, as `schema.table`, if the replay changed one whose history has numbers of transactions: those of the data
    /// are its own, and their times are those of the replay.
    pub numbered_history: Vec<String>,
    /// Error of the server after which the rest was applied serially.
    pub retried: Option<String>,
    /// Options of the operator by which the server has left out a part of the logs, as `NAME=VALUE`. What they leave out
    /// counts as applied everywhere else.
    pub filters: Vec<String>,
    /// Engines of the origin that the server did not have.
    pub missing_engines: Vec<String>,
    /// Variables, as `NAME=VALUE`, that the origin changed within the logs, and that the server could not change: one reads
    /// them only when it starts, or lacks them.
    pub unchanged: Vec<String>,
    /// Whether they may have left out what a backup has: not if they name single tables whose engine keeps no rows on disk.
    pub is_partial: bool,
    /// Index files, from the data directory, of tables that the origin was changing while the backup copied them, and that
    /// no recovery repairs: MyISAM, Aria with TRANSACTIONAL=0. They may lack their last rows from before the backup's
    /// position, and so from before the replay.
    pub in_use: Vec<String>,
    /// What the server said when it repaired them before the replay, such as the number of rows that were lost.
    pub repairs: Vec<String>,
    /// Why the server was not confined; `None` if it could write below the data directory only.
    pub unconfined: Option<&'static str>,
    /// Time in which the server applied them.
    pub applied_in: Duration,
    /// Time of everything.
    pub seconds: Duration,
}

impl ReplayReport {
    /// Returns whether the data may differ from that of the origin, in what no log has.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        !self.cascaded_history.is_empty() || !self.numbered_history.is_empty()
    }
}
