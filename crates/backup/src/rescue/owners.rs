//! Owners of what a schema has only once, on the server that tables go to. Asked once for all tables: each question opens every
//! table of the schema.

use std::collections::HashMap;

use xb_mysql::{Error, Row};

use super::rows::literal;
use super::sink::LiveServer;

/// The tables of a schema by the names of their foreign keys and triggers.
#[derive(Default)]
pub(super) struct Owners {
    keys: HashMap<String, String>,
    triggers: HashMap<String, String>,
}

impl Owners {
    /// Asks the server.
    pub(super) fn ask(live: &mut LiveServer, schema: &str) -> Result<Self, Error> {
        let schema = literal(schema);
        let keys = format!(
            "SELECT constraint_name, table_name FROM information_schema.table_constraints \
             WHERE constraint_schema = {schema} AND constraint_type = 'FOREIGN KEY'"
        );
        let triggers = format!(
            "SELECT trigger_name, event_object_table FROM information_schema.triggers WHERE trigger_schema = {schema}"
        );
        Ok(Self { keys: by_name(live, &keys)?, triggers: by_name(live, &triggers)? })
    }

    /// The table that has a foreign key of this name.
    pub(super) fn of_key(&self, key: &str) -> Option<&str> {
        self.keys.get(&key.to_lowercase()).map(String::as_str)
    }

    /// The table that has a trigger of this name.
    pub(super) fn of_trigger(&self, trigger: &str) -> Option<&str> {
        self.triggers.get(&trigger.to_lowercase()).map(String::as_str)
    }
}

/// The tables by names, which differ by more than their letters' case.
fn by_name(live: &mut LiveServer, ask: &str) -> Result<HashMap<String, String>, Error> {
    let rows = live.look(ask)?;
    let named =
        rows.iter().map(|row| row.texts().map(|[name, table]| (name.to_lowercase(), table)));
    named.collect()
}

/// Returns, for each table to which a foreign key of another one refers, by schema and name in lower case, such a table.
pub(super) fn referring(live: &mut LiveServer) -> Result<HashMap<[String; 2], String>, Error> {
    let rows = live.look(
        "SELECT unique_constraint_schema, referenced_table_name, CONCAT(constraint_schema, '.', table_name) \
         FROM information_schema.referential_constraints \
         WHERE NOT (constraint_schema = unique_constraint_schema AND table_name = referenced_table_name)",
    )?;
    let pair = |row: &Row| {
        row.texts()
            .map(|[schema, table, child]| ([schema.to_lowercase(), table.to_lowercase()], child))
    };
    rows.iter().map(pair).collect()
}
