//! What a transaction does, in bytes that are the same on every server that has it.
//!
//! A replica writes a transaction of its source again: with another position, thread time, table and file numbers,
//! checksums, and without some of the events that change nothing. What is left is the same.

use sha2::{Digest as _, Sha256};

use crate::any_gtid::AnyGtid;
use crate::event_type::EventType;
use crate::format::ChecksumKind;
use crate::gtid_event::{MariaDbBegin, MySqlBegin};
use crate::header::{EventHeader, HEADER_LEN};
use crate::query::{Query, Verb};

/// First bytes of a transaction that are looked at, and bytes of its content that count. Longer statements, which a
/// server may or may not write beside its rows, leave room for these.
const RAW: usize = 256 << 10;
const COUNTED: usize = 64 << 10;
const SUM: usize = 4;

/// Number (6) and flags (2) of a table, which each server gives.
const TABLE: usize = 8;
/// Number of a file that `LOAD DATA` reads.
const FILE: usize = 4;

/// Each server has temporary tables of its own, and words of its own for them.
const TEMPORARY: [&[u8]; 2] = [b"CREATE TEMPORARY ", b"DROP TEMPORARY "];

/// SHA-256 of what a transaction does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content(pub [u8; 32]);

impl Content {
    /// First bytes of a transaction that [`Content::of`] looks at.
    pub const NEEDED: usize = RAW;

    /// The content of a transaction, by its first [`Content::NEEDED`] bytes, or all of them. `None` if they do not begin
    /// with a GTID.
    ///
    /// Of MySQL, the GTID and the time of its first commit count, in microseconds: a server compresses a transaction as it
    /// was told itself. Of MariaDB, whose servers give it times of their own, these count: the GTID, statements and their default schema, what
    /// statements need to know, names of tables, rows as they are in the log, and the data of `LOAD DATA`. Statements about
    /// temporary tables do not.
    #[must_use]
    pub fn of(events: &[u8], checksums: ChecksumKind) -> Option<Self> {
        let mut rest = events.get(..RAW).unwrap_or(events);
        let mut counted = Counted { digest: Sha256::new(), left: COUNTED };
        let mut is_first = true;
        while let Some((head, _)) = rest.split_first_chunk::<HEADER_LEN>()
            && counted.left > 0
        {
            let header = EventHeader::parse(head);
            let length = usize::try_from(header.length).ok()?.max(HEADER_LEN);
            let (event, next) = rest.split_at(length.min(rest.len()));
            let is_whole = event.len() == length;
            let sum = if checksums == ChecksumKind::Crc32 && is_whole { SUM } else { 0 };
            let body = event.get(HEADER_LEN..event.len().saturating_sub(sum)).unwrap_or_default();
            match is_first {
                true if counted.begin(&header, body)? => {
                    return Some(Self(counted.digest.finalize().into()));
                }
                true => {}
                false => counted.event(header.event_type, body),
            }
            is_first = false;
            rest = next;
        }
        (!is_first).then(|| Self(counted.digest.finalize().into()))
    }
}

struct Counted {
    digest: Sha256,
    left: usize,
}

impl Counted {
    /// Whether the first event says enough.
    fn begin(&mut self, header: &EventHeader, body: &[u8]) -> Option<bool> {
        let (gtid, committed): (AnyGtid, _) = match header.event_type {
            EventType::MARIADB_GTID => {
                // Nodes of a cluster give it times of their own.
                (MariaDbBegin::decode(body, header.server_id)?.gtid.into(), None)
            }
            EventType::GTID => with_time(MySqlBegin::decode(body, false)?)?,
            EventType::GTID_TAGGED => with_time(MySqlBegin::decode_tagged(body)?)?,
            _ => return None,
        };
        self.add(gtid.to_string().as_bytes());
        self.add(&committed.unwrap_or_default().to_le_bytes());
        Some(committed.is_some())
    }

    fn event(&mut self, event_type: EventType, body: &[u8]) {
        let number = event_type.0;
        match number {
            // Statements.
            2 | 165 => {
                if let Some(query) = Query::decode(body, number == 165)
                    && matches!(query.verb, Verb::Other | Verb::XaEnd)
                    && !TEMPORARY.iter().any(|of| query.text.starts_with(of))
                {
                    self.add(&query.schema);
                    self.add(Query::statement(body).filter(|_| number == 2).unwrap_or(&query.text));
                }
            }
            // A value, a random number and a variable that a statement needs.
            5 | 13 | 14 => self.add(body),
            // Data of LOAD DATA, and the statement.
            9 | 17 => self.add(body.get(FILE..).unwrap_or_default()),
            18 => self.add(b"LOAD"),
            // The table, by its name only: a server may be told to write more about its columns.
            19 => self.add(names(body).unwrap_or_default()),
            // Rows of both versions; compressed ones of MariaDB.
            23..=25 | 30..=32 | 166..=171 => {
                self.add(&[number]);
                self.add(body.get(TABLE..).unwrap_or_default());
            }
            _ => {}
        }
    }

    /// Adds a field, of which the length counts, too.
    fn add(&mut self, bytes: &[u8]) {
        let counted = bytes.get(..self.left).unwrap_or(bytes);
        self.left -= counted.len();
        // Of one that is cut, the length is not known.
        self.digest.update(counted);
        self.digest.update(b"\0");
    }
}

fn with_time(begin: MySqlBegin) -> Option<(AnyGtid, Option<u64>)> {
    Some((begin.gtid?.into(), begin.first_committed))
}

/// Schema and table, each with its length before and a zero behind it.
fn names(body: &[u8]) -> Option<&[u8]> {
    let names = body.get(TABLE..)?;
    let schema = usize::from(*names.first()?) + 2;
    let table = usize::from(*names.get(schema)?) + 2;
    names.get(..schema + table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;
    use crate::reader::Reader;

    /// The events of each transaction of a log.
    fn transactions(log: &[u8]) -> Vec<Vec<Vec<u8>>> {
        let (mut reader, mut input) = (Reader::new(), log);
        let mut history = History::new("bin.000001", None);
        let (mut found, mut open) = (Vec::new(), Vec::new());
        while let Some(entry) = reader.next(&mut input).unwrap() {
            let step = history.push(&entry).unwrap();
            let place = usize::try_from(entry.begin).unwrap()..usize::try_from(entry.end).unwrap();
            if history.open().is_some() || step.ended.is_some() {
                open.push(log[place].to_vec());
            }
            if step.ended.is_some() {
                found.push(std::mem::take(&mut open));
            }
        }
        found
    }

    fn content(events: &[Vec<u8>]) -> Content {
        Content::of(&events.concat(), ChecksumKind::Crc32).unwrap()
    }

    /// What another server writes differently does not count; everything that changes something does.
    #[test]
    fn a_transaction_has_one_content_on_all_servers() {
        let (mut rows, mut statements) = (0, 0);
        for fork in ["mariadb", "mysql"] {
            let log = xb_testkit::vectors::read(&format!("binlog/{fork}.000001.gz"));
            let all = transactions(&log);
            let mut seen = std::collections::HashSet::new();
            for events in &all {
                let known = content(events);
                assert!(seen.insert(known.0), "two transactions with one content");
                let mut elsewhere = events.clone();
                // Text of the statement beside its rows.
                elsewhere.retain(|event| !matches!(event[4], 160 | 29));
                for event in &mut elsewhere {
                    let (event_type, length) = (event[4], event.len());
                    event[13..17].fill(0x55);
                    event[length - SUM..].fill(0xaa);
                    match event_type {
                        // Thread and duration; the number of the commit.
                        2 => event[HEADER_LEN..HEADER_LEN + 8].fill(7),
                        16 => event[HEADER_LEN..HEADER_LEN + 8].fill(9),
                        9 | 17 => event[HEADER_LEN..HEADER_LEN + FILE].fill(3),
                        19 | 23..=25 | 30..=32 => event[HEADER_LEN..HEADER_LEN + 6].fill(5),
                        _ => {}
                    }
                }
                assert_eq!(content(&elsewhere), known);
                for (number, event) in events.iter().enumerate() {
                    let counts = match event[4] {
                        23..=25 | 30..=32 => {
                            rows += 1;
                            true
                        }
                        2 => {
                            let body = &event[HEADER_LEN..event.len() - SUM];
                            let query = Query::decode(body, false).unwrap();
                            statements += usize::from(query.verb == Verb::Other);
                            query.verb == Verb::Other
                        }
                        5 | 13 | 14 => true,
                        _ => false,
                    };
                    let before: usize = events[..number].iter().map(Vec::len).sum();
                    if fork == "mariadb"
                        && counts
                        && before < COUNTED / 2
                        && event.len() < COUNTED / 2
                    {
                        let mut other = events.clone();
                        let last = event.len() - SUM - 1;
                        other[number][last] ^= 1;
                        assert_ne!(content(&other), known, "type {}", event[4]);
                    }
                }
                // Nothing that is cut or damaged is more than another content.
                let bytes = events.concat();
                for cut in (0..bytes.len()).step_by(bytes.len() / 50 + 1) {
                    let _ = Content::of(&bytes[..cut], ChecksumKind::Crc32);
                    let _ = Content::of(&bytes[cut..], ChecksumKind::None);
                }
            }
            assert!(all.len() > 20);
        }
        assert!(rows > 20 && statements > 10, "{rows} {statements}");
    }
}
