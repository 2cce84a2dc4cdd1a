//! Destination of rescued tables: a dump or a running server.

use std::io::Write;
use std::time::Duration;

use xb_mysql::{Access, Client, Error, Row, Timeouts};
use xb_reader::Printable;

use super::definition::Definition;
use super::rows::{
    LONG_WAIT, LOOK, READ_WRITE, SESSION, SHORT_WAIT, is_table, literal, sql, trigger_names,
};
use crate::error::BackupError;

/// Time limit of each step of a login.
pub(super) const LOGIN: Duration = Duration::from_secs(30);
/// Prefix of unfinished tables.
pub(super) const PREFIX: &str = "xb_rescue_";
/// Maximum length of a statement with several rows, in bytes.
const BATCH: usize = 1 << 20;
/// Part of a server's `max_allowed_packet` that is left for the packet itself, in bytes.
const MARGIN: usize = 1024;
/// Number of tables in one statement that drops them: with all of a large rescue, it would be longer than a packet may be.
const DROPPED: usize = 100;
/// Number of tables that an error names.
const NAMED: usize = 10;
/// Codes with which a server, or a proxy before it, ends the connection: 1053 it shuts down, 1158 to 1161 the network
/// fails, 1927 an administrator ended the connection, 2003 to 2013 a proxy has lost the server.
const LOST: [u16; 9] = [1053, 1158, 1159, 1160, 1161, 1927, 2003, 2006, 2013];

/// Codes of statements that waited too long for the locks of others, or for each other.
const HELD: [u16; 2] = [1205, 1213];
/// Code of a statement that a server cannot write to its binary log as such: one that sets a sequence.
const ROWS_ONLY: u16 = 1665;
/// Code of a statement that a server refuses because of an option: a table of another engine than `enforce_storage_engine`.
const BY_OPTION: u16 = 1290;

/// Returns whether the error leaves open whether the statement ran.
pub(super) fn is_lost(error: &Error) -> bool {
    match error {
        Error::Server(refused) => LOST.contains(&refused.code),
        Error::Unexpected => false,
        _ => true,
    }
}

/// A table's place, quoted for SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QuotedTable {
    /// Not given in a dump that is to be read into any schema.
    pub(super) schema: Option<String>,
    pub(super) table: String,
}

impl QuotedTable {
    /// The name for SQL.
    pub(super) fn name(&self) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", sql(schema), sql(&self.table)),
            None => sql(&self.table),
        }
    }

    /// The names of schema and table, as they are.
    pub(super) fn names(&self) -> (&str, &str) {
        (self.schema.as_deref().unwrap_or_default(), &self.table)
    }

    /// The place of another table beside this one.
    pub(super) fn beside(&self, table: String) -> Self {
        Self { schema: self.schema.clone(), table }
    }
}

/// Receives statements.
pub(super) enum Sink {
    /// Writes them as text, for the stock client.
    Dump(Box<dyn Write + Send>),
    /// Runs them.
    Server(Box<LiveServer>),
}

/// A running server, and what is half-made on it.
pub(super) struct LiveServer {
    pub(super) client: Client,
    pub(super) access: Access,
    /// `max_allowed_packet` in bytes.
    pub(super) max_packet: usize,
    /// Unfinished tables, as names for SQL.
    pub(super) unfinished: Vec<String>,
    /// The default schema, once there is one.
    pub(super) schema: Option<String>,
    /// Distinguishes the connections of this run from others; empty if the server has no locks by name.
    pub(super) lock: String,
    /// Whether it was away for too long.
    pub(super) is_away: bool,
    /// Remarks on what was found there.
    pub(super) remarks: Vec<String>,
}

/// Reason why a statement was not accepted.
#[derive(Debug, thiserror::Error)]
pub(super) enum SinkError {
    #[error("cannot write the dump: {0}")]
    Dump(#[from] std::io::Error),
    #[error("the server: {0}{next}", next = next_step(.0))]
    Server(#[from] Error),
    /// The answer to a statement was lost, and the server cannot be asked.
    #[error(
        "the server: {lost}; it is unknown whether the statement ran, because the server cannot be reached: {why}"
    )]
    Unknown { lost: Error, why: Error },
    #[error("interrupted")]
    Interrupted,
}

/// Returns the next step after a server's error, as the end of a sentence.
pub(super) fn next_step(error: &Error) -> &'static str {
    match error {
        Error::Server(refused) if HELD.contains(&refused.code) => {
            "; end the transaction that holds up this table, or one to which its foreign keys refer (SHOW FULL PROCESSLIST)"
        }
        Error::Server(refused) if refused.code == ROWS_ONLY => {
            "; SET GLOBAL binlog_format = MIXED on the server, and run the command again"
        }
        Error::Server(refused)
            if refused.code == BY_OPTION && refused.message.contains("NO_ENGINE_SUBSTITUTION") =>
        {
            "; the server makes tables of one engine only: SET GLOBAL enforce_storage_engine = NULL there for the rescue"
        }
        _ => "",
    }
}

impl SinkError {
    /// Returns whether a statement names a table or a sequence that the server does not have.
    pub(super) fn is_unknown_table(&self) -> bool {
        self.has_code(&[1146, 4091])
    }

    /// Returns whether others held a table for too long, or ended the statement for that reason.
    pub(super) fn is_held_up(&self) -> bool {
        self.has_code(&[1205, 1213, 1317])
    }

    /// Returns whether the server refuses the options of a table, or the length of its rows.
    pub(super) fn is_of_strict_mode(&self) -> bool {
        self.has_code(&[1005, 1118])
    }

    /// Returns whether the login may not make a trigger of another account.
    pub(super) fn is_of_other_definer(&self) -> bool {
        self.has_code(&[1227])
    }

    /// Returns whether the server refused a statement, and can take others.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Server(error @ Error::Server(_)) if !is_lost(error))
    }

    /// Returns whether a table stays because a foreign key of another one refers to it.
    pub(super) fn is_referred_to(&self) -> bool {
        self.has_code(&[1217, 1451])
    }

    fn has_code(&self, codes: &[u16]) -> bool {
        matches!(self, Self::Server(Error::Server(refused)) if codes.contains(&refused.code))
    }
}

impl Sink {
    /// Begins the session.
    pub(super) fn begin(&mut self, about: &str, run: &str) -> Result<(), SinkError> {
        match self {
            // A comment ends with its line.
            Self::Dump(out) => {
                writeln!(
                    out,
                    "-- Rescued by xbcloud-rs from {}",
                    Printable::new(about.as_bytes())
                )?;
            }
            Self::Server(live) => live.mark_connection(run)?,
        }
        self.run(SESSION.as_bytes())?;
        self.run(READ_WRITE.as_bytes())
    }

    /// Makes the schema the default.
    pub(super) fn enter(&mut self, schema: &str) -> Result<(), SinkError> {
        self.run(format!("USE {}", sql(schema)).as_bytes())?;
        if let Self::Server(live) = self {
            live.schema = Some(schema.to_owned());
        }
        Ok(())
    }

    /// Runs one statement.
    pub(super) fn run(&mut self, statement: &[u8]) -> Result<(), SinkError> {
        match self {
            Self::Dump(out) => {
                out.write_all(statement)?;
                Ok(out.write_all(b";\n")?)
            }
            Self::Server(live) => Ok(live.client.run(statement)?),
        }
    }

    /// Runs a statement on a table that clients use. It gives up before it holds them up for long.
    pub(super) fn run_on_used(&mut self, statement: &[u8]) -> Result<(), SinkError> {
        let Self::Server(live) = self else { return self.run(statement) };
        live.client.run(SHORT_WAIT)?;
        let outcome = live.client.run(statement);
        // What was run counts. If the connection has ended, the next statement fails.
        let _ = live.client.run(LONG_WAIT);
        Ok(outcome?)
    }

    /// Creates an unfinished table.
    pub(super) fn create(
        &mut self,
        place: &QuotedTable,
        statement: &[u8],
    ) -> Result<(), SinkError> {
        if let Self::Server(live) = self
            && !live.unfinished.contains(&place.name())
        {
            live.unfinished.push(place.name());
        }
        self.run(statement)
    }

    /// Creates a trigger, with the settings of the session that made it: `sql_mode`, character set and
    /// collation.
    pub(super) fn create_trigger(
        &mut self,
        statement: &[u8],
        settings: [&str; 3],
    ) -> Result<(), SinkError> {
        self.run(trigger_settings(settings).as_bytes())?;
        let created = match self {
            Self::Dump(out) => {
                // Its body may hold semicolons, and end with a comment.
                out.write_all(b"DELIMITER ;;\n")?;
                out.write_all(statement)?;
                Ok(out.write_all(b"\n;;\nDELIMITER ;\n")?)
            }
            Self::Server(_) => self.run_on_used(statement),
        };
        self.run(SESSION.as_bytes())?;
        created
    }

    /// Length that a statement with several rows should not exceed, in bytes.
    pub(super) fn batch(&self) -> usize {
        BATCH.min(self.longest())
    }

    /// Length that no statement may exceed, in bytes.
    pub(super) fn longest(&self) -> usize {
        match self {
            Self::Dump(_) => usize::MAX,
            Self::Server(live) => live.max_packet.saturating_sub(MARGIN),
        }
    }

    /// Ends the session: everything is written.
    pub(super) fn end(&mut self, tables: usize, rows: u64) -> Result<(), SinkError> {
        match self {
            Self::Dump(out) => {
                writeln!(out, "-- Complete. Tables: {tables}, rows: {rows}")?;
                Ok(out.flush()?)
            }
            Self::Server(_) => Ok(()),
        }
    }

    /// Drops what is unfinished. Needs no connection that still works.
    pub(super) fn clean(&mut self) -> Result<(), BackupError> {
        let Self::Server(live) = self else { return Ok(()) };
        if live.unfinished.is_empty() {
            return Ok(());
        }
        let mut left = live.unfinished.as_slice();
        let timeouts = Timeouts { login: LOGIN, reply: Some(LOGIN) };
        let dropped = Client::connect(&live.access.target, &live.access.account, timeouts)
            .and_then(|mut client| {
                client.run("SET foreign_key_checks = 0")?;
                client.run(SHORT_WAIT)?;
                while let Some((tables, rest)) = split(left) {
                    client.run(format!("DROP TABLE IF EXISTS {}", tables.join(", ")))?;
                    left = rest;
                }
                Ok(())
            });
        dropped.map_err(|error| BackupError::Rescue {
            table: some_of(left),
            what: format!(
                "this unfinished table stays on the server, since it cannot be dropped: {error}; drop it"
            ),
        })
    }
}

/// The tables of the next statement that drops some, and the others; `None` if there are none.
fn split(tables: &[String]) -> Option<(&[String], &[String])> {
    (!tables.is_empty()).then(|| tables.split_at(tables.len().min(DROPPED)))
}

/// The names of some tables, and how many there are beyond.
fn some_of(tables: &[String]) -> String {
    let named = tables.get(..NAMED).unwrap_or(tables).join(", ");
    match tables.len().saturating_sub(NAMED) {
        0 => named,
        others => format!("{named}, and {others} others"),
    }
}

/// The statement that gives a session the settings of the one that made a trigger.
pub(super) fn trigger_settings([mode, charset, collation]: [&str; 3]) -> String {
    format!(
        "SET sql_mode = {}, character_set_client = {charset}, collation_connection = {collation}",
        literal(mode)
    )
}

impl LiveServer {
    /// Runs a statement that reads a table in use, or what it is. It does not wait for long.
    pub(super) fn look(&mut self, statement: impl AsRef<str>) -> Result<Vec<Row>, Error> {
        self.client.list(format!("{LOOK}{}", statement.as_ref()))
    }

    /// Fails if others hold a table. All other looks at it would wait for them, and then know nothing.
    pub(super) fn refuse_held(&mut self, schema: &str, table: &str) -> Result<(), Error> {
        match self.look(format!("SHOW CREATE TABLE {}.{}", sql(schema), sql(table))) {
            Err(Error::Server(refused)) if refused.code != 1205 => Ok(()),
            shown => shown.map(drop),
        }
    }

    /// Returns whether a trigger of this name belongs to another table; its name.
    pub(super) fn owner_of_trigger(
        &mut self,
        schema: &str,
        trigger: &str,
    ) -> Result<Option<String>, Error> {
        let rows = self.look(format!(
            "SELECT event_object_table FROM information_schema.triggers WHERE trigger_schema = {} AND trigger_name = {}",
            literal(schema),
            literal(trigger)
        ))?;
        rows.first().map(|row| row.texts().map(|[table]| table)).transpose()
    }

    /// Names of the triggers of a table, in the order in which those of one event fire.
    pub(super) fn triggers_of(&mut self, schema: &str, table: &str) -> Result<Vec<String>, Error> {
        let rows = self.look(trigger_names(schema, table))?;
        let mut names = Vec::new();
        for row in &rows {
            let [name] = row.texts()?;
            // One for several events is listed for each of them.
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// The foreign keys of a table.
    pub(super) fn foreign_keys_of(
        &mut self,
        schema: &str,
        table: &str,
    ) -> Result<Vec<Vec<u8>>, Error> {
        Ok(self.definition(schema, table)?.foreign_keys)
    }

    /// The definition of a table.
    pub(super) fn definition(&mut self, schema: &str, table: &str) -> Result<Definition, Error> {
        let name = format!("{}.{}", sql(schema), sql(table));
        let rows = self.look(format!("SHOW CREATE TABLE {name}"))?;
        let definition = rows.first().and_then(|row| Definition::read(row.get(1)?, table));
        definition.ok_or(Error::Unexpected)
    }

    /// Names of the foreign keys of a table.
    pub(super) fn foreign_key_names(
        &mut self,
        schema: &str,
        table: &str,
    ) -> Result<Vec<String>, Error> {
        let rows = self.look(format!(
            "SELECT constraint_name FROM information_schema.table_constraints WHERE {} AND constraint_type = 'FOREIGN KEY'",
            is_table(schema, table)
        ))?;
        rows.iter().map(|row| row.texts().map(|[name]| name)).collect()
    }

    /// Returns whether a table is there that can have triggers and foreign keys: no view, and no sequence.
    pub(super) fn is_base_table(&mut self, schema: &str, table: &str) -> Result<bool, Error> {
        let rows = self.look(format!(
            "SELECT table_type FROM information_schema.tables WHERE {} AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')",
            is_table(schema, table)
        ))?;
        Ok(!rows.is_empty())
    }

    /// Returns whether a table is there, in whatever letters the server keeps names. The tables of `information_schema` lack
    /// one that others hold for long.
    pub(super) fn holds(&mut self, place: &QuotedTable) -> Result<bool, Error> {
        match self.look(format!("SHOW CREATE TABLE {}", place.name())) {
            Err(Error::Server(refused)) if [1049, 1146].contains(&refused.code) => Ok(false),
            Err(error) if is_lost(&error) => Err(error),
            // Such as one whose files are damaged.
            Err(Error::Server(refused)) if refused.code != 1205 => Ok(true),
            shown => shown.map(|_| true),
        }
    }

    /// Lets the server know the connections of this run: the lock ends with the connection, and so does what that runs.
    fn mark_connection(&mut self, run: &str) -> Result<(), Error> {
        self.lock = format!("{PREFIX}{run}");
        match self.take_lock(0) {
            // Clusters may have none; nothing else depends on it.
            Err(error) if !is_lost(&error) => self.lock.clear(),
            taken => drop(taken?),
        }
        Ok(())
    }

    /// Waits for the lock of this run, at most so many seconds.
    pub(super) fn take_lock(&mut self, seconds: u32) -> Result<bool, Error> {
        let ask = format!("SELECT CAST(GET_LOCK({}, {seconds}) AS CHAR)", literal(&self.lock));
        Ok(self.client.rows(ask)?.first().and_then(|row| row.get(0)) == Some(b"1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All names in one statement were longer than a packet from some 150,000 tables on, and in the error, too.
    #[test]
    fn many_unfinished_tables_are_dropped_in_short_statements() {
        let tables: Vec<String> = (0..12_345).map(|n| format!("`shop`.`t{n}`")).collect();
        let (mut left, mut dropped) = (tables.as_slice(), Vec::new());
        while let Some((some, rest)) = split(left) {
            assert!(some.len() <= DROPPED && !some.is_empty());
            dropped.extend_from_slice(some);
            left = rest;
        }
        assert_eq!(dropped, tables);
        let shown = some_of(&tables);
        assert!(shown.ends_with("`shop`.`t9`, and 12335 others"), "{shown}");
        assert_eq!(some_of(&tables[..2]), "`shop`.`t0`, `shop`.`t1`");
    }
}
