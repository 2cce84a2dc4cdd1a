//! Keeps a donor replicating while the backup holds its locks.
//!
//! From the moment at which a backup locks out table changes until the backup ends, MariaDB takes
//! the node out of replication, and commits on it wait. It does not do so (since 10.6.18, 10.11.8,
//! 11.4; MDEV-33211) on a donor whose method is the stock one. What counts is the donor's setting,
//! not the method that runs; so the setting is changed for that time. A file in the data directory
//! keeps the server's own value, so that the next transfer can restore it if this one is killed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::context::Context;
use crate::contract::args::Product;
use crate::contract::error_log::ErrorLog;
use crate::server::sql::Sql;

/// The method with which the server keeps replicating.
const STOCK: &str = "mariabackup";

/// Time limit for the server's answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Returns the server's method, and for how many seconds the server has been running.
const QUESTION: &str = "SELECT @@GLOBAL.wsrep_sst_method, VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME'";

/// Sets the server's method to the stock one from [`ReplicationGuard::set`] to
/// [`ReplicationGuard::end`]; dropping it restores the method after a panic.
#[derive(Debug)]
pub(crate) struct ReplicationGuard {
    sql: Sql,
    error_log: ErrorLog,
    note: Note,
    /// The server's own method, if it was changed.
    method: Option<String>,
    /// The server has confirmed that the method is set.
    certain: bool,
}

impl ReplicationGuard {
    pub(crate) fn set(context: &Context) -> Self {
        let mut this = Self {
            sql: Sql::new(context),
            error_log: context.error_log.clone(),
            note: Note::of(&context.layout.datadir),
            method: None,
            certain: false,
        };
        if context.args.product == Product::MariaDb {
            this.change(context.settings.keep_replicating);
        }
        this
    }

    /// Restores the value that a killed transfer has changed, without a change of its own.
    pub(crate) fn restore(context: &Context) {
        if context.args.product == Product::MariaDb
            && Note::of(&context.layout.datadir).read().is_some()
        {
            Self::set(context).end();
        }
    }

    fn change(&mut self, wanted: bool) {
        let left = self.note.read();
        if !wanted && left.is_none() {
            return;
        }
        let answer = self.sql.ask_within(LIMIT, QUESTION);
        let Some((method, uptime)) = answer.as_deref().and_then(parse) else {
            self.error_log.info(format_args!(
                "commits on this node may wait while the backup holds its locks: the server does not report its wsrep_sst_method"
            ));
            return;
        };
        let own = match left {
            // Set by an earlier transfer that was killed, and since then the server has been
            // running with it.
            Some((own, age)) if method == STOCK && age <= uptime => own,
            _ => method.to_owned(),
        };
        if own == STOCK {
            self.note.remove();
            return;
        }
        if !wanted {
            (self.method, self.certain) = (Some(own), true);
            return;
        }
        if !self.note.write(&own) {
            self.error_log.info("commits on this node wait while the backup holds its locks: the data directory cannot be written to");
            return;
        }
        // A server that does not answer in time may still execute the statement.
        self.method = Some(own);
        self.certain = self.sql.ask_within::<0>(LIMIT, &set_to(STOCK)).is_some();
        if !self.certain {
            self.error_log.info(format_args!(
                "commits on this node wait while the backup holds its locks: its wsrep_sst_method was not set to {STOCK} for that time (does the login have SUPER?)"
            ));
        }
    }

    /// Restores the server's own method.
    pub(crate) fn end(mut self) {
        self.put_back();
    }

    fn put_back(&mut self) {
        let Some(method) = self.method.take() else { return };
        if self.sql.ask_within::<0>(LIMIT, &set_to(&method)).is_some() {
            self.note.remove();
        } else if self.certain {
            self.error_log.info(format_args!(
                "cannot reset this server's wsrep_sst_method, which stays {STOCK} until the next transfer from this node or a restart; run SET GLOBAL wsrep_sst_method = '{method}'"
            ));
        }
    }
}

impl Drop for ReplicationGuard {
    fn drop(&mut self) {
        self.put_back();
    }
}

/// The file with the server's own method.
#[derive(Debug)]
struct Note(PathBuf);

impl Note {
    fn of(datadir: &Path) -> Self {
        Self(datadir.join("xbrs.donor-method"))
    }

    fn write(&self, method: &str) -> bool {
        std::fs::write(&self.0, method).is_ok()
    }

    /// Returns the method and the age of the file.
    fn read(&self) -> Option<(String, Duration)> {
        let text = std::fs::read(&self.0).ok()?;
        let age = self.0.metadata().ok()?.modified().ok()?.elapsed().unwrap_or_default();
        Some((name(std::str::from_utf8(&text).ok()?)?.to_owned(), age))
    }

    fn remove(&self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn set_to(method: &str) -> String {
    format!("SET GLOBAL wsrep_sst_method = '{method}'")
}

/// Parses the answer to [`QUESTION`].
fn parse(rows: &[[String; 2]]) -> Option<(&str, Duration)> {
    let [method, uptime] = rows.first()?;
    Some((name(method)?, Duration::from_secs(uptime.parse().ok()?)))
}

/// Checks a method's name, which is put in quotes.
fn name(text: &str) -> Option<&str> {
    let name = text.trim();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    (!name.is_empty() && name.bytes().all(plain)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_names_and_rows_are_refused() {
        assert_eq!(name("xbrs\n"), Some("xbrs"));
        for bad in ["'; DROP TABLE t", "", "\n", "a b", "\u{e4}"] {
            assert_eq!(name(bad), None);
        }
        let seconds = Duration::from_secs;
        let row = |method: &str, uptime: &str| [[method.to_owned(), uptime.to_owned()]];
        assert_eq!(parse(&row("xtrabackup-v2", "17")), Some(("xtrabackup-v2", seconds(17))));
        assert_eq!(parse(&[]), None);
        for bad in [row("xbrs", ""), row("xbrs", "x"), row("", "17"), row("\u{fffd}", "1")] {
            assert_eq!(parse(&bad), None);
        }
    }

    #[test]
    fn the_note_keeps_the_method_and_its_age() {
        let folder = tempfile::tempdir().unwrap();
        let note = Note::of(folder.path());
        assert_eq!(note.read(), None);
        assert!(note.write("xbrs"));
        let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
        std::fs::File::open(&note.0).unwrap().set_modified(hour_ago).unwrap();
        let (method, age) = note.read().unwrap();
        assert!(method == "xbrs" && age >= Duration::from_secs(3600));
        note.remove();
        assert_eq!(note.read(), None);
    }
}
