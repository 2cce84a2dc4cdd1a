//! A database server for this process alone: arguments that keep it to itself, and the end of its
//! log, which tells why it ended.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Maximum length of a socket path, in bytes.
const MAX_SOCKET: usize = 107;
/// Maximum part of the log that goes into a message, in bytes.
const MAX_CAUSE: usize = 2000;
/// Part of the log that is looked at, in bytes.
const LOG_END: usize = 256 << 10;
/// Words in the lines that tell why a server ended, and maximum number of such lines.
const CAUSES: [&str; 4] = ["ERROR", "FATAL", "ssertion", "got signal"];
const MAX_CAUSES: usize = 5;

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
/// write to.
#[must_use]
pub fn private_server_args(scratch: &Path) -> Vec<OsString> {
    let with = |option: &str, path: &Path| {
        let mut word = OsString::from(option);
        word.push(path);
        word
    };
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
    ];
    if rustix::process::geteuid().is_root() {
        args.push("--user=root".into());
    }
    args
}

/// Returns the end of a server's log, at most 256 KiB; empty if it cannot be read.
#[must_use]
pub fn end_of_log(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let end = text.get(text.len().saturating_sub(LOG_END)..).unwrap_or_default();
    String::from_utf8_lossy(end).into_owned()
}

/// Returns the last lines of a log that tell why a server ended, at most 2000 bytes. After an
/// abort, many lines of its stack follow them.
#[must_use]
pub fn cause_in_log(text: &str) -> String {
    let tells = |line: &&str| CAUSES.iter().any(|word| line.contains(word));
    let lines: Vec<&str> = text.lines().filter(tells).collect();
    let last = lines.get(lines.len().saturating_sub(MAX_CAUSES)..).unwrap_or_default();
    let mut cause = match last.is_empty() {
        true => text.lines().last().unwrap_or_default().to_owned(),
        false => last.join("; "),
    };
    let end = cause.floor_char_boundary(MAX_CAUSE);
    cause.truncate(end);
    cause
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_found_before_the_stack() {
        let log = "1 [Note] ready\n2 [ERROR] InnoDB: page [7] is damaged\n3 [ERROR] [FATAL] InnoDB: stop\nInnoDB: Assertion failure in file x\n4 got signal 6 ;\nstack frame\nstack frame\n";
        let cause = cause_in_log(log);
        assert!(cause.starts_with("2 [ERROR]") && cause.ends_with("signal 6 ;"), "{cause}");
        assert_eq!(cause_in_log("a\nb\n"), "b");
        assert!(cause_in_log(&"ERROR ä".repeat(2000)).len() <= MAX_CAUSE);
    }

    #[test]
    fn a_socket_needs_a_short_path() {
        assert!(socket_in(Path::new("/tmp")).is_some());
        assert!(socket_in(Path::new(&format!("/{}", "x".repeat(106)))).is_none());
    }
}
