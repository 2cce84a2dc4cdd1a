//! Runs a built program and records its output, time and memory.
//!
//! ```
//! use xb_testkit::command::Cmd;
//!
//! let ran = Cmd::new("/bin/cat").stdin_bytes("hello").run().expect(0);
//! assert_eq!(ran.stdout, b"hello");
//! ```

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::daemon::proc_file;
use crate::process::pause;

pub use crate::process::ran::Ran;
pub use rustix::process::Signal;

/// Environment variables of the machine that would affect a store client.
const FOREIGN_ENV: [&str; 4] = ["AWS_", "S3_", "XBCLOUD_", "OS_"];

/// Program to run, with its arguments, environment, input and outputs.
pub struct Cmd {
    program: PathBuf,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    cwd: Option<PathBuf>,
    stdin: Input,
    stdout: Output,
    limit: Duration,
}

type Feeder = Box<dyn FnOnce(&mut dyn Write) + Send>;

enum Input {
    Nothing,
    Held,
    File(PathBuf),
    Feed(Feeder),
}

enum Output {
    Kept,
    File(PathBuf),
    Into(Box<dyn Write + Send>),
}

impl Cmd {
    /// Prepares a run of `program` with an empty stdin and a time limit of five minutes.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            envs: Vec::new(),
            cwd: None,
            stdin: Input::Nothing,
            stdout: Output::Kept,
            limit: Duration::from_secs(300),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable. Credentials and endpoints from the machine's own environment
    /// are not passed on.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.envs.push((name.into(), value.into()));
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cwd = Some(dir.into());
        self
    }

    /// Makes stdin a pipe with these bytes.
    #[must_use]
    pub fn stdin_bytes(self, bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        self.stdin_feed(move |out| {
            let _ = out.write_all(&bytes);
        })
    }

    /// Makes stdin this file.
    #[must_use]
    pub fn stdin_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.stdin = Input::File(path.into());
        self
    }

    /// Makes stdin a pipe that `feed` writes, on its own thread.
    #[must_use]
    pub fn stdin_feed(mut self, feed: impl FnOnce(&mut dyn Write) + Send + 'static) -> Self {
        self.stdin = Input::Feed(Box::new(feed));
        self
    }

    /// Makes stdin a pipe that stays open until [`Running::stdin`] is dropped.
    #[must_use]
    pub fn stdin_held(mut self) -> Self {
        self.stdin = Input::Held;
        self
    }

    /// Sends stdout to this file instead of [`Ran::stdout`].
    #[must_use]
    pub fn stdout_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.stdout = Output::File(path.into());
        self
    }

    /// Sends stdout through a pipe to `out` as it arrives.
    #[must_use]
    pub fn stdout_into(mut self, out: impl Write + Send + 'static) -> Self {
        self.stdout = Output::Into(Box::new(out));
        self
    }

    /// Sets the time limit, after which the program is killed and the test fails.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs the program to its end.
    ///
    /// # Panics
    /// The program cannot be started or exceeds its time limit.
    #[must_use]
    pub fn run(self) -> Ran {
        self.spawn().wait()
    }

    /// Starts the program.
    ///
    /// # Panics
    /// The program cannot be started.
    #[must_use]
    pub fn spawn(self) -> Running {
        let line = self.to_string();
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        for (name, _) in std::env::vars_os() {
            if FOREIGN_ENV.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        // No cache directory: tests share nothing and leave nothing on the machine. A relative path would
        // not do: some programs create it where they run.
        command.env("LC_ALL", "C").env("XDG_CACHE_HOME", "/dev/null/none").envs(self.envs);
        if let Some(dir) = &self.cwd {
            command.current_dir(dir);
        }
        let open = |path: &Path, file: io::Result<File>| {
            Stdio::from(file.unwrap_or_else(|e| panic!("{}: {e}", path.display())))
        };
        command.stdin(match &self.stdin {
            Input::Nothing => Stdio::null(),
            Input::File(path) => open(path, File::open(path)),
            Input::Held | Input::Feed(_) => Stdio::piped(),
        });
        command.stdout(match &self.stdout {
            Output::File(path) => open(path, File::create(path)),
            Output::Kept | Output::Into(_) => Stdio::piped(),
        });
        command.stderr(Stdio::piped());

        let start = Instant::now();
        let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot run {line}: {e}"));
        let mut stdin = child.stdin.take();
        if let Input::Feed(feed) = self.stdin
            && let Some(mut pipe) = stdin.take()
        {
            thread::spawn(move || feed(&mut pipe));
        }
        let out = match self.stdout {
            Output::Into(out) => Some(out),
            Output::Kept | Output::File(_) => None,
        };
        let stdout = child.stdout.take().map(|pipe| collect(pipe, out));
        let stderr = child.stderr.take().map(|pipe| collect(pipe, None));
        Running { line, child, stdin, stdout, stderr, start, limit: self.limit, peak: 0 }
    }
}

impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.program.display())?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", arg.to_string_lossy()))
    }
}

impl fmt::Debug for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cmd({self})")
    }
}

/// Running program; killed when dropped.
#[derive(Debug)]
pub struct Running {
    line: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<Receiver<Vec<u8>>>,
    stderr: Option<Receiver<Vec<u8>>>,
    start: Instant,
    limit: Duration,
    peak: u64,
}

impl Running {
    /// Returns the process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the writing end of a held stdin; dropping it ends the input.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// Kills the program with SIGKILL, as the out-of-memory killer would.
    pub fn kill_9(&mut self) {
        let _ = self.child.kill();
    }

    /// Sends a signal to the program.
    ///
    /// # Panics
    /// The program no longer exists.
    pub fn signal(&self, signal: Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal)
            .unwrap_or_else(|e| panic!("signal to {}: {e}", self.line));
    }

    /// Waits until the program handles a signal, or has ended: before that, the signal would end it like any program.
    ///
    /// # Panics
    /// The program exceeds its time limit.
    pub fn until_handled(&mut self, signal: Signal) {
        let status = format!("/proc/{}/status", self.pid());
        while self.look().is_none() {
            let status = std::fs::read_to_string(&status).unwrap_or_default();
            if is_in_mask(&status, "SigCgt:", signal) {
                return;
            }
            self.check_limit();
            self.pause();
        }
    }

    /// Returns whether the program has ended.
    ///
    /// # Panics
    /// The state of the process cannot be read.
    pub fn has_ended(&mut self) -> bool {
        self.look().is_some()
    }

    /// Calls `reached` until it returns true.
    ///
    /// # Panics
    /// The program ends before that or exceeds its time limit.
    pub fn until(&mut self, what: &str, reached: impl FnMut() -> bool) {
        if !self.comes_to(reached) {
            panic!("ended before {what}: {:?}", self.collect());
        }
    }

    /// Calls `reached` until it returns true; returns false if the program ends before that.
    ///
    /// # Panics
    /// The program exceeds its time limit.
    pub fn comes_to(&mut self, mut reached: impl FnMut() -> bool) -> bool {
        while !reached() {
            if self.look().is_some() {
                return false;
            }
            self.check_limit();
            self.pause();
        }
        true
    }

    /// Waits for the end of the program.
    ///
    /// # Panics
    /// The program exceeds its time limit.
    #[must_use]
    pub fn wait(mut self) -> Ran {
        while self.look().is_none() {
            self.check_limit();
            self.pause();
        }
        self.collect()
    }

    /// Sleeps, the longer the longer the program runs: each check reads a file of the kernel, and many tests wait at
    /// the same time. The peak memory is a high-water mark, so only growth in the last pause before the end can be
    /// missed.
    fn pause(&self) {
        thread::sleep(pause(self.start));
    }

    fn look(&mut self) -> Option<ExitStatus> {
        let status = proc_file(self.child.id(), "status");
        self.peak = self.peak.max(status.as_deref().and_then(high_water_mark).unwrap_or(0));
        self.child.try_wait().unwrap_or_else(|e| panic!("waiting for {}: {e}", self.line))
    }

    fn check_limit(&mut self) {
        if self.start.elapsed() > self.limit {
            let _ = self.child.kill();
            let ran = self.collect();
            panic!("took longer than {:?}: {ran:?}", self.limit);
        }
    }

    /// Collects the results of an ended (or just killed) process.
    fn collect(&mut self) -> Ran {
        let status = self.child.wait().unwrap_or_else(|e| panic!("waiting for {}: {e}", self.line));
        let wall = self.start.elapsed();
        let line = self.line.clone();
        let take = |pipe: Option<Receiver<Vec<u8>>>| match pipe {
            None => Vec::new(),
            Some(pipe) => pipe.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| {
                panic!("{line} has ended, but something it started still holds its output")
            }),
        };
        let stdout = take(self.stdout.take());
        let stderr = take(self.stderr.take());
        Ran { line, status, stdout, stderr, wall, peak_rss: self.peak }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Reads a pipe to its end on its own thread.
fn collect(
    mut pipe: impl Read + Send + 'static,
    out: Option<Box<dyn Write + Send>>,
) -> Receiver<Vec<u8>> {
    let (done, result) = mpsc::channel();
    thread::spawn(move || {
        let mut kept = Vec::new();
        let read = match out {
            None => pipe.read_to_end(&mut kept).map(drop),
            Some(mut out) => io::copy(&mut pipe, &mut out).and_then(|_| out.flush()),
        };
        if let Err(e) = read
            && e.kind() != ErrorKind::BrokenPipe
        {
            kept.extend_from_slice(format!("\n[test harness: {e}]").as_bytes());
        }
        let _ = done.send(kept);
    });
    result
}

/// Returns `VmHWM` from a process's status file, in bytes.
fn high_water_mark(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// Returns whether our children receive `signal`. They ignore a signal that was ignored when this process
/// started, as under `nohup` or in a shell's background.
#[must_use]
pub fn is_heard(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    !is_in_mask(&status, "SigIgn:", signal)
}

/// Returns whether a mask of signals in a process's status file contains `signal`.
fn is_in_mask(status: &str, name: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix(name));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal.as_raw() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Cmd {
        Cmd::new("/bin/sh").args(["-c", script])
    }

    #[test]
    fn keeps_both_streams_and_the_code() {
        let ran = sh("cat; echo talk >&2; exit 7").stdin_bytes("data").run().expect(7);
        assert_eq!((&ran.stdout[..], &ran.stderr[..]), (&b"data"[..], &b"talk\n"[..]));
    }

    #[test]
    fn a_signal_counts_as_the_shell_says_it() {
        assert_eq!(sh("kill -TERM $$").run().code(), 143);
    }

    #[test]
    #[should_panic(expected = "why it failed")]
    fn an_unexpected_code_shows_the_output() {
        let _ = sh("echo why it failed >&2; exit 1").run().expect(0);
    }

    #[test]
    #[should_panic(expected = "took longer")]
    fn the_limit_holds() {
        let _ = sh("exec sleep 100").limit(Duration::from_millis(50)).run();
    }

    #[test]
    fn peak_memory_is_seen() {
        // A shell variable of 32 MiB; the held stdin keeps the shell alive during the check.
        let mut run = sh("x=$(head -c 33554432 /dev/zero | tr '\\0' a); echo ready; read -r _")
            .stdin_held()
            .spawn();
        let mut peak = 0;
        let pid = run.pid();
        run.until("the variable is there", || {
            let status = proc_file(pid, "status").unwrap_or_default();
            peak = high_water_mark(&status).unwrap_or(0);
            peak > 32 << 20
        });
        drop(run.stdin());
        let ran = run.wait();
        assert!(ran.peak_rss > 32 << 20, "{}", ran.peak_rss);
        assert!(ran.peak_rss < 1 << 30, "{}", ran.peak_rss);
    }

    #[test]
    fn credentials_of_the_machine_are_not_passed_on() {
        let ran = sh("env").env("AWS_ACCESS_KEY_ID", "ours").run().expect(0);
        let lines = ran.stdout_text();
        assert!(lines.contains("AWS_ACCESS_KEY_ID=ours"));
        assert_eq!(lines.matches("AWS_").count(), 1);
    }

    #[test]
    fn large_input_and_output_do_not_block_each_other() {
        let data = crate::contents::data::noise(4, 5 << 20);
        let ran = Cmd::new("/bin/cat").stdin_bytes(data.clone()).run().expect(0);
        assert!(ran.stdout == data);
    }
}
