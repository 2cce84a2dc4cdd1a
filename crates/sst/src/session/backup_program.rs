//! What every call of the backup program is given.

use std::ffi::{OsStr, OsString};

use super::context::Context;
use crate::contract::args::Args;

/// `NAME=VALUE`.
pub(crate) fn option(name: &str, value: impl AsRef<OsStr>) -> OsString {
    let mut word = OsString::from(name);
    word.push("=");
    word.push(value);
    word
}

/// Secrets never go on the command line, which everybody can read.
pub(crate) fn password(context: &Context) -> Vec<(&'static str, OsString)> {
    let login = context.settings.login.iter();
    login.map(|login| ("MYSQL_PWD", OsString::from(login.password()))).collect()
}

/// What of the server's own command line a backup program must know: where the files are. How a
/// damaged server is to start is none of its business: it would refuse that word.
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
