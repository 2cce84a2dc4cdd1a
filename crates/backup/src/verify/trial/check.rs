//! Checks every table of a running trial server.

use std::collections::{BTreeMap, BTreeSet};

use super::answers::{Answer, Encryption, Kind, ListedTable, Verdict, answers};
use super::held::BackupContents;
use super::outcome::Outcome;
use super::revive::revive;
use super::rows::{KEY_OF_ARIA, read_rows, try_key};
use crate::cancel::CancelToken;
use crate::error::BackupError;
use crate::server::private::Server;
use crate::table_id::TableId;

/// Number of tables in one CHECK TABLE. If the server exits, each of them is checked alone.
const TOGETHER: usize = 50;

/// The plugins with keys that the server has loaded.
const KEY_PLUGINS: &str = "SELECT plugin_name FROM information_schema.plugins \
    WHERE plugin_type = 'ENCRYPTION' AND plugin_status = 'ACTIVE'";

/// Checks everything that the backup holds. Returns false if the server has ended and cannot be
/// started again.
pub(super) async fn check_all(
    server: &mut Server,
    found: &mut Outcome,
    mut holdings: BackupContents,
    cancel: &CancelToken,
) -> Result<bool, BackupError> {
    if found.key_plugin.is_some() {
        let loaded: Result<Vec<[String; 1]>, String> = server.rows(KEY_PLUGINS, cancel).await?;
        found.lacks_keys = loaded.is_ok_and(|plugins| plugins.is_empty());
    }
    found.lacks_own_keys = found.lacks_keys && holdings.has_encrypted_system();
    (found.test.others.undo, found.test.others.temporary) = (holdings.undo, holdings.temporary);
    let listed = match list(server, &mut holdings, cancel).await? {
        Ok(listed) => listed,
        Err(said) => {
            found.wrong.push(format!("the server cannot list its tables: {said}"));
            return Ok(true);
        }
    };
    if !holdings.data_dictionary && !holdings.triggers.is_empty() {
        let listed = triggers(server, cancel).await?;
        let lost = listed
            .map(|listed| holdings.triggers.difference(&listed).map(TableId::to_string).collect());
        found.lost_triggers = lost.unwrap_or_default();
    }
    let places: BTreeSet<TableId> = listed.iter().map(|(_, place)| place.clone()).collect();
    found.unlisted(holdings.unlisted(&places));
    found.of_system(&holdings);
    let listed: Vec<ListedTable> = listed.into_iter().map(|(listed, _)| listed).collect();
    for together in groups(&listed) {
        if let Some(doubtful) = check_together(server, found, together, cancel).await? {
            for doubt in doubtful {
                if !check_again(server, found, doubt, cancel).await? {
                    return Ok(false);
                }
            }
            continue;
        }
        // The faulty table is not known, so each is checked alone.
        if !revive(server, found, cancel).await? {
            let names: Vec<String> = together.iter().map(ToString::to_string).collect();
            found
                .wrong
                .push(format!("one of these tables makes the server exit: {}", names.join(", ")));
            return Ok(false);
        }
        for entry in together {
            if !check_alone(server, found, entry, cancel).await? {
                return Ok(false);
            }
        }
    }
    try_key(server, found, cancel).await?;
    Ok(read_rows(server, found, cancel).await? && look_into(server, found, cancel).await?)
}

/// The tables that the server lists, with their places; adds InnoDB's dictionary to the holdings.
/// The inner error is the server's.
async fn list(
    server: &mut Server,
    holdings: &mut BackupContents,
    cancel: &CancelToken,
) -> Result<Result<Vec<(ListedTable, TableId)>, String>, BackupError> {
    // First: once such a table could not be opened, it is in this view no more. MySQL keeps keys
    // elsewhere, and says so when one is missing.
    let encrypted = match holdings.data_dictionary {
        true => Ok(Vec::new()),
        false => server.rows(ENCRYPTED, cancel).await?,
    };
    let encrypted = match encrypted {
        Ok(encrypted) => encryption(encrypted),
        Err(said) => return Ok(Err(said)),
    };
    // With a data dictionary, MySQL has lost the encoding of file names, and does not need it.
    let (places, dictionary) = match holdings.data_dictionary {
        // Tables in a general tablespace have no file of their own.
        true => {
            ("'', ''", "IF(space_type = 'Single', space, 0) FROM information_schema.innodb_tables")
        }
        false => (
            "HEX(CONVERT(table_schema USING filename)), HEX(CONVERT(table_name USING filename))",
            "space FROM information_schema.innodb_sys_tables",
        ),
    };
    let tables = format!(
        "SELECT table_schema, table_name, table_type, COALESCE(engine, ''), {places} FROM information_schema.tables \
         WHERE table_schema NOT IN ('information_schema', 'performance_schema') \
         ORDER BY CAST(table_schema AS BINARY), CAST(table_name AS BINARY)"
    );
    let dictionary = format!("SELECT name, {dictionary} ORDER BY table_id");
    let tables = match server.rows(&tables, cancel).await? {
        Ok(tables) => tables,
        Err(said) => return Ok(Err(said)),
    };
    let dictionary = match server.rows(&dictionary, cancel).await? {
        Ok(dictionary) => dictionary,
        Err(said) => return Ok(Err(said)),
    };
    for [name, space] in dictionary {
        holdings.in_dictionary(&name, space != "0");
    }
    let unknown = || "a name is in no known encoding".to_owned();
    let listed = |row| {
        let (mut entry, place) = listed(row).ok_or_else(unknown)?;
        entry.encryption = match holdings.encrypted.contains(&place) {
            true => Encryption::Key(KEY_OF_ARIA),
            false => encrypted.get(&place).copied().unwrap_or(Encryption::None),
        };
        Ok((entry, place))
    };
    Ok(tables.into_iter().map(listed).collect())
}

/// The triggers that the server lists. `None` if it cannot: CHECK TABLE says why.
async fn triggers(
    server: &mut Server,
    cancel: &CancelToken,
) -> Result<Option<BTreeSet<TableId>>, BackupError> {
    const TRIGGERS: &str = "SELECT trigger_schema, trigger_name, HEX(CONVERT(trigger_schema USING filename)), \
        HEX(CONVERT(trigger_name USING filename)) FROM information_schema.triggers";
    let rows: Result<Vec<[String; 4]>, String> = server.rows(TRIGGERS, cancel).await?;
    let place = |[schema, name, schema_place, place]: [String; 4]| {
        Some(TableId::new(&in_file(&schema, &schema_place)?, &in_file(&name, &place)?))
    };
    Ok(rows.ok().and_then(|rows| rows.into_iter().map(place).collect()))
}

/// Tablespaces that MariaDB has encrypted, whether it has the key, and the number of the key: without one, its version is the
/// largest number. Those that it could encrypt, and has not, have the least version 0.
const ENCRYPTED: &str = "SELECT COALESCE(name, ''), current_key_version = 4294967295, current_key_id \
    FROM information_schema.innodb_tablespaces_encryption WHERE encryption_scheme = 1 AND min_key_version > 0";

fn encryption(rows: Vec<[String; 3]>) -> BTreeMap<TableId, Encryption> {
    let of = |[name, lacks, number]: [String; 3]| {
        let (schema, table) = name.split_once('/')?;
        let key = match lacks == "1" {
            true => Encryption::NoKey,
            false => Encryption::Key(number.parse().ok()?),
        };
        Some((TableId::new(schema, table), key))
    };
    rows.into_iter().filter_map(of).collect()
}

fn listed(
    [schema, table, kind, engine, schema_place, table_place]: [String; 6],
) -> Option<(ListedTable, TableId)> {
    let place = TableId::new(&in_file(&schema, &schema_place)?, &in_file(&table, &table_place)?);
    let kind = match kind.as_str() {
        "VIEW" => Kind::View,
        "SEQUENCE" => Kind::Sequence,
        _ => Kind::Table,
    };
    let encryption = Encryption::None;
    Some((ListedTable { schema, table, kind, engine, encryption }, place))
}

/// A name as in files, from its hexadecimal form. Names that are in no encoding of file names have
/// a prefix.
fn in_file(name: &str, encoded: &str) -> Option<String> {
    match name.strip_prefix("#mysql50#") {
        Some(raw) => Some(raw.to_owned()),
        None => String::from_utf8(base16ct::mixed::decode_vec(encoded).ok()?).ok(),
    }
}

/// Cuts the list into pieces for one statement each, in which no two names are printed alike
/// (`a.b` and `c`, `a` and `b.c`).
fn groups(listed: &[ListedTable]) -> Vec<&[ListedTable]> {
    let mut groups = Vec::new();
    let mut rest = listed;
    while !rest.is_empty() {
        let mut printed = BTreeSet::new();
        let alike = |entry: &ListedTable| !printed.insert(entry.printed());
        let end = rest.iter().take(TOGETHER).position(alike).unwrap_or(rest.len().min(TOGETHER));
        let (group, others) = rest.split_at(end);
        groups.push(group);
        rest = others;
    }
    groups
}

/// A table that seems to be damaged, and what the server says of it.
type Doubt<'a> = (&'a ListedTable, String);

/// Checks several tables with one statement. Returns those to check again; `None` if the statement failed.
async fn check_together<'a>(
    server: &mut Server,
    found: &mut Outcome,
    tables: &'a [ListedTable],
    cancel: &CancelToken,
) -> Result<Option<Vec<Doubt<'a>>>, BackupError> {
    let names: Vec<String> = tables.iter().map(ListedTable::quoted).collect();
    let said = server.rows(&format!("CHECK TABLE {}", names.join(", ")), cancel).await?;
    Ok(said.map(|said| checked(found, tables, said)).ok())
}

/// Records the output of CHECK TABLE for these tables, but for those to check again.
fn checked<'a>(
    found: &mut Outcome,
    tables: &'a [ListedTable],
    said: Vec<[String; 4]>,
) -> Vec<Doubt<'a>> {
    let mut answers: BTreeMap<String, Answer> = answers(said);
    let mut doubtful = Vec::new();
    for entry in tables {
        let answer = answers.remove(&entry.printed()).unwrap_or_default();
        match answer.judge(entry.kind) {
            Verdict::Damaged(what) => doubtful.push((entry, what)),
            verdict => found.judged(entry, verdict),
        }
    }
    doubtful
}

/// Checks a table again that seems to be damaged. If several tables need the same plugin, MariaDB names it for the first
/// one; the others are just corrupted, until they are checked again. Returns false if the server has ended and cannot be
/// started again.
async fn check_again(
    server: &mut Server,
    found: &mut Outcome,
    (entry, what): Doubt<'_>,
    cancel: &CancelToken,
) -> Result<bool, BackupError> {
    let said = server.rows(&format!("CHECK TABLE {}", entry.quoted()), cancel).await?;
    let again = said.ok().and_then(|said| answers(said).remove(&entry.printed()));
    found.judged(
        entry,
        match again.map(|again| again.judge(entry.kind)) {
            Some(lacks @ Verdict::NoPlugin(_)) => lacks,
            _ => Verdict::Damaged(what),
        },
    );
    revive(server, found, cancel).await
}

/// Checks one table. Returns false if the server has ended and cannot be started again.
async fn check_alone(
    server: &mut Server,
    found: &mut Outcome,
    entry: &ListedTable,
    cancel: &CancelToken,
) -> Result<bool, BackupError> {
    match server.rows(&format!("CHECK TABLE {}", entry.quoted()), cancel).await? {
        Ok(said) => {
            if let Some(doubt) = checked(found, std::slice::from_ref(entry), said).pop() {
                return check_again(server, found, doubt, cancel).await;
            }
        }
        Err(_) if server.has_ended() => found.wrong.push(format!(
            "table {entry}: the server exits when it checks this table: {}",
            server.cause()
        )),
        Err(said) => found.wrong.push(format!("table {entry}: CHECK TABLE fails: {said}")),
    }
    revive(server, found, cancel).await
}

/// Reads the sequences, and counts the other tables that cannot be checked.
async fn look_into(
    server: &mut Server,
    found: &mut Outcome,
    cancel: &CancelToken,
) -> Result<bool, BackupError> {
    for entry in std::mem::take(&mut found.opened) {
        if entry.kind != Kind::Sequence {
            found.not_checkable(&entry.engine);
            continue;
        }
        match server.run(&format!("SELECT * FROM {}", entry.quoted()), cancel).await? {
            Ok(_) => found.test.tables += 1,
            Err(said) => found.wrong.push(format!("sequence {entry}: it cannot be read: {said}")),
        }
        if !revive(server, found, cancel).await? {
            return Ok(false);
        }
    }
    Ok(true)
}
