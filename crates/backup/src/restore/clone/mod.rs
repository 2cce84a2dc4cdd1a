//! A clone of MySQL: its files are restored as those of any backup, and then put together.
//!
//! ```text
//! info    what the clone says about itself, read before anything else: refused by it, or not
//! state   beside the journal: what is fetched is not compared any more, because it is changed in place
//! place   put together; a server can start on it once the redo log has its place, and not before
//! start   with --prepare: a private server recovers, says where it is, and stops
//! encryption   of tablespaces, whose change the clone has interrupted: finished by that server, and read by another one
//! ```

mod encryption;
pub(crate) mod info;
pub(crate) mod place;
pub(crate) mod report;
pub(crate) mod start;
pub(crate) mod state;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use xb_clone::CloneInfo;
use xb_files::is_lost_and_found;
use xb_reader::TargetDir;

use self::info::{CloneOptions, clone_to_restore};
use self::place::put_together;
use self::report::CloneReport;
use self::start::{find_server, noted, refuse_exposed, start_to_recover};
use crate::cancel::CancelToken;
use crate::error::BackupError;
use crate::read::request::GetRequest;
use crate::restore::journal::head::RestoreIdentity;
use crate::session::Session;

/// A clone that is restored, and the options for it.
pub(crate) struct RestoredClone {
    info: CloneInfo,
    asked: CloneOptions,
}

impl RestoredClone {
    /// Reads the facts of this request's clone, before anything else of it.
    ///
    /// # Errors
    /// As [`clone_to_restore`].
    pub(crate) async fn of(
        session: &Session,
        request: &mut GetRequest,
        asked: CloneOptions,
    ) -> Result<Self, BackupError> {
        let info = clone_to_restore(session, request, &asked).await?;
        Ok(Self { info, asked })
    }

    /// Finds the server that prepares the clone, before hours of reading, and closes its directory to other users if keys
    /// will lie in it in clear.
    ///
    /// # Errors
    /// As [`find_server`]; [`BackupError::Restore`].
    pub(crate) async fn get_ready(
        &mut self,
        target: &Path,
        cancel: &CancelToken,
    ) -> Result<(), BackupError> {
        if let Some(server) = &mut self.asked.server {
            server.program = Some(find_server(server, &self.info.version, cancel).await?);
        }
        match self.info.is_encrypted() {
            true => close(target),
            false => Ok(()),
        }
    }

    /// Bytes of its redo log, which it has in its patches, and beside them.
    pub(crate) fn redo_bytes(&self) -> u64 {
        self.info.redo_bytes()
    }

    /// Puts the fetched clone together: `files` of `bytes` in all. If it is to be prepared, starts a server on it.
    ///
    /// # Errors
    /// As [`put_together`], [`start_to_recover`] and [`refuse_exposed`].
    pub(crate) async fn make_usable(
        self,
        session: &Session,
        target: &Path,
        about: RestoreIdentity,
        files: u64,
        bytes: u64,
        durable: bool,
    ) -> Result<CloneReport, BackupError> {
        session.observer.begin_phase("patch");
        put_together(session, target, about.clone(), files, bytes, durable).await?;
        let Self { info, asked } = self;
        let Some(server) = asked.server else { return Ok(reported(info)) };
        session.observer.begin_phase("prepare");
        let started =
            start_to_recover(session, target, &about, &info, &server, asked.memory).await?;
        if !asked.allow_exposed_keys {
            refuse_exposed(target, &info, started.unwrapped.as_deref())?;
        }
        Ok(CloneReport {
            position: Some(started.position),
            prepared_xa: started.prepared_xa,
            lower_case_table_names: started.lower_case_table_names,
            unconfined: started.unconfined,
            server: server.program,
            ..reported(info)
        })
    }

    /// The report of a clone that an earlier run has restored.
    pub(crate) fn made_before(self, target: &Path) -> CloneReport {
        CloneReport { position: noted(target), ..reported(self.info) }
    }
}

/// Returns the facts about a clone before a server has started on it.
fn reported(info: CloneInfo) -> CloneReport {
    let moved = info.moved().unwrap_or_default();
    let CloneInfo { version, empty_tables, .. } = info;
    CloneReport { version, empty_tables, moved, ..CloneReport::default() }
}

/// Closes a directory to other users, because keys will lie in it in clear. Not one that is in use for something else: the
/// restore refuses it, and leaves it as it is.
fn close(target: &Path) -> Result<(), BackupError> {
    if !TargetDir::has_unfinished(target).unwrap_or(false) && is_in_use(target) {
        return Ok(());
    }
    let closed = std::fs::create_dir_all(target)
        .and_then(|()| std::fs::set_permissions(target, Permissions::from_mode(0o700)));
    closed.map_err(|error| BackupError::Restore {
        target: target.display().to_string(),
        what: format!("cannot close it to other users: {error}"),
    })
}

/// Whether a directory has something in it.
fn is_in_use(target: &Path) -> bool {
    let is_something = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| !is_lost_and_found(&entry))
    };
    std::fs::read_dir(target).is_ok_and(|mut entries| entries.any(is_something))
}
