//! Checks whether the binary log of a server can be archived without gaps.

use std::collections::BTreeMap;
use std::time::Duration;

use xb_mysql::{Access, Client, Timeouts};

use crate::binlog::receive::clock;
use crate::binlog::receive::sources::name;
use crate::binlog::source::replay_risks::{ReplayRisk, replay_risks};
use crate::binlog::source::write_access::WriteAccess;
use crate::check::CheckLine;
use crate::error::BackupError;

/// Time limit of each step of the login and of each statement.
const LOGIN_LIMIT: Duration = Duration::from_secs(10);
/// A server should keep its logs for this many seconds, so that a receiver can be away for as long.
const KEPT: f64 = 86_400.0;
const VARIABLES: &str = "'log_bin', 'sync_binlog', 'binlog_checksum', 'binlog_expire_logs_seconds', \
     'expire_logs_days', 'gtid_mode', 'binlog_format', 'binlog_row_image', 'binlog_row_value_options', \
     'replica_preserve_commit_order', 'wsrep_on', 'wsrep_gtid_mode', \
     'binlog_row_metadata', 'binlog_row_event_max_size'";
/// Variables with which servers write the same rows with other table maps, or in events of another size.
const SAME_ON_ALL: [&str; 2] = ["binlog_row_metadata", "binlog_row_event_max_size"];
/// Privileges, and those that include them.
const GRANTS: [(&str, &[&str]); 2] = [
    ("REPLICATION SLAVE", &["REPLICATION SLAVE", "REPLICATION REPLICA", "ALL PRIVILEGES"]),
    ("BINLOG MONITOR", &["BINLOG MONITOR", "REPLICATION CLIENT", "SUPER", "ALL PRIVILEGES"]),
];
/// MySQL's name of the second one.
const CLIENT: &str = "REPLICATION CLIENT";

/// Checks the servers of a receiver: their settings, the privileges of the login, and that at most one can be written to.
///
/// # Errors
/// [`BackupError::Bug`].
pub async fn check_binlog(servers: Vec<Access>) -> Result<Vec<CheckLine>, BackupError> {
    let (mut lines, mut open, mut variables) = (Vec::new(), Vec::new(), Vec::new());
    let is_only = servers.len() == 1;
    for access in servers {
        let name = name(&access);
        let asked = tokio::task::spawn_blocking(move || Facts::ask(&access)).await;
        let mut of_server = match asked
            .map_err(|_| BackupError::Bug("the thread that asks panicked"))?
        {
            Ok(facts) => {
                let lines = facts.judge();
                let write_access = facts.write_access.filter(|of| of.closed.is_none());
                open.extend(write_access.map(|of| (name.clone(), of)));
                variables.push((name.clone(), facts.variables));
                lines
            }
            Err(error) => vec![CheckLine::warning(
                "binlog",
                format!("the receiver's login does not work: {error}"),
                "name the server with --source, and put user and password into the group [client] of --login-file",
            )],
        };
        if !is_only {
            of_server.iter_mut().for_each(|line| line.found = format!("{name}: {}", line.found));
        }
        lines.extend(of_server);
    }
    lines.extend(both_open(&open));
    lines.extend(SAME_ON_ALL.iter().filter_map(|variable| differing(&variables, variable)));
    Ok(lines)
}

/// A warning if two servers have different values of this variable.
fn differing(servers: &[(String, BTreeMap<String, String>)], variable: &str) -> Option<CheckLine> {
    let mut values = servers.iter().filter_map(|(name, of)| Some((name, of.get(variable)?)));
    let (first, value) = values.next()?;
    let (other, another) = values.find(|(_, other)| *other != value)?;
    let found = format!(
        "{variable} is {value} on {first}, and {another} on {other}: after a failover, the archive would take the same transactions for different ones, and branch"
    );
    let fix = format!("set {variable} to the same value on all servers that may take over");
    Some(CheckLine::warning("binlog", found, &fix))
}

/// A warning if two servers can be written to: the log of each lacks what the other commits.
fn both_open(open: &[(String, WriteAccess)]) -> Option<CheckLine> {
    let (first, write_access) = open.first()?;
    let (other, _) = open.iter().find(|(_, other)| !other.is_one_with(write_access))?;
    let found = format!(
        "{first} and {other} both accept writes, and each log lacks the other's commits: `binlog receive` then receives nothing"
    );
    let fix = "set read_only=ON on all servers but the primary, and in their option files";
    Some(CheckLine::warning("binlog", found, fix))
}

#[derive(Debug, Default)]
struct Facts {
    variables: BTreeMap<String, String>,
    grants: String,
    /// `None` if it does not say.
    write_access: Option<WriteAccess>,
    /// Reasons why a replay of its log may give other data than it has.
    doubts: Vec<ReplayRisk>,
    /// Seconds by which its clock is ahead of this host's.
    ahead: i64,
}

impl Facts {
    fn ask(access: &Access) -> Result<Self, xb_mysql::Error> {
        let timeouts = Timeouts { login: LOGIN_LIMIT, reply: Some(LOGIN_LIMIT) };
        let mut client = Client::connect(&access.target, &access.account, timeouts)?;
        let mut facts = Self::default();
        let sql = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({VARIABLES})");
        for row in client.rows(sql)? {
            let [name, value] = row.texts()?;
            facts.variables.insert(name, value);
        }
        for row in client.rows("SHOW GRANTS")? {
            let [grant] = row.texts()?;
            if grant.contains(" ON *.* ") {
                facts.grants += &grant;
            }
        }
        facts.write_access = WriteAccess::ask(&mut client).ok();
        if let Some(write_access) = &facts.write_access {
            // Of a missing privilege, there is a line already.
            facts.doubts = replay_risks(&mut client, write_access).unwrap_or_default();
        }
        facts.ahead = clock::ahead(&mut client)?;
        Ok(facts)
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.variables.get(name).is_some_and(|found| found.eq_ignore_ascii_case(value))
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.variables.get(name)?.parse().ok()
    }

    fn judge(&self) -> Vec<CheckLine> {
        if !self.is("log_bin", "ON") {
            return vec![CheckLine::warning(
                "binlog",
                "the server writes no binary log, so there is nothing to archive",
                "start the server with --log-bin",
            )];
        }
        let mut lines = Vec::new();
        let mut warn = |found: String, fix: &str| {
            lines.push(CheckLine::warning("binlog", found, fix));
        };
        if let Some(what) = clock::differs(self.ahead) {
            warn(
                what,
                "synchronise the clocks of the server and of this host (chrony, systemd-timesyncd)",
            );
        }
        for ReplayRisk { found, fix } in &self.doubts {
            warn(
                format!(
                    "a restore to a point in time may produce data that differs from the server's: {found}"
                ),
                fix,
            );
        }
        if self.is("binlog_checksum", "NONE") {
            warn(
                "the binary log has no checksums, and `binlog receive` refuses it".to_owned(),
                "set binlog_checksum=CRC32",
            );
        }
        // Only MySQL has the variable.
        let gtid_mode = self.variables.get("gtid_mode");
        if let Some(mode) = gtid_mode.filter(|mode| *mode != "ON") {
            warn(
                format!("gtid_mode is {mode}, and `binlog receive` refuses it"),
                "set enforce_gtid_consistency=ON, then gtid_mode=OFF_PERMISSIVE, ON_PERMISSIVE and ON",
            );
        }
        if self.variables.contains_key("sync_binlog") && !self.is("sync_binlog", "1") {
            warn(
                "sync_binlog is not 1: after a power loss the server may lack transactions that are archived, and reuse their GTIDs".to_owned(),
                "set sync_binlog=1",
            );
        }
        // MySQL alone has the third one.
        let form = [
            ("binlog_format", "ROW"),
            ("binlog_row_image", "FULL"),
            ("binlog_row_value_options", ""),
        ];
        let other = form
            .iter()
            .filter(|(name, value)| self.variables.contains_key(*name) && !self.is(name, value));
        let other: Vec<String> =
            other.map(|(name, _)| format!("{name}={}", self.variables[*name])).collect();
        if self.is("binlog_format", "MIXED") {
            warn(
                "binlog_format is MIXED: some changes are still logged as statements that produce different rows in a replay, such as those that read MEMORY tables or information_schema".to_owned(),
                "set binlog_format=ROW",
            );
        }
        if !other.is_empty() {
            warn(
                format!(
                    "{}: after a failover, the archive may not recognise the new server, which may log the same transactions in a different form",
                    other.join(", ")
                ),
                match gtid_mode {
                    None => {
                        "set binlog_format=ROW and binlog_row_image=FULL on all servers that may take over"
                    }
                    Some(_) => {
                        "set binlog_format=ROW, binlog_row_image=FULL and binlog_row_value_options='' on all servers that may take over"
                    }
                },
            );
        }
        if self.is("replica_preserve_commit_order", "OFF") {
            warn(
                "replica_preserve_commit_order is OFF: as a replica, the server may log transactions in a different order, and then cannot continue the archive after a failover".to_owned(),
                "set replica_preserve_commit_order=ON on all servers that may take over",
            );
        }
        if self.is("wsrep_on", "ON") && !self.is("wsrep_gtid_mode", "ON") {
            warn(
                "wsrep_gtid_mode is not ON: each node of the cluster assigns its own GTIDs, so no other node can continue the archive".to_owned(),
                "set wsrep_gtid_mode=ON, one wsrep_gtid_domain_id and one server_id on all nodes, and start a new archive",
            );
        }
        // Both are the same setting in MariaDB 10.6 and later.
        let seconds = self.number("binlog_expire_logs_seconds").filter(|seconds| *seconds > 0.0);
        let days = self.number("expire_logs_days").filter(|days| *days > 0.0);
        let kept = seconds.or(days.map(|days| days * 86_400.0));
        if let Some(kept) = kept.filter(|kept| *kept < KEPT) {
            let hours = kept / 3600.0;
            warn(
                format!(
                    "the server removes its logs after {hours:.1} hours: a receiver or a store that is away for longer leaves a gap"
                ),
                "set binlog_expire_logs_seconds to 86400 or more",
            );
        }
        let missing: Vec<&str> = GRANTS
            .iter()
            .filter(|(_, any)| !any.iter().any(|grant| self.grants.contains(grant)))
            .map(|(name, _)| match gtid_mode {
                Some(_) if *name == "BINLOG MONITOR" => CLIENT,
                _ => *name,
            })
            .collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            // A role may grant them.
            warn(
                format!("{missing} is not granted to the receiver's login itself"),
                &format!("GRANT {missing} ON *.* TO the receiver's user"),
            );
        }
        if lines.is_empty() {
            lines.push(CheckLine::ok("binlog", "the binary log can be archived without gaps"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::CheckState;

    fn found(variables: &[(&str, &str)], grants: &str) -> Vec<String> {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let facts =
            Facts { variables: variables.collect(), grants: grants.to_owned(), ..Facts::default() };
        let lines = facts.judge();
        lines.into_iter().filter(|l| l.state == CheckState::Warning).map(|l| l.found).collect()
    }

    #[test]
    fn two_servers_that_can_be_written_to_are_warned_of() {
        let of = |name: &str, id: &str| {
            let who = BTreeMap::from([("server_id".to_owned(), id.to_owned())]);
            (name.to_owned(), WriteAccess { who, ..WriteAccess::default() })
        };
        assert!(both_open(&[of("db1", "1")]).is_none());
        // Two names of one server.
        assert!(both_open(&[of("db1", "1"), of("db", "1")]).is_none());
        let found = both_open(&[of("db1", "1"), of("db2", "2")]).unwrap().found;
        assert!(found.contains("db1") && found.contains("db2"), "{found}");
    }

    #[test]
    fn servers_that_write_the_same_rows_differently_are_warned_of() {
        let of = |name: &str, metadata: &str| {
            let variables = [("binlog_row_metadata".to_owned(), metadata.to_owned())];
            (name.to_owned(), BTreeMap::from(variables))
        };
        // One of them does not have the variable.
        let none = ("db0".to_owned(), BTreeMap::new());
        let same = [none.clone(), of("db1", "FULL"), of("db2", "FULL")];
        assert!(differing(&same, "binlog_row_metadata").is_none());
        let other = [none, of("db1", "FULL"), of("db2", "MINIMAL")];
        let found = differing(&other, "binlog_row_metadata").unwrap().found;
        assert!(found.contains("FULL on db1, and MINIMAL on db2"), "{found}");
        assert!(SAME_ON_ALL.iter().all(|name| VARIABLES.contains(name)));
    }

    #[tokio::test]
    async fn of_several_servers_each_line_names_its_own() {
        let access = |socket: &str| Access {
            target: xb_mysql::Target::Socket(socket.into()),
            account: xb_mysql::Account::default(),
        };
        let both = vec![access("/nowhere/one.sock"), access("/nowhere/two.sock")];
        let lines = check_binlog(both).await.unwrap();
        let names = lines.iter().map(|line| line.found.split(": the receiver's").next().unwrap());
        assert_eq!(names.collect::<Vec<_>>(), ["/nowhere/one.sock", "/nowhere/two.sock"]);
        let one = check_binlog(vec![access("/nowhere/one.sock")]).await.unwrap();
        assert!(one[0].found.starts_with("the receiver's login"), "{}", one[0].found);
    }

    #[test]
    fn settings_that_lead_to_gaps_are_warned_of() {
        let good = [
            ("log_bin", "ON"),
            ("sync_binlog", "1"),
            ("binlog_checksum", "CRC32"),
            ("binlog_expire_logs_seconds", "864000"),
        ];
        let grants = "GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO `r`@`%`";
        assert!(found(&good, grants).is_empty());
        let with = |name: &str, value: &str| {
            let mut changed = good.to_vec();
            changed.push((name, value));
            let mut all = found(&changed, grants);
            assert_eq!(all.len(), 1, "{name}={value}: {all:?}");
            all.remove(0)
        };
        assert!(with("log_bin", "OFF").contains("no binary log"));
        assert!(with("sync_binlog", "0").contains("sync_binlog"));
        let mut mysql = good.to_vec();
        mysql.push(("gtid_mode", "ON"));
        assert!(
            found(&mysql, "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO x").is_empty()
        );
        assert!(found(&mysql, "GRANT SELECT ON *.* TO x")[0].contains("SLAVE, REPLICATION CLIENT"));
        let with_mysql = |name: &'static str, value: &'static str| {
            let all = [&mysql[..], &[("replica_preserve_commit_order", "ON"), (name, value)]];
            found(&all.concat(), "GRANT ALL PRIVILEGES ON *.* TO x").join(" ")
        };
        assert_eq!(with_mysql("binlog_row_value_options", ""), "");
        let value = with_mysql("binlog_row_value_options", "PARTIAL_JSON");
        assert!(value.contains("binlog_row_value_options=PARTIAL_JSON"), "{value}");
        let order = with_mysql("replica_preserve_commit_order", "OFF");
        assert!(order.contains("replica_preserve_commit_order is OFF"), "{order}");
        mysql.push(("gtid_mode", "ON_PERMISSIVE"));
        assert!(found(&mysql, grants)[0].contains("gtid_mode is ON_PERMISSIVE"));
        let mixed = found(&[&good[..], &[("binlog_format", "MIXED")]].concat(), grants);
        assert!(mixed.len() == 2 && mixed[0].contains("MEMORY"), "{mixed:?}");
        assert!(mixed[1].contains("binlog_format=MIXED: after a failover"), "{mixed:?}");
        assert!(with("binlog_row_image", "MINIMAL").contains("binlog_row_image=MINIMAL"));
        let mut node = good.to_vec();
        node.extend([("wsrep_on", "ON"), ("wsrep_gtid_mode", "OFF"), ("binlog_format", "ROW")]);
        assert!(found(&node, grants)[0].contains("wsrep_gtid_mode is not ON"));
        node[5].1 = "ON";
        assert!(found(&node, grants).is_empty());
        assert!(with("binlog_checksum", "NONE").contains("no checksums"));
        assert!(with("binlog_expire_logs_seconds", "43200").contains("12.0 hours"));
        // Never removed.
        let mut kept = good.to_vec();
        kept.push(("binlog_expire_logs_seconds", "0"));
        assert!(found(&kept, grants).is_empty());
        kept.push(("expire_logs_days", "0.5"));
        assert!(found(&kept, grants)[0].contains("12.0 hours"));
        assert!(found(&good, "GRANT SELECT ON *.* TO x")[0].contains("REPLICATION SLAVE, BINLOG"));
        assert!(found(&good, "GRANT ALL PRIVILEGES ON *.* TO x").is_empty());
    }
}
