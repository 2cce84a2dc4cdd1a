//! Answers of a program to the completion script of a shell.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::sync::Arc;

use clap::{Arg, Command, ValueHint};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate};
use clap_complete::env::EnvCompleter;

use xb_option_files::{OptionFileArgs, OptionFilePaths, load};

use crate::args::sources::Sources;
use crate::args::sources::repository::reference;
use crate::failure::Failure;
use crate::help::scripts::{SHELLS, VARIABLE};
use crate::subcommand::build_whole;

/// The question of a completion script: which words can stand at the cursor?
pub struct Question {
    shell: &'static dyn EnvCompleter,
    words: Vec<OsString>,
}

/// Shows no words, since they may hold secrets.
impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").field("shell", &self.shell.name()).finish_non_exhaustive()
    }
}

impl Question {
    /// The question in these arguments; `None` if they are those of a run. The variable alone does not make a run a
    /// question, so that no environment can keep a backup from being made.
    pub(crate) fn of(argv: &[OsString]) -> Option<Self> {
        let [_, separator, words @ ..] = argv else { return None };
        if separator != "--" || words.is_empty() {
            return None;
        }
        let wanted = std::env::var(VARIABLE).ok()?;
        let (_, shell, _) = SHELLS.iter().find(|(name, ..)| *name == wanted)?;
        Some(Self { shell: *shell, words: words.to_vec() })
    }

    /// The answer for `command`, as the end of a run that only prints.
    pub fn answer(self, mut command: Command) -> Failure {
        let folder = std::env::current_dir().ok();
        let mut text = Vec::new();
        // No answer is one, too: behind `--`, the words are those of another program.
        let _ = self.shell.write_complete(&mut command, self.words, folder.as_deref(), &mut text);
        Failure::only_print(&String::from_utf8_lossy(&text))
    }
}

/// Values to offer for an option that accepts more than these: `#[arg(add = candidates(VALUES))]`.
pub fn candidates(values: &'static [&'static str]) -> ArgValueCandidates {
    ArgValueCandidates::new(|| values.iter().map(CompletionCandidate::new).collect())
}

/// Completes repositories, as `@shop`, wherever `sources` accept them, and behind `@shop/` the backups in it, where
/// one that exists is required. `backups` returns their names, or none if they cannot be read at once.
pub fn with_repositories(
    mut command: Command,
    sources: &Sources<'_>,
    backups: fn(&str) -> Vec<String>,
) -> Command {
    let Some(repositories) = sources.repositories else { return command };
    let known: Arc<[String]> = repository_names(sources).into();
    let place = |arg: Arg| {
        let is_backup = is_existing_backup(&arg);
        let known = Arc::clone(&known);
        arg.add(ArgValueCompleter::new(move |typed: &OsStr| {
            places(typed.to_str().unwrap_or_default(), &known, is_backup.then_some(backups))
        }))
    };
    build_whole(&mut command);
    each_command(command, &|command| {
        let count =
            if repositories.destination_commands.contains(&command.get_name()) { 2 } else { 1 };
        let words = command.get_positionals().take(count);
        let words = words.filter(|arg| arg.get_value_hint() != ValueHint::AnyPath);
        let options = repositories.options.iter().chain(repositories.destination_options);
        let options: Vec<&str> = options.copied().collect();
        let options = command
            .get_arguments()
            .filter(|arg| arg.get_long().is_some_and(|long| options.contains(&long)));
        let ids: Vec<_> = words.chain(options).map(|arg| arg.get_id().clone()).collect();
        // In place: mut_arg would put a word behind those that follow it.
        command.mut_args(|arg| if ids.contains(arg.get_id()) { place(arg) } else { arg })
    })
}

/// Returns whether an argument names a backup that exists: neither a new one nor a place.
fn is_existing_backup(arg: &Arg) -> bool {
    let is_name = |names: &[clap::builder::Str]| names.iter().all(|name| name == "NAME");
    let is_option = arg.get_long().is_some();
    (arg.is_required_set() || is_option) && arg.get_value_names().is_some_and(is_name)
}

/// Returns what `typed` can become.
fn places(
    typed: &str,
    known: &[String],
    backups: Option<fn(&str) -> Vec<String>>,
) -> Vec<CompletionCandidate> {
    let found: Vec<String> = match (typed.split_once('/'), reference(typed), backups) {
        (Some(_), Some(name), Some(backups)) => {
            backups(name).iter().map(|backup| format!("@{name}/{backup}")).collect()
        }
        (Some(_), ..) => Vec::new(),
        (None, _, Some(_)) => known.iter().map(|name| format!("@{name}/")).collect(),
        (None, _, None) => known.iter().map(|name| format!("@{name}")).collect(),
    };
    found.into_iter().filter(|place| place.starts_with(typed)).map(Into::into).collect()
}

/// The repositories that this user's option files name, sorted.
fn repository_names(sources: &Sources<'_>) -> Vec<String> {
    let wanted = OptionFileArgs { as_stock: true, ..OptionFileArgs::default() };
    let loaded = load(&OptionFilePaths::usual(), &wanted, sources.groups);
    // A mistake in a file is not reported here; the command itself does that.
    let mut names: Vec<String> =
        loaded.map(|loaded| loaded.repositories.into_keys().collect()).unwrap_or_default();
    let folder = sources.repositories.map_or("", |repositories| repositories.folder);
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let file = entry.file_name();
        let name = file.to_str().and_then(|file| file.strip_suffix(".cnf"));
        names.extend(
            name.filter(|name| reference(&format!("@{name}")) == Some(*name)).map(str::to_owned),
        );
    }
    names.sort();
    names.dedup();
    names
}

/// Applies `change` to a command and all its subcommands.
fn each_command(command: Command, change: &dyn Fn(Command) -> Command) -> Command {
    change(command).mut_subcommands(|inner| each_command(inner, change))
}
