//! A program under way, and its end.

use std::io::{self, PipeWriter};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};

/// How long a program may take to end after it was asked to.
const KILL_AFTER: Duration = Duration::from_secs(30);
/// How often it is looked at meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A program under way. Killed when dropped, with what is in its process group.
#[derive(Debug)]
pub struct Running {
    child: Child,
    signaller: Signaller,
    /// Closed with this process: the guardian's sign that it is gone.
    _line: Option<PipeWriter>,
}

/// Signals a program as long as it runs. Clones signal the same.
#[derive(Debug, Clone)]
pub struct Signaller {
    pid: Pid,
    has_group: bool,
    is_alive: Arc<Mutex<bool>>,
}

impl Signaller {
    /// Signals the program, and its process group if that is its own. Does nothing once it was waited
    /// for: its number may be another's then.
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
        Self { child, signaller, _line: line }
    }

    /// A way to signal it from elsewhere.
    #[must_use]
    pub fn signaller(&self) -> Signaller {
        self.signaller.clone()
    }

    /// Process id: that of its guardian, where it has one.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The other end of its standard input, if that is a pipe and was not taken yet.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// The same for its standard output.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// The same for its standard error.
    pub fn stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match self.has_ended(WaitIdOptions::NOHANG)? {
            true => self.reap().map(Some),
            false => Ok(None),
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.has_ended(WaitIdOptions::empty())?;
        self.reap()
    }

    /// Looks without taking its number away, so that nobody signals another with it.
    fn has_ended(&self, options: WaitIdOptions) -> io::Result<bool> {
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

    /// Takes its exit status, and kills what it has started and left behind in its group.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        let mut is_alive = self.signaller.is_alive();
        if self.signaller.has_group {
            self.signaller.signal_if(*is_alive, Signal::KILL);
        }
        *is_alive = false;
        drop(is_alive);
        self.child.wait()
    }

    /// Asks it to end by `signal`, and kills it when it does not.
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

    /// Kills it.
    pub fn kill(&mut self) {
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
