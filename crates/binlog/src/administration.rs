//! Statements that administer a server. None logs them, so only a forged log has them, and a replay would run them: to fetch from
//! another server, to load a library, or to write a file.

use crate::words::Words;

/// Statements that no server logs, by their first word. `CALL` is logged as what the procedure does, and so are the statements of a
/// compound one.
const NEVER: [&str; 22] = [
    "CALL",
    "CASE",
    "CHANGE",
    "CLONE",
    "DEALLOCATE",
    "EXECUTE",
    "FOR",
    "HANDLER",
    "IF",
    "IMPORT",
    "INSTALL",
    "KILL",
    "LOAD",
    "LOOP",
    "PREPARE",
    "REPEAT",
    "RESET",
    "RESTART",
    "SHUTDOWN",
    "STOP",
    "UNINSTALL",
    "WHILE",
];

/// Whether this is one, by the beginning of its text: as far as that shows, and whether or not a server runs what is in a
/// comment with a version.
pub(crate) fn administers(text: &[u8]) -> bool {
    [Words::new(text), Words::without_versioned(text)].into_iter().any(administer)
}

/// Whether a `LOAD DATA` with its file in the log is none, by the beginning of its text: a server runs what stands there.
pub(crate) fn loads_nothing(text: &[u8]) -> bool {
    let first = [Words::new(text), Words::without_versioned(text)].map(|mut words| words.upper());
    first.iter().any(|first| first.as_deref() != Some("LOAD"))
}

fn administer(mut words: Words<'_>) -> bool {
    loop {
        let (first, second) = (words.upper(), words.upper());
        return match first.as_deref() {
            Some("SET") if second.as_deref() == Some("STATEMENT") => {
                // What follows the variables is the statement.
                while let Some(word) = words.upper() {
                    if word == "FOR" {
                        break;
                    }
                }
                continue;
            }
            Some("SET") => !matches!(second.as_deref(), Some("PASSWORD" | "DEFAULT")),
            Some("BEGIN") => second.is_some(),
            Some("START") => second.as_deref() != Some("TRANSACTION"),
            Some(first) => NEVER.contains(&first),
            None => false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_no_server_logs_are_known_by_their_words() {
        for (text, expected) in [
            ("CHANGE MASTER 'e' TO MASTER_HOST='x'", true),
            ("/* a */ change replication source to source_port=1", true),
            ("/*!40000 INSTALL SONAME 'x' */", true),
            ("BEGIN NOT ATOMIC CHANGE MASTER TO MASTER_HOST='x'; END", true),
            ("SET GLOBAL general_log_file='/x'", true),
            ("SET @@global.general_log=1", true),
            ("SET STATEMENT sql_mode='FOR' FOR INSTALL PLUGIN x SONAME 'y'", true),
            ("SET STATEMENT a=1 FOR SET STATEMENT b=2 FOR SHUTDOWN", true),
            ("/*!999999 SELECT */ INSTALL SONAME 'x'", true),
            ("--\r\nSHUTDOWN", true),
            ("START SLAVE", true),
            ("call p()", true),
            ("LOAD DATA INFILE '/etc/passwd' INTO TABLE t", true),
            ("BEGIN", false),
            ("START TRANSACTION", false),
            ("SET PASSWORD FOR u = 'x'", false),
            ("SET DEFAULT ROLE r FOR u", false),
            ("SET STATEMENT max_statement_time=1 FOR INSERT INTO t VALUES (1)", false),
            ("INSERT INTO t VALUES ('CHANGE MASTER')", false),
            ("CREATE PROCEDURE p() CHANGE MASTER TO MASTER_HOST='x'", false),
            ("FLUSH TABLES", false),
            ("SELECT `d`.`f`()", false),
            ("XA PREPARE X'61',X'',1", false),
            ("`call` x", false),
            ("", false),
        ] {
            assert_eq!(administers(text.as_bytes()), expected, "{text}");
        }
        for (text, expected) in [
            ("LOAD DATA LOCAL INFILE 'x' INTO TABLE `t`", false),
            ("load xml infile 'x' into table t", false),
            ("SHUTDOWN", true),
            ("/*!99999 LOAD */ INSTALL SONAME 'x'", true),
            ("", true),
        ] {
            assert_eq!(loads_nothing(text.as_bytes()), expected, "{text}");
        }
    }
}
