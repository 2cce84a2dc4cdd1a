//! Faults of a log.

use crate::event_type::EventType;

/// A log that cannot be read, or that is damaged. Offsets are bytes from the log's beginning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file does not begin as a log does.
    #[error("not a binary log: it begins with {found:02x?} instead of fe 62 69 6e")]
    Magic {
        /// Its first four bytes.
        found: [u8; 4],
    },
    /// The file is a log that MySQL encrypted.
    #[error("the log is encrypted by MySQL: read it from the server, which decrypts it")]
    Encrypted,
    /// The first event is not a format description, or is too long for one.
    #[error("the log does not begin with a format description: its first event has type {}", event_type.0)]
    NoFormat {
        /// Type of the first event.
        event_type: EventType,
    },
    /// The format description is malformed or of an unsupported version.
    #[error("the format description is not one of MySQL 5.6 or later, or of MariaDB 10.0 or later")]
    Format,
    /// The length of an event is impossible.
    #[error(
        "event at offset {at}: its length of {length} bytes is less than the {least} of its header and checksum"
    )]
    Length {
        /// Offset of the event.
        at: u64,
        /// Length in its header.
        length: u32,
        /// The shortest possible one.
        least: u32,
    },
    /// An event does not end where its header states.
    #[error(
        "event at offset {at}: it states that it ends at {found}, but its length leads to {expected}"
    )]
    Chain {
        /// Offset of the event.
        at: u64,
        /// End by offset and length, modulo 2³².
        expected: u32,
        /// End in its header.
        found: u32,
    },
    /// The checksum of an event is wrong.
    #[error("event at offset {at}: damaged, its checksum is {found:08x} instead of {expected:08x}")]
    Checksum {
        /// Offset of the event.
        at: u64,
        /// Checksum of its bytes.
        expected: u32,
        /// Checksum in the log.
        found: u32,
    },
    /// The content of an event is not what its type requires.
    #[error("event at offset {at}: malformed content of an event of type {}", event_type.0)]
    Malformed {
        /// Offset of the event.
        at: u64,
        /// Its type.
        event_type: EventType,
    },
    /// An event that has to be held in memory is too long.
    #[error("event at offset {at}: an event of type {} must not have more than {limit} bytes", event_type.0)]
    TooLong {
        /// Offset of the event.
        at: u64,
        /// Its type.
        event_type: EventType,
        /// The limit, in bytes.
        limit: usize,
    },
    /// There are bytes after the event that ends the log.
    #[error("bytes follow the event that ends the log, at offset {at}")]
    AfterEnd {
        /// Offset of the first of them.
        at: u64,
    },
    /// The log ends within an event.
    #[error("the log ends at offset {end}, within the event at offset {at}")]
    Cut {
        /// Offset of the event, or 0 if the log ends within its magic.
        at: u64,
        /// Length of the log.
        end: u64,
    },
    /// The log has its magic and no event.
    #[error("the log has no events")]
    NoEvents,
    /// A transaction begins, or the log ends, before the transaction before it has ended.
    #[error("the transaction at offset {begin} has no end before offset {at}")]
    Unfinished {
        /// Offset of the transaction.
        begin: u64,
        /// Offset of the event that cannot be in it.
        at: u64,
    },
    /// An event that only a transaction can have is outside of one.
    #[error("event at offset {at}: an event of type {} outside of a transaction", event_type.0)]
    Outside {
        /// Offset of the event.
        at: u64,
        /// Its type.
        event_type: EventType,
    },
    /// A transaction has another length than its first event states.
    #[error("the transaction at offset {begin} has {found} bytes, but states {stated}")]
    TransactionLength {
        /// Offset of the transaction.
        begin: u64,
        /// Bytes by its first event.
        stated: u64,
        /// Bytes in the log.
        found: u64,
    },
    /// The list at the beginning of a log is not where the logs before it lead to: a part of the history
    /// is missing, or belongs to another one.
    #[error(
        "log {log}: its history begins at {found:?}, but the logs before it end at {expected:?}"
    )]
    History {
        /// Name of the log.
        log: String,
        /// GTIDs after the logs before it.
        expected: String,
        /// GTIDs at its beginning.
        found: String,
    },
    /// A log has events of the other fork, so its GTIDs cannot be counted on.
    #[error("log {log}: it comes from another fork than the history before it")]
    OtherFork {
        /// Name of the log.
        log: String,
    },
    /// More transactions are prepared, or alterations begun, than can be held in memory.
    #[error(
        "more than {limit} XA transactions are prepared, or two-phase ALTER TABLE begun, at once"
    )]
    TooManyOpen {
        /// The limit.
        limit: usize,
    },
    /// An event was sent before the server named the log that has it, or with a name that is none.
    #[error("the server sent an event of type {} before it named a log", event_type.0)]
    NoLog {
        /// Type of the event.
        event_type: EventType,
    },
    /// A packet ends within an event, or has more than one.
    #[error("log {log}: a packet of the server does not hold one whole event, at offset {at}")]
    Packet {
        /// Name of the log.
        log: String,
        /// Offset of the event.
        at: u64,
    },
}
