//! Tables that go into a server as files: no row is written as a statement. The server rebuilds each of them once, since
//! imported pages are in none of its logs. Nothing but this server gets to know of them, so it is done only where nothing
//! else has to.

use std::fs::{File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use xb_mysql::{Client, Error, Row};
use xb_reader::Printable;

use super::faithful::check_table;
use super::names::StoredTable;
use super::rows::{is_table, literal};
use crate::cancel::CancelToken;
use crate::full_disk::free_bytes;
use crate::until::series;

/// Files of an exported table: its pages, and its description for the import.
const SUFFIXES: [&str; 2] = ["ibd", "cfg"];
/// Bytes that are copied between two looks at the token.
const PIECE: u64 = 16 << 20;

/// Returns why a server cannot take files; `None` if it can.
///
/// # Errors
/// Any error of the server.
pub(super) fn refused_by(live: &mut Client) -> Result<Option<&'static str>, Error> {
    let set = live.rows(
        "SHOW GLOBAL VARIABLES WHERE variable_name IN ('log_bin', 'wsrep_on') AND value = 'ON'",
    )?;
    Ok(match set.first().map(Row::texts).transpose()? {
        None => None,
        Some([name, _]) if name == "log_bin" => Some(
            "it writes a binary log, and its replicas would lack the files; leave out --physical",
        ),
        Some([_, _]) => Some(
            "it is a node of a cluster, and the other nodes would lack the files; leave out --physical",
        ),
    })
}

/// Checks that a table can be exported by one server and imported by the other.
pub(super) fn check(
    private: &mut Client,
    live: &mut Client,
    held: &StoredTable,
    file: &Path,
) -> Result<(), String> {
    let versions = [&*private, &*live].map(|client| client.greeting().version.clone());
    let [of_private, of_live] = versions.each_ref().map(|version| series(version));
    if of_private.is_none() || of_private != of_live {
        let [ours, theirs] = versions;
        return Err(format!(
            "the server is {theirs}, and the one on the backup {ours}, whose files it may not read; leave out --physical"
        ));
    }
    let page_size = |client: &mut Client| one(client, "SELECT CAST(@@innodb_page_size AS CHAR)");
    let (ours, theirs) = (page_size(private)?, page_size(live)?);
    if ours != theirs {
        return Err(format!(
            "the server has pages of {theirs} bytes, and the backup of {ours}; leave out --physical"
        ));
    }
    let (schema, table) = (&held.schema[..], &held.table[..]);
    let kind = one(
        private,
        &format!(
            "SELECT CONCAT(table_type, ' of ', COALESCE(engine, ''), IF(create_options LIKE '%partitioned%', ' in partitions', '')) \
             FROM information_schema.tables WHERE {}",
            is_table(schema, table)
        ),
    )?;
    let full_text = private.rows(format!(
        "SELECT CAST(1 AS CHAR) FROM information_schema.statistics WHERE {} AND index_type = 'FULLTEXT' LIMIT 1",
        is_table(schema, table)
    ));
    let what = match (&*kind, full_text.map_err(ours_failed)?.is_empty()) {
        ("BASE TABLE of InnoDB", true) if matches!(file.try_exists(), Ok(false)) => {
            "it is in the system tablespace".to_owned()
        }
        ("BASE TABLE of InnoDB", true) => return Ok(()),
        ("BASE TABLE of InnoDB", false) => "it has a full-text index".to_owned(),
        (other, _) => format!("it is a {other}"),
    };
    Err(format!(
        "{what}, and only plain InnoDB tables with a file of their own can be imported; leave out --physical"
    ))
}

/// Puts the pages of `from` into the empty table `to`, both quoted for SQL, whose name within its schema is `name`:
/// exports them from the private server, whose files are `files` without a suffix, and imports them. `ddl` begins a
/// statement that alters it.
///
/// # Errors
/// A text that says what failed.
pub(super) fn import(
    private: &mut Client,
    files: &Path,
    from: &str,
    live: &mut Client,
    to: &str,
    name: &str,
    ddl: &str,
    cancel: &CancelToken,
) -> Result<(), String> {
    let theirs = |error: Error| format!("the server: {error}");
    let place = place(live, name)?;
    refuse_full(&files.with_extension("ibd"), &place.path)?;
    live.run(format!("ALTER TABLE {to} DISCARD TABLESPACE")).map_err(theirs)?;
    private.run(format!("FLUSH TABLES {from} FOR EXPORT")).map_err(ours_failed)?;
    let copied = SUFFIXES.iter().try_for_each(|suffix| {
        let to = place.path.with_extension(suffix);
        place
            .copy(&files.with_extension(suffix), &to, cancel)
            .map_err(|error| format!("cannot copy its file to {}: {error}", to.display()))
    });
    // Other tables may follow one that fails.
    let unlocked = private.run("UNLOCK TABLES").map_err(ours_failed);
    let imported = copied.and(unlocked).and_then(|()| {
        live.run(format!("ALTER TABLE {to} IMPORT TABLESPACE")).map_err(theirs)?;
        // Imported pages are in no log: a crash behind the rename that follows empties the table, and the next increments
        // lack it. The server writes those of a rebuilt table itself.
        live.run(format!("{ddl}ALTER TABLE {to} FORCE")).map_err(theirs)?;
        match check_table(live, to).map_err(theirs)? {
            None => Ok(()),
            Some(said) => Err(format!(
                "CHECK TABLE reports for the imported table: {}",
                Printable::new(said.as_bytes())
            )),
        }
    });
    // The pages go with the table if it was not imported: a server drops the file of that name, too.
    let description = place.path.with_extension("cfg");
    match std::fs::remove_file(&description) {
        Err(error) if imported.is_ok() => {
            return Err(format!("{} cannot be removed: {error}; remove it", description.display()));
        }
        _ => {}
    }
    imported
}

/// Where a server keeps a table, and who owns it there.
struct TableFolder {
    path: PathBuf,
    owner: (u32, u32),
    mode: u32,
}

impl TableFolder {
    fn copy(&self, from: &Path, to: &Path, cancel: &CancelToken) -> io::Result<()> {
        // Never through a link, or over a file.
        let mut target = File::options().write(true).create_new(true).open(to)?;
        let mut source = File::open(from)?;
        while io::copy(&mut Read::by_ref(&mut source).take(PIECE), &mut target)? > 0 {
            if cancel.reason().is_some() {
                return Err(io::Error::other("interrupted"));
            }
        }
        target.set_permissions(Permissions::from_mode(self.mode))?;
        std::os::unix::fs::fchown(&target, Some(self.owner.0), Some(self.owner.1))?;
        target.sync_all()
    }
}

/// Refuses a table for which the server has no room: a full disk would stop its other tables, too.
fn refuse_full(from: &Path, to: &Path) -> Result<(), String> {
    let folder = to.parent().unwrap_or(to);
    let needed = std::fs::metadata(from).map_err(|error| format!("{}: {error}", from.display()))?;
    // The server rebuilds it beside the imported file.
    let needed = needed.len().saturating_mul(2);
    match free_bytes(folder).filter(|free| *free < needed) {
        None => Ok(()),
        Some(free) => Err(format!(
            "its file and a rebuilt one take {needed} bytes, but only {free} are free in {}; make room there",
            folder.display()
        )),
    }
}

/// The file of a table that was just created: if it is there, this is the server's host.
fn place(live: &mut Client, name: &str) -> Result<TableFolder, String> {
    let file = one(
        live,
        &format!(
            "SELECT filename FROM information_schema.innodb_sys_tablespaces WHERE SUBSTRING_INDEX(name, '/', -1) = {}",
            literal(name)
        ),
    )?;
    let path = Path::new(&one(live, "SELECT @@datadir")?).join(file);
    let facts = std::fs::symlink_metadata(&path).map_err(|error| {
        format!(
            "its new file {} is not visible to this program: {error}; run it on the host of the server as its user or root, or leave out --physical",
            path.display()
        )
    })?;
    Ok(TableFolder { path, owner: (facts.uid(), facts.gid()), mode: facts.mode() & 0o777 })
}

fn one(client: &mut Client, sql: &str) -> Result<String, String> {
    let rows = client.rows(sql).map_err(|error| format!("{sql}: {error}"))?;
    let row = rows.first().map(Row::texts).transpose();
    let text = row.map_err(|error| format!("{sql}: {error}"))?;
    text.map(|[text]| text).ok_or_else(|| format!("{sql}: no answer"))
}

fn ours_failed(error: Error) -> String {
    format!("the server on the backup: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_looks_for_room_and_for_a_signal() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from.ibd"), dir.path().join("to.ibd"));
        let file = File::create(&from).unwrap();
        file.set_len(PIECE + 1).unwrap();
        let facts = file.metadata().unwrap();
        let place =
            TableFolder { path: to.clone(), owner: (facts.uid(), facts.gid()), mode: 0o640 };
        let cancel = CancelToken::new();
        let canceller = cancel.clone();
        refuse_full(&from, &to).unwrap();
        place.copy(&from, &to, &cancel).unwrap();
        assert_eq!(std::fs::metadata(&to).unwrap().len(), PIECE + 1);
        std::fs::remove_file(&to).unwrap();
        canceller.cancel(15);
        assert!(place.copy(&from, &to, &cancel).is_err());
        assert_eq!(std::fs::metadata(&to).unwrap().len(), PIECE);
        // A hole that no disk has room for.
        if file.set_len(1 << 43).is_ok() {
            let error = refuse_full(&from, &to).unwrap_err();
            assert!(error.contains("make room"), "{error}");
        }
    }
}
