//! Whether a table that is made anew can be what it is in the backup: its definition as a server prints it, and the values
//! that a server computes.

use std::path::Path;

use xb_mysql::{Client, Error, Row};
use xb_reader::Printable;

use super::definition::Definition;
use super::names::StoredTable;
use super::rows::{RowsError, Sum, each_row, is_table};
use super::source::Source;
use crate::cancel::CancelToken;

/// Lets a session write the history of a versioned table.
pub(super) const ALLOW_HISTORY: &str = "SET system_versioning_insert_history = 1";
/// Codes of a server for a table whose tablespace was discarded or is missing.
const WITHOUT_TABLESPACE: [u16; 2] = [1812, 1814];
/// Codes of a server that refuses a value in strict mode, and else stores what is nearest to it.
const OF_STRICT_MODE: [u16; 5] = [1264, 1265, 1292, 1366, 1406];
/// What to do if a table cannot be made anew as it was.
const RESTORE: &str = "to get it as it was, restore the whole backup with `restore --prepare`, and start a server on that";

/// Fails if the text of a definition lacks characters that it has: a server prints those beyond the first 65,536 of
/// Unicode as question marks, in labels and default values.
pub(super) fn refuse_lost_characters(
    private: &mut Client,
    data: &Path,
    held: &StoredTable,
    text: &[u8],
) -> Result<(), String> {
    if !text.contains(&b'?') {
        return Ok(());
    }
    // Expressions are printed as they are stored.
    let file = data.join(format!("{}.frm", held.files));
    let stored =
        std::fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let of_four_bytes = of_four_bytes(&stored) > of_four_bytes(text);
    let wide = private.rows(format!(
        "SELECT CAST(1 AS CHAR) FROM information_schema.columns WHERE {} AND character_set_name IN ('utf16', 'utf16le', 'utf32') \
         AND CONCAT(column_type, COALESCE(column_default, '')) LIKE '%?%'",
        is_table(&held.schema, &held.table)
    ));
    match of_four_bytes || !wide.map_err(|error| of_backup(&error))?.is_empty() {
        false => Ok(()),
        true => Err(format!(
            "its definition has a character, such as an emoji, in a default value or a label of ENUM or SET that a server shows as a question mark, so the new table would have that instead; {RESTORE}"
        )),
    }
}

/// Number of characters that take four bytes in UTF-8.
fn of_four_bytes(text: &[u8]) -> usize {
    let is_one = |bytes: &&[u8]| {
        (0xf0..=0xf4).contains(&bytes[0]) && bytes[1..].iter().all(|b| (0x80..=0xbf).contains(b))
    };
    text.windows(4).filter(is_one).count()
}

/// Compares the definition of the new table with that of the backup. Returns what is to be said of a difference that need
/// not be one: servers of two versions print some definitions in two ways, and a server may ignore an option, such as a
/// directory.
pub(super) fn compare_definitions(
    source: &Source,
    made: &Definition,
    versions: [&str; 2],
) -> Result<Option<String>, String> {
    let Some((is_part, [ours, theirs])) = source.definition.difference(made) else {
        return Ok(None);
    };
    let differ = format!("the server has `{theirs}`, where the backup has `{ours}`");
    // Within a series, too: 10.6.11 prints the collation of a column that 10.6.10 leaves out.
    let [private, live] = versions.map(|version| version.split('-').next());
    match is_part && private == live {
        true => Err(format!(
            "its definition differs on the server: {differ}; check the server for settings that change definitions"
        )),
        false => Ok(Some(format!(
            "{}: {differ}; compare the definitions before you use the table",
            source.shown
        ))),
    }
}

/// Fails if the index of the new table would have other values in generated columns than that of the backup, so that a
/// server finds other rows by them; or if a number would be rounded when it is written.
pub(super) fn refuse_other_values(
    private: &mut Client,
    source: &Source,
    filter: Option<&str>,
) -> Result<(), String> {
    let indexed = source.layout.indexed();
    if !indexed.is_empty() {
        // In this session, it computes them as the one that makes the new table.
        let said = check_table(private, &source.from).map_err(|error| of_backup(&error))?;
        if let Some(said) = said {
            return Err(format!(
                "the index of the generated columns ({}) would have different values in the new table than in the backup, and would find different rows ({}): they were computed in a session with different settings, such as its time zone, or the index is damaged; {RESTORE}",
                indexed.join(", "),
                Printable::new(said.as_bytes())
            ));
        }
    }
    if source.files.is_some() {
        return Ok(());
    }
    let instant = source.layout.count_without_duration(private, &source.from, filter);
    if let Some((rows, others)) = instant.map_err(|error| of_backup(&error))? {
        return Err(format!(
            "{rows} rows of its history ended when they began, as those that one statement writes twice (REPLACE, or SET timestamp), and no server takes them again; {RESTORE}, import its file with --physical, or leave out these rows with --where='{others}'"
        ));
    }
    let rounded = source.layout.find_rounded(private, &source.from, filter);
    let rounded = rounded.map_err(|error| of_backup(&error))?;
    match rounded.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "it has numbers with more digits than its definition says ({}), since these were reduced without a change of the rows, and the new table would have rounded ones; {RESTORE}, or import its file with --physical",
            rounded.join(", ")
        )),
    }
}

/// Checks a table with all its indexes. Returns what the server reports of it, unless it is sound.
pub(super) fn check_table(client: &mut Client, table: &str) -> Result<Option<String>, Error> {
    let rows = client.rows(format!("CHECK TABLE {table} EXTENDED"))?;
    let said = rows.iter().map(Row::texts::<4>).collect::<Result<Vec<_>, _>>()?;
    Ok(match said.last() {
        Some([_, _, kind, text]) if kind == "status" && text == "OK" => None,
        _ => Some(said.into_iter().map(|[_, _, _, text]| text).collect::<Vec<_>>().join("; ")),
    })
}

/// Fails if a server computes other values for generated columns than the table has, or refuses them: those of a session
/// in another time zone, for one. Tries it on a copy of the table beside it, without its place in the dump: a server that
/// reads the dump does the same. Values that only strict mode refuses, as those that did not fit when they were computed
/// without it, are written without it, too, if they are the same then.
pub(super) fn try_generated(
    private: &mut Client,
    source: &Source,
    filter: Option<&str>,
    cancel: &CancelToken,
) -> Result<(), String> {
    let columns = source.layout.generated();
    if columns.is_empty() || source.files.is_some() {
        return Ok(());
    }
    let (from, copy) = (&source.from, &source.trial);
    let mut attempt = |lenient| {
        let create = format!("{}CREATE TABLE {copy} LIKE {from}", source.ddl);
        private.run(create).map_err(RowsError::Server)?;
        let tried = copied_alike(private, source, filter, lenient, cancel);
        private.run(format!("DROP TABLE {copy}")).map_err(RowsError::Server)?;
        tried
    };
    let is_strict = |error: &RowsError| matches!(error, RowsError::Server(Error::Server(refused)) if OF_STRICT_MODE.contains(&refused.code));
    let tried = match attempt(false) {
        Err(error) if is_strict(&error) => match attempt(true) {
            Ok(true) => {
                source.is_lenient.set(true);
                return Ok(());
            }
            Err(RowsError::Other(what)) => return Err(what),
            _ => Err(error),
        },
        tried => tried,
    };
    let why = match tried {
        Ok(true) => return Ok(()),
        Ok(false) => String::new(),
        Err(RowsError::Server(Error::Server(refused))) => format!(" ({})", refused.message),
        Err(RowsError::Server(error)) => return Err(of_backup(&error)),
        Err(RowsError::Refused(what) | RowsError::Other(what)) => return Err(what),
    };
    Err(format!(
        "the generated columns ({}) would have different values in the new table{why}: they were computed in a session with different settings, such as its time zone; {RESTORE}, or import its file with --physical",
        columns.join(", ")
    ))
}

/// Copies the rows, and compares them with those that are there then.
fn copied_alike(
    private: &mut Client,
    source: &Source,
    filter: Option<&str>,
    lenient: bool,
    cancel: &CancelToken,
) -> Result<bool, RowsError> {
    if source.layout.has_history() {
        private.run(ALLOW_HISTORY).map_err(RowsError::Server)?;
    }
    let passes = source.layout.passes();
    for pass in &passes {
        for copy in pass.copy(&source.from, &source.trial, filter, lenient) {
            private.run(copy).map_err(RowsError::Server)?;
        }
    }
    let mut sum = |table: &str, filter: Option<&str>| {
        let mut sum = Sum::default();
        for pass in &passes {
            each_row(private, &pass.select(table, filter), pass.width(), |row| {
                sum.add(row);
                RowsError::if_stopped(cancel)
            })?;
        }
        Ok::<_, RowsError>(sum)
    };
    Ok(sum(&source.from, filter)? == sum(&source.trial, None)?)
}

/// An error of the private server.
pub(super) fn of_backup(error: &Error) -> String {
    let next = match error {
        Error::Server(refused) if WITHOUT_TABLESPACE.contains(&refused.code) => {
            "; rescue it from a backup that was taken before it lost its tablespace"
        }
        _ => "",
    };
    format!("the server on the backup: {error}{next}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_of_four_bytes_are_counted_between_any_others() {
        let text = "\u{1f600}?\u{e4}\u{20ac}\u{10ffff}\u{1f600}".as_bytes();
        assert_eq!(of_four_bytes(text), 3);
        assert_eq!(of_four_bytes(&[0xf0, 0x9f, 0x98, b'x', 0xf0, 0x9f, 0x98]), 0);
        assert_eq!(of_four_bytes(b"?"), 0);
    }
}
