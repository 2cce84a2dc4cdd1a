//! What differs when MariaDB is started once on the received data: the program, its options, and the data on which it
//! is not started.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::destination::Destination;
use super::prepare::key_words;
use crate::contract::args::Args;
use crate::contract::datadir::Kind;
use crate::contract::settings::Settings;
use crate::error::SstError;
use crate::session::backup_program::{option, server_words};

/// Text in the log once the server accepts connections. It has run its statements then.
pub(super) const READY: &str = "ready for connections";
/// Entries that the server creates, and that a start of its own would create again.
pub(super) const OWN: [&str; 4] = ["ibtmp1", "tc.log", "ddl_recovery.log", "multi-master.info"];
/// Size of the redo log, in bytes, that such a start creates at most.
const REDO: u64 = 16 << 20;
/// Options of such a start that MySQL's servers know, too.
pub(super) const OF_EITHER_FAMILY: [&str; 9] = [
    "--innodb-temp-data-file-path=ibtmp1:12M:autoextend",
    // A start that is interrupted is not resumed.
    "--innodb-doublewrite=OFF",
    "--innodb-fast-shutdown=1",
    "--innodb-buffer-pool-size=128M",
    "--innodb-buffer-pool-load-at-startup=OFF",
    "--innodb-buffer-pool-dump-at-shutdown=OFF",
    "--general-log=OFF",
    "--slow-query-log=OFF",
    "--read-only=OFF",
];
/// Names of the server's program.
const NAMES: [&str; 2] = ["mariadbd", "mysqld"];

/// Returns the program of the server that has started this process, the same file; `None` if it cannot be found. A server
/// that has changed its user does not show it, and a file that was replaced since, as by an upgrade, is another version.
pub(super) fn program(args: &Args) -> Option<PathBuf> {
    let program = std::fs::read_link(format!("/proc/{}/exe", args.parent?)).ok()?;
    // The kernel appends a word to the name of a file that is gone.
    NAMES.iter().any(|name| program.file_name() == Some(OsStr::new(name))).then_some(program)
}

/// Returns why a server cannot be started on the received data before it is swapped.
///
/// # Errors
/// If the data cannot be listed.
pub(super) fn obstacle(
    settings: &Settings,
    destination: &Destination,
) -> Result<Option<&'static str>, SstError> {
    let is_outside = destination.dirs_of(|kind| matches!(kind, Kind::Data(_))).next().is_some();
    if is_outside && settings.second_start.data_files.is_some() {
        return Ok(Some("innodb_data_file_path names directories outside the data directory"));
    }
    let new = &destination.new;
    for schema in std::fs::read_dir(new).map_err(SstError::io("list", new))?.flatten() {
        for file in std::fs::read_dir(schema.path()).into_iter().flatten().flatten() {
            if Path::new(&file.file_name()).extension() == Some(OsStr::new("isl")) {
                // The server would open the files of the present data there.
                return Ok(Some("it has tables with a DATA DIRECTORY"));
            }
        }
    }
    Ok(None)
}

/// Arguments beside those of a private server and of the node's option files.
pub(super) fn server_args(
    args: &Args,
    settings: &Settings,
    destination: &Destination,
    work: &Path,
    data: &Path,
) -> Vec<OsString> {
    let mut words = server_words(args);
    words.extend(key_words(args));
    let place = |wanted: fn(&Kind) -> bool| {
        destination.dirs_of(wanted).next().unwrap_or_else(|| data.to_owned())
    };
    words.extend([
        option("--datadir", data),
        option("--innodb-data-home-dir", place(|kind| matches!(kind, Kind::Data(_)))),
        option("--innodb-undo-directory", place(|kind| *kind == Kind::Undo)),
        option("--aria-log-dir-path", place(|kind| *kind == Kind::Aria)),
        option("--innodb-log-group-home-dir", data),
        option("--innodb-tmpdir", work.join("tmp")),
        option("--relay-log", work.join("relay")),
        option("--relay-log-index", work.join("relay.index")),
    ]);
    let data_files = settings.second_start.data_files.as_deref();
    words.extend(data_files.map(|files| option("--innodb-data-file-path", files)));
    // The server makes its log as large as it is set. This start needs no more room than that one.
    let log = settings.redo_log.bytes(args.family, None).min(REDO);
    words.push(format!("--innodb-log-file-size={log}").into());
    let fixed = [
        "--loose-innodb-encryption-threads=0",
        "--key-buffer-size=8M",
        "--performance-schema=OFF",
        "--skip-ssl",
    ];
    words.extend(OF_EITHER_FAMILY.into_iter().chain(fixed).map(OsString::from));
    words
}
