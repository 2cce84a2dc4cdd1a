//! The tables that are copied, and what copies them.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use xb_mysql::Client;
use xb_pipeline::Observer;
use xb_reader::Printable;

use super::damaged::DamagedTables;
use super::definition::Definition;
use super::names::NamedTable;
use super::rows::{Layout, sql};
use super::sink::{QuotedTable, Sink};
use super::trigger::Trigger;
use crate::cancel::CancelToken;

/// The tables to copy.
#[derive(Debug, Default)]
pub(super) struct Order {
    pub(super) tables: Vec<NamedTable>,
    /// Whether names have a schema; without one, a dump can be read into any.
    pub(super) with_schema: bool,
    /// Whether a table that exists under a new name is replaced.
    pub(super) replace: bool,
    /// Whether a schema that does not exist is created.
    pub(super) create_schema: bool,
    /// Condition that the rows must meet.
    pub(super) filter: Option<String>,
    /// Data directory of the private server.
    pub(super) data: PathBuf,
    /// Whether the server gets files from there, not rows.
    pub(super) physical: bool,
    /// The table of which the chain lacks pages, in the encoding of file names.
    pub(super) lost: Option<String>,
    /// Tables with damaged pages.
    pub(super) damaged: DamagedTables,
    /// Whether the backups of the chain are partial.
    pub(super) is_partial: bool,
    /// Tables that were in use when they were copied, as `SCHEMA/TABLE` in the encoding of file names.
    pub(super) in_use: BTreeSet<String>,
    /// Text in a dump about its origin.
    pub(super) about: String,
    /// Distinguishes the unfinished tables of this run.
    pub(super) run: String,
}

/// A table that is known to be there, before the first one is copied.
pub(super) struct Source {
    /// Its name for people.
    pub(super) shown: String,
    /// Its schema in the backup.
    pub(super) schema: String,
    /// Whether it was named exactly, not by a pattern.
    pub(super) by_name: bool,
    /// Its name for SQL on the private server.
    pub(super) from: String,
    /// The name of a copy beside it.
    pub(super) trial: String,
    /// Its files there, without a suffix, if they are imported.
    pub(super) files: Option<PathBuf>,
    pub(super) to: QuotedTable,
    pub(super) unfinished: QuotedTable,
    pub(super) definition: Definition,
    pub(super) layout: Layout,
    pub(super) triggers: Vec<Trigger>,
    /// Whether the server has a trigger of these names: that of the table which is replaced, until it is dropped.
    pub(super) has_triggers: bool,
    /// Whether it gets the schema and name that it had.
    pub(super) same_place: bool,
    pub(super) is_sequence: bool,
    /// Begins each statement that creates or alters it.
    pub(super) ddl: &'static str,
    /// Whether its rows are written as the session of the backup did that computed its columns: without strict mode.
    pub(super) is_lenient: Cell<bool>,
}

/// Copies tables.
pub(super) struct Copier<'a> {
    pub(super) order: &'a Order,
    pub(super) private: &'a mut Client,
    pub(super) sink: &'a mut Sink,
    pub(super) observer: &'a Observer,
    pub(super) cancel: &'a CancelToken,
    /// Whether clients may use a table that is not complete.
    pub(super) in_use: &'a AtomicBool,
    /// Tables that have their new names.
    pub(super) named: Vec<String>,
    /// The clause with the character set of each schema, by its new name, if all its tables are of schemas with that one.
    pub(super) charsets: BTreeMap<String, Option<String>>,
    /// The table with the statements that complete the others, if this run is killed.
    pub(super) todo: Option<QuotedTable>,
}

impl Source {
    /// Its new name, for people.
    pub(super) fn shown_new(&self) -> String {
        shown(self.to.schema.as_deref(), &self.to.table)
    }

    /// The statement that adds a foreign key, with its name, to the table of this name for SQL.
    pub(super) fn add_key(&self, table: &str, key: &[u8]) -> Vec<u8> {
        let end: &[u8] = if self.definition.needs_copy(key) { b", ALGORITHM=COPY" } else { b"" };
        [self.ddl.as_bytes(), b"ALTER TABLE ", table.as_bytes(), b" ADD ", key, end].concat()
    }

    /// Returns whether it has everything as soon as it has its name.
    pub(super) fn is_complete(&self) -> bool {
        let late_triggers = !self.triggers.is_empty() && self.early_triggers().is_empty();
        !self.same_place || self.definition.foreign_keys.is_empty() && !late_triggers
    }

    /// The triggers that it can have before its name, so that no row is written to it without them.
    pub(super) fn early_triggers(&self) -> Vec<(&Trigger, Vec<u8>)> {
        // They move with the table, and all of them in order, or none.
        let table = sql(&self.unfinished.table);
        let each = self.triggers.iter().map(|each| Some((each, each.on(&table)?)));
        let all: Option<Vec<_>> = each.collect();
        all.filter(|_| !self.has_triggers).unwrap_or_default()
    }
}

fn shown(schema: Option<&str>, table: &str) -> String {
    let name = schema.map_or_else(|| table.to_owned(), |schema| format!("{schema}.{table}"));
    Printable::new(name.as_bytes()).to_string()
}
