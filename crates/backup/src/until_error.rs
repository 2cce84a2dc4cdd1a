//! Why a restore to a stop is refused, or failed.

use xb_binlog::{LogPosition, RelayError};
use xb_replay::{LEAVE_OUT, ReplayError};
use xb_repo::archive::plan::PlanError;

/// Reason why a restore to a stop is not possible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UntilError {
    /// The archive has no way from the backup to the stop.
    #[error("{backup}: {error}")]
    Plan {
        /// Name of the backup.
        backup: String,
        /// The obstacle.
        error: PlanError,
    },
    /// The GTID of the stop does not tell where it is.
    #[error("two transactions have the GTID {gtid}: {one}, and {two}")]
    Twice {
        /// The GTID.
        gtid: String,
        /// Where the first one lies.
        one: String,
        /// Where the second one lies.
        two: String,
    },
    /// What was named as the backup is a folder of backups.
    #[error("{0}")]
    Place(String),
    /// No backup of the server fits the stop.
    #[error("no backup of {server} can be restored until {stop}{why}")]
    NoBackup {
        /// Name of the server.
        server: String,
        /// The stop.
        stop: String,
        /// The obstacle for each, newest first; may be empty.
        why: String,
    },
    /// No backup was taken before the stop.
    #[error(
        "the stop {stop} is before all backups of {server} that can be restored: the first moment that can be reached is the end of {backup}, {first}"
    )]
    TooEarly {
        /// The stop.
        stop: String,
        /// Name of the server.
        server: String,
        /// Name of the earliest backup.
        backup: String,
        /// Time and position of its end.
        first: String,
    },
    /// The backup notes no position with its GTIDs that the archive can have.
    #[error("{backup} records no position in the binary log with its GTIDs")]
    NoPosition {
        /// Name of the backup.
        backup: String,
    },
    /// Data of MySQL is to begin a cluster.
    #[error(
        "--until with --galera is for MariaDB, and the data is of MySQL {version}: leave --galera out"
    )]
    NoCluster {
        /// Version of the server.
        version: String,
    },
    /// A backup of MySQL that is no clone.
    #[error("{backup} is a backup of xtrabackup: a log of MySQL is replayed onto clones only")]
    NoClone {
        /// Name of the backup.
        backup: String,
    },
    /// The archive lacks transactions that a clone may lack.
    #[error("the archive begins after {backup}: no stream has all transactions that it may lack")]
    Unplaced {
        /// Name of the backup.
        backup: String,
    },
    /// The position of a backup is not where the archive has its GTIDs.
    #[error("{backup} does not fit the archive: {what}; choose another backup")]
    Displaced {
        /// Name of the backup.
        backup: String,
        /// The difference.
        what: String,
    },
    /// The archived log with the position of the backup is another one of that name.
    #[error(
        "the log {log} in stream {stream} is not that of {backup}: it has other bytes before its position, so it is of another server, or of this one after it went back to an earlier state"
    )]
    AnotherLog {
        /// Name of the backup.
        backup: String,
        /// Name of the log.
        log: String,
        /// ID of the stream.
        stream: String,
    },
    /// A transaction is to be left out that the backup may have.
    #[error(
        "transaction {gtid} cannot be left out: {backup} may have it; choose an earlier backup"
    )]
    InData {
        /// Name of the backup.
        backup: String,
        /// The transaction.
        gtid: String,
    },
    /// Nothing is archived for the server.
    #[error("the binary log of {server} is not archived in this place{}", only(archived))]
    NoArchive {
        /// Name of the server.
        server: String,
        /// The servers that have an archive here.
        archived: Vec<String>,
    },
    /// It is not known whose archive is meant.
    #[error("{0}")]
    WhichServer(String),
    /// A stream of the archive cannot be read or trusted.
    #[error("stream {stream} of the archive: {what}")]
    Stream {
        /// ID of the stream.
        stream: String,
        /// The fault.
        what: String,
    },
    /// A stream that is not sealed lies behind a sealed one, although a key was given.
    #[error(
        "stream {stream} of the archive: it is not sealed, and no sealed stream follows it, so anyone who can write to the store may have put it there"
    )]
    UnsealedEnd {
        /// ID of the stream.
        stream: String,
    },
    /// The archive may lack its end.
    #[error("{what}")]
    LostEnd {
        /// The missing or unknown fact.
        what: String,
    },
    /// Two streams of the archive end it, and nothing shows which of them.
    #[error("{what}")]
    DoubtfulEnd {
        /// The streams.
        what: String,
    },
    /// A segment cannot be read, or is not what its head says.
    #[error("stream {stream}, segment {number}: {what}")]
    Segment {
        /// ID of the stream.
        stream: String,
        /// Number of the segment.
        number: u64,
        /// The fault.
        what: String,
    },
    /// The logs cannot be replayed to the stop.
    #[error(transparent)]
    Logs(#[from] RelayError),
    /// The stop is not a boundary between two transactions that the archive has.
    #[error("the stop {stop} was not found in the log, which was read up to {end}")]
    NotFound {
        /// The stop.
        stop: String,
        /// Position up to which the log was read.
        end: LogPosition,
    },
    /// The clocks of the server and of the receiver differ: a time does not say where the stop is.
    #[error(
        "it is not known whether transaction {transaction} is before the stop {stop}: its time is {seconds} s ahead of the clock of the receiver that stored it, so one of the two clocks was wrong, or a session has set the time"
    )]
    Clocks {
        /// The stop.
        stop: String,
        /// The first transaction that may lie on either side of it.
        transaction: String,
        /// How far its time is ahead of the receiver's clock.
        seconds: i64,
    },
    /// The data already holds the result of a different replay.
    #[error("{}: an earlier replay onto this data has finished, with another backup or stop{at}", target.display())]
    OtherReplay {
        /// The data directory.
        target: std::path::PathBuf,
        /// Where it ended, as text; may be empty.
        at: String,
    },
    /// The server program is not of the series of the origin.
    #[error("the server program is {found}, but the backup or its log is from {expected}")]
    Series {
        /// Version of the program.
        found: String,
        /// Version of the origin.
        expected: String,
    },
    /// An option lets the private server pass over what it cannot apply, or do more than the logs say.
    #[error("with --mysqld-opts {option}, the private server's data would differ from the logs")]
    Lenient {
        /// The option, as `NAME=VALUE`.
        option: String,
    },
    /// The replay failed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

/// `: only those of db1, db2 are`
fn only(archived: &[String]) -> String {
    match archived {
        [] => String::new(),
        [one] => format!(": only that of {one} is"),
        all => format!(": only those of {} are", all.join(", ")),
    }
}

impl UntilError {
    /// Returns whether a backup was taken after the stop.
    pub(crate) fn is_before_backup(&self) -> bool {
        matches!(self, Self::Plan { error: PlanError::BeforeBackup { .. }, .. })
    }

    /// Advice for the operator, if there is any.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Plan { error, .. } => match error {
                PlanError::NoStart { .. } => Some(
                    "name a backup whose position is in the archive; `binlog list` shows from when to when each can be restored",
                ),
                PlanError::Gap { .. } => {
                    Some("name a stop before the gap, or a backup that was taken after it")
                }
                PlanError::Branch { .. } => Some(
                    "or name a moment before it: a time, a GTID or a position; `binlog list` shows from when to when each backup can be restored",
                ),
                PlanError::Segment { .. } => {
                    Some("run `binlog verify`; name an earlier stop, or a later backup")
                }
                PlanError::Barrier { .. } => {
                    Some("name a stop before it, or a backup that was taken after it")
                }
                PlanError::Renumbered { .. } => Some(
                    "name a stop before that, or a backup that was taken after it; if there is none yet, take one now",
                ),
                PlanError::TwoPlaces { .. } => Some(
                    "name the stop by a transaction, which no clock decides: the GTID of the last one that you want (`binlog show` shows them); or a backup that was taken after the clock went back",
                ),
                PlanError::NotReached { .. } => Some(
                    "name an earlier stop or `latest`; `binlog list` shows how far the archive reaches",
                ),
                _ => None,
            },
            Self::Twice { .. } => Some(
                "stop at a position: --until=FILE:POSITION has everything before it, and `binlog show` shows the transactions",
            ),
            Self::Place(_) => Some(
                "end the URL with a slash, or with /latest, for the newest backup from which the stop can be reached; or name one of these",
            ),
            Self::NoBackup { .. } => Some(
                "name a stop that one of them reaches; `binlog list` shows from when to when each backup can be restored",
            ),
            Self::TooEarly { .. } => Some(
                "name a later stop, or restore that backup alone; earlier moments need an older backup, such as a copy in another place",
            ),
            Self::NoPosition { .. } => {
                Some("start the server with --log-bin, and take backups without --no-lock")
            }
            Self::NoClone { .. } => {
                Some("take a clone (`backup --from`), which a log can be replayed onto")
            }
            Self::Unplaced { .. } => Some(
                "name a later clone, or archive the server's older logs with `binlog push`; `binlog list` shows what each backup needs",
            ),
            Self::NoArchive { archived, .. } if !archived.is_empty() => {
                Some("name one of these with --server, or run `binlog receive` for this server")
            }
            Self::NoArchive { .. } => Some(
                "run `binlog receive` for this server; without it, only backups can be restored",
            ),
            Self::Stream { .. } | Self::Segment { .. } => {
                Some("run `binlog verify`, which names everything that is wrong with the archive")
            }
            Self::UnsealedEnd { .. } => Some(
                "start the receiver with the keys of the archive, which compares the server's log with it and continues it; or restore to the end of what is sealed with --accept-lost-end",
            ),
            Self::LostEnd { .. } => Some(
                "run it again, as a store may have left out what it has; then start the receiver, which continues the archive, or restore what is left with --accept-lost-end",
            ),
            Self::AnotherLog { .. } => Some(
                "name a backup of the history that the archive has; archive and back up each server under its own --server name",
            ),
            Self::DoubtfulEnd { .. } => Some(
                "let a receiver catch up, and archive each server under its own --server name; name the last transaction that you want, which is found in either stream; or restore to the end of the first one with --accept-lost-end",
            ),
            Self::Series { .. } => Some(
                "install the server of that series, or name it with --mysqld; --upgrade replays with a newer one",
            ),
            Self::Lenient { .. } => Some("remove that option"),
            Self::NotFound { .. } => Some(
                "run the command with --until=latest --dry-run, which shows the last transaction",
            ),
            Self::Clocks { .. } => Some(
                "name the stop by a transaction, which no clock decides: before:GTID with this one, or the GTID of the last one that you want; compare the clocks of server and receiver",
            ),
            Self::Logs(RelayError::Temporary(_)) => Some(
                "leave its transaction out (--exclude-gtid; `binlog show` names it), or choose another backup: one that was taken while that session had no temporary table",
            ),
            Self::Logs(RelayError::Known(_)) => Some(
                "name a stop before this transaction, or a backup that was taken after it; if there is none yet, take one now",
            ),
            Self::Logs(RelayError::LeftOutDdl(_)) => Some(
                "add --exclude-ddl if no later transaction needs what it defines; the replay stops at the first that does",
            ),
            Self::OtherReplay { .. } => Some(
                "run that command again, with this position as --until: only its end remains to be recorded; or remove the target directory, and run this one again",
            ),
            Self::Replay(ReplayError::Changed(_)) => Some(
                "use the data as it is, or remove the target directory, and run the same command again",
            ),
            Self::Replay(ReplayError::Interrupted(_)) => Some(
                "remove the target directory, and run the restore again: it begins anew with the backup",
            ),
            Self::Replay(ReplayError::NoteNotRemoved { .. }) => Some("run the same command again"),
            Self::Replay(ReplayError::FullDisk { .. }) => {
                Some("make room there, remove the target directory, and run the same command again")
            }
            Self::Replay(ReplayError::Transaction { error, .. }) if error.contains(LEAVE_OUT) => {
                Some(
                    "remove the target directory, and run the same command again with that option, as --mysqld-opts=OPTION",
                )
            }
            Self::Replay(ReplayError::Transaction { .. }) => Some(
                "the same command fails there again: remove the target directory, and restore to before this transaction (--until=before:GTID), without it (--exclude-gtid=GTID), or with what the private server lacks (--mysqld-opts)",
            ),
            Self::Replay(ReplayError::Stuck { .. }) => Some(
                "remove the target directory, and run the same command again with --threads=1, which applies one transaction after the other",
            ),
            Self::Replay(ReplayError::NotRepaired(_)) => {
                Some("remove the target directory, and name another backup")
            }
            Self::Replay(error) if !error.is_data_untouched() => {
                Some("remove the target directory, and run the same command again")
            }
            Self::Replay(_) => Some("run the same command again"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::*;

    #[test]
    fn what_would_fail_again_is_not_to_be_run_again() {
        let hint = |error| UntilError::Replay(error).hint().unwrap();
        let (what, error) = ("transaction 0-1-7".to_owned(), "error 1062".to_owned());
        let failed = hint(ReplayError::Transaction { what, error });
        assert!(
            failed.contains("--exclude-gtid") && failed.contains("--until=before:"),
            "{failed}"
        );
        let (what, error) = ("x".to_owned(), format!("error 1032; {LEAVE_OUT}t.m"));
        let memory = hint(ReplayError::Transaction { what, error });
        assert!(memory.contains("--mysqld-opts=OPTION"), "{memory}");
        assert!(!memory.contains("--exclude-gtid"), "{memory}");
        let not_repaired = hint(ReplayError::NotRepaired("x.m: crashed".to_owned()));
        assert!(not_repaired.contains("another backup"), "{not_repaired}");
        let stuck = hint(ReplayError::Stuck { seconds: 900, at: "bin.000001:4".to_owned() });
        assert!(stuck.contains("--threads=1"), "{stuck}");
        assert!(hint(ReplayError::Abandoned).contains("run the same command again"));
    }
}
