//! Why a replay failed.

use std::io;
use std::path::PathBuf;

use xb_binlog::{LogPosition, RelayError};
use xb_server::ServerError;

/// A replay that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The logs cannot be replayed as asked.
    #[error(transparent)]
    Logs(#[from] RelayError),
    /// The source of the logs failed.
    #[error("cannot read the logs: {0}")]
    Source(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The logs begin elsewhere than the data ends.
    #[error("the logs begin at {found}, but the data is at {expected}")]
    Gap {
        /// Position of the data.
        expected: LogPosition,
        /// Beginning of the logs.
        found: String,
    },
    /// A file of the data directory, or the room for the relay logs, cannot be used. Nothing was changed.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A replay on this data directory was interrupted.
    #[error(
        "{}: an earlier replay was interrupted, and its data cannot be continued: restore and prepare the \
         backup again", .0.display()
    )]
    Interrupted(PathBuf),
    /// The data is not as a finished replay has left it.
    #[error(
        "{}: an earlier replay onto this data has finished, and a server has written to it since", .0.display()
    )]
    Changed(PathBuf),
    /// The directory of a finished replay cannot be removed.
    #[error("{}: {source}", path.display())]
    NoteNotRemoved {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The data directory names files outside of it.
    #[error(
        "{}: it names a file outside of the data directory, possibly that of a running server: remove \
         the .isl file if the .ibd file beside it is the table's", .0.display()
    )]
    Outside(PathBuf),
    /// The caller gave up before the server was started.
    #[error("the replay was cancelled")]
    Cancelled,
    /// No private server could be started.
    #[error("the private server: {0}")]
    NotStarted(#[source] ServerError),
    /// The private server failed.
    #[error("the private server: {0}{AGAIN}")]
    Server(#[from] ServerError),
    /// The private server refused a statement, or broke the connection.
    #[error("the private server, {doing}: {error}{AGAIN}")]
    Statement {
        /// The step that failed.
        doing: &'static str,
        /// The error.
        error: xb_mysql::Error,
    },
    /// A transaction cannot be applied.
    #[error("{what} cannot be applied: {error}{AGAIN}")]
    Transaction {
        /// The transaction: its GTID and its tables or statement.
        what: String,
        /// The server's error, when it was applied alone.
        error: String,
    },
    /// The server did nothing for too long.
    #[error("the private server made no progress for {seconds} s at {at}{AGAIN}")]
    Stuck {
        /// The limit.
        seconds: u64,
        /// Its position.
        at: String,
    },
    /// The server has another local time than the origin.
    #[error(
        "the private server's local time is {found} s from UTC at Unix time {time}, and was {expected} s on the origin{AGAIN}"
    )]
    LocalTime {
        /// The time that was asked for.
        time: i64,
        /// The offset of the origin, in seconds east of UTC.
        expected: i32,
        /// That of the server.
        found: String,
    },
    /// A table was in use when it was copied, and the server cannot repair it. The server's words.
    #[error(
        "a table was in use while the backup copied it, and cannot be repaired: {0}; replay onto another backup"
    )]
    NotRepaired(String),
    /// An option, as `NAME=VALUE`, lets the server pass over what it cannot apply, or do more than the logs say.
    #[error(
        "the private server has {0}: with it, the data may differ from the logs; remove that option{AGAIN}"
    )]
    Lenient(String),
    /// The server has cut off a relay log, before it applied anything.
    #[error(
        "{}: the private server truncated it to {found} of {expected} bytes, as if it were damaged{AGAIN}",
        path.display()
    )]
    Cut {
        /// The relay log.
        path: PathBuf,
        /// Its length in bytes.
        found: u64,
        /// Its length in bytes as it was written.
        expected: u64,
    },
    /// The server does nothing any more, because its disk is full.
    #[error("{}: no space left on device, so the private server has stopped at {at}{AGAIN}", dir.display())]
    FullDisk {
        /// The data directory.
        dir: PathBuf,
        /// Its position.
        at: String,
    },
    /// The server is done, but not with what was planned.
    #[error("the data is at {found} after the replay, instead of {expected}{AGAIN}")]
    Elsewhere {
        /// The planned state.
        expected: String,
        /// The state.
        found: String,
    },
    /// A file could not be written after the server had started: what was applied may not be durable.
    #[error("{}: {source}{AGAIN}", path.display())]
    NotDurable {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The caller gave up while the server ran.
    #[error("the replay was cancelled{AGAIN}")]
    Abandoned,
}

/// Beginning of the option that the error of a transaction names, if the server passes over that transaction with it and loses
/// nothing that the backup has.
pub const LEAVE_OUT: &str = "--replicate-ignore-table=";

const AGAIN: &str = "; the data cannot be used any more: restore and prepare the backup again";

impl ReplayError {
    /// Returns whether the data is as it was: the server had not started. Otherwise it has to be made again.
    #[must_use]
    pub fn is_data_untouched(&self) -> bool {
        match self {
            Self::Logs(_)
            | Self::Source(_)
            | Self::Gap { .. }
            | Self::File { .. }
            | Self::Outside(_)
            | Self::NotStarted(_)
            | Self::Cancelled => true,
            Self::Interrupted(_)
            | Self::Changed(_)
            | Self::NoteNotRemoved { .. }
            | Self::Server(_)
            | Self::Statement { .. }
            | Self::Transaction { .. }
            | Self::Stuck { .. }
            | Self::FullDisk { .. }
            | Self::Cut { .. }
            | Self::LocalTime { .. }
            | Self::NotRepaired(_)
            | Self::Lenient(_)
            | Self::Elsewhere { .. }
            | Self::NotDurable { .. }
            | Self::Abandoned => false,
        }
    }
}
