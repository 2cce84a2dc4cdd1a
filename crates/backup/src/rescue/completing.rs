//! What a table that clients use still lacks, as statements that a person can run: in an error, and in a table on the
//! server for the case that this process is killed.

use std::fmt;

use xb_reader::Printable;

use super::definition::key_name;
use super::in_use::{Copier, Source};
use super::rows::{literal, sql};
use super::sink::{PREFIX, QuotedTable, Sink, SinkError, trigger_settings};
use super::trigger::Trigger;

/// Ends the name of the table with the statements.
pub(super) const TODO: &str = "_todo";

/// What a table lacks.
pub(super) struct Incomplete<'a> {
    source: &'a Source,
    /// The table that it replaced.
    old: Option<&'a QuotedTable>,
    pub(super) keys: Vec<&'a [u8]>,
    pub(super) triggers: Vec<&'a Trigger>,
}

impl<'a> Incomplete<'a> {
    /// Nothing yet.
    pub(super) fn new(source: &'a Source, old: Option<&'a QuotedTable>) -> Self {
        Self { source, old, keys: Vec::new(), triggers: Vec::new() }
    }

    /// All that a table lacks as soon as it has its name.
    pub(super) fn of(source: &'a Source, old: Option<&'a QuotedTable>) -> Self {
        let mut this = Self::new(source, old);
        if !source.is_complete() {
            this.keys.extend(source.definition.foreign_keys.iter().map(|key| &key[..]));
            if Copier::early_triggers(source).is_empty() {
                this.triggers.extend(&source.triggers);
            }
        }
        this
    }

    /// The statements that complete it, in their order.
    fn statements(&self) -> Vec<String> {
        let (schema, _) = self.source.to.names();
        let mut statements =
            vec![format!("USE {}", sql(schema)), "SET foreign_key_checks = 0".to_owned()];
        // Whatever of it was done before: all of them can be run once more.
        let table = self.source.to.name();
        let names = self.keys.iter().filter_map(|key| key_name(key));
        for name in names.map(|name| sql(&name)) {
            let has = self.old.map(QuotedTable::name).into_iter().chain([table.clone()]);
            statements.extend(has.map(|has| {
                format!("ALTER TABLE IF EXISTS {has} DROP FOREIGN KEY IF EXISTS {name}")
            }));
        }
        let add = |key: &&[u8]| format!("ALTER TABLE {table} ADD {}", String::from_utf8_lossy(key));
        statements.extend(self.keys.iter().map(add));
        let drop = |each: &&Trigger| format!("DROP TRIGGER IF EXISTS {}", sql(&each.name));
        statements.extend(self.triggers.iter().map(drop));
        for trigger in &self.triggers {
            statements.push(trigger_settings(trigger.settings.each_ref().map(String::as_str)));
            statements.push(String::from_utf8_lossy(&trigger.statement).into_owned());
        }
        statements.extend(self.old.map(|old| format!("DROP TABLE IF EXISTS {}", old.name())));
        statements
    }
}

/// As the end of a sentence about the table.
impl fmt::Display for Incomplete<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(old) = self.old {
            let old = old.name();
            write!(
                f,
                "; the table that it replaced is {old}, and may have lost its foreign keys and triggers, whose names the new one needs"
            )?;
        }
        f.write_str("; these statements complete it:")?;
        for statement in self.statements() {
            f.write_str(" ")?;
            // As a whole, a long one would be cut.
            for character in statement.chars() {
                Printable::new(character.to_string().as_bytes()).fmt(f)?;
            }
            f.write_str(";")?;
        }
        Ok(())
    }
}

impl Copier<'_> {
    /// Writes down on the server what the table will lack when it has its name: this process may be killed after that.
    pub(super) fn note(
        &mut self,
        source: &Source,
        old: Option<&QuotedTable>,
    ) -> Result<(), SinkError> {
        if source.is_complete() || matches!(self.sink, Sink::Dump(_)) {
            return Ok(());
        }
        let todo = source.to.beside(format!("{PREFIX}{}{TODO}", self.order.run));
        if self.todo.is_none() {
            let create = format!(
                "CREATE TABLE {} (n INT AUTO_INCREMENT PRIMARY KEY, unfinished VARCHAR(64) CHARACTER SET utf8mb4, \
                 statement LONGTEXT CHARACTER SET utf8mb4)",
                todo.name()
            );
            self.sink.surely(
                (1, self.cancel),
                |sink| sink.create(&todo, create.as_bytes()),
                |live| live.holds(&todo),
            )?;
        }
        let todo = self.todo.get_or_insert(todo);
        let unfinished = literal(&source.unfinished.table);
        let rows = Incomplete::of(source, old).statements();
        let rows: Vec<String> =
            rows.iter().map(|each| format!("({unfinished}, {})", literal(each))).collect();
        let insert = format!(
            "INSERT INTO {} (unfinished, statement) VALUES {}",
            todo.name(),
            rows.join(", ")
        );
        // Rows that are there twice harm nobody.
        self.sink.surely((1, self.cancel), |sink| sink.run(insert.as_bytes()), |_| Ok(false))
    }

    /// Drops the table with the statements: all tables are complete.
    pub(super) fn forget_todo(&mut self) -> Result<(), SinkError> {
        let Some(todo) = self.todo.take() else { return Ok(()) };
        let drop = format!("DROP TABLE IF EXISTS {}", todo.name());
        let name = todo.name();
        self.sink.surely((1, self.cancel), |sink| sink.run(drop.as_bytes()), |_| Ok(false))?;
        if let Sink::Server(live) = &mut *self.sink {
            live.unfinished.retain(|each| *each != name);
        }
        Ok(())
    }
}
