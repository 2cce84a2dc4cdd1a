//! One file per command: from the command line to the library call and the command's report.

mod context;
mod copy;
mod delete;
mod gc;
mod get;
mod list;
mod pin;
mod plan;
mod prune;
mod put;
mod restore;
mod rewrap;
mod show;
mod verify;

use xb_cli::{Failure, Level, LogOptions, Program};

use self::context::Context;
use crate::args::{Command, Line};

pub(crate) fn run(program: &Program) -> Result<(), Failure> {
    let line: Line = program.parse(&["xbcloud"])?;
    let options = line.command.run_options();
    let level = match (options.quiet, options.verbose) {
        (true, _) => Level::Quiet,
        (false, true) => Level::Verbose,
        (false, false) => Level::Normal,
    };
    let log = program.start_log(LogOptions { level, json: options.json, ..LogOptions::default() });
    let context = Context { log, stock: program.personality().is_stock() };
    line.command.check(context.stock)?;
    if !matches!(line.command, Command::Restore(_)) {
        // A local store contains a copy of all data, so no other user may read it.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    }
    match line.command {
        Command::Put(args) => context.put(&args),
        Command::Backup(args) => context.backup(&args),
        Command::Get(args) => context.get(&args),
        Command::Restore(args) => context.restore(&args),
        Command::List(args) => context.list(&args),
        Command::Show(args) => context.show(&args),
        Command::Verify(args) => context.verify(&args),
        Command::Copy(args) => context.copy(&args),
        Command::Pin(args) => context.pin(&args),
        Command::Unpin(args) => context.unpin(&args),
        Command::Prune(args) => context.prune(&args),
        Command::Delete(args) => context.delete(&args),
        Command::Gc(args) => context.gc(&args),
        Command::Plan(args) => context.plan(&args),
        Command::Rewrap(args) => context.rewrap(&args),
    }
}
