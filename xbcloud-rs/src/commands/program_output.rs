//! Output of the programs that run on restored files: in a file of the state directory, and with `--verbose` as
//! it comes. If a program fails, its last lines are shown, too.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use xb_backup::{OWN_NOTE, OWN_WARNING, OnLine, ProducerLog};
use xb_cli::{Failure, Level, Log};

use crate::args::RunOptions;
use crate::commands::state_dir::state_dir;

/// Last lines that are shown after a failure.
const LAST: usize = 4;
/// Stage of an error of such a program.
const STAGE: &str = "prepare";

/// The output of one run.
#[derive(Clone)]
pub(crate) struct ProgramOutput {
    log: Log,
    /// Whether notes of our own are shown, as at the end of a restore.
    shows_notes: bool,
    /// Directory of the file.
    folder: Option<PathBuf>,
    /// Name of the file.
    name: String,
    /// The file, from the first line on; `None` inside if it cannot be created: then the lines are shown.
    file: Arc<Mutex<Option<Option<ProducerLog>>>>,
    /// Whether the warning about missing lines was shown.
    is_told: Arc<AtomicBool>,
}

impl ProgramOutput {
    /// The output of programs that `command` runs on a backup.
    pub(crate) fn new(log: &Log, run: &RunOptions, command: &str, backup: &str) -> Self {
        let now = Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        let name = format!("{command}-{backup}-{now}-{}", std::process::id());
        let folder = state_dir(run).map(|state| state.join("program-logs"));
        let shows_notes = command == "restore";
        let (file, is_told) = (Arc::default(), Arc::default());
        Self { log: log.clone(), shows_notes, folder, name, file, is_told }
    }

    /// Sink of the lines.
    pub(crate) fn on_line(&self) -> OnLine {
        let this = self.clone();
        Arc::new(move |line| this.line(line))
    }

    fn line(&self, line: &[u8]) {
        if let Some(warning) = line.strip_prefix(OWN_WARNING.as_bytes()) {
            self.log.warn(String::from_utf8_lossy(warning));
            return;
        }
        if let Some(note) = line.strip_prefix(OWN_NOTE.as_bytes()) {
            let note = String::from_utf8_lossy(note);
            match self.shows_notes {
                true => self.log.pass_on(&note),
                false => self.log.verbose(note),
            }
        }
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let file = file.get_or_insert_with(|| self.create());
        if let Some(file) = &*file {
            file.line(line);
            if let Some(error) = file.error()
                && !self.is_told.swap(true, Ordering::Relaxed)
            {
                let path = file.path().unwrap_or_default();
                self.log.warn(format!(
                    "{} lacks further output of the programs: {error}",
                    path.display()
                ));
            }
        }
        if file.is_none() || self.log.level() >= Level::Verbose {
            self.log.pass_on(&String::from_utf8_lossy(line));
        }
    }

    fn create(&self) -> Option<ProducerLog> {
        let folder = self.folder.as_ref()?;
        let created = ProducerLog::create_in(folder, &self.name).inspect_err(|error| {
            let folder = folder.display();
            self.log.warn(format!(
                "the output of the programs follows, because no file can be created in {folder}: {error}"
            ));
        });
        created.ok()
    }

    /// The file with the output, if there is any.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.file().and_then(|file| file.path())
    }

    /// Completes the failure of a program with its last lines, and with the file that has all of them.
    pub(crate) fn explain(&self, failure: Failure) -> Failure {
        let (Some(file), Some(STAGE)) = (self.file(), failure.stage_name()) else { return failure };
        with_last_lines(failure, &self.log, &file, "output of the programs")
    }

    fn file(&self) -> Option<ProducerLog> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).clone().flatten()
    }
}

/// Completes the failure of a program with its last lines, and with the file that has all of them, if there is one.
pub(crate) fn with_last_lines(
    failure: Failure,
    log: &Log,
    lines: &ProducerLog,
    what: &str,
) -> Failure {
    let tail = lines.tail();
    // With --verbose they have been shown.
    let shown = if log.level() >= Level::Verbose { 0 } else { LAST.min(tail.len()) };
    let last = tail[tail.len() - shown..].iter().filter(|line| !line.trim().is_empty());
    let failure = last.fold(failure, |failure, line| failure.fact(format!("  {line}")));
    match lines.path() {
        Some(path) => failure.fact(format!("all {what}: {}", path.display())),
        None => failure,
    }
}
