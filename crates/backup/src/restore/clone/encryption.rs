//! Tablespaces whose encryption was being changed when a clone was taken.
//!
//! A clone has such a tablespace as a crash would leave it. The server finishes the change in a thread of its own after
//! its start; until that ends, the key stays as the clone has it. MySQL 9.7.4 does not always recover from this: it may end
//! by an assertion at its start, while it finishes the change, or only at its next start, when it reads a page that it has
//! written and cannot decrypt. So, where the clone has signs of such a change, a server is started once more, and reads every
//! table that lies where one can be.

use std::time::Duration;

use crate::cancel::CancelToken;
use crate::error::BackupError;
use crate::hints::{CLONE_SERVER, KILLED};
use crate::server::private::Server;

/// Pause between two looks at work of the server.
const PAUSE: Duration = Duration::from_millis(100);
/// Work on tablespaces that the server does by itself.
const UNDER_WAY: &str = "SELECT (SELECT COUNT(*) FROM performance_schema.threads WHERE name LIKE '%/srv_ts_alter_encrypt_thread')
    + (SELECT COUNT(*) FROM performance_schema.metadata_locks WHERE object_type = 'TABLESPACE')";
/// The tables in tablespaces that many tables share, the server's own among them: only those are encrypted in place. InnoDB
/// lists the names of files, in which an odd character is written otherwise: where there is one, it may be that of any
/// table with an odd name.
const SHARED: &str = "SELECT table_schema, table_name FROM information_schema.tables
    WHERE engine = 'InnoDB' AND table_type = 'BASE TABLE' AND (
        CONCAT(table_schema, '/', table_name) IN (SELECT name FROM information_schema.innodb_tables WHERE space_type = 'General')
        OR CONCAT(table_schema, table_name) REGEXP '[^0-9A-Za-z_]'
            AND EXISTS (SELECT * FROM information_schema.innodb_tables WHERE space_type = 'General' AND name LIKE '%@%'))";
/// How a server says that it ended itself, or cannot read a page.
const FAILURES: [&str; 5] = [
    "ssertion failure",
    "got signal",
    "page corruption",
    "Unable to read page",
    "cannot read the table",
];
/// How a server says that it has no keyring, or another one. It may end by an assertion after that.
const NO_KEY: [&str; 2] = ["master key", "keyring is not loaded"];

/// Waits until the server encrypts and decrypts no tablespace any more.
///
/// # Errors
/// [`BackupError::Program`] if the server ends.
pub(super) async fn finish(server: &mut Server, cancel: &CancelToken) -> Result<(), BackupError> {
    loop {
        let rows = server.rows::<1>(UNDER_WAY, cancel).await?.map_err(of_server)?;
        match rows.as_slice() {
            [[count]] if count == "0" => return Ok(()),
            [_] => {}
            _ => return Err(of_server("does not say what it encrypts".to_owned())),
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            signal = cancel.cancelled() => return Err(BackupError::Interrupted(signal)),
        }
    }
}

/// Reads every table whose encryption may have been changed while the clone was taken.
///
/// # Errors
/// [`BackupError::Program`] if the server ends, or a table cannot be read.
pub(super) async fn read_shared(
    server: &mut Server,
    cancel: &CancelToken,
) -> Result<(), BackupError> {
    for [schema, table] in server.rows::<2>(SHARED, cancel).await?.map_err(of_server)? {
        let quoted = [&schema, &table].map(|name| format!("`{}`", name.replace('`', "``")));
        let check = format!("CHECK TABLE {}", quoted.join("."));
        let said = server.rows::<4>(&check, cancel).await?.map_err(of_server)?;
        if let Some(why) = refusal(&said) {
            return Err(of_server(format!("cannot read the table {schema}.{table}: {why}")));
        }
    }
    Ok(())
}

/// Returns why a table is not whole, by the answer to CHECK TABLE.
fn refusal(said: &[[String; 4]]) -> Option<String> {
    match said.last() {
        Some([.., kind, text]) if kind == "status" && text == "OK" => None,
        _ => {
            let lines: Vec<&str> = said.iter().map(|[.., text]| text.as_str()).collect();
            Some(lines.join("; "))
        }
    }
}

/// Adds the next step to the error of a server that fails on a clone; `is_doubtful` if the encryption of a tablespace may have been changed
/// while that was taken.
pub(super) fn explained(error: BackupError, is_doubtful: bool) -> BackupError {
    let BackupError::Program { program, what } = error else { return error };
    if what.contains(KILLED) {
        // Its advice differs from that of other programs: what it left is not used.
        return of_server(what);
    }
    let is_of_change = || FAILURES.iter().any(|words| what.contains(words));
    let said = what.to_lowercase();
    let advice = if NO_KEY.iter().any(|words| said.contains(words)) {
        "the server found no master key for what is encrypted: empty the directory, and restore again with --datadir-file and --mysqld-opts that give it a keyring; with --mysqld-writes, if the keyring is a file elsewhere, because the server can write nowhere else"
    } else if is_doubtful && is_of_change() {
        "MySQL may not recover if the encryption of a tablespace was changed while the clone was taken: take another backup, and run no ALTER TABLESPACE ... ENCRYPTION meanwhile"
    } else {
        return BackupError::Program { program, what };
    };
    BackupError::Program { program, what: format!("{what}; {advice}") }
}

pub(super) fn of_server(what: String) -> BackupError {
    BackupError::Program { program: CLONE_SERVER.to_owned(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_server_and_a_missing_keyring_have_advice() {
        let error = |what: &str| {
            let program = "mysqld".to_owned();
            explained(BackupError::Program { program, what: what.to_owned() }, false)
        };
        // Another run refuses what a killed server has left.
        let killed = error(&format!("ended: {KILLED}"));
        assert!(killed.hint().is_some_and(|hint| hint.contains("empty the directory")), "{killed}");
        let keyless = error("Can't find master key from keyring").to_string();
        assert!(keyless.starts_with("mysqld Can't find master key"), "{keyless}");
        assert!(keyless.contains("keyring; the server found no master key"), "{keyless}");
        assert!(keyless.contains("--mysqld-writes"), "{keyless}");
        let encrypted_log = error("Redo log was encrypted, but keyring is not loaded.").to_string();
        assert!(encrypted_log.contains("--mysqld-writes"), "{encrypted_log}");
    }

    #[test]
    fn a_table_is_whole_only_if_the_last_word_is_ok() {
        let line = |kind: &str, text: &str| ["t.a", "check", kind, text].map(str::to_owned);
        assert_eq!(refusal(&[line("status", "OK")]), None);
        assert_eq!(refusal(&[line("warning", "slow"), line("status", "OK")]), None);
        let corrupt = [line("error", "page 3"), line("error", "Corrupt")];
        assert_eq!(refusal(&corrupt).as_deref(), Some("page 3; Corrupt"));
        assert!(refusal(&[line("status", "Operation failed")]).is_some());
        assert!(refusal(&[line("note", "OK")]).is_some() && refusal(&[]).is_some());
    }

    #[test]
    fn a_change_of_encryption_is_blamed_only_where_there_are_signs_of_one() {
        let assertion = "[ERROR] InnoDB: Assertion failure: fil0fil.cc:7817; got signal 6";
        let no_key = "[ERROR] [MY-012657] [InnoDB] Encryption can't find master key, please check the keyring is loaded.; got signal 6";
        for (what, is_doubtful, advice) in [
            (assertion, true, "take another backup"),
            (assertion, false, "[ERROR] InnoDB"),
            (
                "[ERROR] [MY-011899] [InnoDB] Unable to read page [page id: space=8, page number=3]",
                true,
                "take another backup",
            ),
            ("[ERROR] Aborting", true, "[ERROR] Aborting"),
            (no_key, true, "the server found no master key"),
            (no_key, false, "the server found no master key"),
        ] {
            let error = explained(of_server(what.to_owned()), is_doubtful);
            let BackupError::Program { what: said, .. } = error else { panic!("{what}") };
            assert!(said.contains(advice) && said.starts_with(what), "{is_doubtful}: {said}");
            assert_eq!(said.contains("ALTER TABLESPACE"), advice == "take another backup");
        }
    }
}
