//! Chooses the archive of a repository that is meant.

use xb_repo::archive::listing::servers;

use crate::error::BackupError;
use crate::session::Session;
use crate::until_error::UntilError;

/// The error if a server has no archive, which names those that have one.
pub(crate) async fn no_archive(
    session: &Session,
    server: &str,
) -> Result<BackupError, BackupError> {
    let mut archived = servers(&session.root).await?;
    archived.retain(|other| other != server);
    Ok(UntilError::NoArchive { server: server.to_owned(), archived }.into())
}

/// The server whose archive is meant: that which the user names, that of the backup, or the only one.
///
/// # Errors
/// [`UntilError::WhichServer`] if there is none, or more than one; [`BackupError::Repo`].
pub async fn choose_archive(
    session: &Session,
    named: Option<&str>,
    of_backup: Option<&str>,
) -> Result<String, BackupError> {
    if let Some(server) = named.or(of_backup) {
        return Ok(server.to_owned());
    }
    let mut all = servers(&session.root).await?;
    match all.len() {
        1 => Ok(all.remove(0)),
        0 => Err(UntilError::WhichServer(
            "no binary log is archived here: start `binlog receive`, or archive the server's own log files with `binlog push --new-archive`".to_owned(),
        )
        .into()),
        _ => Err(UntilError::WhichServer(format!(
            "binary logs of several servers are archived here ({}): name one with --server",
            all.join(", ")
        ))
        .into()),
    }
}
