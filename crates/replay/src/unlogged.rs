//! What a replay does to versioned tables and to events that ran once, of which no log has a word.

use xb_mysql::Error;

use crate::applier::Applier;
use crate::error::ReplayError;
use crate::request::Watch;
use crate::status::value;

const LISTING: &str = "listing events that ran";
const DISABLING: &str = "disabling events that ran";
/// The statement that disables an event of `information_schema.events`. A user's name may have an `@`, a host's may not.
const DISABLE: &str = "CONCAT('ALTER DEFINER = `', \
                       REPLACE(SUBSTR(definer, 1, CHAR_LENGTH(definer) - CHAR_LENGTH(SUBSTRING_INDEX(definer, '@', -1)) - 1), '`', '``'), \
                       '`@`', REPLACE(SUBSTRING_INDEX(definer, '@', -1), '`', '``'), '` EVENT `', REPLACE(event_schema, '`', '``'), \
                       '`.`', REPLACE(event_name, '`', '``'), '` DISABLE ON REPLICA')";

impl Applier<'_> {
    /// Disables events that the origin may have run once, as those of a replica. Returns their names.
    pub(crate) fn disable_past_events(&mut self) -> Result<Vec<String>, ReplayError> {
        let last_time = self.files.end.last_time;
        if last_time == 0 {
            return Ok(Vec::new());
        }
        let are_past = format!("{} {last_time} SECOND", self.dialect.once);
        if self.dialect.is_mysql() {
            return self.alter_past_events(&are_past);
        }
        let listed =
            format!("SELECT CONCAT(db, '.', name) FROM mysql.event WHERE {are_past} ORDER BY 1");
        let found = self.texts(LISTING, &listed)?;
        if !found.is_empty() {
            // Without its own value, the time of their creation would be now.
            let disable = format!(
                "UPDATE mysql.event SET status = 'SLAVESIDE_DISABLED', created = created WHERE {are_past}"
            );
            self.run(DISABLING, &disable)?;
        }
        Ok(found.into_iter().map(|[name]| name).collect())
    }

    /// Disables these events one by one, on MySQL, whose table of events no statement changes. Each gets the definer, and the
    /// character sets, of the statement: its own, in which its body is stored.
    fn alter_past_events(&mut self, are_past: &str) -> Result<Vec<String>, ReplayError> {
        let mut disabled = Vec::new();
        let sets = format!(
            "SELECT DISTINCT character_set_client, collation_connection FROM information_schema.events WHERE {are_past}"
        );
        for [client, collation] in self.texts(LISTING, &sets)? {
            let are_of_set = format!(
                "FROM information_schema.events WHERE {are_past} AND character_set_client = '{client}' \
                 AND collation_connection = '{collation}' ORDER BY event_schema, event_name"
            );
            let names = format!("SELECT CONCAT(event_schema, '.', event_name) {are_of_set}");
            let names = self.texts(LISTING, &names)?;
            self.run(DISABLING, &format!("SET SESSION character_set_results = '{client}'"))?;
            let statements = self.client.rows(format!("SELECT {DISABLE} {are_of_set}"));
            let statements = statements.map_err(|error| self.broken(LISTING, error))?;
            let of_event = format!(
                "SET SESSION character_set_client = '{client}', collation_connection = '{collation}'"
            );
            self.run(DISABLING, &of_event)?;
            for statement in &statements {
                let run = self.client.run(statement.get(0).unwrap_or_default());
                run.map_err(|error| self.broken(DISABLING, error))?;
            }
            self.run(DISABLING, "SET NAMES utf8mb4")?;
            disabled.extend(names.into_iter().map(|[name]| name));
        }
        disabled.sort_unstable();
        Ok(disabled)
    }

    /// The last transaction whose number the history of a table has. A server without that table has no such history.
    pub(crate) fn last_number(&mut self) -> Result<String, ReplayError> {
        let Some(unlogged) = self.dialect.unlogged else { return Ok(String::new()) };
        match value(self.client, unlogged.last_number) {
            Ok(number) => Ok(number),
            Err(Error::Server(_)) => Ok(String::new()),
            Err(error) => Err(self.broken("asking for numbers of transactions", error)),
        }
    }

    /// Versioned tables with numbers of transactions, if that was the last number before the replay, and there is a later one.
    pub(crate) fn numbered_history(
        &mut self,
        last_number: &str,
        watch: &Watch<'_>,
    ) -> Result<Vec<String>, ReplayError> {
        let has_grown = self.last_number()? != last_number;
        match self.dialect.unlogged.filter(|_| has_grown) {
            Some(unlogged) => self.names("listing versioned tables", unlogged.numbered, watch),
            None => Ok(Vec::new()),
        }
    }

    /// Versioned tables that foreign keys may have changed, where the logs have rows: a statement has the time of each change.
    pub(crate) fn cascaded_history(
        &mut self,
        watch: &Watch<'_>,
    ) -> Result<Vec<String>, ReplayError> {
        let doing = "listing versioned tables";
        let Some(unlogged) = self.dialect.unlogged.filter(|_| self.files.end.has_rows) else {
            return Ok(Vec::new());
        };
        // To list the tables, the server opens all of them.
        match value(self.client, unlogged.cascades) {
            Ok(none) if none == "0" => Ok(Vec::new()),
            Ok(_) => self.names(doing, unlogged.cascaded, watch),
            Err(error) => Err(self.broken(doing, error)),
        }
    }

    fn names(
        &mut self,
        doing: &'static str,
        statement: &str,
        watch: &Watch<'_>,
    ) -> Result<Vec<String>, ReplayError> {
        let names = self.long(doing, statement, watch)?;
        Ok(names.into_iter().map(|[name]| name).collect())
    }
}
