//! Reasons why logs cannot be replayed as asked.

use crate::any_gtid::AnyGtid;
use crate::barrier::Barrier;
use crate::error::Error;
use crate::event_type::EventType;
use crate::mariadb_gtid::Gtid;
use crate::position::LogPosition;
use crate::stop::ReplayStop;

/// Logs that cannot be replayed, or not as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// A log is damaged, or cannot be read.
    #[error("log {log}: {error}")]
    Log {
        /// Name of the log.
        log: String,
        /// Its fault.
        error: Error,
    },
    /// The name of a log is not that of a file, or is longer than 255 bytes.
    #[error("{0:?} is not the name of a log")]
    Name(String),
    /// The log is of another fork than the data.
    #[error(
        "log {log} comes from another fork than the data: MySQL and MariaDB cannot replay each other's logs"
    )]
    Fork {
        /// Name of the log.
        log: String,
    },
    /// No log has begun.
    #[error("bytes of a log arrived before its name and format")]
    NoLog,
    /// The bytes of a log begin elsewhere than those before end.
    #[error("log {log}: a part is missing: its bytes begin at {found} instead of {expected}")]
    Gap {
        /// Name of the log.
        log: String,
        /// Position at which they have to begin.
        expected: u64,
        /// Position at which they begin.
        found: u64,
    },
    /// The logs end within a transaction.
    #[error("log {log} ends within the transaction at offset {begin}")]
    Unfinished {
        /// Name of the log.
        log: String,
        /// Offset of the transaction.
        begin: u64,
    },
    /// The stop was not found.
    #[error(
        "{0} is not in the log: name a stop that lies after the data's position and in the logs"
    )]
    NotReached(ReplayStop),
    /// The data has a transaction already.
    #[error(
        "transaction {0} is already in the data, by its number: the logs begin before the data's position, or the server restarted the numbering of its domain, as after FLUSH BINARY LOGS DELETE_DOMAIN_ID"
    )]
    Known(AnyGtid),
    /// A transaction of MySQL has no GTID.
    #[error("the transaction at {0} has no GTID: set gtid_mode=ON on the server")]
    Anonymous(LogPosition),
    /// The stop lies within a transaction.
    #[error(
        "{stop} lies within transaction {gtid}, which begins at {begin} and ends after it: stop at \
         {begin}, or after {gtid}"
    )]
    Inside {
        /// The stop.
        stop: ReplayStop,
        /// The transaction.
        gtid: AnyGtid,
        /// Its beginning.
        begin: LogPosition,
    },
    /// Something on the way cannot be replayed from logs.
    #[error("{at}: {barrier}: stop before it")]
    Barrier {
        /// Its beginning.
        at: LogPosition,
        /// The barrier.
        barrier: Barrier,
    },
    /// A statement that no server logs.
    #[error("{0}: an administrative statement, which no server logs: the log was altered")]
    Administration(LogPosition),
    /// A statement on a temporary table that existed at the data's position.
    #[error(
        "{0}: a statement on a temporary table that existed when the backup was taken, and is in no backup"
    )]
    Temporary(LogPosition),
    /// Everything from a position on is encrypted.
    #[error("{0}: the log is encrypted from here on: read it from the server, which decrypts it")]
    Encrypted(LogPosition),
    /// An event of an unknown type, which must not be passed over.
    #[error("{at}: an event of the unknown type {}", event_type.0)]
    Unknown {
        /// Its beginning.
        at: LogPosition,
        /// Its type.
        event_type: EventType,
    },
    /// A transaction that changes the definition of something was to be left out.
    #[error("transaction {0} changes the definition of something: later ones may need it")]
    LeftOutDdl(AnyGtid),
    /// A transaction that was to be left out is not there.
    #[error("transaction {0} is to be left out, but is not in the log")]
    NotFound(AnyGtid),
    /// An `ALTER TABLE` in two phases has begun and not ended.
    #[error(
        "the ALTER TABLE that begins with transaction {0} has not ended at the stop: stop before it, or \
         after its end"
    )]
    OpenAlter(Gtid),
    /// The events are of more servers than a replay can tell apart from its own.
    #[error("the events carry too many different server ids")]
    Servers,
}
