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
    for path in POSITIONS.map(|name| target.join(name)) {
        if path.try_exists().map_err(failed(path.clone()))? {
            replace_file(&path, position.as_bytes()).map_err(failed(path))?;
        }
    }
    for path in STALE.map(|name| target.join(name)) {
        or_none(std::fs::remove_file(&path)).map_err(failed(path))?;
    }
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
