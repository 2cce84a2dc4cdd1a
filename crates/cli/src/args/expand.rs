//! Preparation of the arguments, from the system to clap.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::slice::Iter;

use clap::{Arg, ArgAction, Command};
use thiserror::Error;

use crate::args::argv::{Item, OptionTable, ParsedOption, next_items, said, words};
use crate::args::sources::effective::{PRINT_DEFAULTS, effective, json, table};
use crate::args::sources::option_file::{
    FileOption, OptionFileError, OptionFilePaths, Wanted, load,
};
use crate::args::sources::variables::{self, FromEnvironment};
use crate::args::sources::{Given, Origin, Sources};

const DEFAULTS_FILE: &str = "defaults-file";
const DEFAULTS_EXTRA_FILE: &str = "defaults-extra-file";
const DEFAULTS_GROUP_SUFFIX: &str = "defaults-group-suffix";
const NO_DEFAULTS: &str = "no-defaults";
const LOGIN_PATH: &str = "login-path";
const NO_LOGIN_PATHS: &str = "no-login-paths";

/// Errors in arguments found before clap parses them. Values are never quoted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UsageError {
    /// An option about option files after other arguments, where MySQL's tools do not accept it.
    #[error("--{option} must come before all other options")]
    DefaultsNotFirst {
        /// Option name without dashes.
        option: String,
    },
    /// MySQL's file of encrypted passwords was asked for.
    #[error("--login-path is not supported: .mylogin.cnf is not read")]
    LoginPath,
    /// An option file could not be used.
    #[error(transparent)]
    OptionFile(#[from] OptionFileError),
    /// An option file has an option that no command knows.
    #[error("unknown option {key} in {} line {line}", file.display())]
    UnknownOption {
        /// Option as written in the file.
        key: String,
        /// Path of the file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// An option in an option file has no value, but needs one.
    #[error("option {key} in {} line {line} needs a value", file.display())]
    NoValue {
        /// Option as written in the file.
        key: String,
        /// Path of the file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// A switch in an option file has an invalid switch value.
    #[error("option {key} in {} line {line} must be 0, 1, on, off, true or false", file.display())]
    BadSwitch {
        /// Option as written in the file.
        key: String,
        /// Path of the file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
    /// An environment variable for a switch has an invalid switch value.
    #[error("environment variable {name} takes only 0, 1, on, off, true or false")]
    BadVariable {
        /// Name of the variable.
        name: String,
    },
    /// The command line names a repository that no option file has.
    #[error(
        "no option file has a group [{group}.{name}] for the repository @{name}{}",
        known_repositories(known)
    )]
    NoRepository {
        /// Group of the program.
        group: String,
        /// Name of the repository.
        name: String,
        /// Names of the repositories that the option files have.
        known: Vec<String>,
    },
    /// An abbreviated name in an option file matches several options.
    #[error("option {key} in {} line {line} is ambiguous", file.display())]
    Ambiguous {
        /// Option as written in the file.
        key: String,
        /// Path of the file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
    },
}

fn known_repositories(known: &[String]) -> String {
    if known.is_empty() {
        return String::new();
    }
    let names: Vec<String> = known.iter().map(|name| format!("@{name}")).collect();
    format!("; known: {}", names.join(", "))
}

/// Arguments for clap. `Debug` shows no arguments, since they may hold secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Expanded {
    /// `argv[0]`, the subcommand, options from files, then the user's own arguments.
    pub args: Vec<OsString>,
    /// Warnings to print once there is a log.
    pub warnings: Vec<String>,
    /// Values of [`Secret`](crate::Secret) options on the command line itself.
    pub secrets: Vec<OsString>,
    /// Text for standard output instead of a run, if `--print-defaults` is given.
    pub print: Option<String>,
    /// Long names of the options that the command line does not set itself, and their sources.
    origins: BTreeMap<String, String>,
}

impl Expanded {
    /// Returns where the value of this option comes from, if not from the command line.
    pub(crate) fn origin(&self, long: &str) -> Option<&str> {
        self.origins.get(long).map(String::as_str)
    }
}

impl fmt::Debug for Expanded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expanded")
            .field("args", &self.args.len())
            .field("warnings", &self.warnings)
            .finish()
    }
}

/// Rewrites arguments in the style of MySQL's tools into arguments for `command`.
///
/// `argv` starts with `argv[0]`. Prepare `command` with [`mysql_style`](crate::mysql_style), so
/// that later values override earlier ones.
///
/// - The subcommand, the first argument that is not an option, is moved to the front, so that
///   options may precede it: `xbcloud --storage=s3 put NAME`.
/// - `--defaults-file=`, `--defaults-extra-file=`, `--defaults-group-suffix=` and `--no-defaults`
///   are accepted at the front, or right after a subcommand at the front. Then the groups of the
///   option files are read from `places` and put before the user's arguments. Options in these
///   groups that belong only to other subcommands are skipped. If there are no groups, there are no
///   option files and no such options.
/// - Options from the environment, and the group of a repository that the arguments name, are put
///   there as described for [`Sources`].
/// - `_` equals `-` in names. Unique prefixes of long names are accepted. Switches accept
///   `--skip-NAME`, `--disable-NAME`, `--enable-NAME` and `--NAME=0|1|on|off|true|false`; the last
///   one wins. `-t4` and `-?` are accepted. `--loose-NAME` may be unknown.
/// - An option with an optional value accepts the value only after `=`, or directly after its
///   letter. (Declare it with `num_args(0..=1)`, `require_equals(true)` and a
///   `default_missing_value`; do the same, with a boolish value, for a switch that is on by
///   default.)
/// - Arguments after `--` stay unchanged.
///
/// One name should mean the same kind of option in all subcommands. Options with more than one
/// value at a time are not supported.
///
/// # Errors
/// [`UsageError`], by kind. Errors in the user's own options are left for clap to report.
pub fn expand(
    command: &Command,
    sources: &Sources<'_>,
    argv: &[OsString],
    places: &OptionFilePaths,
) -> Result<Expanded, UsageError> {
    expand_with(command, sources, argv, places, std::env::vars_os().collect())
}

fn expand_with(
    command: &Command,
    sources: &Sources<'_>,
    argv: &[OsString],
    places: &OptionFilePaths,
    variables: Vec<(OsString, OsString)>,
) -> Result<Expanded, UsageError> {
    let mut command = command.clone();
    // Computes derived settings: value counts, help, global options in subcommands.
    command.build();
    let defaults = if sources.groups.is_empty() { Vec::new() } else { defaults_args(None) };
    let everything = table_of(&command, true, &defaults);

    let (argv0, rest) = match argv.split_first() {
        Some((argv0, rest)) => (Some(argv0), rest),
        None => (None, argv),
    };
    let mut rest = rest.iter();
    let mut subcommand = leading_subcommand(&command, &mut rest);
    let wanted = leading_defaults(&mut rest, &everything);
    let mut rest = rest.as_slice().to_vec();
    if subcommand.is_none()
        && let Some(at) = subcommand_at(&command, &rest, &everything)
    {
        subcommand = Some(rest.remove(at));
    }

    let found = subcommand.as_ref().and_then(|name| command.find_subcommand(name));
    let scope = match found {
        Some(scope) => table_of(scope, true, &defaults),
        None => table_of(&command, false, &defaults),
    };
    let own = all_items(&rest, &scope);
    let mut expanded = Expanded::default();
    let prints = own.contains(&Item::On(PRINT_DEFAULTS.to_owned()));
    let all = Scope {
        known: table_of(&command, true, &[]),
        // Without a subcommand, the options of all of them are shown.
        scope: if prints && found.is_none() { everything } else { scope },
        subcommand: found.map(Command::get_name),
    };
    let given =
        all_given(sources, places, (&wanted, own.clone()), &all, &variables, &mut expanded)?;
    check_own(&own, &defaults, &all.scope, &mut expanded)?;
    expanded.secrets.extend(secrets_behind(&own));

    if prints {
        let variable = |name: &str| {
            let found = variables.iter().find(|(own, _)| own == name)?;
            found.1.to_str().map(str::to_owned).filter(|value| !value.is_empty())
        };
        let shown = found.unwrap_or(&command);
        let rows = effective(shown, &all.scope, &given, sources.fallbacks, variable);
        let as_json = given.iter().any(|given| given.item == Item::On("json".to_owned()));
        expanded.print = Some(if as_json { json(&rows) } else { table(&rows) });
    }
    for given in &given {
        let Some(key) = given.key() else { continue };
        match given.origin {
            Origin::CommandLine => expanded.origins.remove(key),
            _ => expanded.origins.insert(key.to_owned(), given.origin.to_string()),
        };
    }
    let items: Vec<Item> = given.into_iter().map(|given| given.item).collect();
    expanded.args.extend(argv0.cloned());
    expanded.args.extend(subcommand);
    expanded.args.extend(words(&items));
    Ok(expanded)
}

/// Refuses options about option files in the wrong place, and notes secrets and warnings.
fn check_own(
    own: &[Item],
    defaults: &[Arg],
    scope: &OptionTable,
    expanded: &mut Expanded,
) -> Result<(), UsageError> {
    for item in own {
        match item {
            Item::Value(key, _) if key == LOGIN_PATH => return Err(UsageError::LoginPath),
            Item::On(key) | Item::Value(key, _) if is_default(key, defaults) => {
                return Err(UsageError::DefaultsNotFirst { option: key.clone() });
            }
            Item::Value(key, value) if scope.is_secret(key) => {
                expanded.secrets.push(value.clone());
            }
            Item::Loose(name) => {
                expanded.warnings.push(format!("ignored unknown option --loose-{name}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The options of all subcommands, and those of the one that runs.
struct Scope<'a> {
    known: OptionTable,
    scope: OptionTable,
    subcommand: Option<&'a str>,
}

/// Returns the items of all sources, lowest precedence first.
fn all_given(
    sources: &Sources<'_>,
    places: &OptionFilePaths,
    (wanted, own): (&Wanted, Vec<Item>),
    all: &Scope<'_>,
    variables: &[(OsString, OsString)],
    expanded: &mut Expanded,
) -> Result<Vec<Given>, UsageError> {
    let loaded = load(places, wanted, sources.groups)?;
    let files = loaded.repositories;
    expanded.warnings.extend(loaded.warnings);
    let of_all = loaded.options;
    let general = file_items(of_all.clone(), all, &mut expanded.warnings)?;
    let mut environment = match sources.environment {
        None => FromEnvironment::default(),
        Some(prefix) => variables::read(prefix, variables.iter().cloned(), &all.known, &all.scope),
    };
    expanded.warnings.append(&mut environment.warnings);
    if let Some(name) = environment.bad_switch {
        return Err(UsageError::BadVariable { name });
    }
    let own = own.into_iter().map(|item| Given { item, origin: Origin::CommandLine });
    let mut later = environment.given;
    later.extend(own);

    let Some(repositories) = sources.repositories else {
        return Ok([general, later].concat());
    };
    let known_names: Vec<String> = files.keys().cloned().collect();
    let group = |name: &Option<String>| match name {
        None => Ok(Vec::new()),
        Some(name) => files.get(name).cloned().ok_or_else(|| UsageError::NoRepository {
            group: sources.groups.first().copied().unwrap_or_default().to_owned(),
            name: name.clone(),
            known: known_names.clone(),
        }),
    };
    // First the source: its group may name the destination.
    let subcommand = all.subcommand;
    let named = repositories.named(subcommand, &[general.clone(), later.clone()].concat());
    let mut own_group = file_items(group(&named.source)?, all, &mut expanded.warnings)?;
    own_group.retain(|own| own.key().is_none_or(|key| repositories.in_source(subcommand, key)));
    let named = repositories.named(subcommand, &[&general[..], &own_group, &later].concat());
    let mut there = Vec::new();
    if named.destination.is_some() {
        for option in [of_all, group(&named.destination)?].concat() {
            // Warnings about these options are given already, or belong to another run.
            if let Some(given) = file_item(option, &all.known, &all.known, &mut Vec::new())? {
                there.extend(repositories.in_destination(given, &all.scope));
            }
        }
    }
    let mut given = [general, own_group, there].concat();
    if let Some(name) = named.source.as_ref().filter(|_| all.scope.has(repositories.name)) {
        let item = Item::Value(repositories.name.to_owned(), name.into());
        given.push(Given { item, origin: Origin::CommandLine });
    }
    given.extend(later);
    repositories.keep_places(&named, &mut given);
    repositories.strip(subcommand, &mut given);
    Ok(given)
}

fn file_items(
    options: Vec<FileOption>,
    all: &Scope<'_>,
    warnings: &mut Vec<String>,
) -> Result<Vec<Given>, UsageError> {
    let items = options
        .into_iter()
        .map(|option| file_item(option, &all.known, &all.scope, warnings).transpose());
    items.flatten().collect()
}

/// Returns passwords and keys after `--`, in the arguments of another program. Otherwise, our own
/// process list entry would show them for as long as the other program runs.
fn secrets_behind(items: &[Item]) -> Vec<OsString> {
    const OPTIONS: [&str; 3] = ["--password", "--encrypt-key", "-p"];
    let behind = items.iter().skip_while(|item| !matches!(item, Item::EndOfOptions));
    let words = behind.filter_map(|item| match item {
        Item::Word(word) => Some(word.as_bytes()),
        _ => None,
    });
    let mut secrets = Vec::new();
    let mut is_next = false;
    for word in words {
        if std::mem::take(&mut is_next) {
            secrets.push(OsStr::from_bytes(word).to_owned());
        }
        is_next = word == b"--encrypt-key";
        for option in OPTIONS {
            let Some(rest) = word.strip_prefix(option.as_bytes()) else { continue };
            let value = if option == "-p" { Some(rest) } else { rest.strip_prefix(b"=") };
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                secrets.push(OsStr::from_bytes(value).to_owned());
            }
        }
    }
    secrets
}

/// Returns the options about option files, for clap's help; [`expand`] removes them from the
/// arguments. `short` is the letter of `--defaults-file`, which stock `xbcloud` calls `-c`.
pub fn defaults_args(short: Option<char>) -> Vec<Arg> {
    let with_value = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let mut file = with_value(DEFAULTS_FILE, "FILE", "Read options only from this file");
    if let Some(short) = short {
        file = file.short(short);
    }
    vec![
        file,
        with_value(DEFAULTS_EXTRA_FILE, "FILE", "Also read this option file"),
        with_value(DEFAULTS_GROUP_SUFFIX, "SUFFIX", "Also read groups with this suffix"),
        Arg::new(NO_DEFAULTS)
            .long(NO_DEFAULTS)
            .action(ArgAction::SetTrue)
            .help("Read no option files"),
        with_value(LOGIN_PATH, "NAME", "Not supported"),
        Arg::new(NO_LOGIN_PATHS)
            .long(NO_LOGIN_PATHS)
            .action(ArgAction::SetTrue)
            .help("No effect: login paths are not read"),
    ]
}

fn is_default(key: &str, defaults: &[Arg]) -> bool {
    defaults.iter().any(|arg| arg.get_id() == key)
}

fn table_of(command: &Command, with_subcommands: bool, extra: &[Arg]) -> OptionTable {
    fn add(table: &mut OptionTable, command: &Command) {
        table.add_command(command);
        command.get_subcommands().for_each(|subcommand| add(table, subcommand));
    }
    let mut table = OptionTable::default();
    if with_subcommands {
        add(&mut table, command);
    } else {
        table.add_command(command);
    }
    extra.iter().for_each(|arg| table.add_arg(arg));
    table
}

fn leading_subcommand(command: &Command, rest: &mut Iter<'_, OsString>) -> Option<OsString> {
    let word = rest.as_slice().first().filter(|word| command.find_subcommand(word).is_some())?;
    rest.next();
    Some(word.clone())
}

/// Removes the options about option files from the front.
fn leading_defaults(rest: &mut Iter<'_, OsString>, table: &OptionTable) -> Wanted {
    let mut wanted = Wanted::default();
    loop {
        let mut ahead = rest.clone();
        match next_items(&mut ahead, table).as_slice() {
            [Item::On(key)] if key == NO_DEFAULTS => wanted.none = true,
            [Item::On(key)] if key == NO_LOGIN_PATHS => {}
            [Item::Value(key, value)] => match key.as_str() {
                DEFAULTS_FILE => wanted.only = Some(value.into()),
                DEFAULTS_EXTRA_FILE => wanted.extra = Some(value.into()),
                DEFAULTS_GROUP_SUFFIX => {
                    wanted.group_suffix = Some(value.to_string_lossy().into_owned());
                }
                _ => return wanted,
            },
            _ => return wanted,
        }
        *rest = ahead;
    }
}

/// Returns the index of the first argument that is not an option, if it is a subcommand.
fn subcommand_at(command: &Command, rest: &[OsString], table: &OptionTable) -> Option<usize> {
    let mut ahead = rest.iter();
    loop {
        let at = rest.len() - ahead.len();
        match next_items(&mut ahead, table).as_slice() {
            [] | [Item::EndOfOptions] => return None,
            [Item::Word(word)] => return command.find_subcommand(word).map(|_| at),
            _ => {}
        }
    }
}

fn all_items(rest: &[OsString], table: &OptionTable) -> Vec<Item> {
    let mut rest = rest.iter();
    let mut items = Vec::new();
    while rest.len() > 0 && items.last() != Some(&Item::EndOfOptions) {
        items.extend(next_items(&mut rest, table));
    }
    items.extend(rest.cloned().map(Item::Word));
    items
}

/// Parses an option of a file; returns nothing if it belongs only to other subcommands.
fn file_item(
    option: FileOption,
    known: &OptionTable,
    scope: &OptionTable,
    warnings: &mut Vec<String>,
) -> Result<Option<Given>, UsageError> {
    let said = said(&option.key, option.value.as_deref(), known);
    let FileOption { group, key, file, line, .. } = option;
    match said {
        ParsedOption::Item(item) => {
            let origin = Origin::File { group, file, line };
            let given = Given { item, origin };
            Ok(given.key().is_some_and(|key| scope.has(key)).then_some(given))
        }
        ParsedOption::Loose(name) => {
            let place = file.display();
            warnings.push(format!("ignored unknown option {name} in {place} line {line}"));
            Ok(None)
        }
        ParsedOption::WantsValue(_) => Err(UsageError::NoValue { key, file, line }),
        ParsedOption::BadSwitch => Err(UsageError::BadSwitch { key, file, line }),
        ParsedOption::Ambiguous(_) => Err(UsageError::Ambiguous { key, file, line }),
        ParsedOption::Unknown => Err(UsageError::UnknownOption { key, file, line }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    use clap::arg;
    use proptest::prelude::*;

    fn command() -> Command {
        let shared = || {
            [
                arg!(--storage <KIND>).required(false),
                arg!(--parallel <N>).required(false),
                arg!(--"s3-secret-key" <KEY>).required(false),
                arg!(--header <LINE>).required(false).action(ArgAction::Append),
                arg!(-v --verbose ...),
                arg!(--insecure),
            ]
        };
        let put = Command::new("put")
            .args(shared())
            .arg(arg!(--md5))
            .arg(arg!(--"chunk-size" <SIZE>).required(false));
        let backup = Command::new("backup")
            .args(shared())
            .arg(arg!(<NAME>))
            .arg(clap::Arg::new("command").num_args(1..).last(true));
        let get = Command::new("get").visible_alias("fetch").args(shared()).arg(arg!(<NAME>));
        crate::mysql_style(
            Command::new("xbcloud")
                .args(defaults_args(Some('c')))
                .subcommand(put.arg(arg!(<NAME>)))
                .subcommand(get)
                .subcommand(backup),
        )
    }

    fn run(argv: &[&str], places: &OptionFilePaths) -> Result<Expanded, UsageError> {
        let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
        expand_with(&command(), &Sources::groups(&["xbcloud"]), &argv, places, Vec::new())
    }

    fn args(argv: &[&str]) -> Vec<String> {
        let expanded = run(argv, &OptionFilePaths::none()).unwrap();
        expanded.args.into_iter().map(|arg| arg.into_string().unwrap()).collect()
    }

    #[test]
    fn the_subcommand_comes_to_the_front() {
        let table: &[(&[&str], &[&str])] = &[
            (&[], &[]),
            (&["x"], &["x"]),
            (&["x", "put", "n"], &["x", "put", "n"]),
            (&["x", "--storage=s3", "put", "n"], &["x", "put", "--storage=s3", "n"]),
            (&["x", "--storage", "put", "put", "get"], &["x", "put", "--storage=put", "get"]),
            (
                &["x", "-v", "--insecure", "fetch", "n"],
                &["x", "fetch", "--verbose", "--insecure", "n"],
            ),
            (&["x", "--par", "4", "get", "n"], &["x", "get", "--parallel=4", "n"]),
            // Not a subcommand, or after `--`: left to clap.
            (&["x", "n", "put"], &["x", "n", "put"]),
            (&["x", "--", "put"], &["x", "--", "put"]),
            (&["x", "--bogus", "put", "n"], &["x", "put", "--bogus", "n"]),
            (&["x", "--help"], &["x", "--help"]),
            (&["x", "put", "-?"], &["x", "put", "--help"]),
            // A prefix needs to be unique only among the options of its subcommand.
            (
                &["x", "put", "--s3", "k", "--chunk", "1M", "n"],
                &["x", "put", "--s3-secret-key=k", "--chunk-size=1M", "n"],
            ),
            // Arguments after `--` belong to another program.
            (
                &[
                    "x",
                    "--par=2",
                    "backup",
                    "n",
                    "--",
                    "mariadb-backup",
                    "--user_x=1",
                    "--skip-v",
                    "-xv",
                    "put",
                ],
                &[
                    "x",
                    "backup",
                    "--parallel=2",
                    "n",
                    "--",
                    "mariadb-backup",
                    "--user_x=1",
                    "--skip-v",
                    "-xv",
                    "put",
                ],
            ),
        ];
        for (argv, expected) in table {
            assert_eq!(args(argv), *expected, "{argv:?}");
        }
    }

    struct Files(tempfile::TempDir);

    impl Files {
        fn new(text: &str) -> Self {
            let files = Self(tempfile::tempdir().unwrap());
            fs::write(files.path(), text).unwrap();
            files
        }

        fn path(&self) -> std::path::PathBuf {
            self.0.path().join("my.cnf")
        }

        fn option(&self) -> String {
            format!("--defaults-file={}", self.path().display())
        }
    }

    fn with_file(text: &str, argv: &[&str]) -> Result<Expanded, UsageError> {
        let files = Files::new(text);
        let option = files.option();
        let argv: Vec<&str> =
            std::iter::once("x").chain([option.as_str()]).chain(argv.iter().copied()).collect();
        run(&argv, &OptionFilePaths::none())
    }

    #[test]
    fn files_come_before_the_command_line() {
        let text = "[xbcloud]\nstorage=s3\ns3_secret_key=\"a b\"\nmd5\nverbose=1\nparal=2\n[client]\nbogus=1\n";
        let table: &[(&[&str], &[&str])] = &[
            (
                &["put", "--storage=google", "n"],
                &[
                    "x",
                    "put",
                    "--storage=s3",
                    "--s3-secret-key=a b",
                    "--md5",
                    "--verbose",
                    "--parallel=2",
                    "--storage=google",
                    "n",
                ],
            ),
            // Switches are turned off; options of other subcommands are skipped.
            (
                &["--skip-verbose", "get", "n"],
                &["x", "get", "--storage=s3", "--s3-secret-key=a b", "--parallel=2", "n"],
            ),
            (
                &["put", "--md5=0", "--verbose=0", "n"],
                &["x", "put", "--storage=s3", "--s3-secret-key=a b", "--parallel=2", "n"],
            ),
            (&["--help"], &["x", "--help"]),
        ];
        for (argv, expected) in table {
            let expanded = with_file(text, argv).unwrap();
            assert_eq!(expanded.args, *expected, "{argv:?}");
            assert!(expanded.warnings.is_empty());
        }
    }

    #[test]
    fn clap_lets_the_command_line_win() {
        let text = "[xbcloud]\nstorage=s3\nparallel=2\nverbose\nheader=a: 1\n";
        let expanded =
            with_file(text, &["put", "--storage=google", "--par", "3", "-v", "--header=b: 2", "n"])
                .unwrap();
        let matches = command().try_get_matches_from(expanded.args).unwrap();
        let (_, put) = matches.subcommand().unwrap();
        assert_eq!(put.get_one::<String>("storage").unwrap(), "google");
        assert_eq!(put.get_one::<String>("parallel").unwrap(), "3");
        assert_eq!(put.get_count("verbose"), 2);
        assert_eq!(put.get_one::<String>("NAME").unwrap(), "n");
        // Values of a repeatable option add up.
        let headers: Vec<_> = put.get_many::<String>("header").unwrap().collect();
        assert_eq!(headers, ["a: 1", "b: 2"]);
    }

    #[test]
    fn options_about_files_stand_at_the_front() {
        let files = Files::new("[xbcloud]\nparallel=2\n[xbcloud_b]\nparallel=3\n");
        let (option, path) = (files.option(), files.path());
        let path = path.to_str().unwrap();
        let taken: &[&[&str]] = &[
            &["x", &option, "--defaults-group-suffix=_b", "get", "n"],
            &["x", "--defaults-group-suffix=_b", &option, "get", "n"],
            &["x", "get", "--defaults-group-suffix=_b", &option, "n"],
            &["x", "-c", path, "--defaults-group-suffix=_b", "get", "n"],
            &["x", "--defaults_extra_file", path, "--defaults-group-suffix=_b", "get", "n"],
        ];
        for argv in taken {
            assert_eq!(args(argv), ["x", "get", "--parallel=2", "--parallel=3", "n"], "{argv:?}");
        }
        assert_eq!(args(&["x", "--no-defaults", "get", "n"]), ["x", "get", "n"]);
        assert_eq!(args(&["x", &option, "--no-defaults", "get", "n"]), ["x", "get", "n"]);
        let late: &[&[&str]] = &[
            &["x", "-v", &option, "get", "n"],
            &["x", "get", "n", &option],
            &["x", "get", "n", "--no-defaults"],
        ];
        for argv in late {
            let error = run(argv, &OptionFilePaths::none()).unwrap_err();
            assert!(matches!(error, UsageError::DefaultsNotFirst { .. }), "{argv:?}: {error}");
        }
        // Options of another program stay unchanged.
        let own = args(&["x", "backup", "n", "--", "mariadb-backup", "--no-defaults"]);
        assert_eq!(own, ["x", "backup", "n", "--", "mariadb-backup", "--no-defaults"]);
    }

    #[test]
    fn without_groups_there_are_no_option_files() {
        let command = Command::new("x").arg(arg!(-c - -create)).arg(arg!([NAME] ...));
        let argv = ["x", "-c", "--no-defaults"].map(OsString::from);
        let expanded =
            expand(&command, &Sources::default(), &argv, &OptionFilePaths::usual()).unwrap();
        assert_eq!(expanded.args, ["x", "--create", "--no-defaults"]);
    }

    #[test]
    fn bad_options_in_files_are_refused_by_key_only() {
        let table = [
            ("bogus=hunter2", "unknown option bogus in @ line 2"),
            ("=hunter2", "unknown option  in @ line 2"),
            ("defaults-files=hunter2", "unknown option defaults-files in @ line 2"),
            ("no-default", "unknown option no-default in @ line 2"),
            ("parallel", "option parallel in @ line 2 needs a value"),
            (
                "insecure=hunter2",
                "option insecure in @ line 2 must be 0, 1, on, off, true or false",
            ),
            ("s=hunter2", "option s in @ line 2 is ambiguous"),
            ("skip-parallel", "unknown option skip-parallel in @ line 2"),
        ];
        for (line, text) in table {
            let files = Files::new(&format!("[xbcloud]\n{line}\n"));
            // The command does not declare these options, so only the built-in ones count.
            let argv = ["x", &files.option(), "put", "n"].map(OsString::from);
            let error =
                expand(&plain(), &Sources::groups(&["xbcloud"]), &argv, &OptionFilePaths::none())
                    .unwrap_err();
            assert_eq!(error.to_string(), text.replace('@', files.path().to_str().unwrap()));
            assert!(!format!("{error:?}").contains("hunter2"));
        }
    }

    /// Returns the command without the options about option files, which need not be declared.
    fn plain() -> Command {
        let mut plain = Command::new("xbcloud");
        for subcommand in command().get_subcommands() {
            plain = plain.subcommand(subcommand.clone());
        }
        plain
    }

    #[test]
    fn loose_options_may_be_unknown() {
        let expanded = with_file(
            "[xbcloud]\nloose_bogus=hunter2\nloose-parallel=2\n",
            &["put", "--loose-odd=hunter2", "n"],
        )
        .unwrap();
        assert_eq!(expanded.args, ["x", "put", "--parallel=2", "n"]);
        assert_eq!(expanded.warnings.len(), 2);
        assert!(expanded.warnings[0].starts_with("ignored unknown option bogus in "));
        assert_eq!(expanded.warnings[1], "ignored unknown option --loose-odd");
        let shown = format!("{expanded:?} {:?}", expanded.warnings);
        assert!(!shown.contains("hunter2") && !shown.contains("parallel"), "{shown}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let missing = Path::new("/does/not/exist.cnf");
        let option = format!("--defaults-file={}", missing.display());
        let error = run(&["x", &option, "put", "n"], &OptionFilePaths::none()).unwrap_err();
        assert!(error.to_string().contains("/does/not/exist.cnf"), "{error}");
    }

    proptest! {
        #[test]
        fn any_line_is_expanded_up_to_its_end_of_options(
            line in proptest::collection::vec(
                prop_oneof!["-[a-z?]{0,6}", "--[a-z_=]{1,6}", Just("put".to_owned()), Just("--par".to_owned())],
                0..8,
            ),
            tail in proptest::collection::vec("-{0,2}[a-z_=]{0,6}", 0..4),
        ) {
            // An argument before `--`, since an option that needs a value would take `--` as its
            // value.
            let words = ["x"].into_iter().chain(line.iter().map(String::as_str)).chain(["w", "--"]);
            let argv: Vec<OsString> =
                words.chain(tail.iter().map(String::as_str)).map(OsString::from).collect();
            let expanded = expand(&plain(), &Sources::default(), &argv, &OptionFilePaths::none()).unwrap();
            prop_assert!(expanded.args.ends_with(&argv[argv.len() - tail.len() - 1..]));
        }
    }
}
