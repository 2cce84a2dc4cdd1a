//! Starts a trial server again that has ended by itself.

use super::outcome::Outcome;
use crate::cancel::CancelToken;
use crate::error::BackupError;
use crate::server::private::Server;

/// Starts the server again if it has ended. Returns false if that is not possible.
///
/// # Errors
/// The server was killed from outside.
pub(super) async fn revive(
    server: &mut Server,
    found: &mut Outcome,
    cancel: &CancelToken,
) -> Result<bool, BackupError> {
    if !server.has_ended() {
        return Ok(true);
    }
    server.check_not_killed()?;
    found.log = Some(server.last_lines());
    match server.restart(cancel).await {
        Ok(()) => Ok(true),
        Err(error @ BackupError::Program { .. }) => {
            server.check_not_killed()?;
            found.wrong.push(format!("the server exited, and cannot be started again: {error}"));
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
