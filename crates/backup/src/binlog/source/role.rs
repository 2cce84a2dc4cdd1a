//! Role of a server: a replica, or a node of a cluster.

use std::collections::BTreeMap;

use xb_binlog::{GtidPosition, GtidSet};
use xb_mysql::{Client, Error, Row};

use crate::archive_error::ArchiveError;
use crate::binlog::source::write_access::{Values, values};

/// Variables by which a replica leaves transactions of its source out, or changes them. They show the filters of the
/// connection without a name.
const FILTERS: [&str; 7] = [
    "replicate_do_db",
    "replicate_ignore_db",
    "replicate_do_table",
    "replicate_ignore_table",
    "replicate_wild_do_table",
    "replicate_wild_ignore_table",
    "replicate_rewrite_db",
];
/// Columns of the status of a connection with filters.
const STATUS_FILTERS: [&str; 10] = [
    "Replicate_Do_DB",
    "Replicate_Ignore_DB",
    "Replicate_Do_Table",
    "Replicate_Ignore_Table",
    "Replicate_Wild_Do_Table",
    "Replicate_Wild_Ignore_Table",
    "Replicate_Ignore_Server_Ids",
    "Replicate_Do_Domain_Ids",
    "Replicate_Ignore_Domain_Ids",
    "Replicate_Rewrite_DB",
];
/// Columns of the status of a log with what it leaves out. Not every version has variables of these names.
const LOG_FILTERS: [&str; 2] = ["Binlog_Do_DB", "Binlog_Ignore_DB"];
/// The same of MySQL, for all connections, and for those that come to be.
const APPLIER_FILTERS: [&str; 2] = [
    "SELECT CONCAT(filter_name, '=', filter_rule) FROM performance_schema.replication_applier_filters",
    "SELECT CONCAT(filter_name, '=', filter_rule) FROM performance_schema.replication_applier_global_filters",
];
/// A server's errors if a privilege is missing, for a statement and for a table, and for a statement of another version.
const DENIED: u16 = 1227;
const TABLE_DENIED: u16 = 1142;
const SYNTAX: u16 = 1064;
/// The variable of MySQL for what it replicates; before 8.0.26, it has only the older name.
const MYSQL_UPDATES: &str =
    "SHOW GLOBAL VARIABLES WHERE variable_name IN ('log_replica_updates', 'log_slave_updates')";
const NO_REPLICA_UPDATES: &str = "its log lacks what other servers have committed first (NAME=OFF)";
const OTHERS: [&str; 5] =
    ["wsrep_on", "wsrep_node_name", "wsrep_gtid_mode", "log_slave_updates", "gtid_slave_pos"];

/// Role of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Role {
    /// Name of the node of a Galera cluster that it is.
    pub(crate) node: Option<String>,
    /// MariaDB: the last transactions that it has replicated.
    pub(crate) applied: GtidPosition,
    /// MySQL: the transactions that it has, in its log or not.
    pub(crate) executed: GtidSet,
    /// MySQL: those of them that none of its logs ever had.
    pub(crate) outside: GtidSet,
    /// Why its log cannot be compared with that of another server.
    pub(crate) apart: Option<String>,
}

impl Role {
    pub(crate) fn ask(client: &mut Client, is_mysql: bool) -> Result<Self, ArchiveError> {
        match is_mysql {
            true => Self::ask_mysql(client),
            false => Self::ask_mariadb(client),
        }
    }

    fn ask_mysql(client: &mut Client) -> Result<Self, ArchiveError> {
        let executed = client.rows("SELECT @@GLOBAL.gtid_executed")?;
        let [executed] = executed.first().ok_or(Error::Unexpected)?.texts()?;
        let executed = executed.parse().map_err(|_| Error::Unexpected)?;
        let found = values(client, MYSQL_UPDATES)?;
        let mut filters = log_filters(client, true)?;
        for sql in APPLIER_FILTERS {
            match client.rows(sql) {
                // An account of a receiver need not have the privilege.
                Err(Error::Server(error)) if [DENIED, TABLE_DENIED].contains(&error.code) => {}
                rows => {
                    for row in rows? {
                        let [filter] = row.texts()?;
                        filters.push(filter);
                    }
                }
            }
        }
        filters.dedup();
        let (apart, outside) = (apart_of_mysql(&found, &filters), outside(client)?);
        Ok(Self { apart, executed, outside, ..Self::default() })
    }

    fn ask_mariadb(client: &mut Client) -> Result<Self, ArchiveError> {
        let names = [&FILTERS[..], &OTHERS].concat().join("', '");
        let rows = client.rows(format!(
            "SELECT LOWER(variable_name), COALESCE(variable_value, '') \
             FROM information_schema.global_variables WHERE variable_name IN ('{names}')"
        ))?;
        let mut found = BTreeMap::new();
        for row in rows {
            let [name, value] = row.texts()?;
            found.insert(name, value);
        }
        let mut filters = log_filters(client, false)?;
        // An account of a receiver need not have the privilege.
        match of_status(client, "SHOW ALL SLAVES STATUS", &STATUS_FILTERS) {
            Err(Error::Server(error)) if error.code == DENIED => {}
            of_connections => filters.extend(of_connections?),
        }
        Ok(Self::of(&found, filters))
    }

    /// Reads the role from the variables, and adds filters that they do not show.
    fn of(found: &BTreeMap<String, String>, others: Vec<String>) -> Self {
        let value = |name: &str| found.get(name).map(String::as_str).unwrap_or_default();
        let node = (value("wsrep_on") == "ON").then(|| value("wsrep_node_name").to_owned());
        let filters = FILTERS.into_iter().filter(|name| !value(name).is_empty());
        let mut filters: Vec<String> =
            filters.map(|name| format!("{name}={}", value(name))).collect();
        let is_new =
            |other: &String| !filters.iter().any(|known| known.eq_ignore_ascii_case(other));
        let others: Vec<String> = others.into_iter().filter(is_new).collect();
        filters.extend(others);
        let apart = if node.is_some() && value("wsrep_gtid_mode") != "ON" {
            Some(
                "each node of the Galera cluster assigns its own GTIDs (wsrep_gtid_mode=OFF)"
                    .to_owned(),
            )
        } else if value("log_slave_updates") == "OFF" {
            Some(NO_REPLICA_UPDATES.replace("NAME", "log_slave_updates"))
        } else if !filters.is_empty() {
            Some(leaves_out(&filters))
        } else {
            None
        };
        let applied = value("gtid_slave_pos").parse().unwrap_or_default();
        Self { node, applied, apart, ..Self::default() }
    }
}

/// The transactions that a server of MySQL has, and that none of its logs ever had: it was set up with them, or was told of them.
/// Unlike those that it has purged, they are in no list at the beginning of a log.
pub(crate) fn outside(client: &mut Client) -> Result<GtidSet, ArchiveError> {
    // First: what is purged meanwhile is in the list of the oldest log then.
    let purged = first(client, "SELECT @@GLOBAL.gtid_purged", 0)?.unwrap_or_default();
    if purged.is_empty() {
        return Ok(GtidSet::default());
    }
    let Some(log) = first(client, "SHOW BINARY LOGS", 0)? else { return Ok(GtidSet::default()) };
    // Behind the description of its format.
    let listed = format!("SHOW BINLOG EVENTS IN '{}' LIMIT 1, 1", log.replace('\'', "''"));
    let kind = first(client, &listed, 2)?;
    match first(client, &listed, 5)?.filter(|_| kind.as_deref() == Some("Previous_gtids")) {
        Some(logged) => {
            let set = |text: String| text.parse::<GtidSet>().map_err(|_| Error::Unexpected);
            Ok(set(purged)?.without(&set(logged)?))
        }
        // It was purged now.
        None => Ok(GtidSet::default()),
    }
}

/// A column of the first row; `None` if there is none, or the server refuses the statement.
fn first(client: &mut Client, sql: &str, column: usize) -> Result<Option<String>, ArchiveError> {
    let rows = match client.rows(sql) {
        Err(Error::Server(_)) => return Ok(None),
        rows => rows?,
    };
    let value = rows.first().and_then(|row| row.get(column));
    Ok(value.map(|value| String::from_utf8_lossy(value).into_owned()))
}

/// Why the log of a server of MySQL cannot be compared with that of another one.
fn apart_of_mysql(found: &Values, filters: &[String]) -> Option<String> {
    let name = match found.contains_key("log_replica_updates") {
        true => "log_replica_updates",
        false => "log_slave_updates",
    };
    match (found.get(name).map(String::as_str), filters) {
        (Some("ON"), []) => None,
        (Some("ON"), filters) => Some(leaves_out(filters)),
        _ => Some(NO_REPLICA_UPDATES.replace("NAME", name)),
    }
}

fn leaves_out(filters: &[String]) -> String {
    format!("it leaves transactions out, or changes them ({})", filters.join(", "))
}

/// The schemas that a server leaves out of its log, each as `NAME=VALUE`.
pub(crate) fn log_filters(client: &mut Client, is_mysql: bool) -> Result<Vec<String>, Error> {
    let of_master = "SHOW MASTER STATUS";
    if !is_mysql {
        return of_status(client, of_master, &LOG_FILTERS);
    }
    match of_status(client, "SHOW BINARY LOG STATUS", &LOG_FILTERS) {
        // Before 8.2.
        Err(Error::Server(error)) if error.code == SYNTAX => {
            of_status(client, of_master, &LOG_FILTERS)
        }
        filters => filters,
    }
}

/// Returns the values of these columns in all rows of a statement.
fn of_status(client: &mut Client, sql: &str, columns: &[&str]) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for result in client.query(sql)?.collect()? {
        let names: Vec<&[u8]> = result.columns.iter().map(|one| &one.name[..]).collect();
        found.extend(result.rows.iter().flat_map(|row| filled(&names, row, columns)));
    }
    Ok(found)
}

/// The filters in the status of a connection, each as `NAME=VALUE`.
pub(crate) fn filters(names: &[&[u8]], row: &Row) -> Vec<String> {
    filled(names, row, &STATUS_FILTERS)
}

/// The columns of a row that are not empty, as `NAME=VALUE`. Not every version has all of them.
fn filled(names: &[&[u8]], row: &Row, columns: &[&str]) -> Vec<String> {
    let value = |name: &&str| {
        let column = names.iter().position(|known| *known == name.as_bytes())?;
        let value = String::from_utf8_lossy(row.get(column)?);
        (!value.is_empty()).then(|| format!("{name}={value}"))
    };
    columns.iter().filter_map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_whose_log_cannot_be_compared_says_why() {
        let plain = [("log_slave_updates", "ON"), ("wsrep_on", "OFF"), ("gtid_slave_pos", "0-1-5")];
        let of = |more: &[(&str, &str)]| {
            let all = plain.iter().chain(more).map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
            Role::of(&all.collect(), Vec::new())
        };
        let pair = of(&[("replicate_do_db", "")]);
        assert_eq!((pair.node, pair.apart), (None, None));
        assert_eq!(pair.applied.to_string(), "0-1-5");
        let node = [("wsrep_on", "ON"), ("wsrep_node_name", "n2")];
        assert_eq!(of(&node).node.as_deref(), Some("n2"));
        for (more, part) in [
            (&[node[0], node[1], ("wsrep_gtid_mode", "OFF")][..], "wsrep_gtid_mode=OFF"),
            (&[("log_slave_updates", "OFF")], "log_slave_updates=OFF"),
            (&[("replicate_ignore_table", "d.t")], "replicate_ignore_table=d.t"),
        ] {
            assert!(of(more).apart.unwrap().contains(part), "{part}");
        }
        assert_eq!(of(&[node[0], node[1], ("wsrep_gtid_mode", "ON")]).apart, None);
        // Those that no variable shows; what both show is named once.
        let found = BTreeMap::from([("replicate_do_db".to_owned(), "d".to_owned())]);
        let others = vec!["Replicate_Do_DB=d".to_owned(), "Binlog_Ignore_DB=x".to_owned()];
        let apart = Role::of(&found, others).apart.unwrap();
        assert!(apart.contains("(replicate_do_db=d, Binlog_Ignore_DB=x)"), "{apart}");
    }

    #[test]
    fn mysql_is_known_by_either_name_of_its_variable() {
        for name in ["log_replica_updates", "log_slave_updates"] {
            let of = |value: &str, filters: &[String]| {
                apart_of_mysql(&Values::from([(name.to_owned(), value.to_owned())]), filters)
            };
            assert_eq!(of("ON", &[]), None);
            let filters = ["REPLICATE_DO_DB=d".to_owned()];
            assert!(of("ON", &filters).unwrap().contains("REPLICATE_DO_DB=d"));
            assert!(of("OFF", &[]).unwrap().contains(&format!("{name}=OFF")));
        }
    }
}
