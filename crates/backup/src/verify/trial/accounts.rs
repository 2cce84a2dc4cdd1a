//! Reads accounts and privileges: the trial server runs without them.

use super::outcome::Outcome;
use crate::cancel::CancelToken;
use crate::error::BackupError;
use crate::server::private::Server;

/// Reads accounts and privileges, as an ordinary server does at its start. Then the server asks for an account: no
/// further connection can be made.
pub(super) async fn read_accounts(
    server: &mut Server,
    found: &mut Outcome,
    cancel: &CancelToken,
) -> Result<(), BackupError> {
    if !found.has_sound_system() {
        return Ok(());
    }
    let Err(said) = server.run("FLUSH PRIVILEGES", cancel).await? else { return Ok(()) };
    server.check_not_killed()?;
    found.wrong.push(match server.has_ended() {
        true => format!("the server exits when it reads accounts and privileges: {}", server.cause()),
        false => format!(
            "no server starts on these files without --skip-grant-tables: accounts and privileges cannot be read: {said}"
        ),
    });
    Ok(())
}
