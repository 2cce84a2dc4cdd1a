//! Asks the producer's server by its usual client program, with the producer's own login.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::sync::Arc;

use crate::cancel::CancelToken;
use crate::child::{OnLine, ask, ask_with, file_name, find};
use crate::error::BackupError;

/// Options of a producer that its server's client takes, too.
const LOGIN: [&str; 9] = [
    "--defaults-file",
    "--defaults-extra-file",
    "--defaults-group-suffix",
    "--no-defaults",
    "--user",
    "--host",
    "--port",
    "--socket",
    "--login-path",
];
/// Groups of option files that a producer reads, and its client does not.
const GROUPS: [&str; 3] = ["mariadb-backup", "mariabackup", "xtrabackup"];
/// Program that prints the options in a group.
const PRINT_DEFAULTS: &str = "my_print_defaults";

/// A known backup program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    MariaDb,
    MySql,
}

impl Family {
    /// Recognises a backup program by its file name.
    pub(crate) fn of_program(program: &OsStr) -> Option<Self> {
        let name = file_name(Path::new(program));
        match name.starts_with("mariadb-backup") || name.starts_with("mariabackup") {
            true => Some(Self::MariaDb),
            false => name.starts_with("xtrabackup").then_some(Self::MySql),
        }
    }

    /// The client program.
    pub(crate) fn client(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
        }
    }
}

/// Sends `query` to the server of the producer `argv`; returns the rows as lines, with tabs between
/// columns.
///
/// A password never becomes an argument: the client gets it in its environment.
///
/// # Errors
/// [`BackupError::NotStarted`] if there is no client program; [`BackupError::Program`] if the login
/// or the query fails.
pub(crate) async fn ask_server(
    family: Family,
    argv: &[OsString],
    query: &str,
    cancel: &CancelToken,
) -> Result<String, BackupError> {
    let client = Path::new(family.client());
    find(&[client])?;
    let quiet: OnLine = Arc::new(|_| {});
    let given = argv.get(1..).unwrap_or_default();
    let mut args = login_args(given);
    let files = args.iter().take_while(|word| is_about_files(word)).count();
    let in_groups = in_groups(args.get(..files).unwrap_or_default(), &quiet, cancel).await;
    // The command line comes last, because it wins.
    let password = password(given).or_else(|| password(&in_groups));
    let of_groups = login_args(&in_groups).into_iter().filter(|word| !is_about_files(word));
    args.splice(files..files, of_groups);
    args.extend(
        ["--batch", "--skip-column-names", "--connect-timeout=5", "-e", query].map(OsString::from),
    );
    let env = password.as_deref().map(|password| ("MYSQL_PWD", password));
    ask_with(client, &args, env, &quiet, cancel).await
}

/// The options in the groups of option files that only the producer reads; none if they cannot be
/// printed.
async fn in_groups(files: &[OsString], quiet: &OnLine, cancel: &CancelToken) -> Vec<OsString> {
    let program = Path::new(PRINT_DEFAULTS);
    if files.iter().any(|word| word == "--no-defaults") || find(&[program]).is_err() {
        return Vec::new();
    }
    let mut args = files.to_vec();
    args.extend(GROUPS.map(OsString::from));
    let printed = ask(program, &args, quiet, cancel).await.unwrap_or_default();
    printed.lines().map(OsString::from).collect()
}

/// The options of a login among a producer's arguments, those about option files first, as the
/// client requires.
pub(crate) fn login_args(args: &[OsString]) -> Vec<OsString> {
    let of_login = |word: &&OsString| {
        let word = word.as_bytes();
        let name = word.split(|byte| *byte == b'=').next().unwrap_or_default();
        LOGIN.iter().any(|option| option.as_bytes() == name)
    };
    let mut own: Vec<OsString> = args.iter().filter(of_login).cloned().collect();
    own.sort_by_key(|word| !is_about_files(word));
    own
}

fn is_about_files(word: &OsString) -> bool {
    word.as_bytes().starts_with(b"--defaults") || word == "--no-defaults"
}

fn password(args: &[OsString]) -> Option<OsString> {
    let given = |word: &OsString| word.as_bytes().strip_prefix(b"--password=").map(<[u8]>::to_vec);
    args.iter().rev().find_map(given).map(OsString::from_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_login_goes_to_the_client() {
        let args = ["--backup", "--user=b", "--password=x", "--defaults-file=/a", "--socket=/s"];
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        assert_eq!(login_args(&args), ["--defaults-file=/a", "--user=b", "--socket=/s"]);
        assert_eq!(password(&args).as_deref(), Some(OsStr::new("x")));
    }

    #[test]
    fn producers_are_known_by_their_names() {
        let of = |name: &str| Family::of_program(OsStr::new(name));
        assert_eq!(of("/usr/bin/mariadb-backup"), Some(Family::MariaDb));
        assert_eq!(of("mariabackup"), Some(Family::MariaDb));
        assert_eq!(of("/opt/xtrabackup-8.4"), Some(Family::MySql));
        assert_eq!(of("sudo"), None);
    }
}
