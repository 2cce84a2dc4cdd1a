//! A server that is looked at beside the connection that receives: what it is, and how far its log reaches.

use std::collections::BTreeMap;

use jiff::Timestamp;
use xb_binlog::{GtidSet, LogPosition};
use xb_mysql::{Access, Client, Error, Row, Timeouts};

use crate::archive_error::ArchiveError;
use crate::binlog::source::log_request::LOGIN_LIMIT;
use crate::binlog::source::replay_risks::replay_risks;
use crate::binlog::source::role::outside;
use crate::binlog::source::settings::{changes, settings};
use crate::binlog::source::write_access::WriteAccess;

/// Failed looks in a row that are reported.
pub(crate) const FAILED: u32 = 3;
/// Limit on the doublings of the pause behind failed looks: a server that hangs keeps each connection.
const DOUBLINGS: u32 = 5;
/// MySQL's error for a statement of another version.
const SYNTAX: u16 = 1064;

/// A server that is looked at, by a connection that stays open.
pub(crate) struct Watched {
    pub(crate) access: Access,
    is_mysql: bool,
    client: Option<Client>,
    /// On this connection, it was the one that is received from.
    is_known: bool,
    /// Failures in a row, and looks to be left out.
    failed: u32,
    rest: u32,
}

/// Standing of the server at a moment.
#[derive(Default)]
pub(crate) struct ServerSnapshot {
    pub(crate) write_access: WriteAccess,
    /// Variables that a replay needs.
    pub(crate) settings: BTreeMap<String, String>,
    /// Reasons why a replay of its log may give other data than it has.
    pub(crate) doubts: Vec<String>,
    /// MySQL: transactions that none of its logs ever had.
    pub(crate) outside: GtidSet,
    /// Whatever it, or its cluster, had committed at this time, by its clock and by that of this host, lies before that position in its log. Not known of a
    /// replica.
    pub(crate) end: Option<(Timestamp, LogPosition)>,
}

impl Watched {
    pub(crate) fn new(access: Access, is_mysql: bool) -> Self {
        Self { access, is_mysql, client: None, is_known: false, failed: 0, rest: 0 }
    }

    /// Returns whether it is to be looked at this time: behind failures, ever more rarely.
    pub(crate) fn is_due(&mut self) -> bool {
        let is_due = self.rest == 0;
        self.rest = self.rest.saturating_sub(1);
        is_due
    }

    /// Asks what the server is.
    pub(crate) fn write_access(&mut self) -> Result<WriteAccess, ArchiveError> {
        self.with(WriteAccess::ask)
    }

    /// Asks what the server is, and how far its log reaches; `None` if it is not the one with these variables.
    ///
    /// # Errors
    /// [`ArchiveError::Changed`] if it is, and they have other values now; any error of the connection.
    pub(crate) fn look(
        &mut self,
        who: &BTreeMap<String, String>,
    ) -> Result<Option<ServerSnapshot>, ArchiveError> {
        let is_mysql = self.is_mysql;
        let was_known = self.is_known && self.client.is_some();
        let found = self.with(|client| {
            let at = moment(client, Timestamp::now())?;
            let write_access = WriteAccess::ask(client)?;
            if write_access.who != *who {
                return Ok(Err(write_access.who));
            }
            if write_access.cluster.is_some() {
                // Waits until the node has what the others have committed.
                client.rows("SET SESSION wsrep_sync_wait = 1")?;
                client.rows("SELECT COUNT(*) FROM information_schema.schemata")?;
            }
            // Before the end: it had them there.
            let settings = settings(client, is_mysql)?;
            let end = if write_access.sources.is_empty() { end(client, is_mysql)? } else { None };
            let end = end.map(|end| (at, end));
            let doubts =
                replay_risks(client, &write_access)?.into_iter().map(|doubt| doubt.found).collect();
            let outside = if is_mysql { outside(client)? } else { GtidSet::default() };
            Ok(Ok(ServerSnapshot { write_access, settings, doubts, outside, end }))
        })?;
        self.is_known = found.is_ok();
        match found {
            Ok(sighting) => Ok(Some(sighting)),
            // A connection leads to one server, so that one got another server_id.
            Err(now) if was_known => {
                let changes = changes(who, &now).into_iter().collect::<Vec<_>>();
                Err(ArchiveError::Changed(changes.join("; ")))
            }
            Err(_) => Ok(None),
        }
    }

    /// Asks on the open connection; on a new one if there is none.
    fn with<T>(
        &mut self,
        ask: impl FnOnce(&mut Client) -> Result<T, ArchiveError>,
    ) -> Result<T, ArchiveError> {
        let client = match self.client.take() {
            Some(client) => Ok(client),
            None => {
                let timeouts = Timeouts { login: LOGIN_LIMIT, reply: Some(LOGIN_LIMIT) };
                Client::connect(&self.access.target, &self.access.account, timeouts)
            }
        };
        let found = client.map_err(ArchiveError::from).and_then(|mut client| {
            let found = ask(&mut client)?;
            Ok((client, found))
        });
        match found {
            Ok((client, found)) => {
                (self.client, self.failed) = (Some(client), 0);
                Ok(found)
            }
            // After an error, nothing is known of what the server still sends.
            Err(error) => {
                self.failed += 1;
                if self.failed >= FAILED {
                    self.rest = 1 << (self.failed - FAILED).min(DOUBLINGS);
                }
                Err(error)
            }
        }
    }
}

/// The present moment by the clock that is behind, that of this host or that of the server: transactions have times of the
/// server, and one clock that is ahead would say of a later moment that all is stored.
fn moment(client: &mut Client, own: Timestamp) -> Result<Timestamp, ArchiveError> {
    let rows = client.rows("SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)")?;
    let text = rows.first().and_then(|row| row.get(0)).unwrap_or_default();
    Ok(earlier(own, &String::from_utf8_lossy(text)))
}

/// The earlier one of this host's time and the server's, in UTC; the first one if the second one cannot be read.
fn earlier(own: Timestamp, of_server: &str) -> Timestamp {
    let time: Result<jiff::civil::DateTime, _> = of_server.parse();
    let time = time.ok().and_then(|time| time.to_zoned(jiff::tz::TimeZone::UTC).ok());
    time.map_or(own, |time| own.min(time.timestamp()))
}

/// The end of the server's log.
fn end(client: &mut Client, is_mysql: bool) -> Result<Option<LogPosition>, ArchiveError> {
    let rows = match is_mysql {
        false => client.rows("SHOW MASTER STATUS")?,
        true => match client.rows("SHOW BINARY LOG STATUS") {
            // Before 8.2.
            Err(Error::Server(error)) if error.code == SYNTAX => {
                client.rows("SHOW MASTER STATUS")?
            }
            rows => rows?,
        },
    };
    let of = |row: &Row| {
        let text = |column| Some(String::from_utf8_lossy(row.get(column)?).into_owned());
        LogPosition::new(&text(0)?, text(1)?.parse().ok()?)
    };
    Ok(rows.first().and_then(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_that_is_behind_says_up_to_when_all_is_stored() {
        let own: Timestamp = "2026-11-28T12:00:00.5Z".parse().unwrap();
        let of = |text| earlier(own, text).to_string();
        assert_eq!(of("2026-11-28 10:00:00.250000"), "2026-11-28T10:00:00.25Z");
        assert_eq!(of("2026-11-28 14:00:00.250000"), own.to_string());
        assert_eq!(of(""), own.to_string());
    }

    #[test]
    fn a_server_that_fails_is_asked_ever_more_rarely() {
        let access = Access {
            target: xb_mysql::Target::Socket("/nowhere/sock".into()),
            account: xb_mysql::Account::default(),
        };
        let mut watched = Watched::new(access, false);
        let mut asked = 0;
        for _ in 0..100 {
            if watched.is_due() {
                asked += 1;
                assert!(watched.write_access().is_err());
            }
        }
        assert!((5..=9).contains(&asked), "{asked}");
    }
}
