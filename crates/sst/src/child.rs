//! Programs that we start: in a process group of their own, dead when we die, and never left behind;
//! nor is what they start themselves.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use xb_producer::{GuardedOutput, LockGuard, Messages, guard, how_it_ended};

use crate::guardian::{self, NOT_STARTED};
use crate::stop::{Hooked, Stop, Why};

/// Lines of its messages that are kept for when it fails.
const LAST_LINES: usize = 20;
/// Most bytes of a message that are kept in one piece.
const MAX_LINE: u64 = 8 << 10;

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// It could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// The system's answer.
        source: io::Error,
    },
    /// It failed.
    #[error("{program} {how}; its last words: {}", .words.join(" / "))]
    Failed {
        /// The program.
        program: String,
        /// How it ended.
        how: String,
        /// Its last messages.
        words: Vec<String>,
    },
    /// It was ended because everything is to end.
    #[error(transparent)]
    Stopped(#[from] Why),
}

/// How programs are started.
#[derive(Debug, Clone)]
pub struct Launcher {
    helper: Option<PathBuf>,
    stop: Stop,
}

impl Launcher {
    /// Programs are started by way of this very program, which must call [`help`](crate::help) first
    /// thing. Without that nobody ends them when we are killed.
    #[must_use]
    pub fn through_self(stop: Stop) -> Self {
        Self { helper: Some(guardian::SELF.into()), stop }
    }

    /// Programs are started directly.
    #[must_use]
    pub fn direct(stop: Stop) -> Self {
        Self { helper: None, stop }
    }

    /// The wish to end that children obey.
    #[must_use]
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// The same for children that obey another wish.
    pub(crate) fn obeying(&self, stop: Stop) -> Self {
        Self { helper: self.helper.clone(), stop }
    }

    fn command(&self, program: &OsStr) -> Command {
        match &self.helper {
            None => {
                let mut command = Command::new(program);
                command.stdin(Stdio::null());
                command
            }
            Some(helper) => guardian::command(helper, program),
        }
    }
}

/// What to run.
#[derive(Debug)]
pub struct Run<'a> {
    /// Name or path.
    pub program: &'a Path,
    /// Its arguments. No secrets: everybody can read them.
    pub args: Vec<OsString>,
    /// For its environment.
    pub env: Vec<(&'static str, OsString)>,
    /// Where all its messages go; without one only the last are kept.
    pub log: Option<PathBuf>,
}

impl Run<'_> {
    fn name(&self) -> String {
        let name = self.program.file_name().unwrap_or(self.program.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Starts it.
    fn start(&self, launcher: &Launcher, stdout: Stdio) -> Result<Running, ChildError> {
        launcher.stop.check()?;
        let failed = |source| ChildError::Start {
            program: self.program.to_string_lossy().into_owned(),
            source,
        };
        let mut command = launcher.command(self.program.as_os_str());
        // What the server handed to us is nobody else's.
        for name in crate::handed::VARIABLES {
            command.env_remove(name);
        }
        command
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (*name, value)))
            .stdout(stdout)
            .stderr(Stdio::piped())
            .process_group(0);
        let words = LastWords::new(self.log.as_deref());
        let child = command.spawn().map_err(failed)?;
        let pid = Pid::from_child(&child);
        let alive = Arc::new(Mutex::new(true));
        let hook = {
            let alive = Arc::clone(&alive);
            launcher.stop.on_stop(move || signal(&alive, pid, Signal::TERM))
        };
        Ok(Running {
            child,
            pid,
            alive,
            words,
            messages: None,
            name: self.name(),
            stop: launcher.stop.clone(),
            _hook: hook,
        })
    }

    /// Runs it to its end; its stdout goes where its messages go.
    ///
    /// # Errors
    /// [`ChildError`]; anything but exit status 0 is one.
    pub fn to_end(&self, launcher: &Launcher) -> Result<(), ChildError> {
        let mut running = self.start(launcher, Stdio::null())?;
        if let Some(stderr) = running.child.stderr.take() {
            let words = running.words.clone();
            for_each_line(stderr, |line| words.add(line));
        }
        running.ended()
    }

    /// Runs it to its end and gives what it wrote to stdout, at most `limit` bytes of it.
    ///
    /// # Errors
    /// As [`Run::to_end`].
    pub fn output(&self, launcher: &Launcher, limit: u64) -> Result<Vec<u8>, ChildError> {
        Ok(self.all_output(launcher, limit)?.0)
    }

    /// As [`Run::output`], with the last of its messages.
    ///
    /// # Errors
    /// As [`Run::to_end`].
    pub fn all_output(
        &self,
        launcher: &Launcher,
        limit: u64,
    ) -> Result<(Vec<u8>, Vec<String>), ChildError> {
        let mut running = self.start(launcher, Stdio::piped())?;
        let words = running.words.clone();
        let stderr = running.child.stderr.take();
        let reading = std::thread::spawn(move || {
            if let Some(stderr) = stderr {
                for_each_line(stderr, |line| words.add(line));
            }
        });
        let mut output = Vec::new();
        if let Some(stdout) = running.child.stdout.take() {
            // Who writes more than that is not what was asked for; it ends with a broken pipe.
            let _ = stdout.take(limit).read_to_end(&mut output);
        }
        // Before its end is judged: its last words say why.
        let _ = reading.join();
        let words = running.words.clone();
        running.ended()?;
        Ok((output, words.get()))
    }

    /// Starts it as a producer of a stream, which is watched as `locks` says.
    ///
    /// # Errors
    /// [`ChildError::Start`], also when there can be no spool.
    pub fn stream(
        &self,
        launcher: &Launcher,
        locks: &LockGuard,
    ) -> Result<(Running, GuardedOutput), ChildError> {
        let failed = |source| ChildError::Start { program: self.name(), source };
        let spool = locks.spool().map_err(|source| {
            let dir = locks.spool_dir.as_deref().unwrap_or(Path::new("")).display().to_string();
            failed(io::Error::new(source.kind(), format!("no spool in {dir}: {source}")))
        })?;
        let mut running = self.start(launcher, Stdio::piped())?;
        let (Some(stdout), Some(stderr)) =
            (running.child.stdout.take(), running.child.stderr.take())
        else {
            return Err(failed(io::ErrorKind::BrokenPipe.into()));
        };
        let words = running.words.clone();
        let stop = launcher.stop.clone();
        let seconds = locks.lock_stall.unwrap_or_default().as_secs();
        let (output, messages) = guard(
            (stdout, stderr),
            spool,
            locks,
            move |line| words.add(line),
            move || stop.ask(Why::LockStall { seconds }),
        )
        .map_err(failed)?;
        running.messages = Some(messages);
        Ok((running, output))
    }
}

fn signal(alive: &Mutex<bool>, pid: Pid, signal: Signal) {
    let alive = alive.lock().unwrap_or_else(PoisonError::into_inner);
    // Once it was waited for, its number may be another's.
    if *alive {
        let _ = kill_process_group(pid, signal);
    }
}

/// A program under way. Ended when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    pid: Pid,
    alive: Arc<Mutex<bool>>,
    words: LastWords,
    messages: Option<Messages>,
    name: String,
    stop: Stop,
    _hook: Hooked,
}

impl Running {
    /// Waits for its end.
    ///
    /// # Errors
    /// [`ChildError`]; anything but exit status 0 is one.
    pub fn ended(mut self) -> Result<(), ChildError> {
        let status = self.wait();
        if let Some(messages) = self.messages.take() {
            messages.hear_out();
        }
        self.stop.check()?;
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) if status.code() == Some(NOT_STARTED.into()) => Err(ChildError::Start {
                program: self.name.clone(),
                source: io::Error::other(self.words.get().join(" / ")),
            }),
            Ok(status) => Err(self.failed(how_it_ended(status))),
            Err(error) => Err(self.failed(format!("cannot be waited for: {error}"))),
        }
    }

    fn failed(&self, how: String) -> ChildError {
        ChildError::Failed { program: self.name.clone(), how, words: self.words.get() }
    }

    fn wait(&mut self) -> io::Result<ExitStatus> {
        // First without taking its number away, so that nobody signals another with it.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(self.pid), options) {}
        // What it has started and left behind.
        signal(&self.alive, self.pid, Signal::KILL);
        *self.alive.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.child.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let is_alive = *self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        if is_alive {
            signal(&self.alive, self.pid, Signal::KILL);
            let _ = self.wait();
        }
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
        // Without a log the work can be done all the same.
        let file = log.and_then(|path| File::create(path).ok());
        Self(Arc::new(Mutex::new(Words { lines: VecDeque::new(), file })))
    }

    fn add(&self, line: &[u8]) {
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
        // What is said of an error is mostly the very end.
        words.lines.iter().skip(words.lines.len().saturating_sub(4)).cloned().collect()
    }
}

fn for_each_line(input: impl Read, mut each: impl FnMut(&[u8])) {
    let mut lines = BufReader::new(input);
    let mut line = Vec::new();
    while let Ok(1..) = lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
        each(line.strip_suffix(b"\n").unwrap_or(&line));
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn run<'a>(program: &'a str, args: &[&str]) -> Run<'a> {
        let args = args.iter().map(OsString::from).collect();
        Run { program: Path::new(program), args, env: Vec::new(), log: None }
    }

    fn launcher() -> Launcher {
        Launcher::direct(Stop::new())
    }

    #[test]
    fn status_and_last_words_count() {
        assert!(run("true", &[]).to_end(&launcher()).is_ok());
        let error = run("sh", &["-c", "echo why >&2; exit 7"]).to_end(&launcher()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("exit status 7") && text.contains("why"), "{text}");
        let error = run("/no/such/program", &[]).to_end(&launcher()).unwrap_err();
        assert!(matches!(error, ChildError::Start { .. }), "{error}");
        assert_eq!(run("echo", &["a"]).output(&launcher(), 100).unwrap(), b"a\n");
    }

    #[test]
    fn messages_go_to_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let run =
            Run { log: Some(log.clone()), ..run("sh", &["-c", "echo one >&2; echo two >&2"]) };
        run.to_end(&launcher()).unwrap();
        assert_eq!(std::fs::read(log).unwrap(), b"one\ntwo\n");
    }

    #[test]
    fn the_wish_to_end_reaches_children_and_theirs() {
        let launcher = launcher();
        let script = "sleep 1000 & echo up; wait";
        let (running, mut output) =
            run("sh", &["-c", script]).stream(&launcher, &LockGuard::default()).unwrap();
        let mut up = [0; 3];
        output.read_exact(&mut up).unwrap();
        let pid = running.pid;
        launcher.stop().ask(Why::Signal(15));
        assert!(matches!(running.ended(), Err(ChildError::Stopped(Why::Signal(15)))));
        // The grandchild has the output's other end: it is gone when that is closed.
        assert_eq!(output.read(&mut up).unwrap(), 0);
        assert!(rustix::process::test_kill_process(pid).is_err());
        assert!(matches!(run("true", &[]).to_end(&launcher), Err(ChildError::Stopped(_))));
    }

    #[test]
    fn a_backup_that_holds_up_its_server_is_ended() {
        let launcher = launcher();
        let limit = Duration::from_millis(10);
        let locks = LockGuard { lock_stall: Some(limit), ..LockGuard::default() };
        let script = "echo 'Starting BACKUP STAGE START' >&2; exec head -c 9000000 /dev/zero";
        // Its output is taken by nobody.
        let (running, output) = run("sh", &["-c", script]).stream(&launcher, &locks).unwrap();
        let why = launcher.stop().wait(Duration::from_secs(60));
        assert!(matches!(why, Some(Why::LockStall { .. })), "{why:?}");
        drop(output);
        assert!(matches!(running.ended(), Err(ChildError::Stopped(Why::LockStall { .. }))));
    }

    #[test]
    fn a_dropped_program_is_dead() {
        let (running, _output) =
            run("sleep", &["1000"]).stream(&launcher(), &LockGuard::default()).unwrap();
        let pid = running.pid;
        drop(running);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }
}
