//! A server's log: why the server ended, where its recovery ended, whether it stopped cleanly.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Maximum part of the log that goes into a message, in bytes.
const MAX_CAUSE: usize = 2000;
/// Part of the log that is looked at, in bytes.
const LOG_END: u64 = 256 << 10;
/// Words in the lines that tell why a server ended, and maximum number of such lines.
const CAUSES: [&str; 4] = ["ERROR", "FATAL", "ssertion", "got signal"];
const MAX_CAUSES: usize = 5;

/// A position in a binary log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinlogPosition {
    /// Name of the file, as the server writes it.
    pub file: String,
    /// Offset in it, in bytes.
    pub offset: u64,
}

/// Returns the end of a server's log, at most 256 KiB; empty if it cannot be read.
#[must_use]
pub fn end_of_log(log: &Path) -> String {
    log_from(log, 0)
}

/// Returns the log from this byte on, and at most the last 256 KiB of it.
pub(crate) fn log_from(log: &Path, start: u64) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let begin = file.metadata()?.len().saturating_sub(LOG_END).max(start);
        file.seek(SeekFrom::Start(begin))?;
        let mut text = Vec::new();
        file.take(LOG_END).read_to_end(&mut text)?;
        Ok(text)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
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

/// Returns whether a server says at the end of its log that it has shut down.
pub(crate) fn says_shut_down(text: &str) -> bool {
    let last = text.lines().rev().take(3);
    last.into_iter().any(|line| line.contains("Shutdown complete"))
}

/// Returns whether a server of MariaDB has said that it has shut down, wherever: a crash of another thread may have written
/// its stack since. InnoDB has a line of its own, with further words.
pub(crate) fn has_closed_all(text: &str) -> bool {
    text.lines().any(|line| line.ends_with(": Shutdown complete"))
}

/// The position in the binary log that InnoDB reports after recovery: that of the last transaction
/// in the data.
pub(crate) fn recovered_position(text: &str) -> Option<BinlogPosition> {
    let line = text.lines().rfind(|line| line.contains("InnoDB") && line.contains("Last "))?;
    // MariaDB: `Last binlog file './b.000002', position 342`.
    let of_mariadb = || {
        let (file, rest) = line.split_once("Last binlog file '")?.1.split_once("', position ")?;
        Some((file, rest))
    };
    // MySQL: `Last MySQL binlog file position 0 342, file name b.000002`; the first number is the
    // upper half of the offset.
    let of_mysql = || {
        let (at, file) =
            line.split_once("Last MySQL binlog file position ")?.1.split_once(", file name ")?;
        let (high, low) = at.split_once(' ')?;
        (high == "0").then_some((file, low))
    };
    let (file, offset) = of_mariadb().or_else(of_mysql)?;
    Some(BinlogPosition { file: file.trim().to_owned(), offset: offset.trim().parse().ok()? })
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
    fn a_crash_counts_as_late_only_behind_the_end_of_the_shutdown() {
        let before = "1 0 [Note] InnoDB: Shutdown completed; log sequence number 7\n2 [ERROR] x got signal 11 ;\nframe\n";
        assert!(!has_closed_all(before));
        let behind = "3 0 [Note] /usr/sbin/mariadbd: Shutdown complete\nframe\nframe\nframe\n";
        assert!(has_closed_all(&format!("{before}{behind}")));
    }

    #[test]
    fn both_forks_name_the_position_of_the_last_transaction() {
        let at = |text| recovered_position(text).map(|at| (at.file, at.offset));
        let mariadb = "2026 0 [Note] InnoDB: Last binlog file './b.000002', position 342\nready\n";
        assert_eq!(at(mariadb), Some(("./b.000002".into(), 342)));
        let mysql = "[Note] InnoDB: Last MySQL binlog file position 0 154, file name b.000003\n";
        assert_eq!(at(mysql), Some(("b.000003".into(), 154)));
        for none in ["", "InnoDB: Last binlog file 'b'", "InnoDB: Last binlog file 'b', position x"]
        {
            assert_eq!(at(none), None);
        }
    }
}
