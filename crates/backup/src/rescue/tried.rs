//! What a server may refuse of a table is tried on the unfinished one, before a row is copied: its triggers and foreign keys.

use xb_reader::Printable;

use super::definition::referenced;
use super::rows::sql;
use super::sink::{LiveServer, Sink};
use super::source::{Copier, Source};
use super::unfilled::Unfilled;

impl Copier<'_> {
    /// Finds out whether the login may make the triggers, before a row is copied and long before any table has its name.
    pub(super) fn try_triggers(&mut self, source: &Source) -> Result<(), Unfilled> {
        if !source.same_place || matches!(self.sink, Sink::Dump(_)) {
            return Ok(());
        }
        let (name, table) = (sql(&source.unfinished.table), sql(&source.unfinished.table));
        for trigger in &source.triggers {
            let Some(trial) = trigger.trial(&name, &table) else { continue };
            let made = self.sink.run(&trial);
            let made = made.and_then(|()| self.sink.run(format!("DROP TRIGGER {name}").as_bytes()));
            made.map_err(|error| {
                let name = Printable::new(trigger.name.as_bytes());
                let next = match error.is_of_other_definer() {
                    true => "; log in as its definer or with the privilege SET USER, or give another name with --as",
                    false => "",
                };
                let what = format!("its trigger {name} cannot be created: {error}{next}");
                Unfilled::of(&error, what)
            })?;
        }
        Ok(())
    }

    /// Finds out whether the foreign keys can be added, under another name: before a row is copied, and before the table
    /// that is replaced gives up the names of its own.
    pub(super) fn try_keys(&mut self, source: &Source) -> Result<(), Unfilled> {
        if !source.same_place || matches!(self.sink, Sink::Dump(_)) {
            return Ok(());
        }
        let (schema, _) = source.to.names();
        let (table, name) = (source.unfinished.name(), sql(&source.unfinished.table));
        for key in &source.definition.foreign_keys {
            // A table that comes with it is not there yet, or is another one.
            let is_ours = |(of, table): &(Option<String>, String)| {
                let of = of.as_deref().unwrap_or(schema);
                self.order.tables.iter().any(|each| each.schema == of && each.table == *table)
            };
            let Some((parent, rest)) = referenced(key) else { continue };
            if is_ours(&parent) {
                continue;
            }
            let add =
                source.add_key(&table, &[format!("CONSTRAINT {name} ").as_bytes(), rest].concat());
            let drop = format!("{}ALTER TABLE {table} DROP FOREIGN KEY {name}", source.ddl);
            let (schema, unfinished) = source.unfinished.names();
            let is_there =
                |live: &mut LiveServer| Ok(!live.foreign_key_names(schema, unfinished)?.is_empty());
            // Others may hold the table to which it refers.
            let added = self.patiently(|sink| sink.run_on_used(&add), is_there);
            let added = added.and_then(|()| {
                self.patiently(
                    |sink| sink.run_on_used(drop.as_bytes()),
                    |live| is_there(live).map(|is_there| !is_there),
                )
            });
            added.map_err(|error| {
                let next = match error.is_held_up() {
                    // It says what to do.
                    true => "",
                    false => "; give another name with --as",
                };
                let what = format!(
                    "its foreign key cannot be added: {error} ({}){next}",
                    Printable::new(key)
                );
                Unfilled::of(&error, what)
            })?;
        }
        Ok(())
    }
}
