//! Logs in to the producer's server, with the producer's own login.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use xb_binlog::Fork;
use xb_mysql::{Access, ClientOptions};
use xb_option_files::{FileOption, OptionFileArgs, OptionFileError, OptionFilePaths, load};

use crate::cancel::CancelToken;
use crate::child::{OnLine, ask, file_name, find};
use crate::server::session::{Session, SessionError};

/// Groups of option files that a producer reads, and the stock clients do not.
pub(crate) const GROUPS: [&str; 3] = ["mariadb-backup", "mariabackup", "xtrabackup"];
/// Group of a receiver of binary logs.
pub(crate) const RECEIVER: &str = "xbcloud-binlog";
/// Group of a clone.
pub(crate) const CLONE: &str = "xbcloud-clone";
/// Group of a server that restored data is compared with.
pub(crate) const COMPARED: &str = "xbcloud-compare";
/// Program that prints the options in a group. Of MySQL, it also reads the login file, which is
/// encrypted.
const PRINT_DEFAULTS: &str = "my_print_defaults";
/// Time limit of each step of a login.
const LOGIN_LIMIT: Duration = Duration::from_secs(5);

/// Returns the fork whose servers a backup program backs up, by its file name; `None` if the program is unknown.
pub(crate) fn fork_of(program: &OsStr) -> Option<Fork> {
    let name = file_name(Path::new(program));
    match name.starts_with("mariadb-backup") || name.starts_with("mariabackup") {
        true => Some(Fork::MariaDb),
        false => name.starts_with("xtrabackup").then_some(Fork::MySql),
    }
}

/// Reason why a producer's server cannot be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginError {
    /// The option files cannot be read.
    #[error(transparent)]
    Files(#[from] OptionFileError),
    /// The options do not say how to log in.
    #[error(transparent)]
    Options(#[from] xb_mysql::Error),
    /// The login failed.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Logs in to the server of the producer `argv`.
///
/// # Errors
/// [`LoginError`].
pub(crate) async fn log_in(
    fork: Fork,
    argv: &[OsString],
    cancel: &CancelToken,
) -> Result<Session, LoginError> {
    let given = argv.get(1..).unwrap_or_default();
    let wanted = about_files(given);
    let mut options = ClientOptions::default();
    take_files(&mut options, &OptionFilePaths::usual(), &wanted, &GROUPS)?;
    if fork == Fork::MySql && !wanted.none {
        of_login_file(&mut options, given, cancel).await;
    }
    // The command line wins.
    take_words(&mut options, given);
    Ok(Session::open(&options.access()?, LOGIN_LIMIT, cancel).await?)
}

/// Where the server of a client without options is, and as whom it logs in, unless `change` says
/// otherwise.
///
/// # Errors
/// [`LoginError::Files`], [`LoginError::Options`].
pub(crate) fn usual_access(change: impl FnOnce(&mut ClientOptions)) -> Result<Access, LoginError> {
    access_of(&OptionFilePaths::usual(), None, &GROUPS, change)
}

/// Like [`usual_access`], with these groups behind those of the stock clients. What the login file says wins over all usual files,
/// also over that in the home of whoever runs the command.
///
/// # Errors
/// As [`usual_access`].
pub(crate) fn access_of(
    places: &OptionFilePaths,
    login_file: Option<&Path>,
    groups: &[&str],
    change: impl FnOnce(&mut ClientOptions),
) -> Result<Access, LoginError> {
    let mut options = ClientOptions::default();
    take_files(&mut options, places, &OptionFileArgs::default(), groups)?;
    if let Some(file) = login_file {
        let only = OptionFileArgs { only: Some(file.to_owned()), ..OptionFileArgs::default() };
        let found = of_files(places, &only, groups)?;
        found.iter().for_each(|option| options.make_way(&option.key));
        found.iter().for_each(|option| options.take(&option.key, option.value.as_deref()));
    }
    change(&mut options);
    Ok(options.access()?)
}

/// Takes the options of the stock clients' groups, then those of others.
fn take_files(
    options: &mut ClientOptions,
    places: &OptionFilePaths,
    wanted: &OptionFileArgs,
    others: &[&str],
) -> Result<(), OptionFileError> {
    let found = of_files(places, wanted, others)?;
    found.iter().for_each(|option| options.take(&option.key, option.value.as_deref()));
    Ok(())
}

/// The options of the stock clients' groups, then those of others.
fn of_files(
    places: &OptionFilePaths,
    wanted: &OptionFileArgs,
    others: &[&str],
) -> Result<Vec<FileOption>, OptionFileError> {
    let mut found = load(places, wanted, &xb_mysql::GROUPS)?.options;
    found.extend(load(places, wanted, others)?.options);
    Ok(found)
}

/// Adds the options of MySQL's login file, `~/.mylogin.cnf`, if there is one; nothing if they cannot
/// be printed.
async fn of_login_file(options: &mut ClientOptions, given: &[OsString], cancel: &CancelToken) {
    let named = given.iter().find(|word| word.as_bytes().starts_with(b"--login-path="));
    let file = std::env::var_os("MYSQL_TEST_LOGIN_FILE")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".mylogin.cnf")));
    let program = Path::new(PRINT_DEFAULTS);
    if !file.is_some_and(|file| file.exists()) || find(&[program]).is_err() {
        return;
    }
    // No option file but the login file, which `--no-defaults` does not concern.
    let mut args: Vec<OsString> = vec!["--no-defaults".into()];
    args.extend(named.cloned());
    args.extend(["--show", "client", "mysql", "xtrabackup"].map(OsString::from));
    let quiet: OnLine = Arc::new(|_| {});
    let printed = ask(program, &args, &quiet, cancel).await.unwrap_or_default();
    take_words(options, &printed.lines().map(OsString::from).collect::<Vec<_>>());
}

fn take_words(options: &mut ClientOptions, words: &[OsString]) {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let next = words.get(at + 1).map(OsString::as_os_str);
        at += 1 + usize::from(options.take_word(word, next));
    }
}

/// The options about option files among a producer's arguments.
pub(crate) fn about_files(args: &[OsString]) -> OptionFileArgs {
    let value = |name: &str| {
        let mut words = args.iter();
        while let Some(word) = words.next() {
            match word.as_bytes().strip_prefix(name.as_bytes()) {
                Some([b'=', value @ ..]) => return Some(OsStr::from_bytes(value).to_owned()),
                Some([]) => return words.next().cloned(),
                _ => {}
            }
        }
        None
    };
    OptionFileArgs {
        none: args.iter().any(|word| word == "--no-defaults"),
        only: value("--defaults-file").map(PathBuf::from),
        extra: value("--defaults-extra-file").map(PathBuf::from),
        group_suffix: value("--defaults-group-suffix").and_then(|text| text.into_string().ok()),
        // The producer reads them in this way, too.
        as_stock: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(files: &[(&str, &str)], args: &[&str]) -> Access {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let args = args.iter().map(|word| word.replace('@', dir.path().to_str().unwrap()));
        let args: Vec<OsString> = args.map(OsString::from).collect();
        let (places, wanted) = (OptionFilePaths::none(), about_files(&args));
        let mut options = ClientOptions::default();
        take_files(&mut options, &places, &wanted, &GROUPS).unwrap();
        take_words(&mut options, &args);
        options.access().unwrap()
    }

    fn target(socket: &str) -> xb_mysql::Target {
        xb_mysql::Target::Socket(socket.into())
    }

    #[test]
    fn a_producers_groups_win_over_the_clients_and_its_arguments_over_both() {
        let files = [(
            "my.cnf",
            "[mariadb-backup]\nuser=b\npassword=y\n[client]\nuser=c\npassword=x\nsocket=/c\n[mysqld]\nuser=m\n",
        )];
        let found = access(&files, &["--defaults-file=@/my.cnf", "--backup"]);
        assert_eq!((&found.account.user[..], &found.account.password[..]), (&b"b"[..], &b"y"[..]));
        assert_eq!(found.target, target("/c"));
        let found = access(&files, &["--defaults-file", "@/my.cnf", "-ud", "--socket=/d"]);
        assert_eq!((&found.account.user[..], found.target), (&b"d"[..], target("/d")));
        let extra = ["--defaults-extra-file=@/my.cnf", "--defaults-group-suffix=-x"];
        let suffixed = [("my.cnf", "[client-x]\nuser=s\n[client-y]\nuser=t\n")];
        assert_eq!(access(&suffixed, &extra).account.user, b"s");
        assert_ne!(access(&files, &["--no-defaults", extra[0]]).account.user, b"b");
    }

    #[test]
    fn a_login_file_wins_over_the_file_in_the_home() {
        let dir = tempfile::tempdir().unwrap();
        let own = "[client]\nuser=someone\npassword=x\nhost=elsewhere\n[xbcloud-clone]\nport=1\n";
        std::fs::write(dir.path().join(".my.cnf"), own).unwrap();
        let file = dir.path().join("login.cnf");
        let places = OptionFilePaths::of_home(dir.path());
        let login = |text: &str| {
            std::fs::write(&file, text).unwrap();
            access_of(&places, Some(&file), &[CLONE], |_| {}).unwrap()
        };
        let found = login("[client]\nuser=backup\nhost=db1\nport=3307\n");
        assert_eq!(
            (&found.account.user[..], &found.account.password[..]),
            (&b"backup"[..], &b"x"[..])
        );
        let place = |access: &Access| match &access.target {
            xb_mysql::Target::Tcp { host, port, .. } => format!("{host}:{port}"),
            xb_mysql::Target::Socket(path) => path.display().to_string(),
        };
        assert_eq!(place(&found), "db1:3307");
        // The usual files give the rest.
        let found = login("[xbcloud-clone]\nuser=backup\n");
        assert_eq!(found.account.user, b"backup");
        assert_eq!(place(&found), "elsewhere:1");
        // Its address counts alone, also if it is that of this host.
        assert_eq!(place(&login("[client]\nsocket=/run/x\n")), "/run/x");
        assert_eq!(place(&login("[client]\nhost=db1\n")), "db1:3306");
        // Settings for this host, or for any, still count.
        let own = "[client]\nprotocol=socket\nsocket=/s\nport=7\n";
        std::fs::write(dir.path().join(".my.cnf"), own).unwrap();
        assert_eq!(place(&login("[client]\nhost=db1\n")), "db1:7");
        assert_eq!(place(&login("[client]\nhost=localhost\n")), "/s");
    }

    #[test]
    fn producers_are_known_by_their_names() {
        let of = |name: &str| fork_of(OsStr::new(name));
        assert_eq!(of("/usr/bin/mariadb-backup"), Some(Fork::MariaDb));
        assert_eq!(of("mariabackup"), Some(Fork::MariaDb));
        assert_eq!(of("/opt/xtrabackup-8.4"), Some(Fork::MySql));
        assert_eq!(of("sudo"), None);
    }
}
