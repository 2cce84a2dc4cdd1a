//! Arguments that keep a server to this process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
/// Available memory in bytes with which the server's own defaults do no harm: three buffers of 128 MiB.
const ROOMY: u64 = 1 << 30;
/// Least buffer pool in bytes: with pages of 64 KiB, InnoDB refuses to start with less than 20 MiB.
const LEAST_POOL: u64 = 24 * MIB;
/// Least size of another buffer, and the most of any, in bytes.
const LEAST_BUFFER: u64 = 8 * MIB;
const DEFAULT_BUFFER: u64 = 128 * MIB;
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

/// Returns arguments for smaller buffers if only so many bytes are `available`: a server that fills its defaults there is
/// killed by the system. Without that number, or with enough, they stay.
pub(crate) fn small_buffers(available: Option<u64>) -> Vec<OsString> {
    let Some(available) = available.filter(|available| *available < ROOMY) else {
        return Vec::new();
    };
    let pool = (available / 4).clamp(LEAST_POOL, DEFAULT_BUFFER);
    let other = (available / 16).clamp(LEAST_BUFFER, DEFAULT_BUFFER);
    vec![
        format!("--innodb-buffer-pool-size={pool}").into(),
        format!("--key-buffer-size={other}").into(),
        format!("--loose-aria-pagecache-buffer-size={other}").into(),
    ]
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
    fn where_memory_is_short_the_buffers_take_less_than_half_of_it() {
        let of = |mib: u64| small_buffers(Some(mib * MIB));
        let sum = |args: &[OsString]| -> u64 {
            let size = |arg: &OsString| arg.to_str()?.rsplit_once('=')?.1.parse::<u64>().ok();
            args.iter().filter_map(size).sum()
        };
        for mib in [100, 200, 256, 512, 1023] {
            let args = of(mib);
            assert!(args.len() == 3 && sum(&args) * 2 < mib * MIB, "{mib}: {args:?}");
        }
        assert_eq!(of(200).first().unwrap(), "--innodb-buffer-pool-size=52428800");
        assert_eq!(sum(&of(0)), LEAST_POOL + 2 * LEAST_BUFFER);
        assert!(of(1024).is_empty() && small_buffers(None).is_empty());
    }

    #[test]
    fn a_socket_needs_a_short_path() {
        assert!(socket_in(Path::new("/tmp")).is_some());
        assert!(socket_in(Path::new(&format!("/{}", "x".repeat(106)))).is_none());
    }
}
