//! Describes a transaction for people, from its raw events.

use std::fmt;

use crate::any_gtid::AnyGtid;
use crate::change::Change;
use crate::event_type::EventType;
use crate::format::{ChecksumKind, FormatDescription};
use crate::gtid_event::{MariaDbBegin, MySqlBegin};
use crate::header::{EventHeader, HEADER_LEN};
use crate::payload::Payload;
use crate::query::Query;
use crate::reader::MAGIC;
use crate::transactions::Begin;
use crate::xa::Xid;

/// Bytes of a statement that are kept, and number of tables.
const MAX_STATEMENT: usize = 200;
const MAX_TABLES: usize = 10;
const SUM: usize = 4;
/// Offset of the type in the header of an event.
const TYPE: usize = 4;
/// Words that a secret may follow.
const SECRETS: [&str; 2] = ["IDENTIFIED", "PASSWORD"];

/// Changes of a transaction, as far as its events show them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionSummary {
    /// Its GTID.
    pub gtid: AnyGtid,
    /// Its time in microseconds since 1970, as [`Open::micros`](crate::Open::micros).
    pub micros: u64,
    /// The first tables whose rows it changes, as `schema.table`.
    pub tables: Vec<String>,
    /// Its first statement, cut, and without what may be a password.
    pub statement: Option<String>,
    /// The XA transaction that it begins, prepares or completes.
    pub xid: Option<Xid>,
}

impl TransactionSummary {
    /// Reads the transaction at the beginning of `events`, which may be cut, or be followed by others.
    /// `log` is the beginning of its log or relay log. `None` if there is none.
    #[must_use]
    pub fn read(log: &[u8], mut events: &[u8]) -> Option<Self> {
        let (header, body, _) = next(log.strip_prefix(&MAGIC)?, true)?;
        let is_format = header.event_type == EventType::FORMAT_DESCRIPTION;
        let format = is_format.then(|| FormatDescription::decode(body)).flatten()?;
        let has_sum = format.checksums == ChecksumKind::Crc32;
        let (header, body, rest) = next(events, has_sum)?;
        events = rest;
        let begin = begin(&header, body)?;
        let mut found = Self::new(begin.gtid()?, begin.micros(header.seconds));
        if let Begin::MariaDb(begin) = begin {
            found.xid = begin.xid;
        }
        while let Some((header, body, rest)) = next(events, has_sum) {
            events = rest;
            if is_first(header.event_type) || header.event_type == EventType::XID {
                break;
            }
            if header.event_type == EventType::TRANSACTION_PAYLOAD {
                found.add_payload(body);
            } else if let Some(change) = Change::read(header.event_type, body) {
                found.add(&change);
            } else if header.event_type == EventType::QUERY {
                found.xid =
                    found.xid.or_else(|| Xid::of_statement(&Query::decode(body, false)?.text));
            }
        }
        // One that is cut.
        if events.get(TYPE) == Some(&EventType::TRANSACTION_PAYLOAD.0) {
            found.add_payload(events.get(HEADER_LEN..).unwrap_or_default());
        }
        Some(found)
    }

    /// A transaction that begins.
    #[must_use]
    pub fn new(gtid: AnyGtid, micros: u64) -> Self {
        Self { gtid, micros, tables: Vec::new(), statement: None, xid: None }
    }

    fn add_payload(&mut self, body: &[u8]) {
        // The readable part is shown.
        let _ = Payload::new().push(body, |change| self.add(change));
    }

    /// Adds what the next event of the transaction says.
    pub fn add(&mut self, change: &Change) {
        match change {
            Change::Table { schema, table } => {
                let name = format!("{schema}.{table}");
                if self.tables.len() < MAX_TABLES && !self.tables.contains(&name) {
                    self.tables.push(name);
                }
            }
            Change::Statement { text, .. } => self.state(text),
        }
    }

    fn state(&mut self, statement: &[u8]) {
        self.statement.get_or_insert_with(|| {
            let mut text = String::from_utf8_lossy(statement).into_owned();
            text.truncate(text.floor_char_boundary(MAX_STATEMENT));
            let upper = text.to_ascii_uppercase();
            if let Some(secret) = SECRETS.iter().filter_map(|word| upper.find(word)).min() {
                text.truncate(secret);
                text.push_str("...");
            }
            // It may go to a terminal.
            text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
        });
    }
}

impl fmt::Display for TransactionSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transaction {}", self.gtid)?;
        if !self.tables.is_empty() {
            write!(f, " on {}", self.tables.join(", "))?;
        }
        match &self.statement {
            Some(statement) => write!(f, " ({statement})"),
            None => Ok(()),
        }
    }
}

/// Returns whether an event of this type begins a transaction.
fn is_first(event_type: EventType) -> bool {
    matches!(
        event_type,
        EventType::MARIADB_GTID
            | EventType::GTID
            | EventType::GTID_TAGGED
            | EventType::ANONYMOUS_GTID
    )
}

fn begin(header: &EventHeader, body: &[u8]) -> Option<Begin> {
    match header.event_type {
        EventType::MARIADB_GTID => MariaDbBegin::decode(body, header.server_id).map(Begin::MariaDb),
        EventType::GTID => MySqlBegin::decode(body, false).map(Begin::MySql),
        EventType::GTID_TAGGED => MySqlBegin::decode_tagged(body).map(Begin::MySql),
        _ => None,
    }
}

/// The event at the beginning: its header, its body, and what follows.
fn next(bytes: &[u8], has_sum: bool) -> Option<(EventHeader, &[u8], &[u8])> {
    let header = EventHeader::parse(bytes.first_chunk::<HEADER_LEN>()?);
    let (event, rest) = bytes.split_at_checked(usize::try_from(header.length).ok()?)?;
    let end = event.len().checked_sub(if has_sum { SUM } else { 0 })?;
    Some((header, event.get(HEADER_LEN..end)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_shown_without_its_secrets() {
        let shown = |statement: &str| {
            let gtid = "0-1-7".parse().unwrap();
            let mut found = TransactionSummary::new(gtid, 0);
            found.state(statement.as_bytes());
            found.state(b"another one");
            found.to_string()
        };
        assert_eq!(
            shown("create user u identified by 'x'"),
            "transaction 0-1-7 (create user u ...)"
        );
        assert_eq!(shown("SET PASSWORD FOR u = 'x'"), "transaction 0-1-7 (SET ...)");
        assert_eq!(shown("DROP\n\u{1b}TABLE t"), "transaction 0-1-7 (DROP  TABLE t)");
        assert!(shown(&"ä".repeat(500)).len() < 250);
    }
}
