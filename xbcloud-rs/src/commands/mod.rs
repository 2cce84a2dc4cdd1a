//! One file per command: from the command line to the library call and the command's report.

pub(crate) mod admin;
mod begun_anew;
pub(crate) mod binlog;
mod completion;
mod context;
pub(crate) mod inspect;
mod metrics_file;
mod one_at_a_time;
mod program_output;
pub(crate) mod reporting;
mod retries;
mod sources;
mod state_dir;
pub(crate) mod transfer;
pub(crate) mod unattended;
mod whole_files;
pub(crate) mod words;

use clap::CommandFactory as _;
use xb_cli::{Failure, Level, LogOptions, Program};

use self::context::{Context, TOOL};
use self::reporting::Reporting;
use self::sources::sources;
use crate::args::{Command, CommandLine};
use crate::settings::fallbacks;

pub(crate) fn run(program: &Program) -> Result<(), Failure> {
    if let Some(folder) = program.manual_folder() {
        return Ok(xb_cli::write_manual(&CommandLine::command(), folder)?);
    }
    if let Some(question) = program.question() {
        return Err(question.answer(completion::command()));
    }
    let stock = program.personality().is_stock();
    let fallbacks = fallbacks();
    let sources = sources(&fallbacks, stock);
    let line: CommandLine = program.parse_from(&sources).inspect_err(|failure| {
        if failure.exit() == xb_cli::Exit::Usage && !stock {
            let log = program.start_log(LogOptions::default());
            let words = program.words::<CommandLine>(&sources);
            unattended::refused::report(&words, failure, &log);
            unattended::monitor::refused(&words, failure);
        }
    })?;
    let options = line.command.run_options();
    let level = match (options.quiet, options.verbose) {
        (true, _) => Level::Quiet,
        (false, true) => Level::Verbose,
        (false, false) => Level::Normal,
    };
    let log = program.start_log(LogOptions { level, json: options.json, ..LogOptions::default() });
    line.command.check(stock)?;
    let (reporting, unreported) = match Reporting::begin(&line.command, TOOL) {
        Ok(reporting) => (reporting, None),
        // A run reports this failure by its other means.
        Err(failure) if matches!(line.command, Command::Run(_)) => {
            (Reporting::default(), Some(failure))
        }
        Err(failure) => return Err(failure),
    };
    retries::report(&log, reporting.clone());
    let warnings = log.clone();
    xb_uploader::report_warnings(move |warning| warnings.warn(warning));
    let context = Context { log, stock, reporting };
    if !matches!(line.command, Command::Restore(_)) {
        // A local store contains a copy of all data, so no other user may read it.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    }
    let outcome = match line.command {
        Command::Put(args) => context.put(&args),
        Command::Backup(args) => context.backup(&args),
        Command::Run(args) => context.run(&args, unreported),
        Command::Check(mut args) => context.check(&mut args),
        Command::Init(args) => context.init(&args),
        Command::Monitor(mut args) => context.monitor(&mut args),
        Command::Fleet(mut args) => context.fleet(&mut args),
        Command::Binlog(mut args) => context.binlog(&mut args),
        Command::Report(args) => inspect::report::draw(&args),
        Command::Get(args) => context.get(&args),
        Command::Restore(args) => context.restore(&args),
        Command::Rescue(args) => context.rescue(&args),
        Command::List(args) => context.list(&args),
        Command::Show(args) => context.show(&args),
        Command::Verify(args) => context.verify(&args),
        Command::Evidence(args) => context.evidence(&args),
        Command::Consolidate(args) => context.consolidate(&args),
        Command::Copy(args) => context.copy(&args),
        Command::Pin(args) => context.pin(&args),
        Command::Unpin(args) => context.unpin(&args),
        Command::Accept(args) => context.accept(&args),
        Command::Prune(args) => context.prune(&args),
        Command::Delete(args) => context.delete(&args),
        Command::Gc(args) => context.gc(&args),
        Command::Plan(args) => context.plan(&args),
        Command::Tune(mut args) => context.tune(&mut args),
        Command::Rewrap(args) => context.rewrap(&args),
    };
    context.reporting.end(&context.log, program.personality(), outcome.as_ref().err());
    outcome
}
