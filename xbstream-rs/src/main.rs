//! `xbstream-rs`: makes, lists and extracts the streams of MySQL and MariaDB backups.

mod args;
mod create;
mod extract;
mod hints;
mod keys;
mod list;
mod source;

use std::process::ExitCode;

use clap::CommandFactory as _;
use xb_cli::{Failure, Level, LogOptions, Personality, Program};

use crate::args::{CommandLine, Mode};

fn main() -> ExitCode {
    xb_cli::run("xbstream-rs", run)
}

fn run(program: &Program) -> Result<(), Failure> {
    if let Some(folder) = program.manual_folder() {
        return Ok(xb_cli::write_manual(&CommandLine::command(), folder)?);
    }
    if let Some(question) = program.question() {
        return Err(question.answer(CommandLine::command()));
    }
    // Stock mbstream has no option files.
    let groups: &[&str] =
        if program.personality() == Personality::Mbstream { &[] } else { &["xbstream"] };
    let line: CommandLine = program.parse(groups)?;
    let level = if line.verbose { Level::Verbose } else { Level::Normal };
    // In mode -t, `--json` also applies to the list on standard output.
    let log = program.start_log(LogOptions { level, json: line.json, no_stamps: true });
    let stock = program.personality().is_stock();
    let mode = line.check(stock, &log)?;
    match mode {
        Mode::Create => create::run(&line, &log),
        Mode::Extract => extract::run(&line, stock, &log),
        Mode::List => list::run(&line, &log),
    }
}
