//! `xbcrypt-rs`: encrypts and decrypts files and streams, in the stock format and in ours.

mod args;
mod filter;
mod hints;
mod inspect;
mod inspect_key;
mod keygen;
mod output;
mod rewrap;

use std::process::ExitCode;

use xb_cli::{Failure, Level, LogOptions, Program};

use crate::args::{CommandLine, Tool, ToolLine};

fn main() -> ExitCode {
    xb_cli::run("xbcrypt-rs", run)
}

fn run(program: &Program) -> Result<(), Failure> {
    if let Some(folder) = program.manual_folder() {
        return Ok(xb_cli::write_manual(&args::filter_and_tools(), folder)?);
    }
    if let Some(question) = program.question() {
        return Err(question.answer(args::filter_and_tools()));
    }
    let stock = program.personality().is_stock();
    let first = program.argv().get(1).and_then(|word| word.to_str());
    // The stock tool has no commands, so neither does a drop-in replacement.
    if !stock && first.is_some_and(|word| args::TOOLS.contains(&word)) {
        let line: ToolLine = program.parse(&[])?;
        let log = program.start_log(LogOptions { no_stamps: true, ..LogOptions::default() });
        return match line.tool {
            Tool::Keygen(args) => keygen::run(&args, &log),
            Tool::Rewrap(args) => rewrap::run(&args, &log),
            Tool::Inspect(args) => inspect::run(&args),
        };
    }
    let line: CommandLine = program.parse(&["xbcrypt"])?;
    let level = if line.verbose { Level::Verbose } else { Level::Normal };
    let log = program.start_log(LogOptions { level, json: line.json, no_stamps: true });
    filter::run(&line, stock, &log)
}
