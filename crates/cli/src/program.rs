//! Wrapper around `main`.

use std::cell::{OnceCell, RefCell};
use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::exit::Exit;
use crate::expand::expand;
use crate::failure::Failure;
use crate::hide;
use crate::log::{Log, LogOptions};
use crate::option_file::OptionFilePaths;
use crate::personality::{Personality, program_name};
use crate::signals;

/// Runs a program: calls `main`, prints the error that ended it, returns the exit code.
///
/// `fallback_name` is used in messages if the system passed no `argv[0]`. The error is written to
/// the log if `main` has started one, otherwise as plain text to standard error; clap prints its
/// own errors, help and version. If a signal was caught, a failure counts as [`Exit::Interrupted`],
/// whatever its cause. Programs that are started within `main` get a guardian, a second process of
/// this program: it ends them if this process is killed.
///
/// ```no_run
/// #[derive(clap::Parser)]
/// struct Line {
///     #[arg(long, default_value = "64M")]
///     chunk_size: xb_cli::Size,
/// }
///
/// fn main() -> std::process::ExitCode {
///     xb_cli::run("xbcloud-rs", |program| {
///         let line: Line = program.parse(&["xbcloud"])?;
///         let log = program.start_log(Default::default());
///         log.info(format_args!("chunks of {}", line.chunk_size));
///         Ok(())
///     })
/// }
/// ```
pub fn run(fallback_name: &str, main: impl FnOnce(&Program) -> Result<(), Failure>) -> ExitCode {
    if let Some(status) = xb_process::serve_as_guardian() {
        return status;
    }
    let (argv, hidden) = hide::given();
    let program = Program { may_hide: !hidden, ..Program::new(argv, fallback_name) };
    let exit = match main(&program) {
        Ok(()) => Exit::Done,
        Err(failure) => {
            let exit = exit_of(&failure, signals::interrupted());
            program.report(&failure, exit);
            exit
        }
    };
    ExitCode::from(exit.code(program.personality))
}

fn exit_of(failure: &Failure, signal: Option<i32>) -> Exit {
    match (failure.exit(), signal) {
        (exit @ (Exit::Done | Exit::Usage), _) | (exit, None) => exit,
        (_, Some(signal)) => Exit::Interrupted(signal),
    }
}

/// Name, arguments and log of a run.
///
/// `Debug` shows no argument, since they may hold secrets.
pub struct Program {
    name: String,
    personality: Personality,
    argv: Vec<OsString>,
    /// Whether `argv` may contain secrets that are visible in the process list and can be hidden.
    may_hide: bool,
    warnings: RefCell<Vec<String>>,
    log: OnceCell<Log>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("name", &self.name)
            .field("personality", &self.personality)
            .field("argv", &self.argv.len())
            .finish_non_exhaustive()
    }
}

impl Program {
    /// Creates a program with these arguments, including `argv[0]`.
    pub fn new(argv: Vec<OsString>, fallback_name: &str) -> Self {
        let argv0 = argv.first().map(OsString::as_os_str);
        Self {
            name: program_name(argv0, fallback_name),
            personality: argv0.map_or(Personality::Ours, Personality::of),
            argv,
            may_hide: false,
            warnings: RefCell::default(),
            log: OnceCell::new(),
        }
    }

    /// Returns the name by which the program was called, without folders.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the tool as which the program was called.
    pub fn personality(&self) -> Personality {
        self.personality
    }

    /// Returns the original arguments, including `argv[0]`.
    pub fn argv(&self) -> &[OsString] {
        &self.argv
    }

    /// Parses the arguments as described for [`expand`], with the `groups` of the option files in
    /// the default locations. Warnings are kept until the log starts.
    ///
    /// If the command line contains the value of a [`Secret`](crate::Secret) option and [`run`]
    /// started the program, the process executes itself again without the value in the process
    /// list: call this function before doing anything else.
    ///
    /// # Errors
    /// A usage failure; or clap's help or version, whose exit is [`Exit::Done`].
    pub fn parse<P: Parser>(&self, groups: &[&str]) -> Result<P, Failure> {
        self.parse_with(groups, &OptionFilePaths::usual())
    }

    fn parse_with<P: Parser>(
        &self,
        groups: &[&str],
        places: &OptionFilePaths,
    ) -> Result<P, Failure> {
        let command = crate::argv::mysql_style(P::command());
        let expanded = expand(&command, groups, &self.argv, places)?;
        if self.may_hide && !expanded.secrets.is_empty() {
            let error = hide::start_anew(&self.argv, &expanded.secrets);
            let text = format!("the process list shows a secret, hiding it failed: {error}");
            self.warnings.borrow_mut().push(text);
        }
        self.warnings.borrow_mut().extend(expanded.warnings);
        let matches = command.try_get_matches_from(expanded.args)?;
        Ok(P::from_arg_matches(&matches)?)
    }

    /// Starts the log on standard error. Later calls return the log of the first call.
    pub fn start_log(&self, options: LogOptions) -> Log {
        let log = self.log.get_or_init(|| Log::stderr(&self.name, options));
        for warning in self.warnings.take() {
            log.warn(warning);
        }
        log.clone()
    }

    fn report(&self, failure: &Failure, exit: Exit) {
        if let Some(error) = failure.clap_error() {
            // A failure here cannot be reported anywhere.
            let _ = error.print();
        } else if let Some(log) = self.log.get() {
            log.failure(failure, exit.code(self.personality));
        } else {
            let mut text = String::new();
            for warning in self.warnings.take() {
                text.push_str(&format!("{}: warning: {warning}\n", self.name));
            }
            text.push_str(&failure.report(&self.name));
            let _ = std::io::stderr().lock().write_all(text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug, Parser)]
    struct Line {
        #[arg(long)]
        parallel: Option<u32>,
        #[arg(short, long)]
        verbose: bool,
        names: Vec<String>,
    }

    fn parse(words: &[&str]) -> Result<Line, Failure> {
        let argv = words.iter().map(OsString::from).collect();
        Program::new(argv, "x").parse_with(&["x"], &OptionFilePaths::none())
    }

    #[test]
    fn arguments_are_parsed_in_mysql_style() {
        let line =
            parse(&["x", "a", "--par", "4", "--skip-verbose", "-v", "b", "--paral=8"]).unwrap();
        assert_eq!((line.parallel, line.verbose), (Some(8), true));
        assert_eq!(line.names, ["a", "b"]);
        assert_eq!(parse(&["x", "--bogus"]).unwrap_err().exit(), Exit::Usage);
        assert_eq!(parse(&["x", "--help"]).unwrap_err().exit(), Exit::Done);
    }

    #[test]
    fn the_name_decides_the_personality() {
        let program = Program::new(vec!["/usr/bin/mbstream".into(), "-x".into()], "y");
        assert_eq!(program.name(), "mbstream");
        assert_eq!(program.personality(), Personality::Mbstream);
        assert_eq!(program.argv().len(), 2);
        let program = Program::new(vec![], "y");
        assert_eq!((program.name(), program.personality()), ("y", Personality::Ours));
    }

    #[test]
    fn a_failure_after_a_signal_is_an_interruption() {
        let broken = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(exit_of(&broken, None), Exit::Failed);
        assert_eq!(exit_of(&broken, Some(2)), Exit::Interrupted(2));
        assert_eq!(exit_of(&Failure::usage("x"), Some(2)), Exit::Usage);
        let gone = || Failure::new("x").ending(Exit::Unreachable);
        assert_eq!(exit_of(&gone(), None), Exit::Unreachable);
        assert_eq!(exit_of(&gone(), Some(15)), Exit::Interrupted(15));
    }
}
