//! Puts tables that have all their rows in use: under their names, with what cannot come before, in place of others.

use std::sync::atomic::Ordering;

use xb_mysql::Error;
use xb_reader::Printable;

use super::completing::{Failure, Incomplete};
use super::definition::key_name;
use super::lost_answer::TRIES;
use super::rows::sql;
use super::sink::{LiveServer, QuotedTable, Sink, SinkError};
use super::source::{Copier, Source};
use super::trigger::Trigger;
use crate::error::BackupError;

impl Copier<'_> {
    /// Gives the tables their names, and then what cannot come before: a foreign key may refer to another of them. A
    /// table that clients use is completed, whatever happens to another one.
    pub(super) fn put_in_use<'s>(
        &mut self,
        sources: impl Iterator<Item = &'s Source>,
    ) -> Result<(), BackupError> {
        let (mut in_use, mut failures) = (Vec::new(), Vec::new());
        self.in_use.store(true, Ordering::SeqCst);
        for source in sources {
            match self.name(source) {
                Ok(old) => in_use.push((source, old)),
                Err(what) => {
                    failures.push((source, what));
                    break;
                }
            }
        }
        for (source, old) in &in_use {
            let old = old.as_ref();
            if let Err(what) = self.complete(source, old) {
                failures.push((source, what));
            }
        }
        self.keep_todo(&mut failures);
        let mut failures = failures.into_iter();
        let Some((first, failure)) = failures.next() else {
            return self.forget_todo().map_err(|error| failed("the tables", error));
        };
        let mut what = failure.to_string();
        for (source, more) in failures {
            what += &format!("; {}: {more}", source.shown);
        }
        Err(failed(&first.shown, what))
    }

    /// Gives a table with all its rows its name, in place of an existing one if that was asked for. Returns the place of
    /// that one, unless it is gone.
    pub(super) fn name<'s>(
        &mut self,
        source: &'s Source,
    ) -> Result<Option<QuotedTable>, Failure<'s>> {
        let (unfinished, to) = (source.unfinished.name(), source.to.name());
        self.enter(&source.to)?;
        let is_taken = self.order.replace && self.sink.asked(|live| live.holds(&source.to))?;
        let old = is_taken.then(|| source.to.beside(format!("{}_old", source.unfinished.table)));
        let rename = match &old {
            None => format!("RENAME TABLE {unfinished} TO {to}"),
            Some(old) => format!("RENAME TABLE {to} TO {}, {unfinished} TO {to}", old.name()),
        };
        self.note(source, old.as_ref())?;
        let cancel = self.cancel;
        let renamed = self.sink.surely(
            1,
            cancel,
            |sink| match cancel.reason() {
                Some(_) => Err(SinkError::Interrupted),
                None => sink.run_on_used(rename.as_bytes()),
            },
            |live| Ok(!live.holds(&source.unfinished)?),
        );
        if let Err(error) = renamed {
            if !matches!(error, SinkError::Unknown { .. }) {
                return Err(error.into());
            }
            // Whether it is there tells whether it was renamed.
            self.keep(&unfinished);
            let what = format!("{error}; if {unfinished} no longer exists, it is now {to}");
            return Err(Failure::new(what, Some(Incomplete::of(source, old.as_ref()))));
        }
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
            Some(old) if source.is_complete() => {
                Ok(self.drop_replaced(source, &old).map(|()| None)?)
            }
            old => Ok(old),
        }
    }

    /// Runs a statement on tables that clients use, again while they hold it up.
    pub(super) fn patiently(
        &mut self,
        run: impl Fn(&mut Sink) -> Result<(), SinkError>,
        is_done: impl Fn(&mut LiveServer) -> Result<bool, Error>,
    ) -> Result<(), SinkError> {
        self.sink.surely(TRIES, self.cancel, run, is_done)
    }

    /// Drops the table that was replaced. If a foreign key refers to it, a table that has taken nothing from it gives it
    /// its name back: the login may not see the table that has the key, and the key may be newer than the check.
    fn drop_replaced(&mut self, source: &Source, place: &QuotedTable) -> Result<(), String> {
        let (new, to, old) = (source.unfinished.name(), source.to.name(), place.name());
        let dropped = self.patiently(
            |sink| {
                sink.run(b"SET foreign_key_checks = 1")?;
                sink.run_on_used(format!("DROP TABLE {old}").as_bytes())
            },
            |live| Ok(!live.holds(place)?),
        );
        // Without a connection, the next one begins with it.
        let _ = self.sink.run(b"SET foreign_key_checks = 0");
        let Err(error) = dropped else { return Ok(()) };
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
        let back = self.patiently(
            |sink| sink.run_on_used(back.as_bytes()),
            |live| live.holds(&source.unfinished),
        );
        match back {
            Ok(()) => {
                let shown = source.shown_new();
                self.named.retain(|name| *name != shown);
                Err(format!(
                    "{refers}; the existing table is back in its place, and the new one is {new}, with the rows that clients wrote meanwhile: move these rows, and drop {new}"
                ))
            }
            Err(back) => Err(format!("{refers}; it is {old} now: {back}")),
        }
    }

    /// Takes the names of its triggers and foreign keys from a table that was replaced: a schema has each of them once.
    fn free_names(&mut self, old: &QuotedTable, ddl: &str) -> Result<(), SinkError> {
        let (schema, table) = old.names();
        let triggers = self.sink.asked(|live| live.triggers_of(schema, table))?;
        let keys = self.sink.asked(|live| live.foreign_key_names(schema, table))?;
        for trigger in &triggers {
            let statement = format!("DROP TRIGGER {}.{}", sql(schema), sql(trigger));
            self.patiently(
                |sink| sink.run_on_used(statement.as_bytes()),
                |live| Ok(!live.triggers_of(schema, table)?.contains(trigger)),
            )?;
        }
        if !keys.is_empty() {
            let drop_key = |key: &String| format!("DROP FOREIGN KEY {}", sql(key));
            let keys: Vec<String> = keys.iter().map(drop_key).collect();
            let statement = format!("{ddl}ALTER TABLE {} {}", old.name(), keys.join(", "));
            self.patiently(
                |sink| sink.run_on_used(statement.as_bytes()),
                |live| Ok(live.foreign_key_names(schema, table)?.is_empty()),
            )?;
        }
        Ok(())
    }

    /// Adds what belongs to a table under its old name, and cannot come before, and drops the table that was replaced then.
    /// A part that fails does not keep the others away.
    fn complete<'s>(
        &mut self,
        source: &'s Source,
        old: Option<&QuotedTable>,
    ) -> Result<(), Failure<'s>> {
        if source.is_complete() {
            return Ok(());
        }
        let mut failures = Vec::new();
        let mut missing = Incomplete::new(source, old);
        failures.extend(self.enter(&source.to).err());
        if let Some(error) = old.and_then(|old| self.free_names(old, source.ddl).err()) {
            failures.push(format!("the names of its parts cannot be freed: {error}"));
        }
        let (schema, name) = source.to.names();
        for key in &source.definition.foreign_keys {
            let add = source.add_key(&source.to.name(), key);
            let added = self.patiently(
                |sink| sink.run_on_used(&add),
                |live| {
                    let key = key_name(key);
                    Ok(live
                        .foreign_key_names(schema, name)?
                        .iter()
                        .any(|has| Some(has) == key.as_ref()))
                },
            );
            if let Err(error) = added {
                failures.push(format!("its foreign key cannot be added: {error}"));
                missing.keys.push(key);
            }
        }
        if source.early_triggers().is_empty() {
            for trigger in &source.triggers {
                if let Err(what) = self.add_trigger(trigger, &trigger.statement, &source.to) {
                    failures.push(what);
                    missing.triggers.push(trigger);
                }
            }
        }
        match (old, failures.is_empty()) {
            (Some(old), true) => Ok(self.drop_replaced(source, old)?),
            (None, true) => Ok(()),
            (_, false) => Err(Failure::new(failures.join("; "), Some(missing))),
        }
    }

    /// Creates a trigger of a table.
    pub(super) fn add_trigger(
        &mut self,
        trigger: &Trigger,
        statement: &[u8],
        on: &QuotedTable,
    ) -> Result<(), String> {
        let settings = trigger.settings.each_ref().map(String::as_str);
        let (schema, table) = on.names();
        let created = self.patiently(
            |sink| sink.create_trigger(statement, settings),
            |live| {
                let owner = live.owner_of_trigger(schema, &trigger.name)?;
                Ok(owner.is_some_and(|owner| owner == table))
            },
        );
        created.map_err(|error| {
            let name = Printable::new(trigger.name.as_bytes());
            format!("its trigger {name} cannot be created: {error}")
        })
    }

    /// Makes the schema the default: names without one in a definition refer to it.
    pub(super) fn enter(&mut self, place: &QuotedTable) -> Result<(), String> {
        let Some(schema) = &place.schema else { return Ok(()) };
        let create = self.order.create_schema.then(|| {
            let charset = self.charsets.get(schema).and_then(Option::as_deref).unwrap_or_default();
            format!("CREATE DATABASE IF NOT EXISTS {}{charset}", sql(schema))
        });
        let entered = self.patiently(
            |sink| {
                if let Some(create) = &create {
                    sink.run(create.as_bytes())?;
                }
                sink.enter(schema)
            },
            |_| Ok(false),
        );
        entered.map_err(|error| error.to_string())
    }
}

pub(super) fn failed(table: &str, what: impl ToString) -> BackupError {
    BackupError::Rescue { table: table.to_owned(), what: what.to_string() }
}
