//! Wrapper around `main`.

pub(crate) mod host;
pub(crate) mod output_file;
pub(crate) mod service;
pub(crate) mod signals;

use std::cell::{OnceCell, RefCell};
use std::ffi::OsString;
use std::fmt;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Parser};

use xb_option_files::OptionFilePaths;

use crate::allocator;
use crate::args::argv::mysql_style;
use crate::args::expand::{ExpandedArgs, expand, expand_leniently};
use crate::args::hide;
use crate::args::sources::Sources;
use crate::complete::Question;
use crate::exit::Exit;
use crate::failure::{COMES_FROM, Failure};
use crate::help;
use crate::messages::log::{Log, LogOptions};
use crate::personality::{Personality, program_name};
use crate::subcommand::scope_of;

/// Runs a program: calls `main`, prints the error that ended it, returns the exit code.
///
/// `fallback_name` is used in messages if the system passed no `argv[0]`. The error is written to
/// the log if `main` has started one, otherwise as plain text to standard error; clap prints its
/// own errors, help and version. If a signal was caught, a failure counts as [`Exit::Interrupted`],
/// whatever its cause. While the program runs, the timeouts of its systemd unit are extended.
/// Programs that are started within `main` get a guardian, a second process of this program: it ends
/// them if this process is killed.
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
    allocator::give_large_buffers_back();
    service::keep_alive();
    signals::survive_file_size_limit();
    let (argv, hidden) = hide::given();
    let program = Program { may_hide: !hidden, ..Program::new(argv, fallback_name) };
    let exit = match main(&program) {
        Ok(()) => Exit::Done,
        Err(failure) => {
            let exit = exit_of(Some(&failure));
            program.report(&failure, exit);
            exit
        }
    };
    ExitCode::from(exit.code(program.personality))
}

/// Adds the source of a wrong value to an error of clap, and removes from its usage line what the
/// user did not write.
fn with_origin(mut error: clap::Error, command: &Command, expanded: &ExpandedArgs) -> clap::Error {
    if !error.use_stderr() {
        return error;
    }
    let had_bad_tip = forget_dangerous_tips(&mut error);
    let (scope, path) = scope_of(command, &expanded.args);
    // Clap's own usage line names the options that are given, which helps with those of the user.
    let usage = match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
        _ => String::new(),
    };
    let foreign = |word: &str| {
        let long = word.strip_prefix("--").map(|rest| rest.split('=').next().unwrap_or_default());
        long.is_some_and(|long| expanded.origin(long).is_some())
    };
    let own_name = path.clone();
    if had_bad_tip || usage.split([' ', '[', ']', '<', '>']).any(foreign) {
        let mut scope = scope.clone().bin_name(path);
        error.insert(ContextKind::Usage, ContextValue::StyledStr(scope.render_usage()));
    }
    let names = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(name)) => vec![name.clone()],
        Some(ContextValue::Strings(names)) => names.clone(),
        _ => Vec::new(),
    };
    let long = |name: &String| {
        let rest = name.strip_prefix("--")?;
        Some(rest.split([' ', '=']).next().unwrap_or_default().to_owned())
    };
    let mut tips: Vec<StyledStr> = names
        .iter()
        .filter_map(long)
        .filter_map(|long| Some(format!("--{long}{COMES_FROM}{}", expanded.origin(&long)?).into()))
        .collect();
    if let (ErrorKind::UnknownArgument, Some(word)) = (error.kind(), names.first()) {
        // Clap's advice is to pass an unknown option on as a value.
        error.remove(ContextKind::Suggested);
        let has_similar = error.get(ContextKind::SuggestedArg).is_some();
        tips.extend(next_step(scope, &own_name, word, has_similar).map(StyledStr::from));
    }
    if !tips.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// A hint for an argument that the command does not have, beside a similar option.
fn next_step(scope: &Command, name: &str, word: &str, has_similar: bool) -> Option<String> {
    if word.starts_with('-') {
        return (!has_similar).then(|| format!("`{name} --help` shows the options that it has"));
    }
    // A command that accepts the words of another program.
    if scope.get_positionals().any(clap::Arg::is_last_set) {
        return Some(format!("if it is a program to run, write `--` before it: `-- {word}`"));
    }
    let restores = scope.get_arguments().any(|arg| arg.get_long() == Some("target-dir"));
    restores.then(|| format!("if it is the directory to restore into, write --target-dir={word}"))
}

/// Prints an error of clap, or its help. In a mail or a log, the next step is on the second line, as in all errors.
fn print_clap(error: &clap::Error) {
    // A failure here cannot be reported anywhere.
    if !error.use_stderr() || std::io::stderr().is_terminal() {
        let _ = error.print();
        return;
    }
    let text = error.render().to_string().replace("\n\n  tip: ", "\n  tip: ");
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Removes tips towards what protects less, or removes data: a typing error must not lead there. Returns whether
/// there was one.
fn forget_dangerous_tips(error: &mut clap::Error) -> bool {
    const DANGEROUS: [&str; 3] = ["--insecure", "--force", "delete"];
    let mut had_one = false;
    for kind in [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand] {
        let names = match error.get(kind) {
            Some(ContextValue::String(name)) => vec![name.clone()],
            Some(ContextValue::Strings(names)) => names.clone(),
            _ => continue,
        };
        let good: Vec<String> =
            names.iter().filter(|name| !DANGEROUS.contains(&name.as_str())).cloned().collect();
        if good.len() < names.len() {
            had_one = true;
            error.remove(kind);
        }
        if good.len() < names.len() && !good.is_empty() {
            error.insert(kind, ContextValue::Strings(good));
        }
    }
    had_one
}

/// Returns how this process ends if this failure ends it, or nothing does. A failure after a signal is its consequence.
#[must_use]
pub fn exit_of(failure: Option<&Failure>) -> Exit {
    failure.map_or(Exit::Done, |failure| exit_after(failure, signals::interrupted()))
}

fn exit_after(failure: &Failure, signal: Option<i32>) -> Exit {
    match (failure.exit(), signal) {
        (exit @ (Exit::Done | Exit::Usage | Exit::Verdict(_)), _) | (exit, None) => exit,
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

    /// Returns the folder of `--write-manual FOLDER`, with which packages are built: the only
    /// arguments, and not shown in the help.
    pub fn manual_folder(&self) -> Option<&Path> {
        match self.argv.as_slice() {
            [_, option, folder] if option == "--write-manual" => Some(Path::new(folder)),
            _ => None,
        }
    }

    /// Returns the question of a shell's completion script, if the arguments are one.
    pub fn question(&self) -> Option<Question> {
        if self.personality.is_stock() { None } else { Question::of(&self.argv) }
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
        self.parse_from(&Sources::groups(groups))
    }

    /// As [`parse`](Self::parse), with more sources than option files. `--print-defaults`, if the
    /// command line has it, ends as help does.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_from<P: Parser>(&self, sources: &Sources<'_>) -> Result<P, Failure> {
        self.parse_with(sources, &OptionFilePaths::usual())
    }

    /// Returns the arguments for clap, with those from option files, as far as they can be read beside what is wrong
    /// in them: for a program that has to report somewhere that [`parse_from`](Self::parse_from) failed.
    pub fn words<P: Parser>(&self, sources: &Sources<'_>) -> Vec<OsString> {
        let mut command = mysql_style(P::command());
        let expanded =
            expand_leniently(&mut command, sources, &self.argv, &OptionFilePaths::usual());
        expanded.map_or_else(|_| self.argv.clone(), |expanded| expanded.args)
    }

    fn parse_with<P: Parser>(
        &self,
        sources: &Sources<'_>,
        places: &OptionFilePaths,
    ) -> Result<P, Failure> {
        let mut command = mysql_style(P::command());
        let expanded = expand(&mut command, sources, &self.argv, places)?;
        if self.may_hide && !expanded.secrets.is_empty() {
            let error = hide::start_anew(&self.argv, &expanded.secrets);
            let text = format!("cannot hide a secret from the process list: {error}");
            self.warnings.borrow_mut().push(text);
        }
        self.warnings.borrow_mut().extend(expanded.warnings.iter().cloned());
        if let Some(text) = &expanded.print {
            return Err(Failure::only_print(text));
        }
        if !sources.topics.is_empty()
            && let Some(text) = help::folded(&mut command, &expanded.args, sources.topics)
        {
            return Err(Failure::only_print(&text));
        }
        let matches = command.try_get_matches_from_mut(expanded.args.iter().cloned());
        let mut matches = matches.map_err(|error| with_origin(error, &command, &expanded))?;
        Ok(P::from_arg_matches_mut(&mut matches)?)
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
        if let Some(text) = failure.output() {
            // As help: a reader that is gone is no failure.
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
        } else if let Some(error) = failure.clap_error() {
            print_clap(error);
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
        Program::new(argv, "x").parse_with(&Sources::groups(&["x"]), &OptionFilePaths::none())
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
        assert_eq!(exit_after(&broken, None), Exit::Failed);
        assert_eq!(exit_after(&broken, Some(2)), Exit::Interrupted(2));
        assert_eq!(exit_after(&Failure::usage("x"), Some(2)), Exit::Usage);
        let gone = || Failure::new("x").ending(Exit::Unreachable);
        assert_eq!(exit_after(&gone(), None), Exit::Unreachable);
        assert_eq!(exit_after(&gone(), Some(15)), Exit::Interrupted(15));
    }
}
