//! Preparation of the arguments, from the system to clap.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use clap::{Arg, Command};

use xb_option_files::OptionFilePaths;

use crate::args::argv::{Item, next_items, words};
use crate::args::defaults_options::{LOGIN_PATH, defaults_args, is_default, leading_defaults};
use crate::args::merge::all_given;
use crate::args::option_table::{OptionTable, dashed};
use crate::args::passwords::secrets_in;
use crate::args::scope::{AllOptions, Scope};
use crate::args::sources::effective::{PRINT_DEFAULTS, effective, json, table};
use crate::args::sources::{Origin, Sources};
use crate::args::usage_error::UsageError;
use crate::subcommand::{build_all, build_named};

/// Arguments for clap. `Debug` shows no arguments, since they may hold secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ExpandedArgs {
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

impl ExpandedArgs {
    /// Returns where the value of this option comes from, if not from the command line.
    pub(crate) fn origin(&self, long: &str) -> Option<&str> {
        self.origins.get(long).map(String::as_str)
    }
}

impl fmt::Debug for ExpandedArgs {
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
/// that later values override earlier ones. Of its subcommands, those are built that the arguments
/// need: define them with [`defer`](Command::defer) if they are many.
///
/// - The subcommand, the first argument that is not an option, is moved to the front, so that
///   options may precede it: `xbcloud --storage=s3 put NAME`. The same holds for a subcommand of a
///   subcommand, behind it.
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
    command: &mut Command,
    sources: &Sources<'_>,
    argv: &[OsString],
    places: &OptionFilePaths,
) -> Result<ExpandedArgs, UsageError> {
    expand_with(command, sources, argv, places, std::env::vars_os().collect(), false)
}

/// As [`expand`], but passes over faults in option files and variables, as far as the rest can be told: for a
/// program that reports the first fault to where these options say.
pub(crate) fn expand_leniently(
    command: &mut Command,
    sources: &Sources<'_>,
    argv: &[OsString],
    places: &OptionFilePaths,
) -> Result<ExpandedArgs, UsageError> {
    expand_with(command, sources, argv, places, std::env::vars_os().collect(), true)
}

fn expand_with(
    command: &mut Command,
    sources: &Sources<'_>,
    argv: &[OsString],
    places: &OptionFilePaths,
    variables: Vec<(OsString, OsString)>,
    is_lenient: bool,
) -> Result<ExpandedArgs, UsageError> {
    let defaults = if sources.groups.is_empty() { Vec::new() } else { defaults_args(None) };
    let (argv0, rest) = match argv.split_first() {
        Some((argv0, rest)) => (Some(argv0), rest),
        None => (None, argv),
    };
    let (leading, behind) = rest.split_at(build_named(command, rest));
    let mut at_front = table_of(named(command, leading), false).with(&defaults);
    if behind.iter().any(|word| abbreviates(word, &defaults, &at_front)) {
        at_front = all_options(command).with(&defaults);
    }
    let mut behind = behind.iter();
    let wanted = leading_defaults(&mut behind, &at_front);
    let mut rest = [leading, behind.as_slice()].concat();
    let count = build_named(command, &rest);
    let mut path: Vec<OsString> = rest.drain(..count).collect();
    // What precedes a subcommand may be an option of any.
    let may_be_of_any = named(command, &path).has_subcommands();
    let everything = may_be_of_any.then(|| all_options(command).with(&defaults));
    if let Some(everything) = &everything {
        take_words(command, &mut path, &mut rest, everything);
    }

    let scope = named(command, &path);
    let is_named = !path.is_empty();
    let subcommand = is_named.then(|| scope.get_name().to_owned());
    let words_before_program = if is_named { words_before_program(scope) } else { None };
    let scope = table_of(scope, is_named);
    let print = Item::On(PRINT_DEFAULTS.to_owned());
    // Without a subcommand, the option is that of any.
    let of_any = everything.filter(|_| !is_named).map(|everything| all_items(&rest, &everything));
    let of_any = of_any.filter(|items| items.contains(&print));
    let own = of_any.unwrap_or_else(|| all_items(&rest, &scope.clone().with(&defaults)));
    let mut expanded = ExpandedArgs::default();
    let prints = own.contains(&print);
    let known = AllOptions::new(Box::new(|| all_options(command)));
    let all = Scope {
        // Without a subcommand, the options of all of them are shown.
        scope: if prints && !is_named { known.clone() } else { scope },
        known,
        subcommand,
        is_lenient,
    };
    let given =
        all_given(sources, places, &wanted, own.clone(), &all, &variables, &mut expanded.warnings)?;
    let scope = all.into_scope();
    let checked = check_own(&own, &defaults, &scope, words_before_program, &mut expanded);
    if !is_lenient {
        checked?;
    }
    expanded.secrets.extend(secrets_of_others(&own));

    if prints {
        let variable = |name: &str| {
            let found = variables.iter().find(|(own, _)| own == name)?;
            found.1.to_str().map(str::to_owned).filter(|value| !value.is_empty())
        };
        let shown = named(command, &path);
        let rows = effective(shown, &scope, &given, sources.fallbacks, variable);
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
    expanded.args.extend(path);
    expanded.args.extend(words(&items));
    Ok(expanded)
}

/// Number of words that a command takes before the `--` and the program behind it, if it takes one.
fn words_before_program(command: &Command) -> Option<usize> {
    let takes_program = command.get_positionals().any(Arg::is_last_set);
    takes_program.then(|| command.get_positionals().count() - 1)
}

/// Refuses options about option files in the wrong place, and notes secrets and warnings.
fn check_own(
    own: &[Item],
    defaults: &[Arg],
    scope: &OptionTable,
    words_before_program: Option<usize>,
    expanded: &mut ExpandedArgs,
) -> Result<(), UsageError> {
    let mut words = 0;
    // The first word too many: such an option behind it is the program's.
    let mut program = None;
    for item in own {
        match item {
            Item::Word(word) => {
                words += 1;
                if words_before_program.is_some_and(|most| words > most) {
                    program = program.or(Some(word));
                }
            }
            Item::Value(key, _) if key == LOGIN_PATH => return Err(UsageError::LoginPath),
            Item::On(key) | Item::Value(key, _) if is_default(key, defaults) => {
                let option = key.clone();
                return Err(match program {
                    Some(program) => UsageError::ProgramWithoutDashes {
                        program: program.to_string_lossy().into_owned(),
                        option,
                    },
                    None => UsageError::DefaultsNotFirst { option },
                });
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

/// Returns whether a word may be short for one of `defaults`. An option of any command can make it ambiguous.
fn abbreviates(word: &OsString, defaults: &[Arg], table: &OptionTable) -> bool {
    let long = word.to_str().and_then(|word| word.strip_prefix("--"));
    let name = long.and_then(|long| long.split('=').next()).map(dashed).unwrap_or_default();
    let is_start = |arg: &Arg| arg.get_long().is_some_and(|long| long.starts_with(&name));
    !name.is_empty() && !table.has_long(&name) && defaults.iter().any(is_start)
}

/// The options of a command, which is built.
fn table_of(command: &Command, with_subcommands: bool) -> OptionTable {
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
    table
}

fn all_options(command: &mut Command) -> OptionTable {
    build_all(command);
    table_of(command, true)
}

/// The subcommand that `words` name, or the command itself.
fn named<'a>(command: &'a Command, words: &[OsString]) -> &'a Command {
    words.iter().fold(command, |command, word| command.find_subcommand(word).unwrap_or(command))
}

/// Moves the words that stand behind options, and name a subcommand, from `rest` to `path`.
fn take_words(
    command: &Command,
    path: &mut Vec<OsString>,
    rest: &mut Vec<OsString>,
    table: &OptionTable,
) {
    while let Some(at) = subcommand_at(named(command, path), rest, table) {
        path.push(rest.remove(at));
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

/// Returns passwords and keys in the arguments of another program, behind `--` or in the value of an option. Otherwise, our
/// own process list entry would show them for as long as the other program runs.
fn secrets_of_others(items: &[Item]) -> Vec<OsString> {
    let behind = items.iter().skip_while(|item| !matches!(item, Item::EndOfOptions));
    let words = behind.filter_map(|item| match item {
        Item::Word(word) => Some(word.as_os_str()),
        _ => None,
    });
    let values = items.iter().filter_map(|item| match item {
        Item::Value(_, value) => Some(value.as_os_str()),
        _ => None,
    });
    let of_values = values.flat_map(|value| secrets_in([value]));
    secrets_in(words).into_iter().chain(of_values).collect()
}

#[cfg(test)]
mod tests;
