//! Arguments and environment for every call of the backup program.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::context::Context;
use crate::contract::args::Args;
use crate::contract::settings::key_file;

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
    options.map(|(name, value)| word("--", name, value.as_deref())).collect()
}

/// Options from the server's command line that locate the keys of encrypted tables. Plugins do not
/// see what follows `--mysqld-args`, and the program itself accepts these options only with
/// `loose-`.
pub(crate) fn key_words(args: &Args, datadir: &Path) -> impl Iterator<Item = OsString> {
    let options = args.server.iter().filter(|(name, _)| name.contains("key-management"));
    options.map(|(name, value)| {
        let file = value.as_deref().and_then(|value| key_file(name, value, datadir));
        word("--loose-", name, file.as_deref().or(value.as_deref()))
    })
}

/// A server option behind `prefix`.
fn word(prefix: &str, name: &str, value: Option<&OsStr>) -> OsString {
    match value {
        Some(value) => option(&format!("{prefix}{name}"), value),
        None => format!("{prefix}{name}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_own_words_about_keys_reach_the_plugins() {
        let line = "--role joiner --address h --datadir /d/ --mysqld-args --wsrep-on --loose-file_key_management_filename=k --file-key-management";
        let line: Vec<_> = line.split(' ').map(OsString::from).collect();
        let words: Vec<_> = key_words(&Args::parse(&line).unwrap(), Path::new("/d")).collect();
        let expected = ["--loose-file-key-management-filename=/d/k", "--loose-file-key-management"];
        assert_eq!(words, expected);
    }
}
