//! Preparation of the arguments, from the system to clap.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::slice::Iter;

use clap::{Arg, Command};

use xb_option_files::OptionFilePaths;

use crate::args::argv::{Item, next_items, words};
use crate::args::defaults_options::{LOGIN_PATH, defaults_args, is_default, leading_defaults};
use crate::args::merge::{Scope, all_given};
use crate::args::option_table::OptionTable;
use crate::args::passwords::secrets_in;
use crate::args::sources::effective::{PRINT_DEFAULTS, effective, json, table};
use crate::args::sources::{Origin, Sources};
use crate::args::usage_error::UsageError;

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
/// that later values override earlier ones.
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
    command: &Command,
    sources: &Sources<'_>,
    argv: &[OsString],
    places: &OptionFilePaths,
) -> Result<ExpandedArgs, UsageError> {
    expand_with(command, sources, argv, places, std::env::vars_os().collect(), false)
}

/// As [`expand`], but passes over faults in option files and variables, as far as the rest can be told: for a
/// program that reports the first fault to where these options say.
pub(crate) fn expand_leniently(
    command: &Command,
    sources: &Sources<'_>,
    argv: &[OsString],
    places: &OptionFilePaths,
) -> Result<ExpandedArgs, UsageError> {
    expand_with(command, sources, argv, places, std::env::vars_os().collect(), true)
}

fn expand_with(
    command: &Command,
    sources: &Sources<'_>,
    argv: &[OsString],
    places: &OptionFilePaths,
    variables: Vec<(OsString, OsString)>,
    is_lenient: bool,
) -> Result<ExpandedArgs, UsageError> {
    let mut command = command.clone();
    // Computes derived settings: value counts, help, global options in subcommands.
    command.build();
    let defaults = if sources.groups.is_empty() { Vec::new() } else { defaults_args(None) };
    let known = table_of(&command, true, &[]);
    let everything = known.clone().with(&defaults);

    let (argv0, rest) = match argv.split_first() {
        Some((argv0, rest)) => (Some(argv0), rest),
        None => (None, argv),
    };
    let mut rest = rest.iter();
    let mut path = Path::new(&command);
    path.take_leading(&mut rest);
    let wanted = leading_defaults(&mut rest, &everything);
    let mut rest = rest.as_slice().to_vec();
    path.take_words(&mut rest, &everything);

    let found = path.subcommand();
    let scope = match found {
        Some(scope) => table_of(scope, true, &defaults),
        None => table_of(&command, false, &defaults),
    };
    let print = Item::On(PRINT_DEFAULTS.to_owned());
    // Without a subcommand, the option is that of any.
    let of_any = found.is_none().then(|| all_items(&rest, &everything));
    let of_any = of_any.filter(|items| items.contains(&print));
    let own = of_any.unwrap_or_else(|| all_items(&rest, &scope));
    let mut expanded = ExpandedArgs::default();
    let prints = own.contains(&print);
    let all = Scope {
        known,
        // Without a subcommand, the options of all of them are shown.
        scope: if prints && found.is_none() { everything } else { scope },
        subcommand: found.map(Command::get_name),
        is_lenient,
    };
    let given =
        all_given(sources, places, &wanted, own.clone(), &all, &variables, &mut expanded.warnings)?;
    let checked =
        check_own(&own, &defaults, &all.scope, words_before_program(found), &mut expanded);
    if !is_lenient {
        checked?;
    }
    expanded.secrets.extend(secrets_of_others(&own));

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
    expanded.args.extend(path.words);
    expanded.args.extend(words(&items));
    Ok(expanded)
}

/// Number of words that a command takes before the `--` and the program behind it, if it takes one.
fn words_before_program(command: Option<&Command>) -> Option<usize> {
    let command = command?;
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
    table.with(extra)
}

/// The words that name a subcommand, and one of its own, if it has any.
struct Path<'a> {
    words: Vec<OsString>,
    command: &'a Command,
}

impl<'a> Path<'a> {
    fn new(command: &'a Command) -> Self {
        Self { words: Vec::new(), command }
    }

    /// The subcommand; `None` if no word names one.
    fn subcommand(&self) -> Option<&'a Command> {
        (!self.words.is_empty()).then_some(self.command)
    }

    fn enter(&mut self, word: &OsString) -> bool {
        let Some(found) = self.command.find_subcommand(word) else { return false };
        self.command = found;
        self.words.push(word.clone());
        true
    }

    fn take_leading(&mut self, rest: &mut Iter<'_, OsString>) {
        while rest.as_slice().first().is_some_and(|word| self.enter(word)) {
            rest.next();
        }
    }

    /// Takes the words that stand behind options.
    fn take_words(&mut self, rest: &mut Vec<OsString>, table: &OptionTable) {
        while let Some(at) = subcommand_at(self.command, rest, table) {
            let word = rest.remove(at);
            self.enter(&word);
        }
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
