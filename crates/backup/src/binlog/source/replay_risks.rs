//! Settings of a server by which a replay of its log may give other data than the server has.

use xb_mysql::Client;

use crate::archive_error::ArchiveError;
use crate::binlog::source::role::log_filters;
use crate::binlog::source::write_access::{Values, WriteAccess, values};

const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE variable_name IN \
    ('version', 'binlog_format', 'binlog_row_image', 'log_slave_updates', 'log_replica_updates', \
    'system_versioning_asof')";
/// Names of one setting. Later versions of MySQL have the second one.
const UPDATES: [&str; 2] = ["log_slave_updates", "log_replica_updates"];
/// What statements read of MariaDB's versioned tables that name no time.
const AS_OF: &str = "system_versioning_asof";

/// Row images that lack columns.
const IMAGES: [&str; 2] = ["NOBLOB", "MINIMAL"];

/// A reason, and what to do against it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplayRisk {
    /// What is missing in the log, or may differ, with the setting.
    pub(crate) found: String,
    pub(crate) fix: &'static str,
}

/// Asks a server of either fork. What sessions do on their own, as with `sql_log_bin=0`, no server tells.
///
/// # Errors
/// Any error of the connection, or of a missing privilege.
pub(crate) fn replay_risks(
    client: &mut Client,
    write_access: &WriteAccess,
) -> Result<Vec<ReplayRisk>, ArchiveError> {
    let found = values(client, VARIABLES)?;
    let is_mysql = !found.get("version").is_some_and(|version| version.contains("MariaDB"));
    let filters = log_filters(client, is_mysql)?;
    Ok(judge(&found, is_mysql, &filters, &write_access.sources))
}

fn judge(
    found: &Values,
    is_mysql: bool,
    filters: &[String],
    sources: &[String],
) -> Vec<ReplayRisk> {
    let is = |name: &str, value| found.get(name).is_some_and(|found| found == value);
    let mut doubts = Vec::new();
    if !filters.is_empty() {
        doubts.push(ReplayRisk {
            found: format!(
                "the server leaves changes of some schemas out of its log ({})",
                option_names(filters).join(", ")
            ),
            fix: "remove binlog-do-db and binlog-ignore-db from the server's option file, restart it, and take a backup",
        });
    }
    if let Some(name) = UPDATES.into_iter().find(|name| is(name, "OFF"))
        && !sources.is_empty()
    {
        doubts.push(ReplayRisk {
            found: format!(
                "the server does not log the changes that it receives from {} ({name}=OFF)",
                sources.join(" and ")
            ),
            fix: "set log_slave_updates=ON (MySQL: log_replica_updates) in the server's option file, restart it, and take a backup",
        });
    }
    if is("binlog_format", "STATEMENT") {
        doubts.push(ReplayRisk {
            found: "the server logs statements, and some produce different rows in a replay, such as those with UUID() or LIMIT (binlog_format=STATEMENT)".to_owned(),
            fix: "set binlog_format=ROW",
        });
    }
    // No option sets it, so no private server starts with it.
    if found.get(AS_OF).is_some_and(|value| value != "DEFAULT") && !is("binlog_format", "ROW") {
        doubts.push(ReplayRisk {
            found: format!(
                "the server's sessions read versioned tables as of a fixed time, and a replay reads them as of the present, so statements in the log may produce different rows ({AS_OF})"
            ),
            fix: "set system_versioning_asof=DEFAULT, or binlog_format=ROW",
        });
    }
    // A column that REPLACE sets to its default is in neither image of the row.
    if let Some(image) = IMAGES.into_iter().find(|image| is("binlog_row_image", image))
        && !is_mysql
    {
        doubts.push(ReplayRisk {
            found: format!(
                "the server logs only some columns of a changed row, so after a replay a row that REPLACE overwrote keeps old values in the others (binlog_row_image={image})"
            ),
            fix: "set binlog_row_image=FULL",
        });
    }
    doubts
}

/// Without their values: a stream's head, which has this, is readable without a key.
fn option_names(filters: &[String]) -> Vec<&str> {
    filters.iter().filter_map(|filter| filter.split('=').next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_lacks_something_is_doubted_and_a_whole_one_is_not() {
        let of = |pairs: &[(&str, &str)], filters: &[&str], sources: &[&str]| {
            let texts =
                |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            let found = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            let found: Values = found.collect();
            let is_mysql = found.contains_key("log_replica_updates");
            let doubts = judge(&found, is_mysql, &texts(filters), &texts(sources));
            doubts.into_iter().map(|doubt| doubt.found).collect::<Vec<_>>().join("; ")
        };
        let (mixed, off) = (("binlog_format", "MIXED"), ("log_slave_updates", "OFF"));
        assert_eq!(of(&[mixed, ("log_slave_updates", "ON")], &[], &["db1:3306"]), "");
        // Of a server that replicates nothing, its log has everything.
        assert_eq!(of(&[mixed, off], &[], &[]), "");
        let replica = of(&[mixed, off], &[], &["db1:3306"]);
        assert!(replica.contains("db1:3306") && replica.contains("log_slave_updates=OFF"));
        let later = of(&[("log_replica_updates", "OFF")], &[], &["db1:3306"]);
        assert!(later.contains("log_replica_updates=OFF"), "{later}");
        let filtered = of(&[mixed], &["Binlog_Ignore_DB=x"], &[]);
        assert!(filtered.contains("(Binlog_Ignore_DB)"), "{filtered}");
        let statements = of(&[("binlog_format", "STATEMENT")], &[], &[]);
        assert!(statements.contains("binlog_format=STATEMENT"), "{statements}");
        let as_of = |value, format| of(&[(AS_OF, value), ("binlog_format", format)], &[], &[]);
        let time = "2020-01-02 03:04:05.123456";
        assert!(as_of(time, "MIXED").contains("(system_versioning_asof)"));
        assert_eq!([as_of("DEFAULT", "MIXED"), as_of(time, "ROW")], ["", ""]);
        let image = |value, more| of(&[("binlog_row_image", value), more], &[], &[]);
        assert!(image("NOBLOB", mixed).contains("binlog_row_image=NOBLOB"));
        let of_mysql = ("log_replica_updates", "ON");
        assert_eq!([image("FULL", mixed), image("MINIMAL", of_mysql)], ["", ""]);
    }
}
