//! Programs that a transfer starts: cancelling ends them, and their last messages explain a
//! failure.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use xb_process::{
    GuardedOutput, LockGuard, Messages, NOT_STARTED, Program, enlarged, guard, how_it_ended, lines,
};

use crate::cancel::{CancelHook, CancelReason, CancelToken};
use crate::contract::handed::VARIABLES;

/// Number of last message lines that are kept for the error.
const LAST_LINES: usize = 20;

/// Interval at which a program is observed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

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
}

impl Run<'_> {
    fn name(&self) -> String {
        let name = self.program.file_name().unwrap_or(self.program.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Starts the program.
    fn start(&self, stop: &CancelToken, stdout: Stdio) -> Result<Running, ChildError> {
        stop.check()?;
        let mut program =
            Program::new(self.program).args(&self.args).stdout(stdout).stderr(Stdio::piped());
        // What the server handed over is not for child programs.
        for name in VARIABLES {
            program = program.env_remove(name);
        }
        // The service manager would take a child's messages for the server's.
        program = program.env_remove("NOTIFY_SOCKET");
        for (name, value) in &self.env {
            program = program.env(name, value);
        }
        let words = LastWords::new(self.log.as_deref());
        let program = program.start().map_err(|source| ChildError::Start {
            program: self.program.to_string_lossy().into_owned(),
            source,
        })?;
        let signaller = program.signaller();
        let hook = stop.on_stop(move || signaller.signal(Signal::TERM));
        let (name, stop) = (self.name(), stop.clone());
        Ok(Running { program, words, messages: None, name, stop, _hook: hook })
    }

    /// Runs the program to its end; its stdout goes to the same place as its messages.
    ///
    /// # Errors
    /// [`ChildError`]; any exit status other than 0 is an error.
    pub fn to_end(&self, stop: &CancelToken) -> Result<(), ChildError> {
        let mut running = self.start(stop, Stdio::null())?;
        if let Some(stderr) = running.program.stderr() {
            let words = running.words.clone();
            lines(stderr, |line| words.add(line));
        }
        running.ended()
    }

    /// Like [`Run::to_end`], but kills the program as soon as `fault` returns a reason, or the
    /// transfer is cancelled. `fault` is called several times a second.
    ///
    /// # Errors
    /// As [`Run::to_end`]; the reason is in [`ChildError::Failed`].
    pub fn to_end_unless(
        &self,
        stop: &CancelToken,
        mut fault: impl FnMut() -> Option<String>,
    ) -> Result<(), ChildError> {
        let mut running = self.start(stop, Stdio::null())?;
        let reading = running.program.stderr().map(|stderr| {
            let words = running.words.clone();
            std::thread::spawn(move || lines(stderr, |line| words.add(line)))
        });
        let mut how = None;
        while matches!(running.program.try_wait(), Ok(None)) {
            how = fault();
            if how.is_some() || stop.wait(POLL_INTERVAL).is_some() {
                running.program.kill();
                break;
            }
        }
        if let Some(reading) = reading {
            let _ = reading.join();
        }
        match how {
            Some(how) => Err(running.failed(how)),
            None => running.ended(),
        }
    }

    /// Runs the program to its end and returns its stdout, at most `limit` bytes.
    ///
    /// # Errors
    /// As [`Run::to_end`].
    pub fn output(&self, stop: &CancelToken, limit: u64) -> Result<Vec<u8>, ChildError> {
        Ok(self.all_output(stop, limit)?.0)
    }

    /// Like [`Run::output`], with the last of its messages.
    ///
    /// # Errors
    /// As [`Run::to_end`].
    pub fn all_output(
        &self,
        stop: &CancelToken,
        limit: u64,
    ) -> Result<(Vec<u8>, Vec<String>), ChildError> {
        let mut running = self.start(stop, Stdio::piped())?;
        let words = running.words.clone();
        let stderr = running.program.stderr();
        let reading = std::thread::spawn(move || {
            if let Some(stderr) = stderr {
                lines(stderr, |line| words.add(line));
            }
        });
        let mut output = Vec::new();
        if let Some(stdout) = running.program.stdout() {
            // A program that writes more than the limit is not the expected one; it ends with a
            // broken pipe.
            let _ = stdout.take(limit).read_to_end(&mut output);
        }
        // Before the exit status is evaluated: the last messages explain it.
        let _ = reading.join();
        let words = running.words.clone();
        running.ended()?;
        Ok((output, words.get()))
    }

    /// Starts the program as the producer of a stream, guarded as `locks` sets.
    ///
    /// # Errors
    /// [`ChildError::Start`], also if the spool cannot be created.
    pub fn stream(
        &self,
        stop: &CancelToken,
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
        let mut running = self.start(stop, Stdio::piped())?;
        let (Some(stdout), Some(stderr)) = (running.program.stdout(), running.program.stderr())
        else {
            return Err(failed(io::ErrorKind::BrokenPipe.into()));
        };
        let words = running.words.clone();
        let stop = stop.clone();
        let seconds = locks.lock_stall.unwrap_or_default().as_secs();
        let (output, messages) = guard(
            (enlarged(stdout), stderr),
            spool,
            locks,
            move |line| words.add(line),
            move |_| stop.ask(CancelReason::LockStall { seconds }),
        )
        .map_err(failed)?;
        running.messages = Some(messages);
        Ok((running, output))
    }
}

/// A running program. Dropping it ends the program.
#[derive(Debug)]
pub struct Running {
    program: xb_process::Running,
    words: LastWords,
    messages: Option<Messages>,
    name: String,
    stop: CancelToken,
    _hook: CancelHook,
}

impl Running {
    /// Waits for the program to end.
    ///
    /// # Errors
    /// [`ChildError`]; any exit status other than 0 is an error.
    pub fn ended(mut self) -> Result<(), ChildError> {
        let status = self.program.wait();
        if let Some(messages) = self.messages.take() {
            messages.drain_output();
        }
        self.stop.check()?;
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) if status.code() == Some(NOT_STARTED.into()) => Err(ChildError::Start {
                program: self.name.clone(),
                source: io::Error::other(self.words.get().join(" / ")),
            }),
            Ok(status) => Err(self.failed(how_it_ended(status))),
            Err(error) => {
                Err(self.failed(format!("failed, because its exit status is unknown: {error}")))
            }
        }
    }

    fn failed(&self, how: String) -> ChildError {
        ChildError::Failed { program: self.name.clone(), how, words: self.words.get() }
    }
}

/// The last messages of a program, and a file with all of them.
#[derive(Debug, Clone)]
struct LastWords(Arc<Mutex<Words>>);

#[derive(Debug)]
struct Words {
    lines: VecDeque<String>,
    file: Option<File>,
}

impl LastWords {
    fn new(log: Option<&Path>) -> Self {
        // The program can run without a log, too.
        let file = log.and_then(|path| File::create(path).ok());
        Self(Arc::new(Mutex::new(Words { lines: VecDeque::new(), file })))
    }

    fn add(&self, line: &[u8]) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let mut words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &mut words.file {
            let _ = file.write_all(line).and_then(|()| file.write_all(b"\n"));
        }
        if words.lines.len() == LAST_LINES {
            words.lines.pop_front();
        }
        words.lines.push_back(String::from_utf8_lossy(line).into_owned());
    }

    fn get(&self) -> Vec<String> {
        let words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The very last lines mostly describe the error.
        words.lines.iter().skip(words.lines.len().saturating_sub(4)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::Pid;

    use super::*;

    fn run<'a>(program: &'a str, args: &[&str]) -> Run<'a> {
        let args = args.iter().map(OsString::from).collect();
        Run { program: Path::new(program), args, env: Vec::new(), log: None }
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
        let stop = CancelToken::new();
        let script = "sleep 1000 & echo up; wait";
        let (running, mut output) =
            run("sh", &["-c", script]).stream(&stop, &LockGuard::default()).unwrap();
        let mut up = [0; 3];
        output.read_exact(&mut up).unwrap();
        let pid = pid_of(&running);
        stop.ask(CancelReason::Signal(15));
        assert!(matches!(running.ended(), Err(ChildError::Stopped(CancelReason::Signal(15)))));
        // The grandchild holds the other end of the pipe, which closes when the grandchild is gone.
        assert_eq!(output.read(&mut up).unwrap(), 0);
        assert!(rustix::process::test_kill_process(pid).is_err());
        assert!(matches!(run("true", &[]).to_end(&stop), Err(ChildError::Stopped(_))));
    }

    #[test]
    fn a_backup_that_holds_up_its_server_is_ended() {
        let stop = CancelToken::new();
        let limit = Duration::from_millis(10);
        let locks = LockGuard { lock_stall: Some(limit), ..LockGuard::default() };
        let script =
            "echo 'Starting BACKUP STAGE BLOCK_COMMIT' >&2; exec head -c 9000000 /dev/zero";
        // The test does not read the output.
        let (running, output) = run("sh", &["-c", script]).stream(&stop, &locks).unwrap();
        let why = stop.wait(Duration::from_secs(60));
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
