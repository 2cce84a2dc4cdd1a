//! Refuses servers with data that a clone would lose without a message, before a byte is read.

use std::time::Duration;

use xb_mysql::{Client, Target, Trust};

use crate::error::Error;
use crate::settings::Settings;

/// The longest time, in seconds, for which a clone is continued, whatever the server allows.
const MAX_RESUME_TIME: u64 = 86_400;
/// Seconds by which the start of a server may seem to move.
const CLOCK: u64 = 5;
/// One statement: between two, the server could be stopped for a while.
const INCARNATION: &str = "SELECT @@GLOBAL.server_uuid, UNIX_TIMESTAMP(), variable_value
    FROM performance_schema.global_status WHERE variable_name = 'Uptime'";
/// Oldest server whose redo log lies in `#innodb_redo`, and for which DDL can wait.
const OLDEST: (u32, u32, u32) = (8, 0, 30);

/// Refuses a connection on which someone else could be the server.
pub(crate) fn connection(target: &Target) -> Result<(), Error> {
    match target {
        Target::Tcp { trust: Trust::Unproven, .. } => refused(
            "a clone contains all data, and keys of encrypted tables: give an authority or a fingerprint that the server's certificate must match",
        ),
        Target::Tcp { .. } | Target::Socket(_) => Ok(()),
    }
}

/// Checks a server whose version is right, and returns the tables that come back empty.
pub(crate) fn server(client: &mut Client, settings: &Settings) -> Result<Vec<String>, Error> {
    if !settings.is_sealed && encrypts_logs(client)? {
        return refused(
            "the server encrypts its redo or undo log, and a clone contains the keys in clear text: seal the backup, such as with --recipient",
        );
    }
    if !sees_all_tables(client)? {
        return refused(
            "the account may not see every table, so tables that a clone loses would stay hidden: run GRANT REFERENCES ON *.* TO it, which gives access to no row, and revoke no database from it",
        );
    }
    let empty = empty_tables(client)?;
    if !empty.is_empty() && !settings.allow_empty_tables {
        return refused(&format!(
            "a clone has only the rows of InnoDB's tables, and these would come back empty: {}: convert them with ALTER TABLE ... ENGINE=InnoDB, or allow it",
            empty.join(", ")
        ));
    }
    Ok(empty)
}

/// Checks whether clones of this server can be received.
pub(crate) fn version(client: &Client) -> Result<(), Error> {
    let version = &client.greeting().version;
    if client.greeting().is_mariadb() {
        return refused(&format!("the server is {version}: only MySQL can be cloned"));
    }
    match parse(version).is_none_or(|found| found < OLDEST) {
        true => refused(&format!(
            "the server is MySQL {version}: only 8.0.30 and later can be received"
        )),
        false => Ok(()),
    }
}

fn parse(version: &str) -> Option<(u32, u32, u32)> {
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    let mut parts = version.get(..end)?.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?))
}

pub(crate) fn encrypts_logs(client: &mut Client) -> Result<bool, Error> {
    let rows = client
        .rows("SELECT @@GLOBAL.innodb_redo_log_encrypt + @@GLOBAL.innodb_undo_log_encrypt")?;
    let [sum] = one(&rows)?;
    Ok(sum != "0")
}

/// Returns whether no table is hidden from the account: it has a right on all of them, and none is revoked in part.
pub(crate) fn sees_all_tables(client: &mut Client) -> Result<bool, Error> {
    let grants = grants(client)?;
    let is_revoked = grants.iter().any(|text| text.starts_with("REVOKE"));
    Ok(!is_revoked && grants.iter().any(|text| has_right(text, &["SELECT", "REFERENCES"])))
}

/// Returns whether the account itself has the right to clone; a role may give it one, too.
pub(crate) fn may_back_up(client: &mut Client) -> Result<bool, Error> {
    Ok(grants(client)?.iter().any(|text| has_right(text, &["BACKUP_ADMIN"])))
}

fn grants(client: &mut Client) -> Result<Vec<String>, Error> {
    let rows = client.rows("SHOW GRANTS")?;
    let texts = rows.iter().map(|row| row.texts().map(|[text]| text));
    Ok(texts.collect::<Result<_, _>>()?)
}

/// Returns whether a line of `SHOW GRANTS` has one of these rights on everything.
fn has_right(grant: &str, wanted: &[&str]) -> bool {
    let rights = grant.strip_prefix("GRANT ").and_then(|rest| rest.split_once(" ON *.* TO "));
    let has = |right: &str| right == "ALL PRIVILEGES" || wanted.contains(&right);
    rights.is_some_and(|(rights, _)| rights.split(',').map(str::trim).any(has))
}

/// The tables whose rows a clone does not have, whichever schema they lie in. MEMORY and BLACKHOLE keep none. The tables
/// of the general and the slow log are left out: every server has them, and how many rows they have is unknown to an account
/// that may not read them.
pub(crate) fn empty_tables(client: &mut Client) -> Result<Vec<String>, Error> {
    let rows = client.list(
        "SELECT table_schema, table_name, engine FROM information_schema.tables
         WHERE table_type = 'BASE TABLE' AND engine NOT IN ('InnoDB', 'MEMORY', 'BLACKHOLE', 'PERFORMANCE_SCHEMA')
         AND NOT (table_schema = 'mysql' AND table_name IN ('general_log', 'slow_log')) ORDER BY 1, 2",
    )?;
    let named = rows.iter().map(|row| {
        let [schema, table, engine] = row.texts()?;
        Ok(format!("{schema}.{table} ({engine})"))
    });
    named.collect()
}

/// The transactions that the server has committed so far.
pub(crate) fn gtids(client: &mut Client) -> Result<String, Error> {
    let rows = client.rows("SELECT @@GLOBAL.gtid_executed")?;
    let [gtids] = one(&rows)?;
    Ok(gtids.replace('\n', ""))
}

/// Refuses a server whose history was begun anew since it had the transactions `from`: nothing says then which of them, and
/// which of the new ones with the same numbers, are in the clone.
pub(crate) fn history(client: &mut Client, from: &str, to: &str) -> Result<(), Error> {
    let rows = client.rows(format!("SELECT GTID_SUBSET('{from}', '{to}')"))?;
    let [has_all] = one(&rows)?;
    match has_all == "1" {
        true => Ok(()),
        false => refused(&format!(
            "the server had the transactions {from} during the clone, and has only {to:?} after it, so its binary log was reset meanwhile (RESET BINARY LOGS AND GTIDS): take another backup"
        )),
    }
}

/// Position up to which the server has written its redo log, in bytes since it was made.
pub(crate) fn redo_position(client: &mut Client) -> Result<u64, Error> {
    let rows = client.rows("SHOW GLOBAL STATUS LIKE 'Innodb_redo_log_current_lsn'")?;
    let [_, position] = one(&rows)?;
    Ok(position.parse().map_err(|_| xb_mysql::Error::Unexpected)?)
}

/// Statements so far that create, change or remove tablespaces, those of single tables left out.
pub(crate) fn changes_of_tablespaces(client: &mut Client) -> Result<String, Error> {
    let rows = client.rows("SHOW GLOBAL STATUS LIKE 'Com_alter_tablespace'")?;
    let [_, count] = one(&rows)?;
    Ok(count)
}

/// Returns the time for which the server keeps a clone whose connections broke.
pub(crate) fn patience(client: &mut Client) -> Result<Duration, Error> {
    let rows =
        client.rows("SHOW GLOBAL VARIABLES LIKE 'clone_donor_timeout_after_network_failure'")?;
    // There is none without the plugin.
    let Some(row) = rows.first() else { return Ok(Duration::ZERO) };
    let [_, minutes] = row.texts()?;
    let minutes: u64 = minutes.parse().map_err(|_| xb_mysql::Error::Unexpected)?;
    Ok(Duration::from_secs(minutes.saturating_mul(60).min(MAX_RESUME_TIME)))
}

/// A server between two starts. The numbers of its clones begin anew with each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Incarnation {
    uuid: String,
    /// When it started, by its clock, in seconds since 1970.
    started: i64,
}

impl Incarnation {
    pub(crate) fn of(client: &mut Client) -> Result<Self, Error> {
        let unexpected = |_| xb_mysql::Error::Unexpected;
        let rows = client.rows(INCARNATION)?;
        let [uuid, now, uptime] = one(&rows)?;
        let now: i64 = now.parse().map_err(unexpected)?;
        let uptime: i64 = uptime.parse().map_err(unexpected)?;
        Ok(Self { uuid, started: now.saturating_sub(uptime) })
    }

    /// Returns whether the server has not been started again since it was this one. Its clock may have been set a little.
    pub(crate) fn is_still(&self, other: &Self) -> bool {
        self.uuid == other.uuid && self.started.abs_diff(other.started) <= CLOCK
    }
}

/// Returns whether the server writes a binary log, which only a restart changes.
pub(crate) fn has_binlog(client: &mut Client) -> Result<bool, Error> {
    let rows = client.rows("SELECT @@GLOBAL.log_bin")?;
    let [log_bin] = one(&rows)?;
    Ok(log_bin == "1")
}

pub(crate) fn one<const N: usize>(rows: &[xb_mysql::Row]) -> Result<[String; N], Error> {
    let row = rows.first().ok_or(xb_mysql::Error::Unexpected)?;
    Ok(row.texts()?)
}

fn refused<T>(what: &str) -> Result<T, Error> {
    Err(Error::Refused(what.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_was_started_again_is_another_one() {
        let of = |uuid: &str, started| Incarnation { uuid: uuid.to_owned(), started };
        assert!(of("a", 1000).is_still(&of("a", 1002)));
        assert!(!of("a", 1000).is_still(&of("a", 1060)));
        assert!(!of("a", 1000).is_still(&of("b", 1000)));
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(parse("9.7.4-2"), Some((9, 7, 4)));
        assert_eq!(parse("8.0.30"), Some((8, 0, 30)));
        assert!(parse("8.0.9-log") < Some(OLDEST) && parse("10.0.0") > Some(OLDEST));
        for bad in ["", "9", "9.7", "x", "9..4"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_a_right_on_every_table_shows_them_all() {
        for (grant, shows) in [
            ("GRANT SELECT ON *.* TO `b`@`%`", true),
            ("GRANT RELOAD, REFERENCES ON *.* TO `b`@`%` WITH GRANT OPTION", true),
            ("GRANT ALL PRIVILEGES ON *.* TO `b`@`%`", true),
            ("GRANT USAGE ON *.* TO `b`@`%`", false),
            ("GRANT BACKUP_ADMIN ON *.* TO `b`@`%`", false),
            ("GRANT SELECT ON `shop`.* TO `b`@`%`", false),
            ("GRANT `SELECT`@`%` TO `b`@`%`", false),
        ] {
            assert_eq!(has_right(grant, &["SELECT", "REFERENCES"]), shows, "{grant}");
        }
    }
}
