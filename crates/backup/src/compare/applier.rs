//! The applier of a replica: stopped, led to a position, and put back as it was.
//!
//! Only the applier is touched. The receiving thread continues, and its relay logs stay: a replica whose two threads
//! have stopped fetches everything again, and its source may have purged it. That is why the stop is a position in the
//! log of the source, as the applier knows no stop by GTID without the receiving thread.

use std::time::{Duration, Instant};

use xb_binlog::{Gtid, GtidState, LogPosition};
use xb_mysql::Error;

use crate::cancel::CancelToken;
use crate::compare::server::{Server, Status, asked};
use crate::compare_error::CompareError;
use crate::error::BackupError;
use crate::rescue::rows::literal;
use crate::server::session::SessionError;

/// Interval at which the replica is asked.
const PAUSE: Duration = Duration::from_millis(200);
/// Time without any change after which an applier counts as stuck.
const STILL: Duration = Duration::from_secs(900);
/// Time for the server to be reached again, if the connection was lost while its applier was held.
const REACHED_AGAIN: Duration = Duration::from_secs(60);
/// Pause between two attempts to reach it.
const ATTEMPT: Duration = Duration::from_secs(1);

/// Where a server is, compared with the end of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplicaPosition {
    There,
    Before,
    Beyond,
    /// The same number, of another server.
    OtherHistory,
}

impl ReplicaPosition {
    pub(super) fn of(found: &GtidState, planned: &GtidState) -> Self {
        let (GtidState::MariaDb(one), GtidState::MariaDb(two)) = (found, planned) else {
            return if found == planned { Self::There } else { Self::OtherHistory };
        };
        if one == two {
            return Self::There;
        }
        let is_other = |gtid: &Gtid| {
            two.get(gtid.domain).is_some_and(|of| of.sequence == gtid.sequence && of != *gtid)
        };
        match (one.iter().any(is_other), found.is_within(planned)) {
            (true, _) => Self::OtherHistory,
            (false, true) => Self::Before,
            (false, false) => Self::Beyond,
        }
    }
}

/// The applier of a replica, and how it was before.
#[derive(Debug, Clone)]
pub(super) struct Applier {
    connection: String,
    applied: bool,
}

impl Applier {
    pub(super) fn of(status: &Status) -> Self {
        Self { connection: status.connection.clone(), applied: status.applies }
    }

    fn name(&self) -> String {
        match &*self.connection {
            "" => String::new(),
            name => format!("{} ", literal(name)),
        }
    }

    fn stop(&self) -> String {
        format!("STOP SLAVE {}SQL_THREAD", self.name())
    }

    fn start(&self) -> String {
        format!("START SLAVE {}SQL_THREAD", self.name())
    }

    /// The statements that put it back as it was.
    pub(super) fn to_put_back(&self) -> String {
        match self.applied {
            true => format!("{}; {}", self.stop(), self.start()),
            false => self.stop(),
        }
    }

    /// Stops it, if the server does not refuse to.
    ///
    /// # Errors
    /// Only after which it is certain that nothing was changed.
    pub(super) async fn try_to_stop(
        &self,
        server: &mut Server,
        cancel: &CancelToken,
    ) -> Result<(), BackupError> {
        match server.session.run(&self.stop(), cancel).await {
            Err(error @ SessionError::Server(Error::Server(_))) => Err(asked(&server.name, error)),
            _ => Ok(()),
        }
    }

    /// Stops it between two transactions. Returns its position.
    pub(super) async fn hold(
        &self,
        server: &mut Server,
        cancel: &CancelToken,
    ) -> Result<GtidState, BackupError> {
        server.run(&self.stop(), cancel).await?;
        server.gtids("gtid_slave_pos", cancel).await
    }

    /// Leads the stopped applier to a position, and stops it there.
    pub(super) async fn reach(
        &self,
        server: &mut Server,
        stop: &LogPosition,
        planned: &GtidState,
        cancel: &CancelToken,
    ) -> Result<(), BackupError> {
        let sql = format!(
            "{} UNTIL MASTER_LOG_FILE = {}, MASTER_LOG_POS = {}",
            self.start(),
            literal(stop.log()),
            stop.offset()
        );
        server.run(&sql, cancel).await?;
        let (mut seen, mut since) = (String::new(), Instant::now());
        loop {
            let status = self.status(server, cancel).await?;
            let found = server.gtids("gtid_slave_pos", cancel).await?;
            match ReplicaPosition::of(&found, planned) {
                ReplicaPosition::There => break,
                ReplicaPosition::Before if status.applies => {}
                ReplicaPosition::Before => {
                    let what = match status.error.is_empty() {
                        true => {
                            "it has no error, so another session may have stopped it".to_owned()
                        }
                        false => status.error,
                    };
                    let (server, at) = (server.name.clone(), found.to_string());
                    return Err(CompareError::Stopped { server, at, what }.into());
                }
                place => return Err(place.refused(&server.name, &found, planned).into()),
            }
            let now = format!("{} {found}", status.at);
            if now != seen {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() > STILL {
                return Err(CompareError::Stuck {
                    server: server.name.clone(),
                    seconds: STILL.as_secs(),
                    at: found.to_string(),
                    planned: planned.to_string(),
                }
                .into());
            }
            pause(PAUSE, cancel).await?;
        }
        // One that waits for its next transaction at the stop still runs.
        let found = self.hold(server, cancel).await?;
        match ReplicaPosition::of(&found, planned) {
            ReplicaPosition::There => Ok(()),
            place => Err(place.refused(&server.name, &found, planned).into()),
        }
    }

    async fn status(
        &self,
        server: &mut Server,
        cancel: &CancelToken,
    ) -> Result<Status, BackupError> {
        let all = server.statuses(cancel).await?;
        let own = all.into_iter().find(|status| status.connection == self.connection);
        own.ok_or_else(|| CompareError::NoReplica { server: server.name.clone() }.into())
    }

    /// Puts it back as it was, whatever has happened: also after a signal, and over a new connection.
    pub(super) async fn put_back(&self, server: &mut Server) -> Result<(), CompareError> {
        // The signal that ended the comparison must not end this.
        let cancel = CancelToken::new();
        let begin = Instant::now();
        loop {
            let Err(error) = self.try_to_put_back(server, &cancel).await else { return Ok(()) };
            if begin.elapsed() > REACHED_AGAIN {
                return Err(CompareError::NotPutBack {
                    server: server.name.clone(),
                    what: error.to_string(),
                    statements: self.to_put_back(),
                    first: String::new(),
                });
            }
            tokio::time::sleep(ATTEMPT).await;
            // Its error is that of the next attempt.
            let _ = server.connect_again(&cancel).await;
        }
    }

    async fn try_to_put_back(
        &self,
        server: &mut Server,
        cancel: &CancelToken,
    ) -> Result<(), BackupError> {
        // A stop that is still set ends with the thread.
        server.run(&self.stop(), cancel).await?;
        if self.applied {
            server.run(&self.start(), cancel).await?;
        }
        Ok(())
    }
}

impl ReplicaPosition {
    /// Returns why a server that is here is not compared.
    pub(super) fn refused(
        self,
        server: &str,
        found: &GtidState,
        planned: &GtidState,
    ) -> CompareError {
        let (server, found) = (server.to_owned(), found.to_string());
        let planned = planned.to_string();
        match self {
            Self::OtherHistory => CompareError::OtherHistory { server, found, planned },
            _ => CompareError::Beyond { server, found, planned },
        }
    }
}

/// Waits, or ends with a request to cancel.
pub(super) async fn pause(time: Duration, cancel: &CancelToken) -> Result<(), BackupError> {
    tokio::select! {
        () = tokio::time::sleep(time) => Ok(()),
        signal = cancel.cancelled() => Err(BackupError::Interrupted(signal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_compared_in_each_domain() {
        let of = |found: &str, planned: &str| {
            ReplicaPosition::of(&found.parse().unwrap(), &planned.parse().unwrap())
        };
        let planned = "0-3-10,7-3-4";
        for (found, place) in [
            (planned, ReplicaPosition::There),
            ("7-3-4,0-3-10", ReplicaPosition::There),
            ("0-3-9,7-3-4", ReplicaPosition::Before),
            ("0-5-9,7-3-4", ReplicaPosition::Before),
            ("0-3-10", ReplicaPosition::Before),
            ("0-3-11", ReplicaPosition::Beyond),
            ("0-3-9,7-3-5", ReplicaPosition::Beyond),
            ("0-3-10,7-3-4,9-3-1", ReplicaPosition::Beyond),
            ("0-4-10,7-3-4", ReplicaPosition::OtherHistory),
            ("0-4-10,7-3-5", ReplicaPosition::OtherHistory),
        ] {
            assert_eq!(of(found, planned), place, "{found}");
        }
    }

    #[test]
    fn the_statements_name_the_connection() {
        let applier = Applier { connection: "a'b".to_owned(), applied: true };
        let expected = "STOP SLAVE 'a\\'b' SQL_THREAD; START SLAVE 'a\\'b' SQL_THREAD";
        assert_eq!(applier.to_put_back(), expected);
        let applier = Applier { connection: String::new(), applied: false };
        assert_eq!(applier.to_put_back(), "STOP SLAVE SQL_THREAD");
    }
}
