//! Standing of a server: whether clients can write to it, and whether its data comes from another one.

use std::collections::BTreeMap;

use xb_mysql::{Client, Error, Row};

use crate::archive_error::ArchiveError;

/// A server's error if a privilege is missing.
const DENIED: u16 = 1227;
const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE variable_name IN \
    ('version', 'server_id', 'hostname', 'port', 'read_only', 'wsrep_on', 'log_slave_updates', 'gtid_slave_pos')";
const STATUS: &str = "SHOW GLOBAL STATUS WHERE variable_name IN \
    ('Slaves_running', 'wsrep_cluster_state_uuid', 'wsrep_cluster_status', 'wsrep_ready')";
/// Columns of the status of a replication connection, in the words of MariaDB and of MySQL.
const HOST: [&str; 2] = ["Master_Host", "Source_Host"];
const PORT: [&str; 2] = ["Master_Port", "Source_Port"];
const THREADS: [[&str; 2]; 2] =
    [["Slave_IO_Running", "Slave_SQL_Running"], ["Replica_IO_Running", "Replica_SQL_Running"]];

/// Standing of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WriteAccess {
    /// Variables that tell it from others, to which a name may lead, and their values.
    pub(crate) who: BTreeMap<String, String>,
    /// Why no account can write to it, if so.
    pub(crate) closed: Option<String>,
    /// It is a node of Galera that is not in the primary component. It may come back.
    pub(crate) is_apart: bool,
    /// The servers that it replicates, each as `HOST:PORT`. Any of them may have committed what its log lacks.
    pub(crate) sources: Vec<String>,
    /// The servers of its replication connections, those of stopped ones included.
    pub(crate) connected: Vec<String>,
    /// The ID of the Galera cluster that it is a node of.
    pub(crate) cluster: Option<String>,
}

impl WriteAccess {
    /// Asks a server of either fork.
    pub(crate) fn ask(client: &mut Client) -> Result<Self, ArchiveError> {
        let mut found = values(client, VARIABLES)?;
        let is_mysql = !found.get("version").is_some_and(|version| version.contains("MariaDB"));
        found.extend(values(client, STATUS)?);
        let connections = match is_mysql {
            true => connections(client, "SHOW REPLICA STATUS"),
            false => connections(client, "SHOW ALL SLAVES STATUS"),
        };
        let connections = match connections {
            // An account of a receiver need not have the privilege.
            Err(Error::Server(error)) if error.code == DENIED => None,
            connections => Some(connections?),
        };
        Ok(Self::of(&found, connections))
    }

    /// Returns whether both are one server, or nodes of one cluster, which have the same transactions.
    pub(crate) fn is_one_with(&self, other: &Self) -> bool {
        self.who == other.who || (self.cluster.is_some() && self.cluster == other.cluster)
    }

    fn of(found: &Values, connections: Option<Vec<Connection>>) -> Self {
        let value = |name: &str| found.get(name).map(String::as_str).unwrap_or_default();
        let is_node = value("wsrep_on") == "ON";
        let is_apart =
            is_node && (value("wsrep_cluster_status") != "Primary" || value("wsrep_ready") != "ON");
        // Later versions have more values than ON.
        let is_read_only = !matches!(value("read_only"), "" | "OFF" | "0");
        let closed = match (is_read_only, is_apart) {
            (true, _) => Some("has read_only=ON, as a replica that was not promoted".to_owned()),
            (_, true) => Some("is not in the primary component of its cluster".to_owned()),
            _ => None,
        };
        let (mut sources, connected): (Vec<String>, Vec<String>) = match connections {
            Some(all) => {
                // One that was left stopped at a promotion replicates nothing.
                let counts = |one: &&Connection| one.is_running || closed.is_some();
                let source = |one: &Connection| one.source.clone();
                (all.iter().filter(counts).map(source).collect(), all.iter().map(source).collect())
            }
            None => {
                let has_applied = closed.is_some() && !value("gtid_slave_pos").is_empty();
                let sources = match has_applied || !matches!(value("slaves_running"), "" | "0") {
                    true => vec!["another server".to_owned()],
                    false => Vec::new(),
                };
                (sources.clone(), sources)
            }
        };
        if is_apart || (is_node && value("log_slave_updates") == "OFF") {
            sources.push("the other nodes of its cluster".to_owned());
        }
        let who = ["server_id", "hostname", "port"].into_iter();
        let who = who.map(|name| (name.to_owned(), value(name).to_owned())).collect();
        let cluster = value("wsrep_cluster_state_uuid");
        let cluster = (is_node && !is_apart && !cluster.is_empty()).then(|| cluster.to_owned());
        Self { who, closed, is_apart, sources, connected, cluster }
    }
}

/// A replication connection of a server.
#[derive(Debug)]
struct Connection {
    source: String,
    /// It receives or applies, or tries to.
    is_running: bool,
}

/// Variables, by names in lower case, and their values.
pub(crate) type Values = BTreeMap<String, String>;

/// The rows of a statement that shows names and values.
pub(crate) fn values(client: &mut Client, sql: &str) -> Result<Values, ArchiveError> {
    let rows = client.rows(sql)?;
    let texts = rows.iter().map(Row::texts);
    let texts = texts.map(|row| row.map(|[name, value]| (name.to_ascii_lowercase(), value)));
    Ok(texts.collect::<Result<_, _>>()?)
}

fn connections(client: &mut Client, sql: &str) -> Result<Vec<Connection>, Error> {
    let mut found = Vec::new();
    for result in client.query(sql)?.collect()? {
        let names: Vec<&[u8]> = result.columns.iter().map(|one| &one.name[..]).collect();
        for row in &result.rows {
            let text = |wanted: &str| {
                let column = names.iter().position(|name| *name == wanted.as_bytes())?;
                Some(String::from_utf8_lossy(row.get(column)?).into_owned())
            };
            let any = |names: [&str; 2]| names.into_iter().find_map(text).unwrap_or_default();
            let is_running =
                THREADS.into_iter().flatten().filter_map(text).any(|state| state != "No");
            found.push(match any(HOST).as_str() {
                // A member of a group names no source. The one that can be written to replicates nothing.
                "" | "<NULL>" => Connection { source: "its group".to_owned(), is_running: false },
                host => Connection { source: format!("{host}:{}", any(PORT)), is_running },
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_access(values: &[(&str, &str)], connections: Option<&[bool]>) -> WriteAccess {
        let found = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let connections = connections.map(|all| {
            let one = |is_running: &bool| Connection {
                source: "db1:3306".into(),
                is_running: *is_running,
            };
            all.iter().map(one).collect()
        });
        WriteAccess::of(&found.collect(), connections)
    }

    const OPEN: (&str, &str) = ("read_only", "OFF");
    const CLOSED: (&str, &str) = ("read_only", "ON");

    #[test]
    fn a_replica_is_known_by_its_connections() {
        let sources =
            |value, connections: &[bool]| write_access(&[value], Some(connections)).sources;
        assert!(sources(OPEN, &[]).is_empty() && sources(CLOSED, &[]).is_empty());
        assert_eq!(sources(OPEN, &[true]), ["db1:3306"]);
        // A promoted one; one that was not, and whose applier has stopped.
        assert!(sources(OPEN, &[false]).is_empty());
        assert_eq!(write_access(&[OPEN], Some(&[false])).connected, ["db1:3306"]);
        assert_eq!(sources(CLOSED, &[false]), ["db1:3306"]);
    }

    #[test]
    fn a_replica_is_known_without_the_privilege_too() {
        let is_replica = |values: &[(&str, &str)]| {
            let found = write_access(values, None);
            assert_eq!(found.sources, found.connected);
            !found.sources.is_empty()
        };
        let (applied, none) = (("gtid_slave_pos", "0-1-5"), ("gtid_slave_pos", ""));
        assert!(!is_replica(&[OPEN, none, ("slaves_running", "0")]));
        assert!(is_replica(&[OPEN, none, ("slaves_running", "1")]));
        assert!(!is_replica(&[OPEN, applied, ("slaves_running", "0")]));
        assert!(is_replica(&[CLOSED, applied, ("slaves_running", "0")]));
        assert!(!is_replica(&[CLOSED, none, ("slaves_running", "0")]));
    }

    #[test]
    fn nodes_of_one_cluster_are_one_and_a_node_apart_is_closed() {
        let node = |id, uuid, state| {
            let all = [
                OPEN,
                ("server_id", id),
                ("wsrep_on", "ON"),
                ("wsrep_cluster_state_uuid", uuid),
                ("wsrep_cluster_status", state),
                ("wsrep_ready", "ON"),
            ];
            write_access(&all, Some(&[]))
        };
        let (one, two) = (node("1", "u", "Primary"), node("2", "u", "Primary"));
        assert!(one.closed.is_none() && one.is_one_with(&two));
        assert!(!one.is_one_with(&node("2", "v", "Primary")));
        let apart = node("2", "u", "non-Primary");
        assert!(apart.closed.is_some() && apart.is_apart && !one.is_one_with(&apart));
        // The others commit on, and no look waits for that.
        assert!(one.sources.is_empty() && !apart.sources.is_empty());
        let own_log =
            [OPEN, ("wsrep_on", "ON"), ("wsrep_cluster_status", "Primary"), ("wsrep_ready", "ON")];
        let own_log = [&own_log[..], &[("log_slave_updates", "OFF")]].concat();
        assert!(!write_access(&own_log, Some(&[])).sources.is_empty());
        // Two servers, and two names of one.
        let server = |id| write_access(&[OPEN, ("server_id", id)], Some(&[]));
        assert!(server("1").is_one_with(&server("1")) && !server("1").is_one_with(&server("2")));
    }
}
