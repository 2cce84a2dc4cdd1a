//! Reasons why no replay can be planned.

use xb_binlog::LogPosition;

use crate::archive::stream::StoredPosition;

/// Reason why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// No stream has the position of the backup.
    #[error("the archive does not have the position {position} of the backup")]
    NoStart {
        /// Position of the backup.
        position: LogPosition,
    },
    /// The archive had the position of the backup; it was removed, by `prune` or by hand.
    #[error(
        "the log after {position}, where the backup ends, was removed; the archive begins at {left}"
    )]
    Removed {
        /// Position of the backup.
        position: LogPosition,
        /// Position of the first byte that is left of that stream.
        left: StoredPosition,
    },
    /// The history branches, and it is not known to which side the backup belongs.
    #[error(
        "the server's history starts over with stream {stream} ({reason}), and the backup was taken before that: choose a later backup"
    )]
    Branch {
        /// ID of the stream that begins the branch.
        stream: String,
        /// Why it is one.
        reason: String,
    },
    /// A clone notes no position, only GTIDs: what was committed without one between it and the archive is lost unseen.
    #[error(
        "stream {stream} of the archive began after the backup was taken, and transactions without a GTID may be lost between them: choose a later backup, or take one now"
    )]
    BeforeArchive {
        /// ID of the stream.
        stream: String,
    },
    /// The stop is before the end of the backup.
    #[error("the stop {stop} is before the end of the backup, {backup}: choose an earlier backup")]
    BeforeBackup {
        /// The stop.
        stop: String,
        /// Time or position of the backup.
        backup: String,
    },
    /// The archive does not reach the stop.
    #[error("the archive does not reach the stop {stop}: it ends at {end}{known}")]
    NotReached {
        /// The stop.
        stop: String,
        /// Position at which it ends.
        end: String,
        /// Until when it is complete.
        known: String,
    },
    /// The clock of the server and its receiver went back behind the stop.
    #[error(
        "the stop {stop} is two places in the log: the clock of the server and its receiver went back between {before} and {after}, and the transactions from there up to {until} have times before it, too"
    )]
    TwoPlaces {
        /// The stop.
        stop: String,
        /// The last transactions before the clock went back, and their time.
        before: String,
        /// The first ones that are known behind that, and their time.
        after: String,
        /// The last ones that may be before the stop.
        until: String,
    },
    /// Two servers of the history have this position in their logs.
    #[error("the position {stop} exists in the logs of two archived servers: give a GTID")]
    Ambiguous {
        /// The stop.
        stop: String,
    },
    /// Logs are lost on the way.
    #[error("logs are lost after {at}: {reason}")]
    Gap {
        /// Position behind the last byte before the gap.
        at: StoredPosition,
        /// Why.
        reason: String,
    },
    /// A segment is missing, cannot be read, or does not follow the one before it.
    #[error("stream {stream}, segment {number}: {what}")]
    Segment {
        /// ID of the stream.
        stream: String,
        /// Number of the segment.
        number: u64,
        /// The fault.
        what: String,
    },
    /// The server numbers transactions of a domain anew, so that some have the numbers of those that the backup has.
    #[error(
        "the server restarted the numbering of domain {domain} in the log at {at}, as after FLUSH BINARY LOGS DELETE_DOMAIN_ID: the log has {found} there, but the backup already has {noted}"
    )]
    Renumbered {
        /// The domain.
        domain: u32,
        /// Beginning of the first segment with such a transaction.
        at: StoredPosition,
        /// The last GTID of the domain there.
        found: String,
        /// The GTID that the backup notes.
        noted: String,
    },
    /// Something on the way cannot be replayed.
    #[error("the log has a barrier at {at}: {kind}")]
    Barrier {
        /// Its kind.
        kind: String,
        /// Its position.
        at: StoredPosition,
    },
}
