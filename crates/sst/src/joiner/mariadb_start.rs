//! What differs when MariaDB is started once on the received data: the program, its options, and the data on which it
//! is not started.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::destination::Destination;
use super::prepare::key_words;
use crate::contract::args::Args;
use crate::contract::datadir::Kind;
use crate::error::SstError;
use crate::session::backup_program::{option, server_words};

/// Text in the log once the server accepts connections. It has run its statements then.
pub(super) const READY: &str = "ready for connections";
/// Entries that the server creates, and that a start of its own would create again.
pub(super) const OWN: [&str; 4] = ["ibtmp1", "tc.log", "ddl_recovery.log", "multi-master.info"];
/// Names of the server's program.
const NAMES: [&str; 2] = ["mariadbd", "mysqld"];

/// Returns the program of the server that has started this process; `None` if it cannot be found.
pub(super) fn program(args: &Args) -> Option<PathBuf> {
    let process = PathBuf::from(format!("/proc/{}", args.parent?));
    let is_server =
        |path: &PathBuf| NAMES.iter().any(|name| path.file_name() == Some(OsStr::new(name)));
    if let Some(program) = std::fs::read_link(process.join("exe")).ok().filter(is_server) {
        return Some(program);
    }
    // Of a server that has changed its user, only the command line can be read.
    let line = std::fs::read(process.join("cmdline")).ok()?;
    let first = PathBuf::from(OsStr::from_bytes(line.split(|byte| *byte == 0).next()?));
    let named = Some(first).filter(is_server)?;
    match named.is_absolute() {
        true => Some(named).filter(|path| path.is_file()),
        false => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let dirs = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
            dirs.map(|dir| dir.join(named.file_name().unwrap_or_default()))
                .find(|path| path.is_file())
        }
    }
}

/// Returns why a server cannot be started on the received data before it is swapped.
///
/// # Errors
/// If the data cannot be listed.
pub(super) fn obstacle(destination: &Destination) -> Result<Option<&'static str>, SstError> {
    if destination.dirs_of(|kind| matches!(kind, Kind::Data(_))).count() > 1 {
        return Ok(Some("its system tablespace has files in several directories"));
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
    data_files: Option<&OsStr>,
    destination: &Destination,
    (work, data): (&Path, &Path),
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
    words.extend(data_files.map(|files| option("--innodb-data-file-path", files)));
    let fixed = [
        "--innodb-temp-data-file-path=ibtmp1:12M:autoextend",
        // The server makes its log as large as it wants it.
        "--innodb-log-file-size=16M",
        // A start that is interrupted is not resumed.
        "--innodb-doublewrite=OFF",
        "--innodb-fast-shutdown=1",
        "--innodb-buffer-pool-size=128M",
        "--innodb-buffer-pool-load-at-startup=OFF",
        "--innodb-buffer-pool-dump-at-shutdown=OFF",
        "--loose-innodb-encryption-threads=0",
        "--key-buffer-size=8M",
        "--performance-schema=OFF",
        "--general-log=OFF",
        "--slow-query-log=OFF",
        "--read-only=OFF",
        "--skip-ssl",
    ];
    words.extend(fixed.map(OsString::from));
    words
}
