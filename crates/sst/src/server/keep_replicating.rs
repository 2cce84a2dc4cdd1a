//! Keeps a donor replicating while the backup holds its locks.
//!
//! From the moment at which a backup locks out table changes until the backup ends, MariaDB takes
//! the node out of replication, and commits on it wait. It does not do so (since 10.6.18, 10.11.8,
//! 11.4; MDEV-33211) on a donor whose method is the stock one. What counts is the donor's setting,
//! not the method that runs; so the setting is changed for that time.

use std::time::Duration;

use crate::contract::args::Family;
use crate::contract::error_log::ErrorLog;
use crate::server::sql::Sql;
use crate::session::context::Context;

/// The method with which the server keeps replicating.
const STOCK: &str = "mariabackup";

/// How long the server may take to answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Sets the server's method to the stock one from [`ReplicationGuard::set`] to
/// [`ReplicationGuard::end`]; dropping it restores the method after a panic.
#[derive(Debug)]
pub(crate) struct ReplicationGuard {
    sql: Sql,
    talk: ErrorLog,
    method: Option<String>,
    /// The server has confirmed that the method is set.
    certain: bool,
}

impl ReplicationGuard {
    pub(crate) fn set(context: &Context) -> Self {
        let (sql, talk) = (Sql::new(context), context.talk.clone());
        let mut this = Self { sql, talk, method: None, certain: false };
        if context.args.family != Family::MariaDb {
            return this;
        }
        let Some(method) = this.sql.ask_within(LIMIT, "SELECT @@GLOBAL.wsrep_sst_method") else {
            this.talk.info(format_args!(
                "commits on this node may block while the backup holds its locks: cannot read wsrep_sst_method from the server"
            ));
            return this;
        };
        let Some(method) = name(&method).filter(|name| *name != STOCK) else { return this };
        // A server that does not answer in time may still execute the statement.
        this.method = Some(method.to_owned());
        this.certain = this.sql.ask_within(LIMIT, &set_to(STOCK)).is_some();
        if !this.certain {
            this.talk.info(format_args!(
                "commits on this node block while the backup holds its locks: cannot set wsrep_sst_method to {STOCK} for that time; grant SUPER to the login"
            ));
        }
        this
    }

    /// Restores the server's own method.
    pub(crate) fn end(mut self) {
        self.put_back();
    }

    fn put_back(&mut self) {
        let Some(method) = self.method.take() else { return };
        let restored = self.sql.ask_within(LIMIT, &set_to(&method)).is_some();
        // A failure does no harm: the next donor works with the stock method as well, and a restart
        // reads the option file.
        if self.certain && !restored {
            self.talk.info(format_args!(
                "cannot reset this server's wsrep_sst_method, which stays {STOCK} until a restart; run SET GLOBAL wsrep_sst_method = '{method}'"
            ));
        }
    }
}

impl Drop for ReplicationGuard {
    fn drop(&mut self) {
        self.put_back();
    }
}

fn set_to(method: &str) -> String {
    format!("SET GLOBAL wsrep_sst_method = '{method}'")
}

/// Parses a method's name, which may be in quotes.
fn name(answer: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(answer).ok()?.trim();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    (!name.is_empty() && name.bytes().all(plain)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_is_a_name() {
        assert_eq!(name(b"xbrs\n"), Some("xbrs"));
        assert_eq!(name(b"xtrabackup-v2"), Some("xtrabackup-v2"));
        for bad in [&b"'; DROP TABLE t"[..], b"", b"\n", b"a b", b"\xff"] {
            assert_eq!(name(bad), None);
        }
    }
}
