//! What a replay does to versioned tables and to events that ran once, of which no log has a word.

use xb_mysql::Error;

use crate::applier::Applier;
use crate::error::ReplayError;
use crate::request::Watch;
use crate::status::value;

impl Applier<'_> {
    /// Disables events that the origin may have run once, as those of a replica. Returns their names.
    pub(crate) fn disable_past_events(&mut self) -> Result<Vec<String>, ReplayError> {
        let (Some(unlogged), 1..) = (self.dialect.unlogged, self.files.end.last_time) else {
            return Ok(Vec::new());
        };
        let are_past = format!("{} {} SECOND", unlogged.once, self.files.end.last_time);
        let listed =
            format!("SELECT CONCAT(db, '.', name) FROM mysql.event WHERE {are_past} ORDER BY 1");
        let found = self.texts("listing events that ran", &listed)?;
        if !found.is_empty() {
            // Without its own value, the time of their creation would be now.
            let disable = format!(
                "UPDATE mysql.event SET status = 'SLAVESIDE_DISABLED', created = created WHERE {are_past}"
            );
            self.run("disabling events that ran", &disable)?;
        }
        Ok(found.into_iter().map(|[name]| name).collect())
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
