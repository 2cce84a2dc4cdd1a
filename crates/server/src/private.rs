//! Arguments that keep a server to this process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Maximum length of a socket path, in bytes.
const MAX_SOCKET: usize = 107;

/// Returns the path of a private server's socket in `scratch`; `None` if the path is too long for
/// the system: choose a shorter directory.
#[must_use]
pub fn socket_in(scratch: &Path) -> Option<PathBuf> {
    let socket = scratch.join("s");
    (socket.as_os_str().len() <= MAX_SOCKET).then_some(socket)
}

/// Returns arguments with which a server accepts no connection but at [`socket_in`] `scratch`,
/// connects nowhere, writes no binary log, and keeps its small files in `scratch`. `scratch/tmp`,
/// which must exist, is its directory for temporary files, and the only one that statements may
/// write to. What a statement has set to persist in the data directory does not count.
#[must_use]
pub fn private_args(scratch: &Path) -> Vec<OsString> {
    let tmp = scratch.join("tmp");
    let mut args = vec![
        with("--socket=", &scratch.join("s")),
        with("--pid-file=", &scratch.join("pid")),
        with("--tmpdir=", &tmp),
        // MySQL's usual one is missing where only the server itself is installed.
        with("--secure-file-priv=", &tmp),
        "--skip-networking".into(),
        "--skip-log-bin".into(),
        "--loose-skip-slave-start".into(),
        "--loose-skip-replica-start".into(),
        "--loose-wsrep-on=OFF".into(),
        "--loose-wsrep-provider=none".into(),
        "--loose-mysqlx=OFF".into(),
        "--loose-event-scheduler=DISABLED".into(),
        // The data itself may say that the server is to load that plugin.
        "--loose-group-replication-start-on-boot=OFF".into(),
        // `mysqld-auto.cnf` would come from outside.
        "--loose-persisted-globals-load=OFF".into(),
    ];
    if rustix::process::geteuid().is_root() {
        args.push("--user=root".into());
    }
    args
}

pub(crate) fn with(option: &str, path: &Path) -> OsString {
    let mut word = OsString::from(option);
    word.push(path);
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_server_connects_nowhere_and_runs_nothing_by_itself() {
        let args = private_args(Path::new("/x"));
        for option in [
            "--skip-networking",
            "--skip-log-bin",
            "--loose-skip-slave-start",
            "--loose-skip-replica-start",
            "--loose-wsrep-on=OFF",
            "--loose-mysqlx=OFF",
            "--loose-event-scheduler=DISABLED",
            "--loose-group-replication-start-on-boot=OFF",
            "--loose-persisted-globals-load=OFF",
        ] {
            assert!(args.iter().any(|arg| arg == option), "{option}");
        }
    }

    #[test]
    fn a_socket_needs_a_short_path() {
        assert!(socket_in(Path::new("/tmp")).is_some());
        assert!(socket_in(Path::new(&format!("/{}", "x".repeat(106)))).is_none());
    }
}
