//! What a server of MariaDB is among others: a replica, or a node of a cluster.

use std::collections::BTreeMap;

use xb_binlog::GtidPosition;
use xb_mysql::Client;

use crate::archive_error::ArchiveError;

/// Variables by which a replica leaves transactions of its source out.
const FILTERS: [&str; 6] = [
    "replicate_do_db",
    "replicate_ignore_db",
    "replicate_do_table",
    "replicate_ignore_table",
    "replicate_wild_do_table",
    "replicate_wild_ignore_table",
];
const OTHERS: [&str; 5] =
    ["wsrep_on", "wsrep_node_name", "wsrep_gtid_mode", "log_slave_updates", "gtid_slave_pos"];

/// What a server is among others. Of MySQL, nothing is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Role {
    /// Name of the node of a Galera cluster that it is.
    pub(crate) node: Option<String>,
    /// The last transactions that it has replicated.
    pub(crate) applied: GtidPosition,
    /// Why its log cannot be compared with that of another server.
    pub(crate) apart: Option<String>,
}

impl Role {
    pub(crate) fn ask(client: &mut Client) -> Result<Self, ArchiveError> {
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
        Ok(Self::of(&found))
    }

    fn of(found: &BTreeMap<String, String>) -> Self {
        let value = |name: &str| found.get(name).map(String::as_str).unwrap_or_default();
        let node = (value("wsrep_on") == "ON").then(|| value("wsrep_node_name").to_owned());
        let filters: Vec<String> = FILTERS
            .into_iter()
            .filter(|name| !value(name).is_empty())
            .map(|name| format!("{name}={}", value(name)))
            .collect();
        let apart = if node.is_some() && value("wsrep_gtid_mode") != "ON" {
            Some(
                "each node of the Galera cluster gives GTIDs of its own (wsrep_gtid_mode=OFF)"
                    .to_owned(),
            )
        } else if value("log_slave_updates") == "OFF" {
            Some(
                "its log lacks what other servers have committed first (log_slave_updates=OFF)"
                    .to_owned(),
            )
        } else if !filters.is_empty() {
            Some(format!("it leaves transactions of its source out ({})", filters.join(", ")))
        } else {
            None
        };
        let applied = value("gtid_slave_pos").parse().unwrap_or_default();
        Self { node, applied, apart }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_whose_log_cannot_be_compared_says_why() {
        let plain = [("log_slave_updates", "ON"), ("wsrep_on", "OFF"), ("gtid_slave_pos", "0-1-5")];
        let of = |more: &[(&str, &str)]| {
            let all = plain.iter().chain(more).map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
            Role::of(&all.collect())
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
    }
}
