//! `check`: checks everything that a transfer needs on this node, before the first one.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use rustix::process::geteuid;

use crate::context::Context;
use crate::error::SstError;
use crate::joiner::check_tmpdir;
use crate::server::sql::Sql;
use crate::session::endpoint::{LastRefusal, listen};

/// Longest wait for the server's answer.
const LOGIN_LIMIT: Duration = Duration::from_secs(10);

/// Checks what this node needs as a joiner: reads its certificates, listens on its address for a moment, and writes to the
/// directory for small files, unless this is another user than the server's, who may have no right to.
///
/// # Errors
/// As a joiner fails before it accepts a donor.
pub fn check_joiner(context: &Context) -> Result<(), SstError> {
    let _listener = listen(context, &LastRefusal::default())?;
    context.error_log.info(format_args!("port: {} is free", context.args.address));
    let owner = context.layout.datadir.metadata().map(|facts| facts.uid());
    if !geteuid().is_root() && owner.is_ok_and(|owner| owner != geteuid().as_raw()) {
        return Ok(());
    }
    let work = check_tmpdir(context)?;
    let tmpdir = work.path().parent().unwrap_or(work.path());
    context.error_log.info(format_args!("tmpdir: small files can be made in {}", tmpdir.display()));
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
