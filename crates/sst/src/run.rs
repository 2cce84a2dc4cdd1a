//! Programs that a transfer starts: cancelling ends them, and their last messages explain a
//! failure.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::Signal;
use xb_process::{
    DroppedTablespaces, Exchange, GuardedOutput, ImportedNotDropped, LeftOut, LockGuard, Messages,
    NOT_STARTED, Output, Program, RunError, Stall, Termination, can_confine, guard, how_it_ended,
    left_out,
};

use crate::cancel::{CancelHook, CancelReason, CancelToken};
use crate::contract::server_credentials::VARIABLES;

/// Signal by which a cancelled transfer ends a program.
const SIGTERM: i32 = 15;

/// Number of last message lines that are kept for the error.
const LAST_LINES: usize = 20;

/// Words in the line with which a backup program of InnoDB's code aborts.
const ASSERTION: &str = "Failing assertion";

/// Failure of a program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// The program could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// The program failed.
    #[error("{program} {how}; its last messages: {}", .words.join(" / "))]
    Failed {
        /// The program.
        program: String,
        /// Description of its end.
        how: String,
        /// Its last messages.
        words: Vec<String>,
    },
    /// The backup program has ended with success, and without a table that it could not open.
    #[error(transparent)]
    LeftOut(#[from] LeftOut),
    /// The backup program has ended with success, and without the rows of a table whose tablespace was imported.
    #[error(transparent)]
    ImportedNotDropped(#[from] ImportedNotDropped),
    /// Cancellation ended the program.
    #[error(transparent)]
    Stopped(#[from] CancelReason),
}

/// A program to run.
#[derive(Debug)]
pub struct Run<'a> {
    /// Name or path of the program.
    pub program: &'a Path,
    /// Arguments. They must not hold secrets: every user can read them.
    pub args: Vec<OsString>,
    /// Additional environment variables.
    pub env: Vec<(&'static str, OsString)>,
    /// File for all its messages; without one, only the last are kept.
    pub log: Option<PathBuf>,
    /// If not empty, and this system can: the only directories and files that it can write to.
    pub writable: Vec<PathBuf>,
}

impl Run<'_> {
    pub(crate) fn name(&self) -> String {
        let name = self.program.file_name().unwrap_or(self.program.as_os_str());
        name.to_string_lossy().into_owned()
    }

    fn described(&self) -> Program {
        let mut program = Program::new(self.program).args(&self.args).opening_many_files();
        // Variables from the server are not for child programs.
        for name in VARIABLES {
            program = program.env_remove(name);
        }
        // The service manager would take a child's messages for the server's.
        program = program.env_remove("NOTIFY_SOCKET");
        for (name, value) in &self.env {
            program = program.env(name, value);
        }
        match self.writable.is_empty() || can_confine().is_err() {
            true => program,
            false => program.writing_only_below(&self.writable),
        }
    }

    fn not_started(&self, source: io::Error) -> ChildError {
        ChildError::Start { program: self.program.to_string_lossy().into_owned(), source }
    }

    /// Runs the program to its end; its stdout is discarded.
    ///
    /// # Errors
    /// [`ChildError`]; any exit status other than 0 is an error.
    pub(crate) fn to_end(&self, cancel: &CancelToken) -> Result<(), ChildError> {
        let terminate = || cancel.reason().map(|_| Termination::Signal(SIGTERM, None));
        self.run(cancel, Output::AsDescribed, terminate).map(drop)
    }

    /// Like [`Run::to_end`], but kills the program as soon as `fault` returns a reason, or the
    /// transfer is cancelled. `fault` is called several times a second.
    ///
    /// # Errors
    /// As [`Run::to_end`]; the reason is in [`ChildError::Failed`].
    pub(crate) fn to_end_unless(
        &self,
        cancel: &CancelToken,
        mut fault: impl FnMut() -> Option<String>,
    ) -> Result<(), ChildError> {
        let kill = || match fault() {
            Some(how) => Some(Termination::Kill(Some(how))),
            None => cancel.reason().map(|_| Termination::Kill(None)),
        };
        self.run(cancel, Output::AsDescribed, kill).map(drop)
    }

    /// Runs the program to its end and returns its stdout, at most `limit` bytes.
    ///
    /// # Errors
    /// As [`Run::to_end`]; also if it writes more.
    pub fn output(&self, cancel: &CancelToken, limit: usize) -> Result<Vec<u8>, ChildError> {
        Ok(self.all_output(cancel, limit)?.0)
    }

    /// Like [`Run::output`], with the last of its messages.
    ///
    /// # Errors
    /// As [`Run::output`].
    pub(crate) fn all_output(
        &self,
        cancel: &CancelToken,
        limit: usize,
    ) -> Result<(Vec<u8>, Vec<String>), ChildError> {
        let mut output = vec![0; limit];
        let terminate = || cancel.reason().map(|_| Termination::Signal(SIGTERM, None));
        let (len, words) = self.run(cancel, Output::Into(&mut output), terminate)?;
        output.truncate(len);
        Ok((output, words))
    }

    /// Runs the program to its end, unless `early` returns a reason. Returns the number of bytes of its
    /// output that were stored, and the last of its messages.
    fn run(
        &self,
        cancel: &CancelToken,
        stdout: Output<'_>,
        early: impl FnMut() -> Option<Termination<Option<String>>>,
    ) -> Result<(usize, Vec<String>), ChildError> {
        cancel.check()?;
        let words = LastMessages::new(self.log.as_deref());
        let each = |line: &[u8]| words.add(line);
        let exchange = Exchange { input: None, stdout, stderr: Output::Lines(&each) };
        let how = match xb_process::run(self.described(), exchange, early) {
            Ok((status, len)) => {
                cancel.check()?;
                judge(&self.name(), Ok(status), &words)?;
                return Ok((len, words.get()));
            }
            Err(RunError::Start(source)) => return Err(self.not_started(source)),
            Err(RunError::Stopped(Some(how))) => how,
            Err(RunError::Stopped(None)) => {
                cancel.check()?;
                "was ended".to_owned()
            }
            Err(RunError::TooMuch(limit)) => format!("wrote more than {limit} bytes"),
            Err(RunError::Io(error)) => {
                return judge(&self.name(), Err(error), &words).map(|()| (0, Vec::new()));
            }
        };
        Err(ChildError::Failed { program: self.name(), how, words: words.get() })
    }

    /// Starts the program as the producer of a stream, guarded as `locks` sets.
    ///
    /// # Errors
    /// [`ChildError::Start`], also if the spool cannot be created.
    pub fn stream(
        &self,
        cancel: &CancelToken,
        locks: &LockGuard,
    ) -> Result<(Running, GuardedOutput), ChildError> {
        let failed = |source| ChildError::Start { program: self.name(), source };
        let spool = locks.spool().map_err(|source| {
            let dir = locks.spool_dir.as_deref().unwrap_or(Path::new("")).display().to_string();
            failed(io::Error::new(
                source.kind(),
                format!("cannot create a spool in {dir}: {source}"),
            ))
        })?;
        cancel.check()?;
        let words = LastMessages::new(self.log.as_deref());
        let described = self.described().stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = described.start().map_err(|source| self.not_started(source))?;
        let signaller = program.signaller();
        let hook = cancel.on_cancel(move || signaller.signal(Signal::TERM));
        let (Some(stdout), Some(stderr)) = (program.stdout(), program.stderr()) else {
            return Err(failed(io::ErrorKind::BrokenPipe.into()));
        };
        let (heard, stalled) = (words.clone(), cancel.clone());
        let seconds = locks.lock_stall.unwrap_or_default().as_secs();
        xb_files::enlarge_pipe(&stdout);
        let (output, messages) = guard(
            stdout,
            stderr,
            spool,
            locks,
            move |line| heard.add(line),
            move |stall| {
                stalled.cancel(match stall {
                    Stall::Overwritten => CancelReason::OverwrittenRedo { seconds },
                    Stall::Full | Stall::Disk(_) => CancelReason::LockStall { seconds },
                });
            },
        )
        .map_err(failed)?;
        let (name, cancel) = (self.name(), cancel.clone());
        Ok((Running { program, words, messages, name, cancel, _hook: hook }, output))
    }
}

/// A running program. Dropping it ends the program.
#[derive(Debug)]
pub struct Running {
    program: xb_process::Running,
    words: LastMessages,
    messages: Messages,
    name: String,
    cancel: CancelToken,
    _hook: CancelHook,
}

impl Running {
    /// Waits for the program, which is a backup program, to end. Returns the tablespaces that it takes for dropped.
    ///
    /// # Errors
    /// [`ChildError`]; any exit status other than 0 is an error.
    pub fn ended(mut self) -> Result<DroppedTablespaces, ChildError> {
        let status = self.program.wait();
        self.messages.drain_output();
        self.cancel.check()?;
        judge(&self.name, status, &self.words)?;
        let program = self.name.clone();
        if let Some(file) = self.words.left_out() {
            return Err(LeftOut { program, file }.into());
        }
        Ok(self.words.dropped())
    }
}

/// Judges how a program has ended.
fn judge(
    name: &str,
    status: io::Result<ExitStatus>,
    words: &LastMessages,
) -> Result<(), ChildError> {
    let (program, how) = match status {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) if status.code() == Some(NOT_STARTED.into()) => {
            let source = io::Error::other(words.get().join(" / "));
            return Err(ChildError::Start { program: name.to_owned(), source });
        }
        Ok(status) => (name.to_owned(), how_it_ended(status)),
        Err(error) => {
            (name.to_owned(), format!("failed, because its exit status is unknown: {error}"))
        }
    };
    Err(ChildError::Failed { program, how, words: words.get() })
}

/// The last messages of a program, and a file with all of them.
#[derive(Debug, Clone)]
struct LastMessages(Arc<Mutex<Words>>);

#[derive(Debug)]
struct Words {
    lines: VecDeque<String>,
    /// The first line about an assertion: many others may follow it.
    assertion: Option<String>,
    file: Option<File>,
    left_out: Option<String>,
    dropped: DroppedTablespaces,
}

impl LastMessages {
    fn new(log: Option<&Path>) -> Self {
        // The program can run without a log, too.
        let file = log.and_then(|path| File::create(path).ok());
        let (lines, dropped) = (VecDeque::new(), DroppedTablespaces::default());
        let words = Words { lines, assertion: None, file, left_out: None, dropped };
        Self(Arc::new(Mutex::new(words)))
    }

    fn add(&self, line: &[u8]) {
        let mut words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &mut words.file {
            let _ = file.write_all(line).and_then(|()| file.write_all(b"\n"));
        }
        if words.left_out.is_none() {
            words.left_out = left_out(line);
        }
        words.dropped.read_line(line);
        if words.lines.len() == LAST_LINES {
            words.lines.pop_front();
        }
        let line = String::from_utf8_lossy(line).into_owned();
        if words.assertion.is_none() && line.contains(ASSERTION) {
            words.assertion = Some(line.clone());
        }
        words.lines.push_back(line);
    }

    fn left_out(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).left_out.clone()
    }

    fn dropped(&self) -> DroppedTablespaces {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).dropped.clone()
    }

    fn get(&self) -> Vec<String> {
        let words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The very last lines mostly describe the error. An assertion is followed by a general advice.
        let last = words.lines.iter().skip(words.lines.len().saturating_sub(4));
        let assertion = words.assertion.iter().filter(|line| !last.clone().any(|l| l == *line));
        assertion.chain(last.clone()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::time::Duration;

    use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
    use xb_process::StreamedTables;

    use super::*;

    fn run<'a>(program: &'a str, args: &[&str]) -> Run<'a> {
        let args = args.iter().map(OsString::from).collect();
        Run { program: Path::new(program), args, env: Vec::new(), log: None, writable: Vec::new() }
    }

    fn pid_of(running: &Running) -> Pid {
        Pid::from_raw(running.program.pid().try_into().unwrap()).unwrap()
    }

    #[test]
    fn status_and_last_words_count() {
        assert!(run("true", &[]).to_end(&CancelToken::new()).is_ok());
        let error =
            run("sh", &["-c", "echo why >&2; exit 7"]).to_end(&CancelToken::new()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("exit status 7") && text.contains("why"), "{text}");
        let error = run("/no/such/program", &[]).to_end(&CancelToken::new()).unwrap_err();
        assert!(matches!(error, ChildError::Start { .. }), "{error}");
        assert_eq!(run("echo", &["a"]).output(&CancelToken::new(), 100).unwrap(), b"a\n");
    }

    /// `--prepare` opens every tablespace.
    #[test]
    fn programs_may_open_as_many_files_as_the_system_allows() {
        let before = getrlimit(Resource::Nofile);
        let hard = before.maximum.unwrap();
        setrlimit(Resource::Nofile, Rlimit { current: Some(hard - 1), ..before }).unwrap();
        let limit = run("sh", &["-c", "ulimit -S -n"]).output(&CancelToken::new(), 100);
        setrlimit(Resource::Nofile, before).unwrap();
        assert_eq!(String::from_utf8(limit.unwrap()).unwrap().trim(), hard.to_string());
    }

    /// InnoDB's code says more after it, which tells nothing about the cause.
    #[test]
    fn an_assertion_that_failed_is_among_the_last_words() {
        let said = |lines: &[&str]| {
            let words = LastMessages::new(None);
            lines.iter().for_each(|line| words.add(line.as_bytes()));
            words.get()
        };
        let cause = "InnoDB: Failing assertion: size != 1";
        let advice = ["1"; 2 * LAST_LINES];
        let all = [&["0", cause], &advice[..]].concat();
        assert_eq!(said(&all), [cause, "1", "1", "1", "1"]);
        assert_eq!(said(&["0", cause, "1"]), ["0", cause, "1"]);
        assert_eq!(said(&["0", "1", "2", "3", "4"]), ["1", "2", "3", "4"]);
    }

    #[test]
    fn messages_go_to_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let run =
            Run { log: Some(log.clone()), ..run("sh", &["-c", "echo one >&2; echo two >&2"]) };
        run.to_end(&CancelToken::new()).unwrap();
        assert_eq!(std::fs::read(log).unwrap(), b"one\ntwo\n");
    }

    #[test]
    fn the_wish_to_end_reaches_children_and_theirs() {
        let cancel = CancelToken::new();
        let script = "sleep 1000 & echo up; wait";
        let (running, mut output) =
            run("sh", &["-c", script]).stream(&cancel, &LockGuard::default()).unwrap();
        let mut up = [0; 3];
        output.read_exact(&mut up).unwrap();
        let pid = pid_of(&running);
        cancel.cancel(CancelReason::Signal(15));
        assert!(matches!(running.ended(), Err(ChildError::Stopped(CancelReason::Signal(15)))));
        // The grandchild holds the other end of the pipe, which closes when the grandchild is gone.
        assert_eq!(output.read(&mut up).unwrap(), 0);
        assert!(rustix::process::test_kill_process(pid).is_err());
        assert!(matches!(run("true", &[]).to_end(&cancel), Err(ChildError::Stopped(_))));
    }

    /// It says so among its messages, and ends with 0.
    #[test]
    fn a_table_that_a_backup_takes_for_dropped_is_missed() {
        let says = "echo 'We assume the  table was dropped during xtrabackup execution and ignore the tablespace ./s/a.ibd' >&2";
        let (running, _output) =
            run("sh", &["-c", says]).stream(&CancelToken::new(), &LockGuard::default()).unwrap();
        let dropped = running.ended().unwrap();
        let judged = |lone: &str| {
            let without = [lone.to_owned()];
            let has_definition = |table: &str| table == lone;
            let stream =
                StreamedTables { has_definition: &has_definition, without_tablespace: &without };
            dropped.judge("sh", None, stream)
        };
        assert!(judged("s/b").is_ok(), "a was dropped");
        let error = judged("s/a").unwrap_err().to_string();
        assert!(error.contains("left out the rows of s/a"), "{error}");
    }

    #[test]
    fn a_backup_that_holds_up_its_server_is_ended() {
        let cancel = CancelToken::new();
        let limit = Duration::from_millis(10);
        let locks = LockGuard { lock_stall: Some(limit), ..LockGuard::default() };
        let script =
            "echo 'Starting BACKUP STAGE BLOCK_COMMIT' >&2; exec head -c 9000000 /dev/zero";
        // The test does not read the output.
        let (running, output) = run("sh", &["-c", script]).stream(&cancel, &locks).unwrap();
        let why = cancel.wait(Duration::from_secs(60));
        assert!(matches!(why, Some(CancelReason::LockStall { .. })), "{why:?}");
        drop(output);
        assert!(matches!(
            running.ended(),
            Err(ChildError::Stopped(CancelReason::LockStall { .. }))
        ));
    }

    #[test]
    fn a_dropped_program_is_dead() {
        let (running, _output) =
            run("sleep", &["1000"]).stream(&CancelToken::new(), &LockGuard::default()).unwrap();
        let pid = pid_of(&running);
        drop(running);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }
}
