//! Arguments and environment for every call of the backup program.

use std::ffi::{OsStr, OsString};

use crate::context::Context;
use crate::contract::args::Args;

/// Formats an option as `NAME=VALUE`.
pub(crate) fn option(name: &str, value: impl AsRef<OsStr>) -> OsString {
    let mut word = OsString::from(name);
    word.push("=");
    word.push(value);
    word
}

/// Returns the environment variable with the password. Secrets are never put on the command line,
/// which every user can read.
pub(crate) fn password(context: &Context) -> Vec<(&'static str, OsString)> {
    let login = context.settings.login.iter();
    login.map(|login| ("MYSQL_PWD", OsString::from(login.password()))).collect()
}

/// Options of the server's own command line that a backup program needs: the locations of the
/// files. Options for starting a damaged server are left out: the backup program rejects them.
pub(crate) fn server_words(args: &Args) -> Vec<OsString> {
    let about_files = |name: &str| {
        ["innodb-", "aria-", "log-bin", "log-basename", "plugin-"]
            .iter()
            .any(|p| name.starts_with(p))
            && name != "innodb-force-recovery"
    };
    let options = args.server.iter().filter(|(name, _)| about_files(name));
    options
        .map(|(name, value)| match value {
            Some(value) => option(&format!("--{name}"), value),
            None => format!("--{name}").into(),
        })
        .collect()
}
