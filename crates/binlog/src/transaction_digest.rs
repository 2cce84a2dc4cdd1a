//! The digest of a transaction as it grows, event by event.

use std::collections::{BTreeMap, HashMap};

use sha2::{Digest as _, Sha256};

use crate::any_gtid::AnyGtid;
use crate::change_format::ChangeFormat;
use crate::event_type::EventType;
use crate::fields::Fields;
use crate::format::Fork;
use crate::partial_event::{FILE, Kind, PartialEvent, TABLE, has_all_columns, plain};
use crate::status::Status;
use crate::transactions::Outcome;

/// Stands for a run of rows where the type of another event would.
const ROWS: u8 = 19;
/// Limit on the tables of a transaction.
const MAX_TABLES: usize = 1 << 16;

/// The changes of a transaction, up to here.
#[derive(Debug)]
pub(crate) struct TransactionDigest {
    fork: Fork,
    transaction: Sha256,
    form: ChangeFormat,
    is_standalone: bool,
    is_broken: bool,
    /// Digest of the table that a number stands for.
    tables: HashMap<[u8; 6], [u8; 32]>,
    /// Rows of each table since the last statement.
    rows: BTreeMap<[u8; 32], Sha256>,
}

impl Default for TransactionDigest {
    fn default() -> Self {
        Self::of_mariadb(false)
    }
}

impl TransactionDigest {
    /// Begins with a transaction of MariaDB; one that is a single statement if `is_standalone`.
    pub(crate) fn of_mariadb(is_standalone: bool) -> Self {
        Self {
            fork: Fork::MariaDb,
            transaction: Sha256::new(),
            form: ChangeFormat::default(),
            is_standalone,
            is_broken: false,
            tables: HashMap::new(),
            rows: BTreeMap::new(),
        }
    }

    /// Begins with a transaction of MySQL.
    pub(crate) fn of_mysql() -> Self {
        Self { fork: Fork::MySql, ..Self::of_mariadb(false) }
    }

    pub(crate) fn fork(&self) -> Fork {
        self.fork
    }

    /// Has no content from now on: something of it cannot be read.
    pub(crate) fn break_off(&mut self) {
        self.is_broken = true;
    }

    /// Counts an event. If that is malformed, the transaction has no content.
    pub(crate) fn count(&mut self, event: &mut PartialEvent, event_type: EventType) {
        self.is_broken |= self.add(event, event_type).is_none();
    }

    fn add(&mut self, event: &mut PartialEvent, event_type: EventType) -> Option<()> {
        let header = event.header?;
        let kind = Kind::of(event_type, self.fork);
        if !event.is_sound(kind, event_type) {
            return None;
        }
        let mut seconds = header.seconds;
        let mut counted = Sha256::new();
        match kind {
            // Of an unknown type.
            Kind::Nothing => return None,
            // Its events were counted.
            Kind::Payload => return Some(()),
            Kind::Prepare => {
                seconds = 0;
                counted.update(&event.fields);
            }
            // Its statement has the time.
            Kind::Behind(_) if matches!(event_type.0, 9 | 17) => seconds = 0,
            Kind::Behind(_) => {}
            Kind::Table => return self.map(event, seconds),
            Kind::Rows => return self.add_rows(event, event_type, seconds),
            Kind::Statement | Kind::Load => {
                self.form.add_statement();
                self.statement(event, kind, &mut counted)?;
            }
        }
        self.end_rows();
        self.transaction.update([plain(event_type)]);
        self.transaction.update(seconds.to_le_bytes());
        self.transaction.update(counted.finalize());
        // The text of LOAD DATA is counted without the name of the file.
        if kind == Kind::Load {
            event.digest.reset();
        }
        self.transaction.update(event.digest.finalize_reset());
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
        for one in Status::new(fields.bytes(variables)?, self.fork) {
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
    fn add_rows(
        &mut self,
        event: &mut PartialEvent,
        event_type: EventType,
        seconds: u32,
    ) -> Option<()> {
        let table = self.tables.get(event.fields.first_chunk::<6>()?)?;
        let rows = self.rows.entry(*table).or_default();
        rows.update([plain(event_type)]);
        rows.update(seconds.to_le_bytes());
        let columns = event.fields.get(TABLE..)?;
        rows.update(Sha256::digest(columns));
        rows.update(event.digest.finalize_reset());
        let is_whole =
            event_type != EventType::UPDATE_ROWS_PARTIAL && has_all_columns(columns, event_type)?;
        self.form.add_rows(!is_whole);
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

    /// Ends the transaction; returns its digest and form. `None` if it has no content.
    pub(crate) fn end(
        mut self,
        outcome: Outcome,
        gtid: &AnyGtid,
    ) -> Option<([u8; 32], ChangeFormat)> {
        self.end_rows();
        self.transaction.update([match outcome {
            Outcome::Commit => b'c',
            Outcome::Rollback => b'r',
            Outcome::Statement => b's',
            Outcome::XaPrepared => b'p',
            Outcome::Payload => b'z',
            Outcome::Incident => b'i',
        }]);
        self.transaction.update(gtid.to_string());
        (!self.is_broken).then(|| (self.transaction.finalize().into(), self.form))
    }
}
