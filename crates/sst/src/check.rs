//! `check`: checks everything that a transfer needs on this node, before the first one.

use std::time::Duration;

use crate::context::Context;
use crate::error::SstError;
use crate::server::sql::Sql;
use crate::session::endpoint::listen;

/// Longest wait for the server's answer.
const LOGIN_LIMIT: Duration = Duration::from_secs(10);

/// Checks what this node needs as a joiner: reads its certificates, and listens on its address for
/// a moment.
///
/// # Errors
/// As a joiner fails before it accepts a donor.
pub fn check_joiner(context: &Context) -> Result<(), SstError> {
    let _listener = listen(context)?;
    context.error_log.info(format_args!("port: {} is free", context.args.address));
    Ok(())
}

/// Checks what this node needs as a donor: whether its server accepts the login of the backup.
///
/// # Errors
/// [`SstError::Login`] if it does not.
pub fn check_donor(context: &Context) -> Result<(), SstError> {
    let user = context.settings.login.as_ref().map(|login| login.user.display().to_string());
    match Sql::new(context).ask_within(LOGIN_LIMIT, "SELECT CURRENT_USER()") {
        Some(rows) => {
            let name = rows.into_iter().next().map(|[name]| name).unwrap_or_default();
            context.error_log.info(format_args!("login: the server accepts it as {name}"));
            Ok(())
        }
        None => Err(SstError::Login { user: user.unwrap_or_else(|| "the system user".to_owned()) }),
    }
}
