//! Why an archive cannot be received.

use xb_encryptor::{KeysObjectError, NoRandom, WrapError};
use xb_pipeline::filter::SealFileError;
use xb_repo::archive::record::RecordError;
use xb_repo::error::RepoError;
use xb_uploader::{StoreError, StoreErrorKind};

/// Reason why a stream of an archive ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The connection, or the error of the server.
    #[error(transparent)]
    Server(#[from] xb_mysql::Error),
    /// The data from the server is no binary log, or does not follow.
    #[error("the server sent data that is not its binary log: {0}")]
    Log(#[from] xb_binlog::Error),
    /// The server writes no binary log.
    #[error("the server writes no binary log")]
    NoLog,
    /// A server whose log is archived writes none now.
    #[error(
        "the server runs without a binary log: the archive loses every commit from now on, and will have a gap"
    )]
    Unlogged,
    /// The server of MySQL writes transactions without GTIDs, or may.
    #[error("the server has gtid_mode={mode}: transactions without GTIDs cannot be archived")]
    NoGtids {
        /// Its mode.
        mode: String,
    },
    /// A log of MySQL has a transaction without GTID.
    #[error("{log} has transactions without GTIDs, which cannot be archived")]
    Anonymous {
        /// Name of the log.
        log: String,
    },
    /// Of several servers, none can be received from.
    #[error("no server to receive from: {0}")]
    NoSource(String),
    /// Two of several servers can be written to.
    #[error(
        "{one} and {other} both accept writes, so each log lacks the other server's commits: set read_only=ON on the server that is not the primary, and in its option file"
    )]
    SeveralOpen {
        /// One of them.
        one: String,
        /// Another one.
        other: String,
    },
    /// The server is no primary any more, and another one is.
    #[error("{0} is the primary now")]
    Moved(String),
    /// The head of the stream does not say what the server is any more.
    #[error("the server's settings were changed: {0}")]
    Changed(String),
    /// The server does not wait for the archive.
    #[error("the server cannot wait for the archive: {0}")]
    NoSemiSync(String),
    /// The server's log has no checksums.
    #[error(
        "{what} without checksums (binlog_checksum=NONE), so damage in transit would go unnoticed"
    )]
    NoChecksums {
        /// The server or the log, and a verb.
        what: String,
    },
    /// The server cannot send a log beyond a position.
    #[error("the server cannot send {log} beyond offset {offset}: {what}")]
    Cut {
        /// Name of the log.
        log: String,
        /// Offset behind the last event that it sent.
        offset: u64,
        /// The server's reason.
        what: String,
    },
    /// The server cannot read a log of its own.
    #[error("the server cannot read {log}: {what}")]
    Unread {
        /// Name of the log.
        log: String,
        /// The server's reason.
        what: String,
    },
    /// A log file cannot be read.
    #[error("{path}: {source}")]
    LogFile {
        /// Path of the file.
        path: String,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A log file cannot be sent to the archive.
    #[error("{path}: {what}")]
    File {
        /// Path of the file.
        path: String,
        /// Description of the fault.
        what: String,
    },
    /// Log files do not continue the archive.
    #[error("the files do not continue the archive, so none of them was stored: {0}")]
    NoContinuation(String),
    /// Nothing is left of an archive that this host has stored.
    #[error(
        "the archive of {server} is gone: this host has stored it up to {last}, and nothing of it is in this place; is its disk mounted?"
    )]
    Gone {
        /// Name of the server.
        server: String,
        /// Position behind the last byte that this host has stored.
        last: String,
    },
    /// An archive cannot be copied.
    #[error("{0}")]
    Copy(String),
    /// The server ended the connection in order.
    #[error("the server ended the connection")]
    Ended,
    /// The server's history differs from the archive's.
    #[error("the server's history differs from the archive's: {0}")]
    Differs(String),
    /// A log has the name of a stored one, and is another one.
    #[error(
        "{log} is not the stored log of that name: it was created at a different time, as after RESET MASTER"
    )]
    AnotherLog {
        /// Name of the log.
        log: String,
    },
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The records of the archive.
    #[error(transparent)]
    Repo(#[from] RepoError),
    /// A record of our own.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A segment cannot be packed.
    #[error(transparent)]
    Pack(#[from] SealFileError),
    /// The key slots cannot be made.
    #[error(transparent)]
    Wrap(#[from] WrapError),
    /// The key slots do not fit.
    #[error(transparent)]
    Keys(#[from] KeysObjectError),
    /// No random bytes.
    #[error(transparent)]
    Random(#[from] NoRandom),
    /// A file in the state directory has no record.
    #[error("{path}: {source}")]
    Remembered {
        /// Path of the file.
        path: String,
        /// Its fault.
        source: RecordError,
    },
    /// The state directory.
    #[error("{path}: {source}")]
    State {
        /// Path of the file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// An internal invariant is broken.
    #[error("{0}; this is a bug")]
    Bug(&'static str),
}

impl ArchiveError {
    /// Returns whether another try can succeed without a change of settings.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Server(xb_mysql::Error::Server(error)) => !matches!(
                error.code,
                // Access denied, in its forms; an account or a privilege that is missing.
                1044 | 1045 | 1142 | 1227 | 1698
            ),
            Self::Server(error) => matches!(
                error,
                xb_mysql::Error::Closed { .. }
                    | xb_mysql::Error::Timeout { .. }
                    | xb_mysql::Error::Io { .. }
                    | xb_mysql::Error::OutOfOrder { .. }
            ),
            Self::Log(_)
            | Self::Unlogged
            | Self::Anonymous { .. }
            | Self::Cut { .. }
            | Self::Unread { .. }
            | Self::Ended
            | Self::NoSource(_)
            | Self::SeveralOpen { .. }
            | Self::Moved(_)
            | Self::Changed(_)
            | Self::AnotherLog { .. }
            | Self::Differs(_) => true,
            Self::Store(error) | Self::Repo(RepoError::Store(error)) => {
                error.kind == StoreErrorKind::Unavailable
            }
            _ => false,
        }
    }

    /// Advice for the operator, if there is any.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Server(xb_mysql::Error::Server(error)) if error.code == 1045 => Some(
                "correct user and password in the group [client] of --login-file; an account with REQUIRE SSL needs a server with TLS",
            ),
            Self::Server(xb_mysql::Error::Server(error)) if error.code == 1227 => Some(
                "give the account REPLICATION SLAVE (on MariaDB 10.5 and later also BINLOG MONITOR, on MySQL REPLICATION CLIENT)",
            ),
            Self::NoLog | Self::Unlogged => Some("start the server with --log-bin"),
            Self::NoGtids { .. } => Some(
                "turn GTIDs on, step by step as MySQL's manual describes: enforce_gtid_consistency=ON, then gtid_mode=OFF_PERMISSIVE, ON_PERMISSIVE and ON",
            ),
            Self::NoSemiSync(_) => Some(
                "set rpl_semi_sync_master_enabled=ON and rpl_semi_sync_master_wait_point=AFTER_SYNC (MySQL: rpl_semi_sync_source_...), or receive without --ack",
            ),
            Self::NoChecksums { .. } => Some(
                "run SET GLOBAL binlog_checksum=CRC32 on the server, and set it in its option file; or accept logs without checksums with --accept-no-crc",
            ),
            Self::LogFile { .. } => Some(
                "give the paths of the log files, as a user who can read them; on the server, log_bin names their directory",
            ),
            Self::NoContinuation(_) => Some(
                "give --server, and all logs from the one in which the archive ends; `binlog list` shows it",
            ),
            Self::Gone { .. } => Some(
                "mount the disk, or correct the place; if a new archive is to begin here, run `xbcloud-rs accept ROOT --begun-anew` on this host, and then the same command again",
            ),
            Self::Remembered { .. } => Some(
                "remove this file: the receiver then continues where the archive ends in the store; until it has stored a segment, this host cannot tell whether the archive has lost its end",
            ),
            Self::Store(error) => error.hint(),
            Self::Repo(error) => error.hint(),
            _ => None,
        }
    }
}
