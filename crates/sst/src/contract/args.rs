//! The arguments with which the server starts the script.
//!
//! They have the form `--name value`. Unknown options are ignored: servers add options now and
//! then. Everything after `--mysqld-args` is the server's own command line, as `--name=value` or
//! `--name value`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::contract::position::StateId;

/// Side of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sends its data.
    Donor,
    /// Receives the data.
    Joiner,
}

impl Role {
    fn of(word: &OsStr) -> Result<Self, ArgsError> {
        match word.to_str() {
            Some("donor") => Ok(Self::Donor),
            Some("joiner") => Ok(Self::Joiner),
            _ => Err(ArgsError::Value { option: "--role" }),
        }
    }

    /// The name for messages.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Donor => "donor",
            Self::Joiner => "joiner",
        }
    }
}

/// Product of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    /// MariaDB with Galera.
    MariaDb,
    /// Percona XtraDB Cluster.
    Percona,
}

/// Parsed arguments of the script.
#[derive(Clone)]
pub struct Args {
    /// Side of the transfer.
    pub role: Role,
    /// Product of the server.
    pub product: Product,
    /// Joiner: address to listen on. Donor: address to connect to.
    pub address: String,
    /// The data directory, if given.
    pub datadir: Option<PathBuf>,
    /// The server's process id; only a joiner gets it.
    pub parent: Option<i32>,
    /// Whether the server reads progress lines from stdout.
    pub progress: bool,
    /// Donor: the position at the start of the transfer.
    pub gtid: Option<StateId>,
    /// Donor: the GTID domain.
    pub gtid_domain: Option<u32>,
    /// Donor: send no snapshot; the joiner gets write sets.
    pub bypass: bool,
    /// Donor: the server's socket.
    pub socket: Option<PathBuf>,
    /// Base name of the binary log, if enabled.
    pub binlog: Option<OsString>,
    /// Name of the binary log's index.
    pub binlog_index: Option<OsString>,
    /// `--defaults-file` and the related options.
    pub defaults: Defaults,
    /// Directory of the server's installation; only Percona's server passes it.
    pub basedir: Option<PathBuf>,
    /// Directory of the server's plugins; only Percona's server passes it.
    pub plugindir: Option<PathBuf>,
    /// Version of the server; only Percona's server passes it.
    pub server_version: Option<String>,
    /// Other options of the script that correspond to server options (`--innodb-data-home-dir` and
    /// so on), then the server's own command line: names with `-` for `_`, in the order given.
    pub server: Vec<(String, Option<OsString>)>,
}

impl std::fmt::Debug for Args {
    /// Omits the address and the server's command line, which may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Args")
            .field("role", &self.role)
            .field("product", &self.product)
            .field("datadir", &self.datadir)
            .field("bypass", &self.bypass)
            .finish_non_exhaustive()
    }
}

/// Options that select option files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Defaults {
    /// `--defaults-file`: read only this file.
    pub file: Option<PathBuf>,
    /// `--defaults-extra-file`: read this file, too.
    pub extra: Option<PathBuf>,
    /// `--defaults-group-suffix`: appended to the names of groups.
    pub suffix: Option<String>,
}

impl Defaults {
    /// Returns these options as arguments of one of the server's programs, where they must come
    /// first.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        let word = |name: &str, value: &OsStr| {
            let mut word = OsString::from(name);
            word.push(value);
            word
        };
        let file = self.file.iter().map(|file| word("--defaults-file=", file.as_os_str()));
        let extra = self.extra.iter().map(|file| word("--defaults-extra-file=", file.as_os_str()));
        let suffix = self.suffix.iter().map(|s| word("--defaults-group-suffix=", s.as_ref()));
        file.chain(extra).chain(suffix).collect()
    }
}

/// Invalid arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgsError {
    /// A required option is missing.
    #[error("{0} is missing: a Galera server starts this program with it")]
    Missing(&'static str),
    /// An option has an invalid value.
    #[error("{option} has an invalid value")]
    Value {
        /// The option.
        option: &'static str,
    },
}

/// Options of the stock scripts that correspond to options of the server.
const OF_THE_SERVER: [&str; 9] = [
    "log-bin",
    "log-bin-index",
    "log-basename",
    "innodb-data-home-dir",
    "innodb-log-group-home-dir",
    "innodb-undo-directory",
    "innodb-buffer-pool-filename",
    "innodb-buffer-pool-size",
    "aria-log-dir-path",
];

/// Options that have no value.
const SWITCHES: [&str; 1] = ["bypass"];

impl Args {
    /// The address without the secret in it: host and port only.
    #[must_use]
    pub fn peer(&self) -> &str {
        let address = self.address.split('/').next().unwrap_or_default();
        address.rsplit('@').next().unwrap_or_default()
    }

    /// Parses the arguments after the program's name.
    ///
    /// # Errors
    /// [`ArgsError`]: the role or the address is missing, or a required value is invalid.
    pub fn parse(words: &[OsString]) -> Result<Self, ArgsError> {
        let mut role = None;
        let mut address = None;
        let (mut ours, mut theirs) = (false, false);
        let mut args = Self::empty();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            // The server passes an empty argument for a value that it does not have.
            let Some(name) = word.as_bytes().strip_prefix(b"--") else { continue };
            let (name, glued) = split(name);
            if name == "mysqld-args" {
                ours = true;
                args.server.extend(server_words(&mut words));
                break;
            }
            if SWITCHES.contains(&name.as_str()) {
                args.bypass = true;
                continue;
            }
            let value = match glued {
                Some(value) => value,
                None if words.as_slice().first().is_some_and(|next| !is_option(next)) => {
                    words.next().cloned().unwrap_or_default()
                }
                None => continue,
            };
            let given = !value.is_empty();
            match name.as_str() {
                "role" => role = Some(Role::of(&value)?),
                "address" => {
                    let text = value.into_string();
                    address = Some(text.map_err(|_| ArgsError::Value { option: "--address" })?);
                }
                "datadir" if given => args.datadir = Some(value.into()),
                "parent" if given => args.parent = Some(number(&value, "--parent")?),
                "progress" => {
                    ours = true;
                    args.progress = given && value != "0";
                }
                "gtid" if given => {
                    let text = value.to_str().and_then(|text| text.parse().ok());
                    args.gtid = Some(text.ok_or(ArgsError::Value { option: "--gtid" })?);
                }
                "gtid-domain-id" => {
                    ours = true;
                    args.gtid_domain = value.to_str().and_then(|text| text.parse().ok());
                }
                "local-port" => ours = true,
                "socket" if given => args.socket = Some(value.into()),
                "binlog" if given => args.binlog = Some(value),
                "binlog-index" if given => args.binlog_index = Some(value),
                "defaults-file" if given => args.defaults.file = Some(value.into()),
                "defaults-extra-file" if given => args.defaults.extra = Some(value.into()),
                "defaults-group-suffix" if given => {
                    args.defaults.suffix = Some(value.to_string_lossy().into_owned());
                }
                "basedir" if given => args.basedir = Some(value.into()),
                "plugindir" => {
                    theirs = true;
                    args.plugindir = given.then(|| value.into());
                }
                "mysqld-version" => {
                    theirs = true;
                    args.server_version = given.then(|| value.to_string_lossy().into_owned());
                }
                name if given && OF_THE_SERVER.contains(&name) => {
                    args.server.push((name.to_owned(), Some(value)));
                }
                _ => {}
            }
        }
        args.role = role.ok_or(ArgsError::Missing("--role"))?;
        args.address = address.ok_or(ArgsError::Missing("--address"))?;
        args.product = if theirs || !ours { Product::Percona } else { Product::MariaDb };
        if args.role == Role::Donor && args.gtid.is_none() {
            return Err(ArgsError::Missing("--gtid"));
        }
        Ok(args)
    }

    /// Arguments as if none had been given.
    fn empty() -> Self {
        Self {
            role: Role::Donor,
            product: Product::MariaDb,
            address: String::new(),
            datadir: None,
            parent: None,
            progress: false,
            gtid: None,
            gtid_domain: None,
            bypass: false,
            socket: None,
            binlog: None,
            binlog_index: None,
            defaults: Defaults::default(),
            basedir: None,
            plugindir: None,
            server_version: None,
            server: Vec::new(),
        }
    }

    /// Returns the last value of a server option on the command line.
    #[must_use]
    pub fn server_option(&self, name: &str) -> Option<&OsStr> {
        self.server.iter().rev().find(|(known, _)| known == name)?.1.as_deref()
    }
}

/// Parses a process id or another number.
fn number(value: &OsStr, option: &'static str) -> Result<i32, ArgsError> {
    let number = value.to_str().and_then(|text| text.parse().ok()).filter(|n| *n > 0);
    number.ok_or(ArgsError::Value { option })
}

fn is_option(word: &OsStr) -> bool {
    word.as_bytes().starts_with(b"--")
}

/// Splits `name=value`, and replaces `_` by `-` in the name.
fn split(word: &[u8]) -> (String, Option<OsString>) {
    let (name, value) = match word.iter().position(|byte| *byte == b'=') {
        Some(at) => (&word[..at], Some(OsString::from_vec(word[at + 1..].to_vec()))),
        None => (word, None),
    };
    (String::from_utf8_lossy(name).replace('_', "-"), value)
}

fn server_words(words: &mut std::slice::Iter<'_, OsString>) -> Vec<(String, Option<OsString>)> {
    let mut options = Vec::new();
    while let Some(word) = words.next() {
        let Some(name) = word.as_bytes().strip_prefix(b"--") else { continue };
        let (name, mut value) = split(name);
        let next = words.as_slice().first();
        if value.is_none() && next.is_some_and(|next| !next.as_bytes().starts_with(b"-")) {
            value = words.next().cloned();
        }
        let name = name.strip_prefix("loose-").map(str::to_owned).unwrap_or(name);
        options.push((name, value));
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(line: &[&str]) -> Result<Args, ArgsError> {
        Args::parse(&line.iter().map(OsString::from).collect::<Vec<_>>())
    }

    const STATE: &str = "9c9a4c3b-2b3c-11f0-8d3f-7b1b1f0f0a11:42";

    #[test]
    fn a_mariadb_joiner_is_understood() {
        let line = "--role joiner --address 10.0.0.2:4444 --datadir /d/ --defaults-file /f.cnf --parent 77 \
                    --progress 0 --mysqld-args --defaults-file=/f.cnf --innodb_log_group_home_dir=/redo --wsrep_on --log-bin b";
        let args = parse(&line.split_whitespace().collect::<Vec<_>>()).unwrap();
        assert_eq!((args.role, args.product), (Role::Joiner, Product::MariaDb));
        assert_eq!((args.address.as_str(), args.parent), ("10.0.0.2:4444", Some(77)));
        assert_eq!(args.datadir, Some("/d/".into()));
        assert_eq!(args.defaults.words(), ["--defaults-file=/f.cnf"]);
        assert_eq!(args.server_option("innodb-log-group-home-dir"), Some("/redo".as_ref()));
        assert_eq!(args.server_option("log-bin"), Some("b".as_ref()));
        assert_eq!(args.server_option("wsrep-on"), None);
        assert!(!args.progress && !args.bypass);
    }

    #[test]
    fn donors_are_understood() {
        let line = [
            "--role",
            "donor",
            "--address",
            "10.0.0.2:4444/xtrabackup_sst//1",
            "--local-port",
            "3306",
            "--socket",
            "/s",
            "--datadir",
            "/d/",
            "--progress",
            "1",
            "--gtid",
            STATE,
            "--gtid-domain-id",
            "5",
            "--bypass",
            "--mysqld-args",
        ];
        let args = parse(&line).unwrap();
        assert_eq!(
            (args.role, args.product, args.bypass, args.progress),
            (Role::Donor, Product::MariaDb, true, true)
        );
        assert_eq!(args.gtid.unwrap().seqno(), 42);
        assert_eq!(args.gtid_domain, Some(5));
        // A Percona command line, with an empty argument for the binary log, which has no name.
        let line = [
            "--role",
            "donor",
            "--address",
            "h:4444/xtrabackup_sst//1",
            "--socket",
            "/s",
            "--datadir",
            "/d/",
            "--basedir",
            "/usr/",
            "--plugindir",
            "/p",
            "--defaults-group-suffix",
            "",
            "--mysqld-version",
            "8.0.36",
            "",
            "--gtid",
            STATE,
        ];
        let args = parse(&line).unwrap();
        assert_eq!((args.product, args.bypass), (Product::Percona, false));
        assert_eq!(args.server_version.as_deref(), Some("8.0.36"));
        assert_eq!((args.basedir, args.plugindir), (Some("/usr/".into()), Some("/p".into())));
        assert_eq!(args.defaults, Defaults::default());
    }

    #[test]
    fn unknown_options_do_not_swallow_others() {
        let args = parse(&[
            "--new-thing",
            "--role",
            "joiner",
            "--other",
            "x",
            "--address",
            "h",
            "--parent",
            "",
            "--mysqld-args",
        ])
        .unwrap();
        assert_eq!((args.role, args.address.as_str(), args.parent), (Role::Joiner, "h", None));
    }

    #[test]
    fn unusable_arguments_are_refused() {
        for (line, expected) in [
            (&[][..], ArgsError::Missing("--role")),
            (&["--role", "joiner"], ArgsError::Missing("--address")),
            (&["--role", "donor", "--address", "h"], ArgsError::Missing("--gtid")),
            (&["--role", "arbitrator"], ArgsError::Value { option: "--role" }),
            (&["--gtid", "x"], ArgsError::Value { option: "--gtid" }),
            (&["--parent", "-1"], ArgsError::Value { option: "--parent" }),
        ] {
            assert_eq!(parse(line).unwrap_err(), expected);
        }
    }

    proptest! {
        #[test]
        fn any_words_are_read_or_refused(words in proptest::collection::vec("(--)?[a-z_=]{0,12}|--(role|address|gtid|parent|mysqld-args|bypass)|joiner|\\PC{0,8}", 0..12)) {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let _ = Args::parse(&words);
        }
    }
}
