//! Files that state the position of a data directory after a replay. The backup's own files name its own position, which
//! the data has left: a replica that began there would apply everything again.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xb_files::{or_none, replace_file};

use crate::error::BackupError;
use crate::until::plan::UntilPlan;

/// Name of the result, beside the data.
const RESULT: &str = "xb_until.json";
/// Where backup programs note the position in the log.
const POSITIONS: [&str; 2] = ["xtrabackup_binlog_info", "mariadb_backup_binlog_info"];
/// Files with positions that do not hold any more: InnoDB's own, those of the origin's source, and those of a
/// cluster.
const STALE: [&str; 9] = [
    "xtrabackup_binlog_pos_innodb",
    "mariadb_backup_binlog_pos_innodb",
    "xtrabackup_slave_info",
    "mariadb_backup_slave_info",
    "xtrabackup_galera_info",
    "xtrabackup_galera_info_SST",
    "mariadb_backup_galera_info",
    "grastate.dat",
    "donor_galera_info",
];
/// Version of the result's format.
const FORMAT: u32 = 1;

/// The result as it is written.
#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    backup: &'a str,
    server: &'a str,
    from: &'a str,
    to: &'a str,
    gtids: &'a str,
    transactions: u64,
    left_out: Vec<String>,
    finished: jiff::Timestamp,
}

/// The end of a replay, from its proof on until everything beside the data says so.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReplayResult {
    /// The request.
    pub(super) what: String,
    pub(super) gtids: String,
    pub(super) log: String,
    pub(super) offset: u64,
    pub(super) transactions: u64,
    pub(super) remarks: Vec<String>,
}

/// Writes the new position where the backup program had noted the old one, and the result. Each file is written
/// whole or not at all, and all of it can be done again.
pub(super) fn write_result(
    target: &Path,
    plan: &UntilPlan,
    ended: &ReplayResult,
) -> Result<(), BackupError> {
    let failed = |path: PathBuf| {
        move |error: std::io::Error| BackupError::Restore {
            target: path.display().to_string(),
            what: format!(
                "the logs were replayed, but the end position cannot be recorded: {error}; run the same command again"
            ),
        }
    };
    let position = format!("{}\t{}\t{}\n", ended.log, ended.offset, ended.gtids);
    renew_positions(target, &position).map_err(|(path, error)| failed(path)(error))?;
    let document = Document {
        format: FORMAT,
        backup: &plan.backup,
        server: &plan.server,
        from: &plan.from,
        to: &plan.to,
        gtids: &ended.gtids,
        transactions: ended.transactions,
        left_out: plan.work.relay.leave_out.iter().map(ToString::to_string).collect(),
        finished: jiff::Timestamp::now(),
    };
    let path = target.join(RESULT);
    let text = serde_json::to_vec_pretty(&document).map_err(std::io::Error::from);
    text.and_then(|text| replace_file(&path, &text)).map_err(failed(path))
}

/// Writes the position where the backup program had noted the old one, and removes what holds no longer.
fn renew_positions(target: &Path, position: &str) -> Result<(), (PathBuf, std::io::Error)> {
    let renew = |name: &str| match or_none(std::fs::symlink_metadata(target.join(name)))? {
        // A schema of that name.
        Some(facts) if facts.is_dir() => Ok(()),
        Some(_) if POSITIONS.contains(&name) => {
            replace_file(&target.join(name), position.as_bytes())
        }
        Some(_) => std::fs::remove_file(target.join(name)),
        None => Ok(()),
    };
    POSITIONS
        .iter()
        .chain(&STALE)
        .try_for_each(|name| renew(name).map_err(|error| (target.join(name), error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_with_the_name_of_a_position_stays() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path();
        for schema in ["xtrabackup_slave_info", "mariadb_backup_binlog_info"] {
            std::fs::create_dir(target.join(schema)).unwrap();
            std::fs::write(target.join(schema).join("t.ibd"), "rows").unwrap();
        }
        std::fs::write(target.join("xtrabackup_binlog_info"), "old").unwrap();
        std::fs::write(target.join("grastate.dat"), "old").unwrap();
        renew_positions(target, "log.7\t4\t0-1-9\n").unwrap();
        let read = |name: &str| std::fs::read_to_string(target.join(name)).ok();
        assert_eq!(read("xtrabackup_binlog_info").as_deref(), Some("log.7\t4\t0-1-9\n"));
        assert_eq!(read("grastate.dat"), None);
        for kept in ["xtrabackup_slave_info/t.ibd", "mariadb_backup_binlog_info/t.ibd"] {
            assert_eq!(read(kept).as_deref(), Some("rows"));
        }
    }
}
