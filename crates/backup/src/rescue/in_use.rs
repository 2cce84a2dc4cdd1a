//! Puts tables that have all their rows in use: under their names, with what cannot come before, in place of others.

use std::path::PathBuf;

use xb_mysql::{Client, Error};
use xb_pipeline::Observer;
use xb_reader::Printable;

use super::definition::Definition;
use super::names::Chosen;
use super::rows::{Layout, sql};
use super::sink::{QuotedTable, Sink, SinkError};
use super::trigger::Trigger;
use crate::cancel::CancelToken;
use crate::error::BackupError;

/// How often a statement that others hold up is run again, once the table that it completes is in use.
const TRIES: usize = 9;

/// The tables to copy.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The tables, and the schema and name that each of them gets.
    pub(super) tables: Vec<(Chosen, (String, String))>,
    /// Whether names have a schema; without one, a dump can be read into any.
    pub(super) with_schema: bool,
    /// Whether a table that exists under a new name is replaced.
    pub(super) replace: bool,
    /// Whether a schema that does not exist is created.
    pub(super) create_schema: bool,
    /// Condition that the rows must meet.
    pub(super) filter: Option<String>,
    /// Data directory of the private server, if the server gets its files, not rows.
    pub(super) files: Option<PathBuf>,
    /// Text in a dump about its origin.
    pub(super) about: String,
    /// Distinguishes the unfinished tables of this run.
    pub(super) run: String,
}

/// A table that is known to be there, before the first one is copied.
pub(super) struct Source {
    /// Its name for people.
    pub(super) shown: String,
    /// Its name for SQL on the private server.
    pub(super) from: String,
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
}

/// Copies tables.
pub(super) struct Copier<'a> {
    pub(super) order: &'a Order,
    pub(super) private: &'a mut Client,
    pub(super) sink: &'a mut Sink,
    pub(super) observer: &'a Observer,
    pub(super) cancel: &'a CancelToken,
    /// Tables that have their new names.
    pub(super) named: Vec<String>,
}

impl Copier<'_> {
    /// Gives the tables their names, and then what cannot come before: a foreign key may refer to another of them. A
    /// table that clients use is completed, whatever happens to another one.
    pub(super) fn put_in_use(&mut self, sources: &[Source]) -> Result<(), BackupError> {
        let (mut in_use, mut failures) = (Vec::new(), Vec::new());
        for source in sources {
            match self.name(source) {
                Ok(old) => in_use.push((source, old)),
                Err(what) => {
                    failures.push((source, what));
                    break;
                }
            }
        }
        let mut is_renewed = false;
        for (source, old) in in_use {
            // A signal has closed the connection.
            if self.cancel.reason().is_some() && !is_renewed {
                is_renewed = self.sink.renew().is_ok();
            }
            if let Err(what) = self.complete(source, old.as_ref()) {
                failures.push((source, what));
            }
        }
        let mut failures = failures.into_iter();
        let Some((first, mut what)) = failures.next() else { return Ok(()) };
        for (source, more) in failures {
            what += &format!("; {}: {more}", source.shown);
        }
        Err(failed(&first.shown, what))
    }

    /// Gives a table with all its rows its name, in place of an existing one if that was asked for. Returns the place of
    /// that one, unless it is gone.
    pub(super) fn name(&mut self, source: &Source) -> Result<Option<QuotedTable>, String> {
        let (unfinished, to) = (source.unfinished.name(), source.to.name());
        let mut old = None;
        if let (Sink::Server(live), Some(schema), true) =
            (&mut *self.sink, &source.to.schema, self.order.replace)
            && live.has(schema, &source.to.table).map_err(|error| format!("the server: {error}"))?
        {
            old = Some(source.to.beside(format!("{}_old", source.unfinished.table)));
        }
        self.enter(&source.to)?;
        let rename = match &old {
            None => format!("RENAME TABLE {unfinished} TO {to}"),
            Some(old) => format!("RENAME TABLE {to} TO {}, {unfinished} TO {to}", old.name()),
        };
        self.sink.run_on_used(rename.as_bytes()).map_err(|error| error.to_string())?;
        let is_preliminary = source.is_sequence && old.is_none();
        if let Sink::Server(live) = &mut *self.sink {
            // Clients may write to it from here on: it is not dropped.
            live.unfinished.retain(|name| *name != unfinished);
            // It goes again if the tables fail.
            live.unfinished.extend(is_preliminary.then_some(to));
        }
        if !is_preliminary {
            self.named.push(source.shown_new());
        }
        match old {
            Some(old) if source.is_complete() => self.drop_replaced(source, &old).map(|()| None),
            old => Ok(old),
        }
    }

    /// Drops the table that was replaced. If a foreign key refers to it, a table that has taken nothing from it gives it
    /// its name back: the login may not see the table that has the key, and the key may be newer than the check.
    fn drop_replaced(&mut self, source: &Source, old: &QuotedTable) -> Result<(), String> {
        let (new, to, old) = (source.unfinished.name(), source.to.name(), old.name());
        let run = |sink: &mut Sink, text: &str| sink.run(text.as_bytes());
        run(self.sink, "SET foreign_key_checks = 1").map_err(|error| error.to_string())?;
        let dropped =
            self.patiently(|sink| sink.run_on_used(format!("DROP TABLE {old}").as_bytes()));
        let unchecked = run(self.sink, "SET foreign_key_checks = 0");
        let Err(error) = dropped else { return unchecked.map_err(|error| error.to_string()) };
        if !error.is_referred_to() {
            return Err(format!(
                "the table that was replaced cannot be dropped: {error}; drop {old}"
            ));
        }
        let refers = "a foreign key of another table refers to the existing table, and would follow it instead of the new one";
        if !source.is_complete() {
            return Err(format!(
                "{refers}; the new table has its place, and the existing one is {old} now: let that key refer to the new table, and drop {old}"
            ));
        }
        let back = format!("RENAME TABLE {to} TO {new}, {old} TO {to}");
        match self.patiently(|sink| sink.run_on_used(back.as_bytes())) {
            Ok(()) => {
                let shown = source.shown_new();
                self.named.retain(|name| *name != shown);
                Err(format!(
                    "{refers}; it has its place again, and the new one is {new}, with what clients wrote in between: swap the rows, and drop {new}"
                ))
            }
            Err(back) => Err(format!("{refers}; it is {old} now: {back}")),
        }
    }

    /// Runs a statement on tables that clients use, again while they hold it up.
    fn patiently(
        &mut self,
        run: impl Fn(&mut Sink) -> Result<(), SinkError>,
    ) -> Result<(), SinkError> {
        let mut tries = 1;
        loop {
            match run(self.sink) {
                Err(error)
                    if error.is_held_up() && tries < TRIES && self.cancel.reason().is_none() =>
                {
                    tries += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Takes the names of its triggers and foreign keys from a table that was replaced: a schema has each of them once.
    fn free_names(&mut self, old: &QuotedTable) -> Result<(), String> {
        let (Sink::Server(live), Some(schema)) = (&mut *self.sink, &old.schema) else {
            return Ok(());
        };
        let theirs = |error: Error| format!("the server: {error}");
        let triggers = live.triggers_of(schema, &old.table).map_err(theirs)?;
        let keys = live.foreign_key_names(schema, &old.table).map_err(theirs)?;
        let drop_key = |key: &String| format!("DROP FOREIGN KEY {}", sql(key));
        let keys: Vec<String> = keys.iter().map(drop_key).collect();
        let trigger = |name: &String| format!("DROP TRIGGER {}.{}", sql(schema), sql(name));
        let mut statements: Vec<String> = triggers.iter().map(trigger).collect();
        if !keys.is_empty() {
            statements.push(format!("ALTER TABLE {} {}", old.name(), keys.join(", ")));
        }
        statements.iter().try_for_each(|statement| {
            self.patiently(|sink| sink.run_on_used(statement.as_bytes()))
                .map_err(|error| error.to_string())
        })
    }

    /// Adds what belongs to a table under its old name, and cannot come before, and drops the table that was replaced then.
    /// A part that fails does not keep the others away.
    fn complete(&mut self, source: &Source, old: Option<&QuotedTable>) -> Result<(), String> {
        if source.is_complete() {
            return Ok(());
        }
        self.enter(&source.to)?;
        let mut failures = Vec::new();
        failures.extend(old.and_then(|old| self.free_names(old).err()));
        let table = source.to.name();
        for key in &source.definition.foreign_keys {
            let add = [format!("ALTER TABLE {table} ADD ").as_bytes(), &key[..]].concat();
            failures.extend(self.patiently(|sink| sink.run_on_used(&add)).err().map(|error| {
                format!("its foreign key cannot be added: {error} ({})", Printable::new(key))
            }));
        }
        if Self::early_triggers(source).is_empty() {
            for trigger in &source.triggers {
                failures.extend(self.add_trigger(trigger, &trigger.statement).err());
            }
        }
        match (old, failures.is_empty()) {
            (Some(old), true) => self.drop_replaced(source, old),
            (None, true) => Ok(()),
            (old, false) => {
                failures.extend(
                    old.map(|old| format!("the table that it replaced is {} now", old.name())),
                );
                Err(failures.join("; "))
            }
        }
    }

    /// The triggers of a table that it can have before its name, so that no row is written to it without them.
    pub(super) fn early_triggers(source: &Source) -> Vec<(&Trigger, Vec<u8>)> {
        // They move with the table, and all of them in order, or none.
        let table = sql(&source.unfinished.table);
        let each = source.triggers.iter().map(|each| Some((each, each.on(&table)?)));
        let all: Option<Vec<_>> = each.collect();
        all.filter(|_| !source.has_triggers).unwrap_or_default()
    }

    pub(super) fn add_trigger(
        &mut self,
        trigger: &Trigger,
        statement: &[u8],
    ) -> Result<(), String> {
        let settings = trigger.settings.each_ref().map(String::as_str);
        let created = self.patiently(|sink| sink.create_trigger(statement, settings));
        created.map_err(|error| {
            let name = Printable::new(trigger.name.as_bytes());
            format!("its trigger {name} cannot be created: {error}")
        })
    }

    /// Makes the schema the default: names without one in a definition refer to it.
    pub(super) fn enter(&mut self, place: &QuotedTable) -> Result<(), String> {
        let Some(schema) = &place.schema else { return Ok(()) };
        let run =
            |sink: &mut Sink, text: String| sink.run(text.as_bytes()).map_err(|e| e.to_string());
        if self.order.create_schema {
            run(self.sink, format!("CREATE DATABASE IF NOT EXISTS {}", sql(schema)))?;
        }
        run(self.sink, format!("USE {}", sql(schema)))
    }
}

impl Source {
    /// Its new name, for people.
    pub(super) fn shown_new(&self) -> String {
        shown(self.to.schema.as_deref(), &self.to.table)
    }

    /// Returns whether it has everything as soon as it has its name.
    fn is_complete(&self) -> bool {
        let late_triggers = !self.triggers.is_empty() && Copier::early_triggers(self).is_empty();
        !self.same_place || self.definition.foreign_keys.is_empty() && !late_triggers
    }
}

fn shown(schema: Option<&str>, table: &str) -> String {
    let name = schema.map_or_else(|| table.to_owned(), |schema| format!("{schema}.{table}"));
    Printable::new(name.as_bytes()).to_string()
}

pub(super) fn failed(table: &str, what: impl ToString) -> BackupError {
    BackupError::Rescue { table: table.to_owned(), what: what.to_string() }
}
