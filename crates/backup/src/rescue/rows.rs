//! The rows of a table: how they are read, written as SQL, and compared.

use sha2::{Digest as _, Sha256};
use xb_mysql::{Client, Error, Event, Row};

use super::definition::quoted;
use crate::cancel::CancelToken;

/// Settings of a session that reads or writes tables: no definition and no value is changed, converted or refused that
/// the source held. Statements are UTF-8; values of a result come as they are stored. Replicas and nodes of a cluster do
/// not get to know of `innodb_strict_mode`: a table that it refuses would stop them. The last variable cannot be set in a
/// session of an earlier server.
pub(crate) const SESSION: &str = "SET NAMES utf8mb4, character_set_results = NULL, \
    sql_mode = 'NO_AUTO_VALUE_ON_ZERO,STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION,NO_UNSIGNED_SUBTRACTION', \
    innodb_strict_mode = (SELECT @@GLOBAL.innodb_strict_mode AND COUNT(*) FROM information_schema.global_variables \
    WHERE variable_name IN ('log_bin', 'wsrep_on') AND variable_value = 'ON'), sql_quote_show_create = 1, time_zone = '+00:00', foreign_key_checks = 0, check_constraint_checks = 0, autocommit = 1, \
    sql_select_limit = 18446744073709551615, max_statement_time = 0, wait_timeout = 2147483, \
    net_read_timeout = 31536000, net_write_timeout = 31536000 \
    /*M!101000 , explicit_defaults_for_timestamp = 1 */";
/// Begins a statement with rows whose ENUM has none of its values, or about a table with an ENUM of which two labels are
/// equal in its collation: the server takes them, as the source did. It refuses a row that it cannot keep; with IGNORE, it
/// would drop that.
const LENIENT: &str = "SET STATEMENT sql_mode = 'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION,NO_UNSIGNED_SUBTRACTION' FOR ";
/// A strict server's error for an ENUM or SET of which two labels are equal in its collation.
const EQUAL_LABELS: u16 = 1291;
/// Lets a session write to a server that is read-only for others (`transaction_read_only`): this is a statement of its own,
/// since it has to come after the end of a transaction.
pub(super) const READ_WRITE: &str = "SET SESSION TRANSACTION READ WRITE";
/// A statement that waits for the lock of a table in use holds up all later ones that use it, so it gives up after these
/// seconds. All others wait as the server says: for a backup of it, too.
pub(super) const SHORT_WAIT: &str = "SET lock_wait_timeout = 20";
/// Begins a statement that looks at a table in use, which waits for its lock as long as [`SHORT_WAIT`] says.
pub(super) const LOOK: &str = "SET STATEMENT lock_wait_timeout = 20 FOR ";
/// Ends [`SHORT_WAIT`].
pub(super) const LONG_WAIT: &str = "SET lock_wait_timeout = DEFAULT";
/// The end of a row that is current, or of one that ended later than any server counts: all history is
/// before it.
const END_OF_TIME: &str = "'2038-01-19 03:14:07.999999'";

/// How the values of a column are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Digits, as they are.
    Number,
    /// In quotes if all bytes are printable ASCII.
    Plain,
    /// Text in UTF-8: in quotes if it is valid.
    Utf8,
    /// Number of a label of an ENUM, as digits; 0 is what a server stores for a wrong value. The text of that is empty, as
    /// that of an empty label is.
    Label,
    /// Hexadecimal, whatever the bytes are.
    Binary,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    /// Quoted for SQL.
    name: String,
    /// The expression that reads it.
    read: String,
    kind: Kind,
    /// Whether the server computes its value when the row is written. It cannot be given.
    is_generated: bool,
}

/// Columns of a table whose values are stored, and its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    columns: Vec<Column>,
    history: Option<History>,
    /// Names of the columns that a server computes when it writes a row, and stores.
    generated: Vec<String>,
    /// Names of the columns that a server computes when it reads a row, and has in an index.
    indexed: Vec<String>,
    /// Columns whose values a server rounds when it writes a row.
    rounded: Vec<Rounded>,
    /// Its columns of ENUM and SET, for the definition of a table.
    labels: Vec<String>,
    /// Whether its rows lie in the order of a primary key.
    is_clustered: bool,
    /// Whether a condition on it may depend on the time zone.
    has_timestamps: bool,
}

/// A column of FLOAT or DOUBLE with a number of digits. A later reduction of that rewrites no row.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rounded {
    name: String,
    /// Whether a value is another one if it is written again.
    differs: String,
}

/// The columns of a versioned table that say when a row was current, quoted for SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
struct History {
    start: String,
    end: String,
}

/// One reading of a table: all its rows, its current ones, or its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TablePass {
    columns: Vec<Column>,
    /// Rest of the SELECT after the name of the table.
    rest: String,
    /// Whether all rows are read in the order in which they lie.
    is_clustered: bool,
}

impl Layout {
    /// Reads the columns of a table. The inner error says why its rows cannot be carried over.
    pub(crate) fn read(
        client: &mut Client,
        schema: &str,
        table: &str,
        is_versioned: bool,
    ) -> Result<Result<Self, String>, Error> {
        let rows = client.rows(format!(
            "SELECT column_name, data_type, COALESCE(character_set_name, ''), is_generated, COALESCE(generation_expression, ''), \
             CASE WHEN is_generated <> 'ALWAYS' THEN '' WHEN extra LIKE '%STORED%' OR extra LIKE '%PERSISTENT%' THEN 'STORED' \
             WHEN EXISTS (SELECT 1 FROM information_schema.statistics WHERE {0} AND column_name = columns.column_name) THEN 'INDEXED' ELSE '' END, \
             IF(data_type IN ('float', 'double') AND numeric_scale IS NOT NULL, CONCAT('DOUBLE(', numeric_precision, ',', numeric_scale, ')'), ''), \
             IF(data_type IN ('enum', 'set'), CONCAT(column_type, ' CHARACTER SET ', character_set_name, ' COLLATE ', collation_name), '') \
             FROM information_schema.columns WHERE {0} ORDER BY ordinal_position",
            is_table(schema, table)
        ))?;
        let rows: Vec<[String; 8]> = rows.iter().map(Row::texts).collect::<Result<_, _>>()?;
        // Otherwise the server may read a smaller index, and in the order of that.
        let primary = client.rows(has_clustered_index(schema, table))?;
        let is_clustered = !primary.is_empty();
        Ok(Self::of(&rows, is_versioned).map(|layout| Self { is_clustered, ..layout }))
    }

    fn of(rows: &[[String; 8]], is_versioned: bool) -> Result<Self, String> {
        let mut columns: Vec<Column> = Vec::new();
        let (mut computed, mut indexed, mut labels) = (Vec::new(), Vec::new(), Vec::new());
        let mut rounded = Vec::new();
        let (mut start, mut end) = ("`row_start`".to_owned(), "`row_end`".to_owned());
        for [plain, kind, charset, generated, expression, form, digits, label] in rows {
            let name = sql(plain);
            let period = match expression.to_ascii_uppercase().as_str() {
                "ROW START" => &mut start,
                "ROW END" => &mut end,
                _ => {
                    let is_generated = generated == "ALWAYS";
                    match &form[..] {
                        "STORED" => computed.push(plain.clone()),
                        "INDEXED" => indexed.push(plain.clone()),
                        _ => {}
                    }
                    if !label.is_empty() {
                        labels.push(format!("{name} {label}"));
                    }
                    if !digits.is_empty() && !is_generated {
                        rounded.push(Rounded::new(plain, kind, digits));
                    }
                    if !is_generated || form == "STORED" {
                        columns.push(Column { is_generated, ..Column::new(name, kind, charset) });
                    }
                    continue;
                }
            };
            if kind != "timestamp" {
                return Err("its history counts transactions, which are numbered differently on every server; restore the whole backup instead".to_owned());
            }
            *period = name;
        }
        if columns.iter().all(|column| column.is_generated) {
            return Err("it has no column with data of its own".to_owned());
        }
        let history = is_versioned.then_some(History { start, end });
        let has_timestamps = rows.iter().any(|[_, kind, ..]| kind == "timestamp");
        Ok(Self {
            columns,
            history,
            generated: computed,
            indexed,
            rounded,
            labels,
            is_clustered: false,
            has_timestamps,
        })
    }

    /// The readings that give every row once. A row that is current gets its end from the server on
    /// which it is written, since servers differ in it.
    pub(crate) fn passes(&self) -> Vec<TablePass> {
        let Some(History { start, end }) = &self.history else {
            let (columns, is_clustered) = (self.columns.clone(), self.is_clustered);
            return vec![TablePass { columns, rest: String::new(), is_clustered }];
        };
        let with = |times: &[&String]| {
            let time = |name: &&String| Column {
                name: (*name).clone(),
                read: (*name).clone(),
                kind: Kind::Plain,
                is_generated: false,
            };
            self.columns.iter().cloned().chain(times.iter().map(time)).collect()
        };
        vec![
            TablePass {
                columns: with(&[start, end]),
                rest: format!(" FOR SYSTEM_TIME ALL WHERE {end} < {END_OF_TIME}"),
                is_clustered: false,
            },
            TablePass { columns: with(&[start]), rest: String::new(), is_clustered: false },
        ]
    }

    /// The statement that counts the rows of all readings.
    pub(super) fn count(&self, table: &str, filter: Option<&str>) -> String {
        self.of_all("COUNT(*)", table, filter)
    }

    fn of_all(&self, what: &str, table: &str, filter: Option<&str>) -> String {
        let all = if self.history.is_some() { " FOR SYSTEM_TIME ALL" } else { "" };
        let filter = filter.map_or_else(String::new, |filter| format!(" WHERE ({filter})"));
        format!("SELECT {what} FROM {table}{all}{filter}")
    }

    /// Names of the columns of which a server with other settings may store other values.
    pub(super) fn generated(&self) -> &[String] {
        &self.generated
    }

    /// Names of the columns of which the index of a server with other settings may have other values.
    pub(super) fn indexed(&self) -> &[String] {
        &self.indexed
    }

    /// Finds the columns with a value that would be rounded if it was written again.
    pub(super) fn find_rounded(
        &self,
        client: &mut Client,
        table: &str,
        filter: Option<&str>,
    ) -> Result<Vec<String>, Error> {
        if self.rounded.is_empty() {
            return Ok(Vec::new());
        }
        let differ = self
            .rounded
            .iter()
            .map(|each| format!("CAST(COALESCE(SUM({}), 0) AS CHAR)", each.differs));
        let rows =
            client.rows(self.of_all(&differ.collect::<Vec<_>>().join(", "), table, filter))?;
        let row = rows.first().ok_or(Error::Unexpected)?;
        let differs = |number: &usize| row.get(*number) != Some(b"0");
        let found = (0..self.rounded.len()).filter(differs);
        Ok(found.filter_map(|number| Some(self.rounded.get(number)?.name.clone())).collect())
    }

    /// What begins a statement that creates or alters a table with these columns. It is tried with a table in this schema.
    pub(super) fn ddl(&self, client: &mut Client, schema: &str) -> Result<&'static str, Error> {
        if self.labels.is_empty() {
            return Ok("");
        }
        let trial = format!("{}.xb_rescue_labels", sql(schema));
        let columns = self.labels.join(", ");
        match client.run(format!("CREATE TEMPORARY TABLE {trial} ({columns}) ENGINE=MEMORY")) {
            Ok(()) => client.run(format!("DROP TEMPORARY TABLE {trial}")).map(|()| ""),
            Err(Error::Server(refused)) if refused.code == EQUAL_LABELS => Ok(LENIENT),
            // It says so when the table itself is created.
            Err(Error::Server(_)) => Ok(""),
            Err(error) => Err(error),
        }
    }

    pub(super) fn has_history(&self) -> bool {
        self.history.is_some()
    }

    /// Counts the rows of history that no server takes: they ended when they began, or before. Also returns the condition
    /// that leaves them out.
    pub(super) fn count_without_duration(
        &self,
        client: &mut Client,
        table: &str,
        filter: Option<&str>,
    ) -> Result<Option<(String, String)>, Error> {
        let Some(History { start, end }) = &self.history else { return Ok(None) };
        let found = format!("CAST(COALESCE(SUM({start} >= {end}), 0) AS CHAR)");
        let rows = client.rows(self.of_all(&found, table, filter))?;
        let [found] = rows.first().ok_or(Error::Unexpected)?.texts()?;
        Ok((found != "0").then(|| (found, format!("{start} < {end}"))))
    }

    pub(super) fn has_timestamps(&self) -> bool {
        self.has_timestamps
    }
}

impl Rounded {
    /// A column of `FLOAT` or `DOUBLE`, with its digits as `DOUBLE(M,D)`.
    fn new(name: &str, kind: &str, digits: &str) -> Self {
        let read = format!("CAST({} AS DOUBLE)", sql(name));
        let written = match kind {
            // With fewer bits than a DOUBLE, it is not the number that was rounded.
            "float" => format!("CAST(CAST(CAST({read} AS {digits}) AS FLOAT) AS DOUBLE)"),
            _ => format!("CAST(CAST({read} AS {digits}) AS DOUBLE)"),
        };
        Self { name: name.to_owned(), differs: format!("NOT ({read} <=> {written})") }
    }
}

impl Column {
    fn new(name: String, kind: &str, charset: &str) -> Self {
        let written = match kind {
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "decimal" | "set" => {
                Kind::Number
            }
            // A server takes a vector of no text, even if all its bytes are letters.
            "bit" | "vector" => Kind::Binary,
            "enum" => Kind::Label,
            _ if kind.ends_with("blob") || kind.ends_with("binary") => Kind::Binary,
            _ => match charset {
                "" => Kind::Plain,
                "utf8" | "utf8mb3" | "utf8mb4" => Kind::Utf8,
                // Of the same meaning in every character set of which ASCII is a part.
                "ascii" | "latin1" => Kind::Plain,
                _ => Kind::Binary,
            },
        };
        let read = match kind {
            // A server prints only 6 digits of a FLOAT, and of both no more than their definition says.
            "float" | "double" => format!("CAST({name} AS DOUBLE)"),
            // Two labels may be equal, and texts need not tell a wrong or an empty value.
            "enum" | "set" => format!("CAST({name} AS UNSIGNED)"),
            _ => name.clone(),
        };
        Self { name, read, kind: written, is_generated: false }
    }
}

impl TablePass {
    /// The statement that reads the rows of a table, given by its name for SQL.
    pub(crate) fn select(&self, table: &str, filter: Option<&str>) -> String {
        let columns: Vec<&str> = self.columns.iter().map(|column| &column.read[..]).collect();
        self.select_of(&columns, table, filter)
    }

    fn select_of(&self, columns: &[&str], table: &str, filter: Option<&str>) -> String {
        let filter = match (filter, self.rest.is_empty()) {
            (None, _) => String::new(),
            (Some(filter), true) => format!(" WHERE ({filter})"),
            (Some(filter), false) => format!(" AND ({filter})"),
        };
        // A filter may have an index of its own.
        let index =
            if self.is_clustered && filter.is_empty() { " FORCE INDEX (PRIMARY)" } else { "" };
        format!("SELECT {} FROM {table}{index}{}{filter}", columns.join(", "), self.rest)
    }

    /// The columns that are written.
    fn written(&self) -> Vec<&Column> {
        self.columns.iter().filter(|column| !column.is_generated).collect()
    }

    fn insert_into(&self, table: &str) -> String {
        let columns: Vec<&str> = self.written().iter().map(|column| &column.name[..]).collect();
        format!("INSERT INTO {table} ({})", columns.join(", "))
    }

    /// The beginning of the statement that writes rows. With `lenient`, the server stores an ENUM
    /// that has none of its values, as the source did.
    pub(super) fn insert(&self, table: &str, lenient: bool) -> Vec<u8> {
        let lenient = if lenient { LENIENT } else { "" };
        format!("{lenient}{} VALUES\n", self.insert_into(table)).into_bytes()
    }

    /// The statements that copy the rows of a table into another one on the same server, as [`write`](Self::write) does;
    /// with `lenient`, all of them as that does with rows whose ENUM has none of its values.
    pub(super) fn copy(
        &self,
        from: &str,
        to: &str,
        filter: Option<&str>,
        lenient: bool,
    ) -> Vec<String> {
        let written = self.written();
        let columns: Vec<&str> = written.iter().map(|column| &column.read[..]).collect();
        let copy = |lenient: &str, filter: Option<&str>| {
            let rows = self.select_of(&columns, from, filter);
            format!("{lenient}{} {rows}", self.insert_into(to))
        };
        let wrong: Vec<String> = written
            .iter()
            .filter(|column| column.kind == Kind::Label)
            .map(|column| format!("{} <=> 0", column.read))
            .collect();
        if wrong.is_empty() || lenient {
            return vec![copy(if lenient { LENIENT } else { "" }, filter)];
        }
        let wrong = wrong.join(" OR ");
        let filter = filter.map_or_else(String::new, |filter| format!("({filter}) AND "));
        vec![
            copy("", Some(&format!("{filter}NOT ({wrong})"))),
            copy(LENIENT, Some(&format!("{filter}({wrong})"))),
        ]
    }

    /// Returns whether a row must be written leniently.
    pub(super) fn is_lenient(&self, row: &Row) -> bool {
        let mut values = self.columns.iter().zip(row.iter());
        values.any(|(column, value)| {
            column.kind == Kind::Label && !column.is_generated && value == Some(b"0")
        })
    }

    /// Appends a row, as `(VALUE,…)`.
    pub(super) fn write(&self, row: &Row, out: &mut Vec<u8>) {
        out.push(b'(');
        let values = self.columns.iter().zip(row.iter());
        let written = values.filter(|(column, _)| !column.is_generated);
        for (number, (column, value)) in written.enumerate() {
            if number > 0 {
                out.push(b',');
            }
            match value {
                None => out.extend(b"NULL"),
                Some(value) => write_value(column.kind, value, out),
            }
        }
        out.push(b')');
    }

    /// Number of values in a row.
    pub(crate) fn width(&self) -> usize {
        self.columns.len()
    }
}

fn write_value(kind: Kind, value: &[u8], out: &mut Vec<u8>) {
    let is_plain = || value.iter().all(|b| (b' '..=b'~').contains(b));
    let in_quotes = match kind {
        Kind::Number | Kind::Label if is_number(value) => {
            out.extend(value);
            return;
        }
        Kind::Utf8 => std::str::from_utf8(value).is_ok(),
        Kind::Number | Kind::Plain | Kind::Label => is_plain(),
        Kind::Binary => value.is_empty(),
    };
    if !in_quotes {
        out.extend(b"X'");
        for byte in value {
            out.extend([byte >> 4, byte & 15].map(|half| b"0123456789ABCDEF"[usize::from(half)]));
        }
        out.push(b'\'');
        return;
    }
    out.push(b'\'');
    for byte in value {
        match byte {
            b'\'' | b'\\' => out.extend([b'\\', *byte]),
            0 => out.extend(b"\\0"),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            // Ends the input of a client on some systems.
            0x1a => out.extend(b"\\Z"),
            byte => out.push(*byte),
        }
    }
    out.push(b'\'');
}

fn is_number(value: &[u8]) -> bool {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    digits.first().is_some_and(u8::is_ascii_digit)
        && digits.iter().all(|b| b.is_ascii_digit() || *b == b'.')
}

/// A number of rows and their digest, whatever their order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) rows: u64,
    /// Sum of the SHA-256 of each row: equal rows count as often as they are there.
    digests: [u64; 4],
}

impl Sum {
    pub(crate) fn add(&mut self, row: &Row) {
        let mut hash = Sha256::new();
        for value in row.iter() {
            match value {
                None => hash.update([0]),
                Some(value) => {
                    hash.update([1]);
                    hash.update((value.len() as u64).to_le_bytes());
                    hash.update(value);
                }
            }
        }
        self.rows += 1;
        for (sum, part) in self.digests.iter_mut().zip(hash.finalize().chunks_exact(8)) {
            let part = part.iter().fold(0, |part: u64, byte| part << 8 | u64::from(*byte));
            *sum = sum.wrapping_add(part);
        }
    }
}

/// Error that ends the reading of a table's rows.
pub(super) enum RowsError {
    /// The server from which they are read.
    Server(Error),
    /// The server to which they go: it refuses them.
    Refused(String),
    Other(String),
}

impl RowsError {
    /// Fails once the run is to end.
    pub(super) fn if_stopped(cancel: &CancelToken) -> Result<(), Self> {
        match cancel.reason() {
            None => Ok(()),
            Some(_) => Err(Self::Other("interrupted".to_owned())),
        }
    }
}

/// Reads all rows of a statement, each of `width` values.
pub(super) fn each_row(
    client: &mut Client,
    select: &str,
    width: usize,
    mut take: impl FnMut(&Row) -> Result<(), RowsError>,
) -> Result<(), RowsError> {
    let mut results = client.query(select).map_err(RowsError::Server)?;
    while let Some(event) = results.next().map_err(RowsError::Server)? {
        match event {
            Event::Columns(columns) if columns.len() != width => {
                return Err(RowsError::Server(Error::Unexpected));
            }
            Event::Row(row) => take(&row)?,
            Event::Columns(_) | Event::Complete(_) => {}
        }
    }
    Ok(())
}

/// Asks whether the rows of a table lie in the order of an index. Each of the two views looks up that table only; joined,
/// the second one would read all tables of the server.
fn has_clustered_index(schema: &str, table: &str) -> String {
    let is_table = is_table(schema, table);
    format!(
        "SELECT CAST(1 AS CHAR) FROM information_schema.tables WHERE {is_table} AND engine = 'InnoDB' AND EXISTS \
         (SELECT 1 FROM information_schema.statistics WHERE {is_table} AND index_name = 'PRIMARY')"
    )
}

/// Asks for the names of the triggers of a table, in the order in which those of one event fire. One for several events
/// is listed for each of them.
pub(super) fn trigger_names(schema: &str, table: &str) -> String {
    let is_table = is_table_by("event_object_schema", "event_object_table", schema, table);
    format!(
        "SELECT trigger_name FROM information_schema.triggers WHERE {is_table} \
         ORDER BY event_manipulation, action_timing, action_order"
    )
}

/// The condition that picks one table out of a table of `information_schema`. Names there compare
/// without case and accents; the plain comparison lets the server look up only that table.
pub(super) fn is_table(schema: &str, table: &str) -> String {
    is_table_by("table_schema", "table_name", schema, table)
}

/// The same, with the columns that have the names of schema and table.
fn is_table_by(of_schema: &str, of_table: &str, schema: &str, table: &str) -> String {
    let (schema, table) = (literal(schema), literal(table));
    format!(
        "{of_schema} = {schema} AND {of_table} = {table} AND CAST({of_schema} AS BINARY) = CAST({schema} AS BINARY) AND CAST({of_table} AS BINARY) = CAST({table} AS BINARY)"
    )
}

/// A text for SQL.
pub(crate) fn literal(text: &str) -> String {
    let mut out = Vec::new();
    write_value(Kind::Utf8, text.as_bytes(), &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// A name for SQL, as text.
pub(crate) fn sql(name: &str) -> String {
    String::from_utf8_lossy(&quoted(name)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(kind: Kind, value: &[u8]) -> String {
        let mut out = Vec::new();
        write_value(kind, value, &mut out);
        String::from_utf8(out).unwrap()
    }

    /// A server looks up one table where its names are compared plainly. Otherwise it reads all tables: for each of 3,000,
    /// that took most of the time of a rescue.
    #[test]
    fn questions_about_a_table_name_it_plainly_in_each_view() {
        for (question, views, plain) in [
            (has_clustered_index("a", "t"), 2, "table_schema = 'a' AND table_name = 't' AND "),
            (
                trigger_names("a", "t"),
                1,
                "WHERE event_object_schema = 'a' AND event_object_table = 't' AND ",
            ),
        ] {
            let found =
                [" information_schema.", plain].map(|words| question.matches(words).count());
            assert_eq!(found, [views, views], "{question}");
        }
    }

    #[test]
    fn a_value_is_written_so_that_no_server_reads_it_otherwise() {
        for (kind, value, expected) in [
            (Kind::Number, &b"-12.50"[..], "-12.50"),
            (Kind::Number, b"1e5", "'1e5'"),
            (Kind::Number, b"1,2", "'1,2'"),
            (Kind::Number, b"", "''"),
            (Kind::Label, b"0", "0"),
            (Kind::Plain, b"2020-01-01", "'2020-01-01'"),
            (Kind::Plain, "\u{e4}".as_bytes(), "X'C3A4'"),
            (Kind::Utf8, "\u{e4}'\\\n\0\u{1a}\r\"".as_bytes(), "'\u{e4}\\'\\\\\\n\\0\\Z\\r\"'"),
            (Kind::Utf8, b"\xff'", "X'FF27'"),
            (Kind::Binary, b"abc", "X'616263'"),
            (Kind::Binary, b"", "''"),
        ] {
            assert_eq!(written(kind, value), expected, "{kind:?} {value:?}");
        }
    }

    #[test]
    fn only_columns_with_data_of_their_own_are_read_and_history_by_time() {
        let with = |texts: [&str; 6], digits: &str, label: &str| {
            let [a, b, c, d, e, f] = texts.map(str::to_owned);
            [a, b, c, d, e, f, digits.to_owned(), label.to_owned()]
        };
        let row = |texts| with(texts, "", "");
        let rows = [
            row(["id", "int", "", "NEVER", "", ""]),
            row(["twice", "int", "", "ALWAYS", "`id` * 2", ""]),
            with(["f", "float", "", "NEVER", "", ""], "DOUBLE(5,2)", ""),
            with(["e", "enum", "utf8mb4", "NEVER", "", ""], "", "enum('x')"),
            row(["t", "varchar", "sjis", "NEVER", "", ""]),
            row(["x", "vector", "", "NEVER", "", ""]),
        ];
        let layout = Layout::of(&rows, false).unwrap();
        let [pass] = &layout.passes()[..] else { panic!() };
        assert_eq!(
            pass.select("`s`.`t`", Some("id = 1 OR 1")),
            "SELECT `id`, CAST(`f` AS DOUBLE), CAST(`e` AS UNSIGNED), `t`, `x` FROM `s`.`t` WHERE (id = 1 OR 1)"
        );
        assert_eq!([pass.columns[3].kind, pass.columns[4].kind], [Kind::Binary; 2]);
        assert_eq!(layout.labels, ["`e` enum('x')"]);
        let of_float = "CAST(CAST(CAST(CAST(`f` AS DOUBLE) AS DOUBLE(5,2)) AS FLOAT) AS DOUBLE)";
        let differs = format!("NOT (CAST(`f` AS DOUBLE) <=> {of_float})");
        assert_eq!(layout.rounded, [Rounded { name: "f".to_owned(), differs }]);
        let from = "(`id`, `f`, `e`, `t`, `x`) SELECT `id`, CAST(`f` AS DOUBLE), CAST(`e` AS UNSIGNED), `t`, `x` FROM t WHERE";
        assert_eq!(
            pass.copy("t", "c", None, true),
            [format!("{LENIENT}INSERT INTO c {}", from.trim_end_matches(" WHERE"))]
        );
        assert_eq!(
            pass.copy("t", "c", Some("y"), false),
            [
                format!("INSERT INTO c {from} ((y) AND NOT (CAST(`e` AS UNSIGNED) <=> 0))"),
                format!("{LENIENT}INSERT INTO c {from} ((y) AND (CAST(`e` AS UNSIGNED) <=> 0))"),
            ]
        );
        let clustered = Layout { is_clustered: true, ..layout.clone() };
        let [pass] = &clustered.passes()[..] else { panic!() };
        let all = "SELECT `id`, CAST(`f` AS DOUBLE), CAST(`e` AS UNSIGNED), `t`, `x` FROM t";
        assert_eq!(pass.select("t", None), format!("{all} FORCE INDEX (PRIMARY)"));
        assert_eq!(pass.select("t", Some("x")), format!("{all} WHERE (x)"));
        let rows = [
            row(["id", "int", "", "NEVER", "", ""]),
            row(["d", "date", "", "ALWAYS", "cast(`a` as date)", "STORED"]),
            row(["u", "date", "", "ALWAYS", "cast(`a` as date)", "INDEXED"]),
            row(["a", "timestamp", "", "ALWAYS", "ROW START", "STORED"]),
            row(["b", "timestamp", "", "ALWAYS", "ROW END", "STORED"]),
        ];
        let layout = Layout::of(&rows, true).unwrap();
        assert_eq!(
            (layout.generated(), layout.indexed()),
            (&["d".to_owned()][..], &["u".to_owned()][..])
        );
        let passes = layout.passes();
        assert_eq!(
            passes[0].select("t", Some("x")),
            format!(
                "SELECT `id`, `d`, `a`, `b` FROM t FOR SYSTEM_TIME ALL WHERE `b` < {END_OF_TIME} AND (x)"
            )
        );
        assert_eq!(passes[1].select("t", None), "SELECT `id`, `d`, `a` FROM t");
        let insert = |lenient| String::from_utf8(passes[1].insert("t", lenient)).unwrap();
        assert_eq!(insert(false), "INSERT INTO t (`id`, `a`) VALUES\n");
        assert_eq!(insert(true), format!("{LENIENT}{}", insert(false)));
        let copy = "INSERT INTO c (`id`, `a`) SELECT `id`, `a` FROM t WHERE (x)";
        assert_eq!(passes[1].copy("t", "c", Some("x"), false), [copy]);
        let by_transaction = [row(["a", "bigint", "", "ALWAYS", "ROW START", ""])];
        assert!(Layout::of(&by_transaction, true).is_err());
        assert!(Layout::of(&[], false).is_err());
    }
}
