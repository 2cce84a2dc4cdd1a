//! Content of a server, as digests: definitions, and the rows of all tables in any order.
//!
//! Of each value, the bytes count that a fixed session reads: in the time zone UTC, in the character set in which they
//! are stored, a FLOAT with all its digits. Generated columns count by their definition. A versioned table counts with
//! its history. The schemas of the server itself are left out: `mysql` differs from server to server.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};
use xb_mysql::{Client, Error, Event, Row};
use xb_pipeline::Observer;
use xb_reader::Printable;

use crate::cancel::CancelToken;
use crate::rescue::rows::{Layout, SESSION, Sum, sql};
use crate::server::session::{Session, SessionError};

/// Engines whose tables have no rows of their own, or lose them when a server ends.
const WITHOUT_ROWS: [&str; 9] = [
    "BLACKHOLE",
    "CONNECT",
    "FEDERATED",
    "MEMORY",
    "OQGRAPH",
    "PERFORMANCE_SCHEMA",
    "S3",
    "SPHINX",
    "SPIDER",
];
/// The schemas of a server itself. Names there compare without case, so they are compared as bytes: `Sys` is a user's.
const OWN: &str = "('information_schema', 'mysql', 'performance_schema', 'sys')";
/// Rows between two looks at the progress.
const STEP: u64 = 4096;

/// A thing with a definition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Object {
    pub(super) schema: String,
    pub(super) name: String,
    /// Such as `table` or `function`.
    pub(super) kind: String,
}

/// The name for people, with the kind.
impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dot = if self.name.is_empty() { "" } else { "." };
        let name = format!("{}{dot}{}", self.schema, self.name);
        write!(f, "{} {}", self.kind, Printable::new(name.as_bytes()))
    }
}

/// The rows of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rows {
    /// It has none.
    None,
    Read(Sum),
    /// They do not count; by engine, or by the reason.
    LeftOut(String),
    /// The server cannot read them.
    Unreadable(String),
}

/// Facts about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    /// SHA-256 of its definition.
    pub(super) definition: [u8; 32],
    pub(super) rows: Rows,
}

/// Everything that a server holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contents {
    pub(super) objects: BTreeMap<Object, Facts>,
}

impl Contents {
    /// Reads everything. Memory is that of one row, and of a digest for each object.
    pub(crate) async fn read(
        session: &mut Session,
        observer: &Observer,
        cancel: &CancelToken,
    ) -> Result<Self, SessionError> {
        session.run(SESSION, cancel).await?;
        let mut this = Self::default();
        for statement in lists() {
            this.objects
                .extend(session.with(cancel, move |client| defined(client, &statement)).await?);
        }
        let tables = format!(
            "SELECT table_schema, table_name, table_type, COALESCE(engine, '') FROM information_schema.tables \
             WHERE table_type <> 'VIEW' AND CAST(table_schema AS BINARY) NOT IN {OWN}"
        );
        for row in session.list(&tables, cancel).await? {
            let [schema, name, form, engine] = row.texts()?;
            let is_sequence = form == "SEQUENCE";
            let kind = if is_sequence { "sequence" } else { "table" }.to_owned();
            let object = Object { schema, name, kind };
            let (of, observer) = (object.clone(), observer.clone());
            let facts =
                session.with(cancel, move |client| facts(client, &of, &form, &engine, &observer));
            this.objects.insert(object, facts.await?);
        }
        Ok(this)
    }
}

/// Statements that list what has a definition, but no rows: kind, schema, name, and all that defines it. What a server
/// notes beside that, such as the time of the creation or whether an event is enabled there, is left out.
fn lists() -> [String; 5] {
    [
        format!(
            "SELECT 'schema', schema_name, '', default_character_set_name, default_collation_name \
             FROM information_schema.schemata WHERE CAST(schema_name AS BINARY) NOT IN {OWN}"
        ),
        format!(
            "SELECT 'view', table_schema, table_name, view_definition, check_option, definer, security_type, \
             algorithm, character_set_client, collation_connection \
             FROM information_schema.views WHERE CAST(table_schema AS BINARY) NOT IN {OWN}"
        ),
        format!(
            "SELECT 'trigger', trigger_schema, trigger_name, event_object_schema, event_object_table, \
             event_manipulation, action_timing, action_order, action_statement, definer, sql_mode, \
             character_set_client, collation_connection, database_collation \
             FROM information_schema.triggers WHERE CAST(trigger_schema AS BINARY) NOT IN {OWN} \
             ORDER BY trigger_schema, trigger_name, event_manipulation"
        ),
        // A server without the tables of accounts lists them nowhere else.
        format!(
            "SELECT LOWER(type), db, name, language, sql_data_access, is_deterministic, security_type, param_list, \
             returns, body, definer, sql_mode, comment, aggregate, character_set_client, collation_connection, \
             db_collation FROM mysql.proc WHERE CAST(db AS BINARY) NOT IN {OWN}"
        ),
        format!(
            "SELECT 'event', db, name, body, definer, execute_at, interval_value, interval_field, starts, ends, \
             on_completion, sql_mode, comment, time_zone, character_set_client, collation_connection, db_collation \
             FROM mysql.event WHERE CAST(db AS BINARY) NOT IN {OWN}"
        ),
    ]
}

/// Reads the rows of a result one by one.
fn each_row(
    client: &mut Client,
    statement: &str,
    width: Option<usize>,
    mut take: impl FnMut(&Row) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut results = client.query(statement)?;
    while let Some(event) = results.next()? {
        match event {
            Event::Columns(columns) if width.is_some_and(|width| width != columns.len()) => {
                return Err(Error::Unexpected);
            }
            Event::Row(row) => take(&row)?,
            Event::Columns(_) | Event::Complete(_) => {}
        }
    }
    Ok(())
}

/// Returns the objects that a statement lists.
fn defined(client: &mut Client, statement: &str) -> Result<BTreeMap<Object, Facts>, Error> {
    // Several rows may be about one thing.
    let mut found: BTreeMap<Object, Sha256> = BTreeMap::new();
    each_row(client, statement, None, |row| {
        let text = |column| {
            let text = row.get(column).and_then(|text| std::str::from_utf8(text).ok());
            text.map(str::to_owned).ok_or(Error::Unexpected)
        };
        let object = Object { kind: text(0)?, schema: text(1)?, name: text(2)? };
        let digest = found.entry(object).or_default();
        row.iter().skip(3).for_each(|value| add(digest, value));
        Ok(())
    })?;
    let facts = |digest: Sha256| Facts { definition: digest.finalize().into(), rows: Rows::None };
    Ok(found.into_iter().map(|(object, digest)| (object, facts(digest))).collect())
}

fn add(digest: &mut Sha256, value: Option<&[u8]>) {
    digest.update([u8::from(value.is_some())]);
    let value = value.unwrap_or_default();
    digest.update((value.len() as u64).to_le_bytes());
    digest.update(value);
}

/// The definition and the rows of a table or a sequence.
fn facts(
    client: &mut Client,
    object: &Object,
    form: &str,
    engine: &str,
    observer: &Observer,
) -> Result<Facts, Error> {
    let name = format!("{}.{}", sql(&object.schema), sql(&object.name));
    let mut definition = Sha256::new();
    let read = each_row(client, &format!("SHOW CREATE TABLE {name}"), None, |row| {
        add(&mut definition, row.get(1).map(without_own).as_deref());
        Ok(())
    });
    let rows = match read.and_then(|()| rows(client, object, &name, form, engine, observer)) {
        // The connection can still be used.
        Err(Error::Server(said)) => Rows::Unreadable(said.to_string()),
        outcome => outcome?,
    };
    Ok(Facts { definition: definition.finalize().into(), rows })
}

fn rows(
    client: &mut Client,
    object: &Object,
    name: &str,
    form: &str,
    engine: &str,
    observer: &Observer,
) -> Result<Rows, Error> {
    if form != "SEQUENCE" && WITHOUT_ROWS.iter().any(|known| known.eq_ignore_ascii_case(engine)) {
        return Ok(Rows::LeftOut(engine.to_owned()));
    }
    let selects: Vec<(String, Option<usize>)> = match form {
        "SEQUENCE" => vec![(format!("SELECT * FROM {name}"), None)],
        _ => {
            let is_versioned = form == "SYSTEM VERSIONED";
            match Layout::read(client, &object.schema, &object.name, is_versioned)? {
                Ok(layout) => {
                    let select = |pass: &crate::rescue::rows::TablePass| {
                        (pass.select(name, None), Some(pass.width()))
                    };
                    layout.passes().iter().map(select).collect()
                }
                Err(_) => return Ok(Rows::LeftOut("no values that two servers share".to_owned())),
            }
        }
    };
    let mut sum = Sum::default();
    let (mut bytes, mut told) = (0, 0);
    for (select, width) in selects {
        each_row(client, &select, width, |row| {
            sum.add(row);
            bytes += row.iter().flatten().map(|value| value.len() as u64).sum::<u64>();
            if sum.rows.is_multiple_of(STEP) {
                observer.add_bytes(bytes - std::mem::replace(&mut told, bytes));
            }
            Ok(())
        })?;
    }
    observer.add_bytes(bytes - told);
    Ok(Rows::Read(sum))
}

/// A definition without what a server counts or places by itself: the next AUTO_INCREMENT, which also counts
/// rows that were rolled back, and the directory of the files.
fn without_own(text: &[u8]) -> Vec<u8> {
    // Line breaks within a comment are written as `\n`.
    const OPTIONS: &[u8] = b"\n) ENGINE=";
    let find = |text: &[u8], part: &[u8]| text.windows(part.len()).position(|found| found == part);
    let Some(options) = find(text, OPTIONS) else { return text.to_vec() };
    let (before, mut options) = (&text[..options], text[options..].to_vec());
    let end_of_engine = options.iter().skip(OPTIONS.len()).position(|byte| *byte == b' ');
    if let Some(from) = end_of_engine.map(|at| at + OPTIONS.len())
        && let Some(counter) = options[from..].strip_prefix(b" AUTO_INCREMENT=")
    {
        let rest = counter.iter().position(|byte| !byte.is_ascii_digit());
        let rest = counter[rest.unwrap_or(counter.len())..].to_vec();
        options.truncate(from);
        options.extend(rest);
    }
    for place in [&b" DATA DIRECTORY='"[..], b" INDEX DIRECTORY='"] {
        if let Some(from) = find(&options, place)
            && let Some(end) = find(&options[from + place.len()..], b"'")
        {
            options.drain(from..=from + place.len() + end);
        }
    }
    [before, &options].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_server_counts_or_places_itself_is_left_out_of_a_definition() {
        let parts = "CREATE TABLE `t` (\n  `a` int(11) NOT NULL COMMENT ') ENGINE=X AUTO_INCREMENT=3 ',\n  PRIMARY KEY (`a`)";
        let table = |options: &str| format!("{parts}\n) ENGINE=InnoDB{options}");
        let of = |options: &str| String::from_utf8(without_own(table(options).as_bytes())).unwrap();
        let charset = " DEFAULT CHARSET=utf8mb4 COMMENT=' AUTO_INCREMENT=4'";
        assert_eq!(of(charset), table(charset));
        assert_eq!(of(&format!(" AUTO_INCREMENT=12{charset}")), table(charset));
        assert_eq!(of(" AUTO_INCREMENT=12"), table(""));
        let placed =
            format!(" AUTO_INCREMENT=12{charset} DATA DIRECTORY='/a b/' INDEX DIRECTORY='/c'");
        assert_eq!(of(&placed), table(charset));
        assert_eq!(without_own(b"CREATE VIEW x"), b"CREATE VIEW x");
    }
}
