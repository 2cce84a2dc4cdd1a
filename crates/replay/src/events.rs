//! Events of the event scheduler.
//!
//! A replica marks events that it replicates as disabled, because the source runs them. Data after a
//! replay is to be that of the source, which would run them.

use std::collections::BTreeSet;

use xb_mysql::{Client, Error};

/// Which rows of `mysql.event` are marked so.
const MARKED: &str =
    "SELECT HEX(db), HEX(name) FROM mysql.event WHERE status = 'SLAVESIDE_DISABLED'";

/// Events that were marked before the replay.
#[derive(Debug)]
pub(crate) struct MarkedEvents(BTreeSet<[String; 2]>);

impl MarkedEvents {
    pub(crate) fn list(client: &mut Client) -> Result<Self, Error> {
        let rows = client.rows(MARKED)?;
        Ok(Self(rows.iter().map(xb_mysql::Row::texts).collect::<Result<_, _>>()?))
    }

    /// Enables the events that the replay has marked, and that are of one of these servers: those of any
    /// other were marked on the source, too.
    pub(crate) fn enable_others(
        &self,
        client: &mut Client,
        origins: &BTreeSet<u32>,
    ) -> Result<(), Error> {
        let origins: Vec<String> = origins.iter().map(ToString::to_string).collect();
        for [db, name] in Self::list(client)?.0.difference(&self.0) {
            client.run(format!(
                "UPDATE mysql.event SET status = 'ENABLED', modified = modified WHERE db = \
                 UNHEX('{db}') AND name = UNHEX('{name}') AND originator IN ({})",
                origins.join(",")
            ))?;
        }
        Ok(())
    }
}
