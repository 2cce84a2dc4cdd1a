//! Which subcommand the arguments name.
//!
//! A start builds the commands that it needs: to build all of them takes longer than all the rest of a `list`.

use std::ffi::OsString;

use clap::Command;
use clap::builder::{Resettable, StyledStr};

/// Builds the command, and the subcommands that `words` begin with. Returns how many words name one.
pub(crate) fn build_named(command: &mut Command, words: &[OsString]) -> usize {
    build_alone(command);
    let Some((word, rest)) = words.split_first() else { return 0 };
    command.find_subcommand_mut(word).map_or(0, |found| 1 + build_named(found, rest))
}

/// Builds the command and all its subcommands.
pub(crate) fn build_all(command: &mut Command) {
    build_alone(command);
    command.get_subcommands_mut().for_each(build_all);
}

/// Makes the deferred options of a command, and computes derived settings: value counts, help, what its parent hands
/// down. Of what clap offers, only the usage needs this of one command and not of its subcommands.
fn build_alone(command: &mut Command) {
    let texts = Texts::of(command);
    command.render_usage();
    texts.give_to(command);
}

/// Builds the command, all its subcommands, and the tree of its `help`.
pub(crate) fn build_whole(command: &mut Command) {
    let texts: Vec<Texts> = command.get_subcommands().map(Texts::of).collect();
    command.build();
    texts
        .into_iter()
        .zip(command.get_subcommands_mut())
        .for_each(|(texts, inner)| texts.give_to(inner));
}

/// What a command is for. Deferred options bring the doc comments of their own structs, and clap takes the last one.
struct Texts {
    about: Option<StyledStr>,
    long_about: Option<StyledStr>,
}

impl Texts {
    fn of(command: &Command) -> Self {
        let [about, long_about] =
            [command.get_about(), command.get_long_about()].map(|text| text.cloned());
        Self { about, long_about }
    }

    fn give_to(self, command: &mut Command) {
        let built = std::mem::take(command).about(Resettable::from(self.about));
        *command = built.long_about(Resettable::from(self.long_about));
    }
}

/// The subcommand that `args` begin with, or the command itself; and the words that name it.
pub(crate) fn scope_of<'a>(command: &'a Command, args: &[OsString]) -> (&'a Command, String) {
    let words = args.get(1..).unwrap_or_default();
    let mut path = command.get_name().to_owned();
    let mut scope = command;
    for word in words {
        let Some(found) = scope.find_subcommand(word) else { break };
        scope = found;
        path = format!("{path} {}", found.get_name());
    }
    (scope, path)
}
