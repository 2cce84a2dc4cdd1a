//! Finds the transactions of a log: their limits, GTIDs and outcomes.

use crate::any_gtid::AnyGtid;
use crate::error::Error;
use crate::event::{Entry, Event};
use crate::gtid_event::{MariaDbBegin, MySqlBegin};
use crate::query::Verb;

/// Microseconds of a second.
const SECOND: u64 = 1_000_000;

/// A transaction of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Offset of its first byte.
    pub begin: u64,
    /// Offset behind its last byte.
    pub end: u64,
    /// `server_id` of the server that first committed it.
    pub server_id: u32,
    /// Time of its commit in seconds since 1970; of MariaDB, that at which the statement that commits it began.
    /// Transactions are in the order of their commits, in which this time may go back.
    pub seconds: u32,
    /// Its first event, with its GTID.
    pub first: Begin,
    /// How it ends.
    pub outcome: Outcome,
    /// MySQL: one of its statements changes the definition of something.
    has_ddl: bool,
}

impl Transaction {
    /// Returns whether the transaction changes the definition of something.
    #[must_use]
    pub fn is_ddl(&self) -> bool {
        match &self.first {
            Begin::MariaDb(begin) => begin.flags.is_ddl(),
            Begin::MySql(_) => self.has_ddl,
        }
    }
}

/// First event of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begin {
    /// Of MariaDB.
    MariaDb(MariaDbBegin),
    /// Of MySQL.
    MySql(MySqlBegin),
}

impl Begin {
    /// Returns the GTID; `None` of an anonymous transaction of MySQL.
    #[must_use]
    pub fn gtid(&self) -> Option<AnyGtid> {
        match self {
            Self::MariaDb(begin) => Some(begin.gtid.into()),
            Self::MySql(begin) => begin.gtid.clone().map(AnyGtid::from),
        }
    }

    /// Time of the commit in microseconds since 1970, if the event states it; else by `seconds`, its header's.
    pub(crate) fn micros(&self, seconds: u32) -> u64 {
        match self {
            Self::MySql(MySqlBegin { committed: Some(micros), .. }) => *micros,
            _ => u64::from(seconds) * SECOND,
        }
    }
}

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It is committed.
    Commit,
    /// It is rolled back, but has changed tables that cannot be.
    Rollback,
    /// It is one statement, which commits by itself.
    Statement,
    /// It is an XA transaction that is prepared. `XA COMMIT` or `XA ROLLBACK` is another transaction.
    XaPrepared,
    /// It is MySQL's compressed payload, which holds the end.
    Payload,
    /// The server could not write it.
    Incident,
}

/// Joins the events of a log into transactions.
#[derive(Debug, Clone, Default)]
pub struct Transactions {
    open: Option<Open>,
}

/// A transaction that has not ended. Fields as in [`Transaction`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Open {
    /// Offset of its first byte.
    pub begin: u64,
    /// `server_id` of the server that first committed it.
    pub server_id: u32,
    /// Time in seconds since 1970.
    pub seconds: u32,
    /// The same in microseconds, as far as the log has them: MySQL's.
    pub micros: u64,
    /// Its first event, with its GTID.
    pub first: Begin,
    /// MySQL: `BEGIN` or `XA START` was read, so that no other statement ends it.
    has_begun: bool,
    has_ddl: bool,
}

impl Open {
    fn new(entry: &Entry, first: Begin) -> Self {
        let micros = first.micros(entry.header.seconds);
        Self {
            begin: entry.begin,
            server_id: entry.header.server_id,
            seconds: u32::try_from(micros / SECOND).unwrap_or(u32::MAX),
            micros,
            first,
            has_begun: false,
            has_ddl: false,
        }
    }

    /// Returns whether statements are parts of it, so that they define nothing by themselves.
    pub(crate) fn is_group(&self) -> bool {
        match &self.first {
            Begin::MariaDb(begin) => !begin.flags.is_standalone(),
            Begin::MySql(_) => self.has_begun,
        }
    }
}

impl Transactions {
    /// Returns a tracker at the beginning of a log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the transaction that has not ended.
    #[must_use]
    pub fn open(&self) -> Option<&Open> {
        self.open.as_ref()
    }

    /// Gives up the transaction that has not ended, as at the end of a log that a crash has cut.
    pub fn abandon(&mut self) -> Option<Open> {
        self.open.take()
    }

    /// Takes the next event of the log; returns the transaction that ends with it.
    ///
    /// # Errors
    /// If a transaction has no end, an event of one is outside, or MySQL states another length.
    pub fn push(&mut self, entry: &Entry) -> Result<Option<Transaction>, Error> {
        let at = entry.begin;
        let first = match &entry.event {
            Event::MariaDbBegin(begin) => Some(Begin::MariaDb(begin.clone())),
            Event::MySqlBegin(begin) => Some(Begin::MySql(begin.clone())),
            _ => None,
        };
        let must_be_closed = first.is_some() || is_between(&entry.event);
        let Some(open) = &mut self.open else {
            self.open = first.map(|first| Open::new(entry, first));
            let is_fine = self.open.is_some() || must_be_closed || may_be_anywhere(entry);
            let event_type = entry.header.event_type;
            return if is_fine { Ok(None) } else { Err(Error::Outside { at, event_type }) };
        };
        if must_be_closed {
            return Err(Error::Unfinished { begin: open.begin, at });
        }
        let Some(outcome) = open.outcome(entry) else { return Ok(None) };
        let Some(open) = self.open.take() else { return Ok(None) };
        let Open { begin, server_id, seconds, first, has_ddl, .. } = open;
        let found = entry.end.saturating_sub(begin);
        if let Begin::MySql(MySqlBegin { length: Some(stated), .. }) = first
            && stated != found
        {
            return Err(Error::TransactionLength { begin, stated, found });
        }
        let end = entry.end;
        Ok(Some(Transaction { begin, end, server_id, seconds, first, outcome, has_ddl }))
    }
}

/// Returns whether an event occurs only between transactions.
fn is_between(event: &Event) -> bool {
    matches!(
        event,
        Event::Format(_)
            | Event::GtidList(_)
            | Event::PreviousGtids(_)
            | Event::Stop
            | Event::Rotate(_)
            | Event::StartEncryption
    )
}

fn may_be_anywhere(entry: &Entry) -> bool {
    match entry.event {
        Event::Control | Event::Heartbeat | Event::Incident(_) | Event::Unknown => true,
        _ => entry.header.flags.is_ignorable(),
    }
}

impl Open {
    /// How the transaction ends with this event; `None` if it does not.
    fn outcome(&mut self, entry: &Entry) -> Option<Outcome> {
        let is_standalone = !self.is_group();
        match &entry.event {
            Event::Xid(_) => Some(Outcome::Commit),
            Event::XaPrepare(prepare) if prepare.is_one_phase => Some(Outcome::Commit),
            Event::XaPrepare(_) => Some(Outcome::XaPrepared),
            Event::TransactionPayload => Some(Outcome::Payload),
            Event::Incident(_) if is_standalone => Some(Outcome::Incident),
            Event::Query(query) => match query.verb {
                Verb::Begin | Verb::XaStart => {
                    self.has_begun = true;
                    None
                }
                Verb::Commit => Some(Outcome::Commit),
                Verb::Rollback => Some(Outcome::Rollback),
                Verb::XaEnd => is_standalone.then_some(Outcome::Statement),
                Verb::Other => {
                    // `CREATE TABLE ... SELECT` is a group with rows.
                    self.has_ddl |= is_standalone || query.text.starts_with(b"CREATE ");
                    is_standalone.then_some(Outcome::Statement)
                }
            },
            Event::Load(_) => is_standalone.then_some(Outcome::Statement),
            _ => None,
        }
    }
}
