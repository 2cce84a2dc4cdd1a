//! Why restored data cannot be compared with a server.

/// Reason why a comparison is not possible, or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// The server cannot be asked.
    #[error("{server} cannot be asked: {what}")]
    Server {
        /// The server, as it was named.
        server: String,
        /// The error of connection, login or statement.
        what: String,
    },
    /// The replay or the server is of another fork.
    #[error("{server} is {found}: only data and servers of MariaDB are compared")]
    Fork {
        /// The server.
        server: String,
        /// Name of its fork.
        found: String,
    },
    /// The account may not see everything.
    #[error(
        "the account on {server} lacks {missing} on *.*: tables that it cannot see would count as missing"
    )]
    Grants {
        /// The server.
        server: String,
        /// The privileges.
        missing: String,
    },
    /// The server is elsewhere, and may not be moved.
    #[error("{server} is at {found}, and the replay ends at {planned}")]
    Elsewhere {
        /// The server.
        server: String,
        /// Its GTIDs.
        found: String,
        /// GTIDs of the replay's end.
        planned: String,
        /// Whether it is a replica.
        is_replica: bool,
    },
    /// A server without a source cannot be held.
    #[error("{server} is not a replica: it has no applier to hold")]
    NoReplica {
        /// The server.
        server: String,
    },
    /// The applier runs up to a stop of its own, which holding it would lose.
    #[error(
        "the applier of {server} was started with UNTIL: wait until it has stopped, or start it without"
    )]
    HasUntil {
        /// The server.
        server: String,
    },
    /// Several sources would have to be held at once.
    #[error(
        "{server} replicates from several sources ({names}), which cannot be held at one position of the archived log"
    )]
    Sources {
        /// The server.
        server: String,
        /// Names of the connections.
        names: String,
    },
    /// The replica follows another server than the archived one.
    #[error(
        "{server} replicates from the server with server_id {found}, and the log that ends at {stop} is from server_id {expected}"
    )]
    OtherSource {
        /// The replica.
        server: String,
        /// `server_id` of its source; 0 if it has never been connected.
        found: u32,
        /// `server_id` of the archived server.
        expected: u32,
        /// Position of the replay's end.
        stop: String,
    },
    /// The replay ends where no applier can be told to stop.
    #[error("{server} cannot be held at {stop}, more than 4 GiB into a log")]
    TooFar {
        /// The replica.
        server: String,
        /// Position of the replay's end.
        stop: String,
    },
    /// The replica has transactions that the replay will not have.
    #[error(
        "{server} is beyond the end of the replay: it is at {found}, and the replay ends at {planned}"
    )]
    Beyond {
        /// The replica.
        server: String,
        /// Its GTIDs.
        found: String,
        /// GTIDs of the replay's end.
        planned: String,
    },
    /// The same numbers, from other servers.
    #[error("{server} has another history: it is at {found}, and the replay ends at {planned}")]
    OtherHistory {
        /// The server.
        server: String,
        /// Its GTIDs.
        found: String,
        /// GTIDs of the replay's end.
        planned: String,
    },
    /// The applier waits on purpose for longer than a comparison does.
    #[error(
        "{server} applies each transaction {delay} s after its commit, and would reach the end of the replay in {seconds} s"
    )]
    Delayed {
        /// The replica.
        server: String,
        /// Its `MASTER_DELAY`.
        delay: u64,
        /// Seconds until it reaches the end of the replay.
        seconds: u64,
    },
    /// The applier had an error, or has stopped.
    #[error("the applier of {server} has stopped at {at}, before the end of the replay: {what}")]
    Stopped {
        /// The replica.
        server: String,
        /// GTIDs that it has reached.
        at: String,
        /// Its error.
        what: String,
    },
    /// The applier does not move.
    #[error(
        "the applier of {server} made no progress for {seconds} s: it is at {at}, and the replay ends at {planned}"
    )]
    Stuck {
        /// The replica.
        server: String,
        /// Time without a change.
        seconds: u64,
        /// GTIDs that it has reached.
        at: String,
        /// GTIDs of the replay's end.
        planned: String,
    },
    /// The server did not stay at its position.
    #[error(
        "{server} was written to while its rows were read: it was at {before}, and is at {now}"
    )]
    Moved {
        /// The server.
        server: String,
        /// Its GTIDs before.
        before: String,
        /// Its GTIDs now.
        now: String,
    },
    /// The applier could not be put back.
    #[error("{first}the applier of {server} is not as it was: {what}. Run there: {statements}")]
    NotPutBack {
        /// The replica.
        server: String,
        /// Why.
        what: String,
        /// The statements that put it back.
        statements: String,
        /// The error before that, if there was one, with the words that lead on.
        first: String,
    },
}

impl CompareError {
    /// Advice for the operator, if there is any.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Server { .. } => Some(
                "check the address, and put user and password into the group [client] of --login-file; docs/guide/point-in-time.md has the privileges",
            ),
            Self::Grants { .. } => Some("grant them to the account itself; all of them only read"),
            Self::Elsewhere { is_replica: true, .. } => Some(
                "add --hold-replica, which stops its applier there while its rows are read; or hold it there yourself (STOP SLAVE, then START SLAVE UNTIL master_gtid_pos), and name that GTID as --until",
            ),
            Self::Elsewhere { .. } => Some(
                "wait until the archive has everything (`binlog list`), stop all writes there, and use --until=latest",
            ),
            Self::NoReplica { .. } => Some(
                "leave --hold-replica out; a server that is not written to is compared where it is",
            ),
            Self::Sources { .. } | Self::OtherSource { .. } => Some(
                "name a replica whose only source is the archived server; or hold this one yourself (STOP SLAVE, then START SLAVE UNTIL master_gtid_pos), name that GTID as --until, and leave --hold-replica out",
            ),
            Self::Beyond { .. } => Some(
                "name a later stop, or --until=latest, which waits for the archive; or use a replica with MASTER_DELAY",
            ),
            Self::OtherHistory { .. } => Some(
                "find out which of the two was restored or written to on its own; `binlog list` shows branches of the archive",
            ),
            Self::TooFar { .. } => Some("name a stop in another log"),
            Self::Delayed { .. } => Some("name a stop that is older than its delay"),
            Self::Stopped { .. } => Some("read SHOW SLAVE STATUS there"),
            Self::Stuck { .. } => Some(
                "check what it is doing (SHOW PROCESSLIST); for a long ALTER, name a stop before or after it",
            ),
            Self::Moved { .. } => Some(
                "add --hold-replica for a replica; on another server, stop all writes first (read_only=1)",
            ),
            Self::Fork { .. } | Self::NotPutBack { .. } | Self::HasUntil { .. } => None,
        }
    }
}
