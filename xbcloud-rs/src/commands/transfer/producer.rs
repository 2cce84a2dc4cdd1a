//! The producer of a backup: its command line and its messages.

use std::ffi::OsString;

use xb_backup::ProducerLog;
use xb_cli::{Exit, Failure, FailureContext as _, Level, Log};

use crate::args::{BackupOptions, ProducerOptions, RunOptions};
use crate::commands::context::Context;
use crate::commands::program_output::with_last_lines;
use crate::commands::state_dir::state_dir;
use crate::commands::transfer::producer_words::{Cause, cause};
use crate::commands::words::words;

impl Context {
    /// The log for the producer's messages, unless they are passed on. Without a file it has the last ones only: a
    /// good backup writes hundreds of lines, which would be the mail of every night.
    pub(crate) fn producer_log(
        &self,
        args: &ProducerOptions,
        run: &RunOptions,
        name: &str,
    ) -> Result<Option<ProducerLog>, Failure> {
        if let Some(path) = &args.producer_log {
            return match path.as_os_str() == "-" {
                true => Ok(None),
                false => ProducerLog::create(path)
                    .map(Some)
                    .stage("settings")
                    .hint(&format!("set --producer-log to another file than {}", path.display())),
            };
        }
        let Some(folder) = state_dir(run) else { return Ok(None) };
        let folder = folder.join("producer-logs");
        let created = ProducerLog::create_in(&folder, name).unwrap_or_else(|error| {
            let folder = folder.display();
            self.log.warn(format!(
                "only the last messages of the producer are kept, because no file can be created in {folder}: {error}; name another directory with --state-dir, or show them with --producer-log=-"
            ));
            ProducerLog::without_file()
        });
        Ok(Some(created))
    }

    /// Completes a failure that the producer may have caused with its own words, the next step, its last
    /// messages, and the file that has all of them.
    pub(crate) fn in_its_words(&self, messages: &ProducerLog, failure: Failure) -> Failure {
        // Anything else has its own cause, and the producer was only ended.
        if failure.exit() != Exit::Input {
            return failure;
        }
        let tail = messages.tail();
        let is_empty = failure.line().contains("the input is empty");
        let ended_well = |line: &String| line.contains("completed OK!");
        let lacks_backup = |line: &String| line.contains("only works together with --backup");
        let failure = match (cause(&tail), failure.stage_name()) {
            _ if is_empty && tail.last().is_some_and(ended_well) => failure.better_hint(
                "the producer has written its backup elsewhere: add --stream=xbstream to its options, without --target-dir; none was stored",
            ),
            _ if tail.iter().any(lacks_backup) => failure.better_hint(
                "add --backup to the options of the producer: without it the program makes no backup; none was stored",
            ),
            // A warning that it gave before says nothing about a stream that is wrong.
            (Some(Cause { words, hint: Some(hint) }), stage)
                if is_empty || stage == Some("producer") =>
            {
                failure.because(words).better_hint(hint)
            }
            // Its end alone says nothing.
            (Some(Cause { words, hint: None }), Some("producer")) => {
                of_signal(failure.because(words))
            }
            _ => of_signal(failure),
        };
        with_last_lines(failure, &self.log, messages, "messages of the producer")
    }
}

/// Replaces the hint if the kernel may have ended the producer.
fn of_signal(failure: Failure) -> Failure {
    match failure.line().contains("by signal 9") {
        true => failure.better_hint("if no one ended it, the kernel did, for lack of memory: see `journalctl -k`; then take a new backup: none was made"),
        false => failure,
    }
}

/// Receiver of the producer's messages: writes them to their file, or shows them.
pub(crate) fn log_messages(
    log: &Log,
    messages: Option<ProducerLog>,
) -> impl FnMut(&[u8]) + Send + 'static {
    let log = log.clone();
    let passes_on = messages.is_none() || log.level() == Level::Verbose;
    move |line: &[u8]| {
        if let Some(messages) = &messages {
            messages.line(line);
        }
        if passes_on {
            log.pass_on(&String::from_utf8_lossy(line));
        }
    }
}

/// The producer and its arguments: of the command line, else of `--producer`.
pub(crate) fn producer_command(args: &BackupOptions) -> Result<Vec<OsString>, Failure> {
    if !args.producer.is_empty() {
        return Ok(args.producer.clone());
    }
    let text = args.producer_options.producer_command.as_deref().unwrap_or_default();
    let words = words("--producer", text)?;
    match words.is_empty() {
        true => Err(Failure::usage("no producer is named").hint(
            "add it after --, as in `-- mariadb-backup --backup --stream=xbstream`, or name a repository that sets `producer`, as in @shop; to clone a MySQL server, set `from`",
        )),
        false => Ok(words.into_iter().map(Into::into).collect()),
    }
}
