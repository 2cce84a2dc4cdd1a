//! Cause of a backup program's failure, from its last messages, with a hint.

/// Words of a cause that is known, and the next step. The first entry that matches a message is used.
const KNOWN: [(&[&str], &str); 14] = [
    (
        &[
            "account is locked",
            "Account is locked",
            "password has expired",
            "must SET PASSWORD before",
        ],
        "unlock the account of the backup login, or give it a new password (ALTER USER); `xbcloud-rs check` tries the login",
    ),
    (
        &["Access denied for user"],
        "correct user and password of the backup login in the option file ([mariadb-backup], [xtrabackup] or [client]); `xbcloud-rs check` tries them",
    ),
    (
        &["Can't connect to", "Can't create TCP/IP socket", "Unknown server host"],
        "start the server, or correct the host, port or socket of the producer; `xbcloud-rs check` tries the login",
    ),
    (
        &["Lost connection", "server has gone away", "Server shutdown in progress"],
        "see in the server's error log why it stopped, then take a new backup: none was made",
    ),
    (
        &["missing required privilege", "you need (at least one of) the"],
        "grant the missing privilege to the backup login; install.md lists all of them",
    ),
    (
        &["No space left on device", "Errcode: 28", "Disk quota exceeded"],
        "make room where the producer writes its temporary files (its --tmpdir and --target-dir), then take a new backup",
    ),
    (
        &["Permission denied", "Errcode: 13"],
        "run the backup as a user that may read the server's data directory, such as mysql",
    ),
    (
        &["Too many open files", "Errcode: 24"],
        "raise the limit of open files (LimitNOFILE= in the unit, ulimit -n), then take a new backup",
    ),
    (
        &[
            "Was only able to copy log from",
            "log has wrapped around",
            "log copying being too slow",
            "log block numbers mismatch",
        ],
        "the server overwrote its redo log before the program had copied it: raise innodb_log_file_size, or back up while less is written; `--report` shows whether the store was too slow for the program",
    ),
    (
        &["must be specified first on the command line"],
        "put this option first in `producer`, directly after the program",
    ),
    (
        &["Invalid --stream argument"],
        "write --stream=xbstream in `producer`: no other format can be read",
    ),
    (
        &["unknown variable", "unknown option", "unrecognized option", "ambiguous option"],
        "correct this option in `producer`, or in the producer's own group of the option file",
    ),
    (
        &[
            "Unsupported redo log format",
            "unsupported server version",
            "not supported by this version",
        ],
        "use the backup program of the server's own version",
    ),
    (
        &["Table definition has changed"],
        "take a new backup while no table is created, altered or dropped",
    ),
];

/// Words of a message that tells of a failure, in lower case.
const FAILURES: [&str; 7] =
    ["error", "fatal", "failed", "denied", "cannot", "can't", "no space left"];

/// Cause in the words of the program, and the next step where the cause is known.
pub(crate) struct Cause {
    pub(crate) words: String,
    pub(crate) hint: Option<&'static str>,
}

/// Finds the cause in the last messages: the first message about a known one, else the last that tells of a
/// failure, else the last.
pub(crate) fn cause(messages: &[String]) -> Option<Cause> {
    let known = messages.iter().find_map(|message| {
        let found = KNOWN.iter().find(|(words, _)| words.iter().any(|word| has(message, word)));
        Some((message, found?.1))
    });
    if let Some((message, hint)) = known {
        return Some(Cause { words: without_stamp(message), hint: Some(hint) });
    }
    let mut latest = messages.iter().rev().filter(|message| !message.trim().is_empty());
    let tells = |message: &&String| {
        let message = message.to_lowercase();
        FAILURES.iter().any(|word| message.contains(word))
    };
    let message = latest.clone().find(tells).or_else(|| latest.next())?;
    Some(Cause { words: without_stamp(message), hint: None })
}

/// Returns whether a message has these words. A number at their end is a whole one.
fn has(message: &str, words: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit();
    let ends_in_number = words.ends_with(is_digit);
    message.split(words).skip(1).any(|rest| !(ends_in_number && rest.starts_with(is_digit)))
}

/// The message without the number of the thread and the time in front, as mariadb-backup and xtrabackup write
/// them.
fn without_stamp(message: &str) -> String {
    let is_stamp = |word: &str| {
        word.chars().any(|c| c.is_ascii_digit())
            && word.chars().all(|c| c.is_ascii_digit() || "[]:-.TZ+".contains(c))
    };
    let words: Vec<&str> = message.split_whitespace().collect();
    let stamps = words.iter().take_while(|word| is_stamp(word)).count();
    // A message of numbers alone has no stamp.
    let stamps = if stamps == words.len() { 0 } else { stamps };
    words[stamps..].join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(messages: &[&str]) -> Option<Cause> {
        cause(&messages.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_first_known_cause_counts() {
        let found = of(&[
            "[00] 2026-11-27 02:00:01 Connecting to server host: localhost",
            "[00] 2026-11-27 02:00:01 Failed to connect: Access denied for user 'b'@'localhost'",
            "mariadb-backup: fatal error: giving up",
        ]);
        let found = found.unwrap();
        assert_eq!(found.words, "Failed to connect: Access denied for user 'b'@'localhost'");
        assert!(found.hint.unwrap().contains("password"));
    }

    /// mariadb-backup ends with a hint of its own, which is no cause.
    #[test]
    fn a_redo_log_that_was_overtaken_is_the_cause() {
        let found = of(&[
            "[00] 2026-11-27 02:00:01 Was only able to copy log from 45056 to 61952, not 9876543",
            "[00] 2026-11-27 02:00:01 mariabackup: Try increasing the innodb_log_file_size.",
            "[00] FATAL ERROR: 2026-11-27 02:00:01 xtrabackup_copy_logfile() failed.",
        ]);
        let found = found.unwrap();
        assert_eq!(found.words, "Was only able to copy log from 45056 to 61952, not 9876543");
        assert!(found.hint.unwrap().contains("raise innodb_log_file_size"));
    }

    #[test]
    fn a_number_is_a_whole_one() {
        let hint = |message: &str| of(&[message]).unwrap().hint;
        assert!(hint("Error writing file 'x' (Errcode: 28)").unwrap().contains("make room"));
        assert!(hint("Can't open file 'x' (Errcode: 13 \"Denied\")").is_some());
        for other in ["Got an error from 'x' (Errcode: 134)", "x failed (Errcode: 280)"] {
            assert_eq!(hint(other), None, "{other}");
        }
    }

    #[test]
    fn an_unknown_cause_is_the_last_failure() {
        let found =
            of(&["[00] Error: first", "2026-11-27T02:00:01.1Z 0 [ERROR] second", "bye", ""]);
        let found = found.unwrap();
        assert_eq!((&*found.words, found.hint), ("[ERROR] second", None));
        assert_eq!(of(&["hello", "bye", " "]).unwrap().words, "bye");
        assert_eq!(of(&["9000"]).unwrap().words, "9000");
        assert!(of(&[]).is_none() && of(&[""]).is_none());
    }
}
