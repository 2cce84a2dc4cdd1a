//! Statements that complete a table which clients use already, for a person to run: in an error, and in a table on the
//! server for the case that this process is killed.

use std::fmt;

use xb_reader::Printable;

use super::definition::key_name;
use super::rows::{literal, sql};
use super::sink::{PREFIX, QuotedTable, Sink, SinkError, trigger_settings};
use super::source::{Copier, Source};
use super::trigger::Trigger;

/// Ends the name of the table with the statements.
pub(super) const TODO: &str = "_todo";

/// A table that clients use, and that still lacks something.
pub(super) struct Incomplete<'a> {
    source: &'a Source,
    /// The table that it replaced.
    old: Option<QuotedTable>,
    pub(super) keys: Vec<&'a [u8]>,
    pub(super) triggers: Vec<&'a Trigger>,
    /// The table that has the statements, for SQL.
    todo: Option<String>,
}

impl<'a> Incomplete<'a> {
    /// Nothing yet.
    pub(super) fn new(source: &'a Source, old: Option<&QuotedTable>) -> Self {
        let old = old.cloned();
        Self { source, old, keys: Vec::new(), triggers: Vec::new(), todo: None }
    }

    /// All that a table lacks as soon as it has its name.
    pub(super) fn of(source: &'a Source, old: Option<&QuotedTable>) -> Self {
        let mut this = Self::new(source, old);
        if !source.is_complete() {
            this.keys.extend(source.definition.foreign_keys.iter().map(|key| &key[..]));
            if source.early_triggers().is_empty() {
                this.triggers.extend(&source.triggers);
            }
        }
        this
    }

    /// The name that it gets, for SQL, if the table that it replaced comes back.
    fn aside(&self) -> String {
        let unfinished = &self.source.unfinished;
        unfinished.beside(format!("{}_new", unfinished.table)).name()
    }

    /// The statements that complete it, in their order. If the table that it replaced is back, they complete that one: it
    /// had the same foreign keys and triggers.
    fn statements(&self) -> Vec<String> {
        let (schema, _) = self.source.to.names();
        let mut statements =
            vec![format!("USE {}", sql(schema)), "SET foreign_key_checks = 0".to_owned()];
        // Whatever of it was done before: all of them can be run once more.
        let (table, ddl) = (self.source.to.name(), self.source.ddl);
        let names = self.keys.iter().filter_map(|key| key_name(key));
        for name in names.map(|name| sql(&name)) {
            let has = self.old.iter().map(QuotedTable::name).chain([table.clone(), self.aside()]);
            statements.extend(has.map(|has| {
                format!("{ddl}ALTER TABLE IF EXISTS {has} DROP FOREIGN KEY IF EXISTS {name}")
            }));
        }
        let add = |key: &&[u8]| self.source.add_key(&table, key);
        let added = self.keys.iter().map(add);
        statements.extend(added.map(|each| String::from_utf8_lossy(&each).into_owned()));
        let drop = |each: &&Trigger| format!("DROP TRIGGER IF EXISTS {}", sql(&each.name));
        statements.extend(self.triggers.iter().map(drop));
        for trigger in &self.triggers {
            let (statement, settings) = trigger.for_people();
            statements.extend([trigger_settings(settings), statement]);
        }
        statements
            .extend(self.old.iter().map(|old| format!("DROP TABLE IF EXISTS {}", old.name())));
        statements
    }
}

/// As the end of a sentence about the table.
impl fmt::Display for Incomplete<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(old) = &self.old {
            let old = old.name();
            write!(
                f,
                "; the table that it replaced is {old}, and may have lost its foreign keys and triggers, whose names the new one needs"
            )?;
        }
        if let Some(todo) = &self.todo {
            write!(
                f,
                "; the statements that complete it are in {todo}: run them in the order of their numbers, then drop that table"
            )?;
            if let Some(old) = &self.old {
                let (to, old, aside) = (self.source.to.name(), old.name(), self.aside());
                write!(
                    f,
                    "; if you want the replaced table back instead, begin with RENAME TABLE {to} TO {aside}, {old} TO {to}: the statements complete that one then"
                )?;
            }
            return Ok(());
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

/// Why a table has no name or is not complete.
pub(super) struct Failure<'a> {
    what: String,
    /// Set if clients may use the table as it is.
    lacks: Option<Incomplete<'a>>,
}

impl<'a> Failure<'a> {
    pub(super) fn new(what: impl ToString, lacks: Option<Incomplete<'a>>) -> Self {
        Self { what: what.to_string(), lacks }
    }
}

impl From<SinkError> for Failure<'_> {
    fn from(error: SinkError) -> Self {
        Self::new(error, None)
    }
}

impl From<String> for Failure<'_> {
    fn from(what: String) -> Self {
        Self::new(what, None)
    }
}

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.lacks.iter().try_for_each(|lacks| lacks.fmt(f))
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
                1,
                self.cancel,
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
        // Duplicate rows do no harm.
        self.sink.surely(1, self.cancel, |sink| sink.run(insert.as_bytes()), |_| Ok(false))
    }

    /// Lets the table with the statements stay if they are needed, without those of all other tables. A server that cannot
    /// be asked keeps all of them.
    pub(super) fn keep_todo(&mut self, failures: &mut [(&Source, Failure<'_>)]) {
        let Some(todo) = self.todo.as_ref().map(QuotedTable::name) else { return };
        let mut needed = Vec::new();
        for (source, failure) in failures {
            if let Some(lacks) = failure.lacks.as_mut().filter(|_| !source.is_complete()) {
                lacks.todo = Some(todo.clone());
                needed.push(literal(&source.unfinished.table));
            }
        }
        if needed.is_empty() {
            return;
        }
        let needed = needed.join(", ");
        let others = format!("DELETE FROM {todo} WHERE unfinished NOT IN ({needed})");
        let run = |sink: &mut Sink| sink.run(others.as_bytes());
        let _ = self.sink.surely(1, self.cancel, run, |_| Ok(false));
        self.keep(&todo);
    }

    /// Takes a table, named for SQL, from those that are dropped at the end.
    pub(super) fn keep(&mut self, name: &str) {
        if let Sink::Server(live) = &mut *self.sink {
            live.unfinished.retain(|each| each != name);
        }
    }

    /// Drops the table with the statements: all tables are complete.
    pub(super) fn forget_todo(&mut self) -> Result<(), SinkError> {
        let Some(todo) = self.todo.take() else { return Ok(()) };
        let drop = format!("DROP TABLE IF EXISTS {}", todo.name());
        let name = todo.name();
        self.sink.surely(1, self.cancel, |sink| sink.run(drop.as_bytes()), |_| Ok(false))?;
        self.keep(&name);
        Ok(())
    }
}
