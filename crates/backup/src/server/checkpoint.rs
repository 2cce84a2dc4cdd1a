//! A checkpoint before a backup.
//!
//! A backup's redo log begins at the server's last checkpoint, and an increment holds every page that
//! was changed since the checkpoint of its base. A quiet MariaDB with default settings need not write
//! one for days: then each increment carries all those changes again.
//!
//! The server is asked with the producer's login. mariadb-backup has an option of its own for that,
//! `--innodb-log-checkpoint-now`, which is not used: it ignores a refusal of the server without a
//! message, and begins to copy the log at the checkpoint before.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use xb_binlog::Fork;
use xb_mysql::Error;

use crate::cancel::CancelToken;
use crate::error::BackupError;
use crate::server::login::{LoginError, fork_of, log_in};
use crate::server::session::{Session, SessionError};

/// Most bytes that a checkpoint may have to write: on a slow disk, a few seconds of writes beside those
/// of the server.
const MAX_DIRTY: u64 = 512 << 20;
/// Longest wait for the server. It completes its checkpoint anyway.
const MAX_WAIT: Duration = Duration::from_secs(60);
const DIRTY: &str = "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_bytes_dirty'";
const CHECKPOINT_NOW: &str = "SET GLOBAL innodb_log_checkpoint_now = ON";
/// Errors of the server: the privilege is missing; it has no such variable.
const DENIED: u16 = 1227;
const UNKNOWN: u16 = 1193;

/// Outcome of asking for a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checkpoint {
    /// The server wrote one.
    Done {
        /// Bytes of changed pages in memory before it.
        dirty: u64,
        /// Time that it took.
        took: Duration,
    },
    /// There is none.
    Skipped(NoCheckpoint),
    /// The producer's server needs none, or is not known.
    NotNeeded,
}

/// Reason why the server wrote no checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoCheckpoint {
    /// It was not asked, because it has too much to write.
    #[error("the server would have to write {} MiB at once, and the limit is {} MiB", dirty >> 20, MAX_DIRTY >> 20)]
    TooMuch {
        /// Bytes of changed pages in memory.
        dirty: u64,
    },
    /// It took too long.
    #[error("the server did not write it within {} s", MAX_WAIT.as_secs())]
    TooLong,
    /// The privilege is missing.
    #[error("the login has no SUPER privilege")]
    Denied,
    /// The server has no such variable.
    #[error("this server has no innodb_log_checkpoint_now")]
    Unknown,
    /// The server could not be asked.
    #[error("cannot query the server with the producer's login: {0}")]
    NotAsked(String),
}

impl NoCheckpoint {
    /// The refusal of a server with so many bytes of changed pages in memory.
    fn of_dirty(dirty: u64) -> Option<Self> {
        (dirty > MAX_DIRTY).then_some(Self::TooMuch { dirty })
    }

    /// The next step for those whose increments do not get smaller for lack of a checkpoint.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            // What --checkpoint=auto and SUPER can do is done.
            Self::TooMuch { .. } | Self::TooLong => {
                "have the server write a checkpoint when it is quiet (SET GLOBAL innodb_log_checkpoint_now = ON), or keep fewer changed pages in memory (innodb_max_dirty_pages_pct)"
            }
            Self::Denied => "give the producer's login the privilege SUPER",
            Self::Unknown => "take a full backup when the increments have become too large",
            Self::NotAsked(_) => "see that the options of the producer give its login",
        }
    }
}

/// Has the server of the producer `argv` write a checkpoint, if it is a MariaDB and has little to
/// write. A server that cannot be asked is no error.
///
/// # Errors
/// [`BackupError::Interrupted`].
pub async fn checkpoint(
    argv: &[OsString],
    cancel: &CancelToken,
) -> Result<Checkpoint, BackupError> {
    let fork = argv.first().and_then(|program| fork_of(program));
    if fork != Some(Fork::MariaDb) {
        return Ok(Checkpoint::NotNeeded);
    }
    let outcome = match log_in(Fork::MariaDb, argv, cancel).await {
        Ok(mut session) => write(&mut session, cancel).await.map_err(LoginError::Session),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(outcome) => Ok(outcome),
        Err(LoginError::Session(SessionError::Own(error))) => Err(error),
        Err(error) => Ok(Checkpoint::Skipped(
            refusal(&error).unwrap_or_else(|| NoCheckpoint::NotAsked(error.to_string())),
        )),
    }
}

async fn write(session: &mut Session, cancel: &CancelToken) -> Result<Checkpoint, SessionError> {
    let mut dirty = 0;
    for row in session.rows(DIRTY, cancel).await? {
        let [_, value] = row.texts()?;
        dirty = value.parse().map_err(|_| Error::Unexpected)?;
    }
    if let Some(too_much) = NoCheckpoint::of_dirty(dirty) {
        return Ok(Checkpoint::Skipped(too_much));
    }
    let begin = Instant::now();
    match session.run_within(CHECKPOINT_NOW, MAX_WAIT, cancel).await? {
        true => Ok(Checkpoint::Done { dirty, took: begin.elapsed() }),
        false => Ok(Checkpoint::Skipped(NoCheckpoint::TooLong)),
    }
}

/// Returns the meaning of the server's refusal.
fn refusal(error: &LoginError) -> Option<NoCheckpoint> {
    let LoginError::Session(SessionError::Server(Error::Server(said))) = error else {
        return None;
    };
    match said.code {
        DENIED => Some(NoCheckpoint::Denied),
        UNKNOWN => Some(NoCheckpoint::Unknown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_much_to_write_is_not_asked() {
        assert_eq!(NoCheckpoint::of_dirty(0), None);
        assert_eq!(NoCheckpoint::of_dirty(512 << 20), None);
        let refused = NoCheckpoint::of_dirty(715 << 20).unwrap();
        assert_eq!(
            refused.to_string(),
            "the server would have to write 715 MiB at once, and the limit is 512 MiB"
        );
        // It was given what else is advised.
        for refused in [refused, NoCheckpoint::TooLong] {
            let hint = refused.hint();
            assert!(!hint.contains("SUPER") && hint.contains("when it is quiet"), "{hint}");
        }
        assert!(NoCheckpoint::Denied.hint().contains("SUPER"));
    }
}
