//! Copies tables from the private server to where they go. A table gets its name when all tables are
//! complete, and on a server proven to be equal.

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;

use xb_mysql::{Client, Error, Row, ServerError};
use xb_pipeline::Observer;
use xb_reader::Printable;
use xb_replay::repair_table;

use super::definition::{Definition, key_name};
use super::faithful::{
    ALLOW_HISTORY, compare_definitions, of_backup, refuse_lost_characters, refuse_other_values,
    try_generated,
};
use super::grants::{Need, refuse_without_trigger};
use super::in_use::failed;
use super::names::{Chosen, NamedTable, StoredTable};
use super::owners::Owners;
use super::physical;
use super::rows::{
    Layout, RowsError, SESSION, Sum, TablePass, each_row, is_table, sql, trigger_names,
};
use super::sink::{LiveServer, PREFIX, QuotedTable, Sink, SinkError};
use super::source::{Copier, Order, Source};
use super::trigger::{Trigger, is_same_order};
use super::unfilled::Unfilled;
use crate::cancel::CancelToken;
use crate::error::BackupError;

/// Engines whose tables have the rows of other tables, here or on another server.
const OF_OTHERS: [&str; 5] = ["MRG_MyISAM", "FEDERATED", "CONNECT", "SPIDER", "SPHINX"];
/// The engine whose rows are in no backup.
const IN_MEMORY: &str = "MEMORY";
/// A server's error for an engine that it does not have.
const UNKNOWN_ENGINE: u16 = 1286;
/// Its error for a table of MERGE whose tables are not there.
const WITHOUT_TABLES: u16 = 1168;

/// A rescued table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rescued {
    /// Its name in the backup.
    pub table: String,
    /// Its name now.
    pub new_name: String,
    /// Number of its rows, history included.
    pub rows: u64,
    /// Parts that the new table lacks, such as foreign keys; empty if it has all.
    pub left_out: Vec<String>,
}

/// Copied tables.
#[derive(Debug, Default)]
pub(super) struct CopyOutcome {
    pub(super) tables: Vec<Rescued>,
    /// Views and tables without rows of their own that a pattern matched.
    pub(super) passed_over: Vec<String>,
    /// Why tables that a pattern matched cannot be rescued.
    pub(super) lost: Vec<BackupError>,
    pub(super) remarks: Vec<String>,
}

/// Copies all tables. What is half-made is removed if it fails. From `in_use` on, tables that clients use may be incomplete,
/// and it should not be ended.
///
/// # Errors
/// [`BackupError::Rescue`] with the table; [`BackupError::Interrupted`].
pub(super) fn copy(
    order: &Order,
    private: &mut Client,
    sink: &mut Sink,
    observer: &Observer,
    cancel: &CancelToken,
    in_use: &AtomicBool,
) -> Result<CopyOutcome, BackupError> {
    let mut copier = Copier {
        order,
        private,
        sink,
        observer,
        cancel,
        in_use,
        named: Vec::new(),
        charsets: BTreeMap::new(),
        todo: None,
    };
    let outcome = copier.run();
    let named = copier.named;
    let Err(error) = outcome else { return outcome };
    let left = sink.clean();
    match (error, cancel.reason()) {
        // It may name what a table lacks that clients use.
        (BackupError::Rescue { table, mut what }, _) if !named.is_empty() || left.is_err() => {
            if !named.is_empty() {
                what += "; these tables have their names and all their rows: ";
                what += &named.join(", ");
            }
            if let Err(left) = left {
                what += &format!("; {left}");
            }
            Err(BackupError::Rescue { table, what })
        }
        (_, _) if left.is_err() => left.map(|()| CopyOutcome::default()),
        // A connection that was closed because of the signal is no failure of a server.
        (_, Some(signal)) => Err(BackupError::Interrupted(signal)),
        (error, None) => Err(error),
    }
}

impl Copier<'_> {
    fn run(&mut self) -> Result<CopyOutcome, BackupError> {
        let of_all = |error| of_private("the tables", &error);
        self.private.run(SESSION).map_err(of_all)?;
        let mut copied = CopyOutcome::default();
        let sources = self.sources(&mut copied)?;
        self.find_charsets(&sources, &mut copied.remarks).map_err(of_all)?;
        self.sink
            .begin(&self.order.about, &self.order.run)
            .map_err(|error| failed("the tables", error))?;
        // The definition of a table may name a sequence, which has to exist by then. One that exists is replaced last: with
        // the tables that are there, an older one gives values a second time.
        let (sequences, sources): (Vec<Source>, Vec<Source>) =
            sources.into_iter().partition(|source| source.is_sequence);
        let sequences = self.fill_all(sequences, &mut copied)?;
        let (mut early, mut late) = (Vec::new(), Vec::new());
        for sequence in &sequences {
            let is_there = self.order.replace && self.holds(sequence)?;
            if is_there { late.push(sequence) } else { early.push(sequence) }
        }
        for sequence in &early {
            self.name(sequence).map(drop).map_err(|what| failed(&sequence.shown, what))?;
        }
        let sources = self.fill_all(sources, &mut copied)?;
        if copied.tables.is_empty() && !copied.lost.is_empty() {
            return Err(copied.lost.remove(0));
        }
        for source in sources.iter().filter(|source| source.same_place) {
            self.add_early_triggers(source).map_err(|what| failed(&source.shown, what))?;
        }
        self.keep_sequences(&early);
        self.put_in_use(sources.iter().chain(late))?;
        for source in sources.iter().filter(|source| source.same_place) {
            if let (Sink::Server(_), keys @ 1..) =
                (&*self.sink, source.definition.foreign_keys.len())
            {
                copied.remarks.push(format!(
                    "{}: its foreign keys ({keys}) are in force, but its rows were not checked against them: if rows of the parent tables were deleted since the backup, look for orphans with a LEFT JOIN",
                    source.shown
                ));
            }
        }
        let rows = copied.tables.iter().map(|table| table.rows).sum();
        self.sink.end(copied.tables.len(), rows).map_err(|error| failed("the tables", error))?;
        Ok(copied)
    }

    /// Creates the unfinished tables, and fills them. Returns those that are complete.
    fn fill_all(
        &mut self,
        sources: Vec<Source>,
        copied: &mut CopyOutcome,
    ) -> Result<Vec<Source>, BackupError> {
        let mut complete = Vec::with_capacity(sources.len());
        for source in sources {
            let mut filled = self.fill(&source, &mut copied.remarks);
            // The server may only have found what is wrong with the table, or that strict mode is.
            if let Err(Unfilled::Refused(what)) = filled {
                filled = match self.try_generated(&source) {
                    Err(what) => Err(Unfilled::Lost(what)),
                    Ok(()) if source.is_lenient.get() => {
                        self.fill_again(&source, &mut copied.remarks)
                    }
                    Ok(()) => Err(Unfilled::Lost(what)),
                };
            }
            let rows = match filled {
                Ok(rows) => rows,
                Err(Unfilled::Lost(what) | Unfilled::Refused(what))
                    if !source.by_name && self.is_answered() =>
                {
                    let drop = format!("DROP TABLE IF EXISTS {}", source.unfinished.name());
                    let dropped = self.sink.run(drop.as_bytes());
                    dropped.map_err(|error| failed(&source.shown, error))?;
                    copied.lost.push(failed(&source.shown, what));
                    continue;
                }
                Err(Unfilled::Lost(what) | Unfilled::Refused(what) | Unfilled::Failed(what)) => {
                    return Err(failed(&source.shown, what));
                }
            };
            if self.order.filter.is_some() && source.layout.has_timestamps() {
                copied.remarks.push(format!(
                    "{}: it has TIMESTAMP columns, and --where compares them in UTC, as NOW() is",
                    source.shown
                ));
            }
            copied.tables.push(Rescued {
                table: source.shown.clone(),
                new_name: source.shown_new(),
                rows,
                left_out: source.left_out(),
            });
            complete.push(source);
        }
        Ok(complete)
    }

    /// Fills a table whose rows the server refused, once it is known how they are written.
    fn fill_again(&mut self, source: &Source, remarks: &mut Vec<String>) -> Result<u64, Unfilled> {
        let drop = format!("DROP TABLE IF EXISTS {}", source.unfinished.name());
        self.sink.run(drop.as_bytes())?;
        self.fill(source, remarks)
    }

    /// Finds out the character set of each schema that is created: a later table or routine there has it, too.
    fn find_charsets(
        &mut self,
        sources: &[Source],
        remarks: &mut Vec<String>,
    ) -> Result<(), Error> {
        if !self.order.create_schema {
            return Ok(());
        }
        let mut of_schemas = BTreeMap::new();
        for row in self.private.rows("SELECT schema_name, CONCAT(' CHARACTER SET ', default_character_set_name, ' COLLATE ', default_collation_name) FROM information_schema.schemata")? {
            let [schema, charset] = row.texts()?;
            of_schemas.insert(schema, charset);
        }
        for source in sources {
            let Some(to) = &source.to.schema else { continue };
            let charset = of_schemas.get(&source.schema).cloned();
            let known = self.charsets.entry(to.clone()).or_insert_with(|| charset.clone());
            if known.is_some() && *known != charset {
                *known = None;
                remarks.push(format!(
                    "schema {}: its tables come from schemas with different character sets, so it has that of the server unless it is there; ALTER DATABASE gives it another one for later tables",
                    Printable::new(to.as_bytes())
                ));
            }
        }
        Ok(())
    }

    /// Returns whether the private server works: one that has ended gives no table.
    fn is_answered(&mut self) -> bool {
        self.private.rows("SELECT CAST(1 AS CHAR)").is_ok()
    }

    fn try_generated(&mut self, source: &Source) -> Result<(), String> {
        try_generated(self.private, source, self.order.filter.as_deref(), self.cancel)
    }

    /// Returns whether something is there in whose place this would come.
    fn holds(&mut self, source: &Source) -> Result<bool, BackupError> {
        let asked = self.sink.asked(|live| live.holds(&source.to));
        asked.map_err(|error| failed(&source.shown, error))
    }

    /// Lets the sequences stay: all tables are complete.
    fn keep_sequences(&mut self, sequences: &[&Source]) {
        if let Sink::Server(live) = &mut *self.sink {
            live.unfinished
                .retain(|name| sequences.iter().all(|sequence| sequence.to.name() != *name));
        }
        let shown = sequences.iter().map(|sequence| sequence.shown_new());
        let new: Vec<String> = shown.filter(|name| !self.named.contains(name)).collect();
        self.named.extend(new);
    }

    /// Reads what all tables are, before anything is written.
    fn sources(&mut self, copied: &mut CopyOutcome) -> Result<Vec<Source>, BackupError> {
        // Before anything opens one of them, such as a view of it.
        let tables = self.order.tables.iter();
        let repaired: Vec<_> = tables.map(|table| self.repair(&table.chosen.held)).collect();
        let (mut sources, mut owners) = (Vec::new(), HashMap::new());
        for (number, (named, repaired)) in self.order.tables.iter().zip(repaired).enumerate() {
            let Chosen { held, by_name } = &named.chosen;
            let found = repaired.and_then(|said| {
                copied.remarks.extend(said);
                self.find(held, *by_name)
            });
            let found = match found {
                Ok(Some(found)) => found,
                Ok(None) => {
                    copied.passed_over.push(held.to_string());
                    continue;
                }
                Err(what) if !by_name && self.is_answered() => {
                    copied.lost.push(failed(&held.to_string(), what));
                    continue;
                }
                Err(what) => return Err(failed(&held.to_string(), what)),
            };
            let source = match self.source(number, named, found, &mut owners) {
                Ok(source) => source,
                Err(Unfilled::Lost(what)) if !by_name && self.is_answered() => {
                    copied.lost.push(failed(&held.to_string(), what));
                    continue;
                }
                Err(Unfilled::Lost(what) | Unfilled::Refused(what) | Unfilled::Failed(what)) => {
                    return Err(failed(&held.to_string(), what));
                }
            };
            if source.definition.engine() == IN_MEMORY {
                copied.remarks.push(format!(
                    "{held}: its rows were in memory only, and no backup has them: it is empty"
                ));
            }
            sources.push(source);
        }
        match sources.is_empty() && copied.lost.is_empty() {
            false => Ok(sources),
            true => Err(BackupError::Selection(
                "none of these has rows of its own, like a view or a MERGE table".to_owned(),
            )),
        }
    }

    /// Repairs a table that was in use when it was copied. Returns what is to be said of it.
    fn repair(&mut self, held: &StoredTable) -> Result<Option<String>, String> {
        if !self.order.in_use.contains(&held.files) {
            return Ok(None);
        }
        let name = format!("{}.{}", sql(&held.schema), sql(&held.table));
        let rows_of = |statement: &str| {
            self.private.rows(statement).and_then(|rows| rows.iter().map(Row::texts).collect())
        };
        let repaired = repair_table(&name, rows_of)
            .map_err(|error: Error| format!("the server on the backup: {error}"))?;
        let said = repaired.map_err(|said| {
            format!(
                "it was in use while the backup copied it, and cannot be repaired: {said}; rescue it from another backup"
            )
        })?;
        let said = said.iter().map(|said| format!("; {}", Printable::new(said.as_bytes())));
        let said: String = said.collect();
        Ok(Some(format!(
            "{held}: it was in use while the backup copied it, was repaired before it was read, and may lack its last rows; compare it with another backup{said}"
        )))
    }

    /// Finds out what a table is in the backup. `None`: a view, or a table without rows of its own, that a pattern matched.
    fn find(&mut self, held: &StoredTable, by_name: bool) -> Result<Option<FoundTable>, String> {
        let ours = |error: Error| of_backup(&error);
        if self.order.lost.as_ref() == Some(&held.files) {
            let cause = match self.order.is_partial {
                true => {
                    "the producer of one of these partial backups was probably asked to leave it out"
                }
                false => "it was imported or discarded on the server",
            };
            return Err(format!(
                "the chain lacks pages of its tablespace: {cause}; rescue it from another full backup"
            ));
        }
        if let Some(pages) = self.order.damaged.get(&held.files) {
            return Err(format!(
                "damaged pages in its file: {pages}; a server would read some of its values as empty, without an error: rescue it from another backup, or restore this one with --prepare, and read the other rows with a server of your own"
            ));
        }
        let found = self.private.rows(format!(
            "SELECT table_type, COALESCE(table_comment, '') FROM information_schema.tables WHERE {}",
            is_table(&held.schema, &held.table)
        ));
        let found = found.map_err(ours)?;
        let Some([kind, comment]) = found.first().map(Row::texts).transpose().map_err(ours)? else {
            return Err(
                "the server started on the backup does not list it; its definition may be damaged"
                    .to_owned(),
            );
        };
        let pass_over = |why: String| if by_name { Err(why) } else { Ok(None) };
        if kind == "VIEW" {
            return pass_over(format!(
                "it is a view, which has no rows of its own ({})",
                Printable::new(comment.as_bytes())
            ));
        }
        let from = format!("{}.{}", sql(&held.schema), sql(&held.table));
        let text = self.private.rows(format!("SHOW CREATE TABLE {from}"));
        if let Err(Error::Server(error)) = &text
            && let Some(engine) = unknown_of_others(error)
        {
            return pass_over(of_others(engine));
        }
        let text = text.map_err(ours)?;
        let definition = text
            .first()
            .and_then(|row| Definition::read(row.get(1)?, &held.table))
            .ok_or("its definition has a form that is not known")?;
        // What is written to one goes into the tables of others, which may be in use.
        if OF_OTHERS.contains(&definition.engine()) {
            return pass_over(of_others(definition.engine()));
        }
        let shown = text.first().and_then(|row| row.get(1)).unwrap_or_default();
        refuse_lost_characters(self.private, &self.order.data, held, shown)?;
        let is_versioned = kind == "SYSTEM VERSIONED";
        let layout = Layout::read(self.private, &held.schema, &held.table, is_versioned);
        let layout = layout.map_err(ours)??;
        let ddl = layout.ddl(self.private, &held.schema).map_err(ours)?;
        let triggers = self.triggers(&held.schema, &held.table).map_err(ours)?;
        let is_sequence = kind == "SEQUENCE";
        Ok(Some(FoundTable { from, definition, layout, triggers, is_sequence, ddl }))
    }

    /// Finds out whether and how a table can get where it goes.
    fn source(
        &mut self,
        number: usize,
        NamedTable { chosen: Chosen { held, by_name }, schema, table }: &NamedTable,
        FoundTable { from, definition, layout, triggers, is_sequence, ddl }: FoundTable,
        owners: &mut HashMap<String, Owners>,
    ) -> Result<Source, Unfilled> {
        let to = QuotedTable {
            schema: self.order.with_schema.then(|| schema.clone()),
            table: table.clone(),
        };
        let same_place =
            *table == held.table && (!self.order.with_schema || *schema == held.schema);
        let unfinished = to.beside(format!("{PREFIX}{}_{number}", self.order.run));
        let mut has_triggers = false;
        if let (Sink::Server(live), true) = (&mut *self.sink, same_place) {
            if !triggers.is_empty() {
                refuse_without_trigger(&mut live.client, schema, &unfinished.table, Need::Make)?;
            }
            let keys: Vec<String> =
                definition.foreign_keys.iter().filter_map(|key| key_name(key)).collect();
            let none = Owners::default();
            let owners = match triggers.is_empty() && keys.is_empty() {
                true => &none,
                false => match owners.entry(schema.clone()) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => {
                        let asked = Owners::ask(live, schema);
                        new.insert(asked.map_err(|error| SinkError::from(error).to_string())?)
                    }
                },
            };
            let taken = |what: &str, name: &str, owner: Option<&str>| {
                owner.filter(|owner| owner != table).map_or(Ok(()), |owner| {
                    Err(format!(
                        "table {} of the server has a {what} of the name {}, which this table needs; drop it, or give another name with --as",
                        Printable::new(owner.as_bytes()),
                        Printable::new(name.as_bytes())
                    ))
                })
            };
            for trigger in &triggers {
                let owner = owners.of_trigger(&trigger.name);
                has_triggers |= owner.is_some();
                taken("trigger", &trigger.name, owner)?;
            }
            keys.iter().try_for_each(|key| taken("foreign key", key, owners.of_key(key)))?;
        }
        if let (true, Sink::Server(live)) = (self.order.physical, &mut *self.sink) {
            let file = self.order.data.join(format!("{}.ibd", held.files));
            physical::check(self.private, &mut live.client, held, &file).map_err(Unfilled::Lost)?;
            if same_place && definition.foreign_keys.iter().any(|key| definition.needs_copy(key)) {
                return Err(Unfilled::Lost("the server adds one of its foreign keys only while it copies the table, and then computes the generated columns again; leave out --physical, or give another name with --as".to_owned()));
            }
        }
        if definition.engine() == IN_MEMORY && self.order.replace {
            let there = self.sink.asked(|live| live.holds(&to));
            if there.map_err(|error| error.to_string())? {
                let what = "its rows were in memory only, and no backup has them: an empty table would replace the existing one; leave it out, or give another name with --as";
                return Err(what.to_owned().into());
            }
        }
        if let (Sink::Server(live), true) = (&mut *self.sink, self.order.replace) {
            match same_place {
                true => refuse_loss(live, schema, table, &triggers, &definition.foreign_keys)?,
                false => refuse_loss(live, schema, table, &[], &[])?,
            }
        }
        Ok(Source {
            shown: held.to_string(),
            schema: held.schema.clone(),
            by_name: *by_name,
            from,
            trial: format!("{}.{}", sql(&held.schema), sql(&unfinished.table)),
            files: self.order.physical.then(|| self.order.data.join(&held.files)),
            unfinished,
            to,
            definition,
            layout,
            triggers,
            has_triggers,
            same_place,
            is_sequence,
            ddl,
            is_lenient: Cell::new(false),
        })
    }

    fn triggers(&mut self, schema: &str, table: &str) -> Result<Vec<Trigger>, Error> {
        let names = self.private.rows(trigger_names(schema, table))?;
        let mut triggers = Vec::new();
        for row in &names {
            let [name] = row.texts()?;
            // One for several events is listed for each of them.
            if triggers.iter().any(|known: &Trigger| known.name == name) {
                continue;
            }
            triggers.push(Trigger::look(schema, &name, |ask| self.private.rows(ask))?);
        }
        Ok(triggers)
    }

    /// Creates the unfinished table, fills it, and compares it. Returns the number of rows.
    fn fill(&mut self, source: &Source, remarks: &mut Vec<String>) -> Result<u64, Unfilled> {
        let filter = self.order.filter.as_deref();
        refuse_other_values(self.private, source, filter).map_err(Unfilled::Lost)?;
        // Rows that go into a server are compared there, which says more.
        if let Sink::Dump(_) = self.sink {
            self.try_generated(source).map_err(Unfilled::Lost)?;
            if source.definition.needs_key() {
                remarks.push(format!(
                    "{}: it is encrypted, and a server that has no key of that number takes neither it nor the other tables of this dump: load the key plugin there before the dump",
                    source.shown
                ));
            }
        }
        self.enter(&source.to)?;
        if source.layout.has_history() {
            self.sink.run(ALLOW_HISTORY.as_bytes()).map_err(|error| {
                let what = format!(
                    "{error}; only MariaDB 10.11 and later accepts the history of a versioned table"
                );
                Unfilled::of(&error, what)
            })?;
        }
        let name = source.unfinished.name();
        let create = [source.ddl.as_bytes(), &source.definition.create(&name)].concat();
        self.sink.create(&source.unfinished, &create).map_err(|error| {
            let next = if error.is_unknown_table() && source.definition.uses_sequence() {
                "; a column takes its values from a sequence, which must exist first: rescue the sequence with the table, and give both their names back with --as='{table}'"
            } else if error.is_of_strict_mode() && source.definition.needs_key() {
                "; the table is encrypted, and the server has no key of that number: load the key plugin with the keys of the origin there, or rescue the table into a server that has them"
            } else if error.is_of_strict_mode() {
                "; if it was made without innodb_strict_mode, run SET GLOBAL innodb_strict_mode = OFF on the server, its replicas and the nodes of its cluster, and ON again after the rescue"
            } else {
                ""
            };
            let what = format!("{error}{next}");
            Unfilled::of(&error, what)
        })?;
        if let Sink::Server(live) = &mut *self.sink {
            let (schema, unfinished) = source.unfinished.names();
            let made = live.definition(schema, unfinished);
            let made = made.map_err(SinkError::from)?;
            let [ours, theirs] = [&*self.private, &live.client].map(|client| client.greeting());
            let versions = [&ours.version[..], &theirs.version];
            remarks.extend(compare_definitions(source, &made, versions).map_err(Unfilled::Lost)?);
        }
        self.try_triggers(source)?;
        self.try_keys(source)?;
        let mut sum = Sum::default();
        if let (Some(files), Sink::Server(live)) = (&source.files, &mut *self.sink) {
            physical::import(
                self.private,
                files,
                &source.from,
                &mut live.client,
                &name,
                &source.unfinished.table,
                source.ddl,
                self.cancel,
            )
            .map_err(Unfilled::Lost)?;
            // The server rebuilds it, which changes some definitions.
            let (schema, unfinished) = source.unfinished.names();
            let made = live.definition(schema, unfinished).map_err(SinkError::from)?;
            if let Some((_, [ours, theirs])) = source.definition.difference(&made) {
                remarks.push(format!(
                    "{}: the server has `{theirs}`, where the backup has `{ours}`, since it has rebuilt the imported table (ALTER TABLE ... FORCE); leave out --physical to get it as it was",
                    source.shown
                ));
            }
        }
        for pass in source.layout.passes() {
            match source.files {
                None => self.pour(source, &pass, &mut sum)?,
                Some(_) => self.count(source, &pass, &mut sum)?,
            }
        }
        if source.layout.has_history() {
            let count = source.layout.count(&source.from, self.order.filter.as_deref());
            let found = self
                .private
                .rows(count)
                .and_then(|rows| rows.first().map(Row::texts::<1>).transpose());
            let found = found.map_err(|error| Unfilled::Lost(of_backup(&error)))?;
            let found = found.map(|[count]| count).unwrap_or_default();
            if found != sum.rows.to_string() {
                return Err(Unfilled::Lost(format!(
                    "it has {found} rows with history, and {} of them are current or ended before 2038",
                    sum.rows
                )));
            }
        }
        if let Sink::Server(live) = &mut *self.sink {
            let mut written = Sum::default();
            for pass in source.layout.passes() {
                let select = pass.select(&name, None);
                each_row(&mut live.client, &select, pass.width(), |row| {
                    written.add(row);
                    RowsError::if_stopped(self.cancel)
                })
                .map_err(|stop| match stop {
                    RowsError::Server(error) => SinkError::from(error).into(),
                    RowsError::Refused(what) | RowsError::Other(what) => Unfilled::Failed(what),
                })?;
            }
            if written != sum {
                let what = format!(
                    "the table on the server is not equal to that of the backup: {} rows were written, {} were read back, and their digests differ",
                    sum.rows, written.rows
                );
                let prepared = match source.files {
                    Some(_) => self.private.rows("XA RECOVER"),
                    None => Ok(Vec::new()),
                };
                return Err(match prepared.is_ok_and(|prepared| !prepared.is_empty()) {
                    false => Unfilled::Refused(what),
                    true => Unfilled::Lost(format!(
                        "{what}: its file has the changes of transactions that were in XA PREPARE, and were not committed; leave out --physical"
                    )),
                });
            }
        }
        Ok(sum.rows)
    }

    /// Reads the rows of one reading, for the comparison.
    fn count(&mut self, source: &Source, pass: &TablePass, sum: &mut Sum) -> Result<(), Unfilled> {
        let select = pass.select(&source.from, None);
        each_row(self.private, &select, pass.width(), |row| {
            sum.add(row);
            RowsError::if_stopped(self.cancel)
        })
        .map_err(Unfilled::from)
    }

    /// Copies the rows of one reading.
    fn pour(&mut self, source: &Source, pass: &TablePass, sum: &mut Sum) -> Result<(), Unfilled> {
        let name = source.unfinished.name();
        let select = pass.select(&source.from, self.order.filter.as_deref());
        let (batch, longest) = (self.sink.batch(), self.sink.longest());
        // Holds a statement, or only its values.
        let (mut statement, mut values, mut lenient) = (Vec::new(), Vec::new(), false);
        let (sink, observer, cancel) = (&mut *self.sink, self.observer, self.cancel);
        let mut flush = |statement: &mut Vec<u8>| {
            if statement.is_empty() {
                return Ok(());
            }
            if statement.len() > longest {
                return Err(RowsError::Refused(format!(
                    "a row needs a statement of {} bytes, but the server accepts {longest}; raise its max_allowed_packet",
                    statement.len()
                )));
            }
            sink.run(statement).map_err(|error| match error.is_refusal() {
                true => RowsError::Refused(error.to_string()),
                false => RowsError::Other(error.to_string()),
            })?;
            observer.add_bytes(statement.len() as u64);
            statement.clear();
            // A long row must not keep its memory.
            statement.shrink_to(batch);
            RowsError::if_stopped(cancel)
        };
        let poured = each_row(self.private, &select, pass.width(), |row| {
            sum.add(row);
            values.clear();
            values.shrink_to(batch);
            pass.write(row, &mut values);
            let next = source.is_lenient.get() || pass.is_lenient(row);
            if next != lenient || statement.len() + values.len() + 2 > batch {
                flush(&mut statement)?;
                lenient = next;
            }
            match statement.is_empty() {
                true => statement = pass.insert(&name, lenient),
                false => statement.extend(b",\n"),
            }
            statement.extend(&values);
            Ok(())
        });
        poured.and_then(|()| flush(&mut statement)).map_err(Unfilled::from)
    }

    fn add_early_triggers(&mut self, source: &Source) -> Result<(), String> {
        self.enter(&source.unfinished)?;
        let early = source.early_triggers();
        early.iter().try_for_each(|(trigger, statement)| {
            self.add_trigger(trigger, statement, &source.unfinished)
        })
    }
}

impl Source {
    fn left_out(&self) -> Vec<String> {
        let mut left_out = Vec::new();
        if self.same_place {
            return left_out;
        }
        if let keys @ 1.. = self.definition.foreign_keys.len() {
            left_out.push(format!("foreign keys ({keys})"));
        }
        if let triggers @ 1.. = self.triggers.len() {
            left_out.push(format!("triggers ({triggers})"));
        }
        left_out
    }
}

/// The engine of [`OF_OTHERS`] of a table that a server cannot open, because it does not have the engine or the other tables.
fn unknown_of_others(error: &ServerError) -> Option<&'static str> {
    if error.code == WITHOUT_TABLES {
        return OF_OTHERS.first().copied();
    }
    let named = |engine: &&str| error.message.contains(&format!("'{engine}'"));
    OF_OTHERS.into_iter().find(named).filter(|_| error.code == UNKNOWN_ENGINE)
}

fn of_others(engine: &str) -> String {
    format!(
        "it has no rows of its own, but those of other tables (engine {engine}); rescue these, and create it again"
    )
}

/// Refuses to replace a table whose triggers or foreign keys would not come back as they are: these are none of those of the backup.
fn refuse_loss(
    live: &mut LiveServer,
    schema: &str,
    table: &str,
    triggers: &[Trigger],
    foreign_keys: &[Vec<u8>],
) -> Result<(), String> {
    let theirs = |error: Error| SinkError::from(error).to_string();
    if !live.is_base_table(schema, table).map_err(theirs)? {
        return Ok(());
    }
    refuse_without_trigger(&mut live.client, schema, table, Need::See)?;
    let mut lost = Vec::new();
    let names = live.triggers_of(schema, table).map_err(theirs)?;
    for name in &names {
        let shown = Printable::new(name.as_bytes());
        match triggers.iter().find(|kept| kept.name == *name) {
            None => lost.push(format!("trigger {shown}")),
            Some(kept) => {
                let is = Trigger::look(schema, name, |ask| live.look(ask)).map_err(theirs)?;
                if !is.is_like(kept) {
                    lost.push(format!("trigger {shown}, which differs in the backup"));
                }
            }
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let kept: Vec<&str> = triggers.iter().map(|kept| kept.name.as_str()).collect();
    if !is_same_order(&names, &kept) {
        lost.push("the order of its triggers, which differs in the backup".to_owned());
    }
    for key in live.foreign_keys_of(schema, table).map_err(theirs)? {
        if !foreign_keys.contains(&key) {
            lost.push(Printable::new(&key).to_string());
        }
    }
    match lost.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "the existing table has something that the new one would lack: {}; drop that first, or give another name with --as",
            lost.join(", ")
        )),
    }
}

fn of_private(table: &str, error: &Error) -> BackupError {
    failed(table, of_backup(error))
}

/// What a table is in the backup.
struct FoundTable {
    /// Its name for SQL.
    from: String,
    definition: Definition,
    layout: Layout,
    triggers: Vec<Trigger>,
    is_sequence: bool,
    /// Begins each statement that creates or alters it.
    ddl: &'static str,
}
