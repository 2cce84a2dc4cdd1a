//! A running program, and how it ends.

use std::io::{self, PipeWriter};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};

use crate::group::is_running;

/// Time that a program may take to end after the signal, before it is killed.
pub(crate) const KILL_AFTER: Duration = Duration::from_secs(30);
/// Interval at which the program's state is polled meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Time that the kernel may take to end a killed process group.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// A running program. Dropping it kills the program and its process group.
#[derive(Debug)]
pub struct Running {
    child: Child,
    signaller: Signaller,
    /// Closes when this process ends, which tells the guardian to end the program.
    line: Option<PipeWriter>,
}

/// Signals a program while it runs. Clones signal the same program.
#[derive(Debug, Clone)]
pub struct Signaller {
    pid: Pid,
    has_group: bool,
    is_alive: Arc<Mutex<bool>>,
}

impl Signaller {
    /// Signals the program, and its process group if it has its own. Does nothing once the program
    /// has been waited for: another process may have its number by then.
    pub fn signal(&self, signal: Signal) {
        self.signal_if(*self.is_alive(), signal);
    }

    fn signal_if(&self, is_alive: bool, signal: Signal) {
        if is_alive {
            let _ = match self.has_group {
                true => kill_process_group(self.pid, signal),
                false => kill_process(self.pid, signal),
            };
        }
    }

    fn is_alive(&self) -> MutexGuard<'_, bool> {
        self.is_alive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    pub(crate) fn new(child: Child, has_group: bool, line: Option<PipeWriter>) -> Self {
        let pid = Pid::from_child(&child);
        let signaller = Signaller { pid, has_group, is_alive: Arc::new(Mutex::new(true)) };
        Self { child, signaller, line }
    }

    /// Returns a handle that can signal the program from another thread.
    #[must_use]
    pub fn signaller(&self) -> Signaller {
        self.signaller.clone()
    }

    /// Process id of the program, or of its guardian if it has one.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Takes the write end of the program's standard input, if that is a pipe and was not taken
    /// before.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Takes the read end of the program's standard output, under the same conditions.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Takes the read end of the program's standard error, under the same conditions.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Returns the exit status if the program has ended.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match self.has_ended(WaitIdOptions::NOHANG)? {
            true => self.reap().map(Some),
            false => Ok(None),
        }
    }

    /// Waits for the program to end.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.has_ended(WaitIdOptions::empty())?;
        self.reap()
    }

    /// Checks for the end without reaping, so that the process number is not reused while it can
    /// still be signalled.
    pub(crate) fn has_ended(&self, options: WaitIdOptions) -> io::Result<bool> {
        if !*self.signaller.is_alive() {
            return Ok(true);
        }
        let options = options | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        loop {
            match waitid(WaitId::Pid(self.signaller.pid), options) {
                Ok(status) => return Ok(status.is_some()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reaps the program, kills what it left behind in its process group, and waits until none of that
    /// runs: the end of a large process takes time, and it holds its files and locks until then.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        let mut is_alive = self.signaller.is_alive();
        if self.signaller.has_group {
            self.signaller.signal_if(*is_alive, Signal::KILL);
        }
        *is_alive = false;
        drop(is_alive);
        let status = self.child.wait()?;
        let begin = Instant::now();
        while self.signaller.has_group
            && is_running(self.signaller.pid)
            && begin.elapsed() < GONE_WITHIN
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(status)
    }

    /// Sends `signal` to the program, and kills it if it does not end in time.
    pub fn end(&mut self, signal: i32) {
        let signal = Signal::from_named_raw(signal).unwrap_or(Signal::TERM);
        self.signaller.signal(signal);
        let begin = Instant::now();
        while begin.elapsed() < KILL_AFTER {
            if matches!(self.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        self.kill();
    }

    /// Kills the program.
    pub fn kill(&mut self) {
        // In our group, a signal reaches the guardian alone, which kills its program when the line closes.
        if !self.signaller.has_group && self.line.take().is_some() {
            let begin = Instant::now();
            while begin.elapsed() < GONE_WITHIN {
                if matches!(self.try_wait(), Ok(Some(_))) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.signaller.signal(Signal::KILL);
        let _ = self.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if *self.signaller.is_alive() {
            self.kill();
        }
    }
}
