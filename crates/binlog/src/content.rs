//! Digest of what a transaction of MariaDB does: the same in the logs of all servers that have it.
//!
//! A replica writes a transaction of its source again, and a node of a cluster that of another node. What each server
//! chooses itself does not count; everything else does, as ADR 23 lists it. Memory is the same for a transaction of any
//! size, up to a limit on the number of its tables.

use std::collections::{BTreeMap, HashMap};

use sha2::{Digest as _, Sha256};

use crate::event::{Entry, Event};
use crate::event_type::EventType;
use crate::fields::Fields;
use crate::format::ChecksumKind;
use crate::header::{EventHeader, HEADER_LEN};
use crate::inflate::Inflate;
use crate::mariadb_gtid::Gtid;
use crate::query::Verb;
use crate::status::Status;
use crate::transactions::{Begin, Outcome, Transaction};

const SUM: usize = 4;
/// Number (6) and flags (2) of a table, which each server chooses.
const TABLE: usize = 8;
/// Number of a file that `LOAD DATA` reads.
const FILE: usize = 4;
/// Fields of a statement before its variables, and those that `LOAD DATA` has behind them.
const STATEMENT: usize = 13;
const LOAD: usize = STATEMENT + 13;
/// Stands for a run of rows where the type of another event would.
const ROWS: u8 = 19;
/// Limit on the tables of a transaction.
const MAX_TABLES: usize = 1 << 16;
/// Limit on the text of `LOAD DATA`.
const MAX_LOAD: usize = 64 << 10;

/// Each server has temporary tables of its own, and words of its own for them.
const TEMPORARY: [&[u8]; 2] = [b"CREATE TEMPORARY ", b"DROP TEMPORARY "];

/// Content of a transaction, and the format in which its log has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Content {
    /// GTID of the transaction.
    pub gtid: Gtid,
    /// SHA-256 of what it does.
    pub digest: [u8; 32],
    /// How its changes are written.
    pub form: ChangeFormat,
}

/// How changes are written. Those of two forms cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ChangeFormat(u8);

impl ChangeFormat {
    /// Number of forms.
    pub(crate) const COUNT: usize = 8;
    const STATEMENT: u8 = 1;
    const ROWS: u8 = 2;
    /// Rows without some of their columns.
    const PARTIAL: u8 = 4;

    /// Names of the forms. Partial rows are rows, so two forms do not occur.
    pub(crate) const NAMES: [Option<&'static str>; Self::COUNT] = [
        Some("nothing"),
        Some("statements"),
        Some("rows"),
        Some("statements_and_rows"),
        None,
        None,
        Some("partial_rows"),
        Some("statements_and_partial_rows"),
    ];

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Takes the bytes of transactions as they are in a log, in pieces of any size.
#[derive(Debug, Default)]
pub struct ContentDigest {
    transaction: Sha256,
    form: ChangeFormat,
    is_standalone: bool,
    is_broken: bool,
    /// Digest of the table that a number stands for.
    tables: HashMap<[u8; 6], [u8; 32]>,
    /// Rows of each table since the last statement.
    rows: BTreeMap<[u8; 32], Sha256>,
    event: PartialEvent,
}

/// The event that is arriving.
#[derive(Debug, Default)]
struct PartialEvent {
    head: Vec<u8>,
    header: Option<EventHeader>,
    /// Beginning of the body, in parts that count each by themselves.
    fields: Vec<u8>,
    /// Bytes of the body that have not arrived.
    left: usize,
    /// The rest of the body.
    digest: Sha256,
    inflate: Option<Inflate>,
    text: Vec<u8>,
    is_broken: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nothing,
    /// The body behind this many bytes.
    Behind(usize),
    Table,
    Statement,
    Load,
    Rows,
}

impl Kind {
    fn of(event_type: EventType) -> Self {
        match event_type.0 {
            2 | 165 => Self::Statement,
            // A value, a random number and a variable that a statement needs.
            5 | 13 | 14 => Self::Behind(0),
            // Data of LOAD DATA.
            9 | 17 => Self::Behind(FILE),
            18 => Self::Load,
            19 => Self::Table,
            23..=25 | 30..=32 | 166..=171 => Self::Rows,
            _ => Self::Nothing,
        }
    }

    /// Length of the fields at the beginning of a body, as far as `body` shows.
    fn fields(self, event_type: EventType, body: &[u8]) -> Option<usize> {
        Some(match self {
            Self::Nothing => 0,
            Self::Behind(number) => number,
            Self::Table => TABLE,
            Self::Statement | Self::Load => {
                let fixed = if self == Self::Load { LOAD } else { STATEMENT };
                match (body.get(8), body.get(11..STATEMENT).and_then(|b| b.first_chunk())) {
                    (Some(schema), Some(variables)) => {
                        fixed
                            + usize::from(u16::from_le_bytes(*variables))
                            + usize::from(*schema)
                            + 1
                    }
                    _ => STATEMENT,
                }
            }
            Self::Rows => return row_fields(event_type, body),
        })
    }
}

/// Length of what comes before rows: table, extra data of version 2, number of columns, and the columns that they have,
/// twice for an update. ("Rows Event", documentation of MariaDB Server)
fn row_fields(event_type: EventType, body: &[u8]) -> Option<usize> {
    let mut at = TABLE;
    if matches!(event_type.0, 30..=32 | 169..=171) {
        let Some(extra) = body.get(at..at + 2).and_then(|b| b.first_chunk()) else {
            return Some(at + 2);
        };
        let extra = usize::from(u16::from_le_bytes(*extra));
        at += extra.max(2);
    }
    let columns = match body.get(at) {
        None => return Some(at + 1),
        Some(small @ ..=250) => {
            at += 1;
            usize::from(*small)
        }
        Some(252) => {
            let Some(number) = body.get(at + 1..at + 3).and_then(|b| b.first_chunk()) else {
                return Some(at + 3);
            };
            at += 3;
            usize::from(u16::from_le_bytes(*number))
        }
        Some(_) => return None,
    };
    let images = if is_update(event_type) { 2 } else { 1 };
    Some(at + columns.div_ceil(8) * images)
}

fn is_update(event_type: EventType) -> bool {
    matches!(event_type.0, 24 | 31 | 167 | 170)
}

/// Type of the same event without compression.
fn plain(event_type: EventType) -> u8 {
    match event_type.0 {
        165 => 2,
        compressed @ 166..=168 => compressed - 166 + 23,
        compressed @ 169..=171 => compressed - 169 + 30,
        other => other,
    }
}

impl ContentDigest {
    /// Begins with no transaction.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes of the present event.
    pub fn take(&mut self, bytes: &[u8], checksums: ChecksumKind) {
        let sum = if checksums == ChecksumKind::Crc32 { SUM } else { 0 };
        self.event.take(bytes, sum);
    }

    /// Ends the present event, which is this one. It counts if it is of a transaction.
    pub fn end_event(&mut self, entry: &Entry) {
        if let Event::MariaDbBegin(begin) = &entry.event {
            *self = Self { is_standalone: begin.flags.is_standalone(), ..Self::default() };
        }
        let event = std::mem::take(&mut self.event);
        let event_type = entry.header.event_type;
        let is_counted = match (&entry.event, Kind::of(event_type)) {
            (_, Kind::Nothing) => false,
            (Event::Query(query), _) => {
                matches!(query.verb, Verb::Other | Verb::XaEnd)
                    && !TEMPORARY.iter().any(|of| query.text.starts_with(of))
            }
            _ => true,
        };
        if is_counted && self.count(event, event_type).is_none() {
            self.is_broken = true;
        }
    }

    /// Counts an event. `None` if it is malformed.
    fn count(&mut self, event: PartialEvent, event_type: EventType) -> Option<()> {
        let header = event.header?;
        let is_plain = plain(event_type) == event_type.0;
        let inflated = event.inflate.as_ref().map_or(is_plain, Inflate::is_whole);
        if event.is_broken || event.left > 0 || !inflated {
            return None;
        }
        let kind = Kind::of(event_type);
        if kind.fields(event_type, &event.fields)? != event.fields.len() {
            return None;
        }
        let mut seconds = header.seconds;
        let mut counted = Sha256::new();
        match kind {
            Kind::Nothing => return Some(()),
            // Its statement has the time.
            Kind::Behind(_) if matches!(event_type.0, 9 | 17) => seconds = 0,
            Kind::Behind(_) => {}
            Kind::Table => return self.map(&event, seconds),
            Kind::Rows => return self.add_rows(event, event_type, seconds),
            Kind::Statement | Kind::Load => {
                self.form.0 |= ChangeFormat::STATEMENT;
                self.statement(&event, kind, &mut counted)?;
            }
        }
        self.end_rows();
        self.transaction.update([plain(event_type)]);
        self.transaction.update(seconds.to_le_bytes());
        self.transaction.update(counted.finalize());
        // The text of LOAD DATA is counted without the name of the file.
        let rest = if kind == Kind::Load { Sha256::new() } else { event.digest };
        self.transaction.update(rest.finalize());
        Some(())
    }

    /// Counts a statement's error, variables and schema, and of `LOAD DATA` the text beside the name of the file.
    fn statement(&self, event: &PartialEvent, kind: Kind, counted: &mut Sha256) -> Option<()> {
        let mut fields = Fields::new(&event.fields);
        fields.bytes(8)?;
        let schema = usize::from(fields.u8()?);
        counted.update(fields.array::<2>()?);
        let variables = usize::from(fields.u16()?);
        if kind == Kind::Load {
            fields.bytes(FILE)?;
            let (begin, end) = (fields.u32()?, fields.u32()?);
            let duplicates = fields.u8()?;
            let before = event.text.get(..usize::try_from(begin).ok()?)?;
            let after = event.text.get(usize::try_from(end).ok()?..)?;
            counted.update([duplicates]);
            counted.update(Sha256::digest(before));
            counted.update(Sha256::digest(after));
        }
        let mut kept = Sha256::new();
        for one in Status::new(fields.bytes(variables)?) {
            if one.counts(self.is_standalone) {
                kept.update(one.bytes());
            }
        }
        counted.update(kept.finalize());
        counted.update(Sha256::digest(fields.bytes(schema)?));
        (fields.u8()? == 0).then_some(())
    }

    fn map(&mut self, event: &PartialEvent, seconds: u32) -> Option<()> {
        let table = event.digest.clone().chain_update(seconds.to_le_bytes()).finalize().into();
        self.tables.insert(*event.fields.first_chunk()?, table);
        self.rows.entry(table).or_default();
        (self.tables.len().max(self.rows.len()) <= MAX_TABLES).then_some(())
    }

    /// Adds rows to those of their table. The order between tables does not count: nodes of a cluster differ in it, and
    /// rows of two tables change nothing in each other.
    fn add_rows(&mut self, event: PartialEvent, event_type: EventType, seconds: u32) -> Option<()> {
        let table = self.tables.get(event.fields.first_chunk::<6>()?)?;
        let rows = self.rows.entry(*table).or_default();
        rows.update([plain(event_type)]);
        rows.update(seconds.to_le_bytes());
        let columns = event.fields.get(TABLE..)?;
        rows.update(Sha256::digest(columns));
        rows.update(event.digest.finalize());
        self.form.0 |= ChangeFormat::ROWS;
        if !has_all_columns(columns, event_type)? {
            self.form.0 |= ChangeFormat::PARTIAL;
        }
        Some(())
    }

    /// Ends a run of rows, before a statement or the end of the transaction.
    fn end_rows(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        let mut all = Sha256::new();
        for (table, rows) in std::mem::take(&mut self.rows) {
            all.update(table);
            all.update(rows.finalize());
        }
        self.transaction.update([ROWS]);
        self.transaction.update(all.finalize());
    }

    /// Ends a transaction, and returns its content. `None` if it is of MySQL, or an event of it is malformed: it is equal
    /// to no other then.
    pub fn end_transaction(&mut self, ended: &Transaction) -> Option<Content> {
        self.end_rows();
        let Self { mut transaction, form, is_broken, .. } = std::mem::take(self);
        let Begin::MariaDb(begin) = &ended.first else { return None };
        transaction.update([match ended.outcome {
            Outcome::Commit => b'c',
            Outcome::Rollback => b'r',
            Outcome::Statement => b's',
            Outcome::XaPrepared => b'p',
            Outcome::Payload => b'z',
            Outcome::Incident => b'i',
        }]);
        let gtid = begin.gtid;
        transaction.update(gtid.to_string());
        let digest = transaction.finalize().into();
        (!is_broken).then_some(Content { gtid, digest, form })
    }

    /// Forgets the events up to here: they are of no transaction, or of one without an end.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Returns whether rows have all columns of their table. The bits behind the last column may have any value.
fn has_all_columns(columns: &[u8], event_type: EventType) -> Option<bool> {
    let mut fields = Fields::new(columns);
    if matches!(event_type.0, 30..=32 | 169..=171) {
        let extra = usize::from(fields.u16()?);
        fields.bytes(extra.saturating_sub(2))?;
    }
    let number = usize::try_from(fields.lenenc()?).ok()?;
    let bitmaps = fields.rest();
    let all = bitmaps.chunks(number.div_ceil(8).max(1)).all(|bitmap| {
        (0..number).all(|n| bitmap.get(n / 8).is_some_and(|byte| byte >> (n % 8) & 1 == 1))
    });
    Some(all)
}

impl PartialEvent {
    fn take(&mut self, mut bytes: &[u8], sum: usize) {
        let header = match self.header {
            Some(header) => header,
            None => {
                keep(&mut self.head, &mut bytes, HEADER_LEN);
                let Some(header) = self.head.first_chunk().map(EventHeader::parse) else { return };
                let length = usize::try_from(header.length).unwrap_or(usize::MAX);
                self.left = length.saturating_sub(HEADER_LEN + sum);
                *self.header.insert(header)
            }
        };
        let kind = Kind::of(header.event_type);
        if kind == Kind::Nothing {
            return;
        }
        // Without the checksum.
        bytes = bytes.get(..self.left).unwrap_or(bytes);
        self.left -= bytes.len();
        while !bytes.is_empty() {
            let Some(len) = kind.fields(header.event_type, &self.fields) else {
                self.is_broken = true;
                return;
            };
            if self.fields.len() < len {
                keep(&mut self.fields, &mut bytes, len);
                continue;
            }
            let is_done = match (plain(header.event_type) == header.event_type.0, kind) {
                (true, Kind::Load) => {
                    keep(&mut self.text, &mut bytes, MAX_LOAD);
                    bytes.is_empty()
                }
                (true, _) => {
                    self.digest.update(bytes);
                    true
                }
                (false, _) => {
                    let inflate = self.inflate.get_or_insert_default();
                    inflate.push(bytes, |plain| self.digest.update(plain)).is_some()
                }
            };
            self.is_broken |= !is_done;
            return;
        }
    }
}

/// Moves bytes until `len` are kept.
fn keep(kept: &mut Vec<u8>, bytes: &mut &[u8], len: usize) {
    let missing = len.saturating_sub(kept.len()).min(bytes.len());
    let (taken, rest) = bytes.split_at(missing);
    kept.extend_from_slice(taken);
    *bytes = rest;
}
