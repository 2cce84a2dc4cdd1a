//! Reads the rows of tables of which `CHECK TABLE` reads none.

use super::outcome::Outcome;
use super::revive::revive;
use crate::cancel::CancelToken;
use crate::error::BackupError;
use crate::server::private::Server;

/// Number of the key with which MariaDB encrypts tables of Aria.
pub(super) const KEY_OF_ARIA: u32 = 1;

/// Reads all columns of all rows. Returns false if the server has ended and cannot be started again.
pub(super) async fn read_rows(
    server: &mut Server,
    found: &mut Outcome,
    cancel: &CancelToken,
) -> Result<bool, BackupError> {
    for entry in std::mem::take(&mut found.unread) {
        let checksum = format!("CHECKSUM TABLE {} EXTENDED", entry.quoted());
        let sum: Result<Vec<[String; 2]>, String> = server.rows(&checksum, cancel).await?;
        server.check_not_killed()?;
        match sum {
            Ok(_) => found.rows_read(&entry),
            Err(_) if server.has_ended() => found.wrong.push(format!(
                "table {entry}: the server exits when it reads the rows: {}",
                server.cause()
            )),
            Err(said) => {
                let why = warnings(server, cancel).await?;
                let why = if why.is_empty() { said } else { why };
                found.wrong.push(format!("table {entry}: the rows cannot be read: {why}"));
            }
        }
        if !revive(server, found, cancel).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Looks for a row of an encrypted table of Aria that the server can read: its key is the right one then.
pub(super) async fn try_key(
    server: &mut Server,
    found: &mut Outcome,
    cancel: &CancelToken,
) -> Result<(), BackupError> {
    for entry in std::mem::take(&mut found.sealed) {
        if !found.doubts_key(KEY_OF_ARIA) {
            break;
        }
        let row = format!("SELECT 1 FROM {} LIMIT 1", entry.quoted());
        let rows: Result<Vec<[String; 1]>, String> = server.rows(&row, cancel).await?;
        if rows.is_ok_and(|rows| !rows.is_empty()) {
            found.deciphered.insert(KEY_OF_ARIA);
        }
    }
    Ok(())
}

/// Why the last statement has no result.
async fn warnings(server: &mut Server, cancel: &CancelToken) -> Result<String, BackupError> {
    let rows: Result<Vec<[String; 3]>, String> = server.rows("SHOW WARNINGS", cancel).await?;
    let texts: Vec<String> =
        rows.unwrap_or_default().into_iter().map(|[_, _, text]| text).collect();
    Ok(texts.join("; "))
}
