//! Which subcommand the arguments name.

use std::ffi::OsString;

use clap::Command;

/// The subcommand that `args` begin with, or the command itself; and the words that name it.
pub(crate) fn scope_of<'a>(command: &'a Command, args: &[OsString]) -> (&'a Command, String) {
    let (mut scope, mut path) = (command, command.get_name().to_owned());
    for word in args.iter().skip(1) {
        let Some(found) = scope.find_subcommand(word) else { break };
        scope = found;
        path = format!("{path} {}", found.get_name());
    }
    (scope, path)
}
