//! Options of the private server of a replay.

use std::ffi::OsString;
use std::path::Path;

use crate::relay_files::{BASE, INDEX};
use crate::request::ReplayRequest;

/// Global variables of the origin that change what replayed statements do, and that its logs lack: a
/// caller records their values, and passes each as `--loose-NAME=VALUE` in
/// [`ReplayRequest::settings`](crate::ReplayRequest::settings). Plugins, and what encryption needs, come
/// in addition.
pub const ORIGIN_SETTINGS: [&str; 23] = [
    "alter_algorithm",
    "aria_encrypt_tables",
    "character_set_server",
    "collation_server",
    "default_storage_engine",
    "default_tmp_storage_engine",
    "enforce_storage_engine",
    "explicit_defaults_for_timestamp",
    "innodb_compression_algorithm",
    "innodb_compression_default",
    "innodb_compression_level",
    "innodb_default_encryption_key_id",
    "innodb_default_row_format",
    "innodb_encrypt_tables",
    "innodb_file_per_table",
    "innodb_page_size",
    "innodb_strict_mode",
    "lower_case_table_names",
    "old_mode",
    "sql_mode",
    "system_versioning_alter_history",
    "table_definition_cache",
    "time_zone",
];

/// Least memory of the server, in bytes.
const MIN_MEMORY: u64 = 128 << 20;

/// The options of the server, the caller's last.
pub(crate) fn options(request: &ReplayRequest, own: &Path, server_id: u32) -> Vec<OsString> {
    let memory = request.memory.max(MIN_MEMORY);
    let path = |option: &str, name: &str| {
        let mut word = OsString::from(option);
        word.push(own.join(name));
        word
    };
    let mut options = vec![
        path("--relay-log=", BASE),
        path("--relay-log-index=", INDEX),
        // In the data directory they would outlive the replay.
        path("--master-info-file=", "master.info"),
        path("--relay-log-info-file=", "relay-log.info"),
        format!("--server-id={server_id}").into(),
        format!("--slave-parallel-threads={}", parallel(request)).into(),
        format!("--innodb-buffer-pool-size={}", memory / 8 * 5).into(),
        format!("--innodb-log-file-size={}", (memory / 4).clamp(64 << 20, 1 << 30)).into(),
        format!("--aria-pagecache-buffer-size={}", memory / 16).into(),
        format!("--key-buffer-size={}", memory / 16).into(),
    ];
    let fixed = [
        "--slave-parallel-mode=optimistic",
        // A table that exists already, or is not there, is an error here, and not a retry.
        "--slave-ddl-exec-mode=STRICT",
        "--slave-max-allowed-packet=1G",
        "--max-allowed-packet=1G",
        "--relay-log-purge=ON",
        "--gtid-strict-mode=OFF",
        "--read-only=OFF",
        // With DISABLED, no statement could create an event.
        "--event-scheduler=OFF",
        // DATA DIRECTORY could be that of a running server.
        "--skip-symbolic-links",
        // After a crash, everything begins again.
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-doublewrite=OFF",
        "--innodb-buffer-pool-load-at-startup=OFF",
        "--innodb-buffer-pool-dump-at-shutdown=OFF",
        "--performance-schema=OFF",
    ];
    options.extend(fixed.map(OsString::from));
    options.extend(request.settings.iter().cloned());
    options
}

/// Number of workers of the server; 0 applies without any.
fn parallel(request: &ReplayRequest) -> u32 {
    if request.threads > 1 { request.threads } else { 0 }
}
