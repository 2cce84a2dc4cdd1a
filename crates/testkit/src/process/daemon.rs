//! Background processes and scratch folders that do not outlive the tests.
//!
//! A value in a `static` is never dropped, and a test process may be killed, so `Drop` alone is not
//! sufficient: the kernel kills a [`Daemon`] when its parent dies, and a waiting shell removes a
//! [`Scratch`] folder.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Interval between checks whether a daemon has exited on its own.
const POLL: Duration = Duration::from_millis(20);
/// Time limit for the end of a process that was killed: it may have to write much to a busy disk first.
const DEATH: Duration = Duration::from_secs(300);
/// Below this, in bytes, no server's files are put into memory.
const ROOM_IN_MEMORY: u64 = 8 << 30;

/// Server process; killed when dropped, and when the test process dies.
#[derive(Debug)]
pub struct Daemon {
    pid: u32,
    log: PathBuf,
    kill: Sender<()>,
    ended: Arc<(Mutex<Option<ExitStatus>>, Condvar)>,
}

impl Daemon {
    /// Starts `program` with both output streams in the file `log`.
    ///
    /// # Panics
    /// The program cannot be started.
    #[must_use]
    pub fn start(program: &Path, args: &[String], log: &Path) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(args);
        let out = File::create(log).expect("log file");
        command.stdin(Stdio::null()).stderr(out.try_clone().expect("log file")).stdout(out);

        let ended = Arc::new((Mutex::new(None), Condvar::new()));
        let (kill, orders) = mpsc::channel();
        let (started, child) = mpsc::channel();
        // The kernel treats the *thread* that forked as the parent, and a test's thread ends with
        // the test: each daemon gets a thread that stays alive.
        let state = Arc::clone(&ended);
        thread::spawn(move || match command.spawn() {
            Ok(child) => {
                let _ = started.send(Ok(child.id()));
                let status = watch(child, &orders);
                let (lock, bell) = &*state;
                *lock.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
                bell.notify_all();
            }
            Err(e) => drop(started.send(Err(e))),
        });
        let pid = child
            .recv()
            .expect("daemon thread")
            .unwrap_or_else(|e| panic!("cannot start {} through setpriv: {e}", program.display()));
        Self { pid, log: log.to_path_buf(), kill, ended }
    }

    /// Returns the process ID of the program itself, because `setpriv` executes it in place.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the exit status, if the process has ended.
    #[must_use]
    pub fn ended(&self) -> Option<ExitStatus> {
        *self.ended.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end of the process; `None` after `limit`.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> Option<ExitStatus> {
        let (lock, bell) = &*self.ended;
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        *bell
            .wait_timeout_while(guard, limit, |status| status.is_none())
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// Kills the process with SIGKILL and waits for its end.
    pub fn kill(&self) {
        let _ = self.kill.send(());
        assert!(self.wait(DEATH).is_some(), "process {} does not die", self.pid);
    }

    /// Returns the output of the process so far.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Calls `ready` until it returns true.
    ///
    /// # Panics
    /// The process ends or `limit` passes first. The message contains the log.
    pub fn wait_ready(&self, what: &str, limit: Duration, mut ready: impl FnMut() -> bool) {
        let start = Instant::now();
        while !ready() {
            if let Some(status) = self.ended() {
                panic!("{what} ended at its start ({status}):\n{}", self.log());
            }
            assert!(start.elapsed() < limit, "{what} not ready in {limit:?}:\n{}", self.log());
            thread::sleep(POLL);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.kill.send(());
        let _ = self.wait(DEATH);
    }
}

/// Owns the child, so that no signal can hit another process with the same ID.
fn watch(mut child: Child, orders: &Receiver<()>) -> ExitStatus {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status,
            Ok(None) => {}
            Err(e) => panic!("waiting for a daemon: {e}"),
        }
        match orders.recv_timeout(POLL) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                let _ = child.kill();
                return child.wait().expect("waiting for a killed daemon");
            }
        }
    }
}

/// Temporary folder, removed when dropped or when the test process dies.
#[derive(Debug)]
pub struct Scratch {
    dir: tempfile::TempDir,
    janitor: Child,
}

impl Scratch {
    /// Creates a folder in the system's temporary folder. The name is short, because the path of a
    /// socket is limited to 107 bytes.
    ///
    /// # Panics
    /// The folder cannot be created.
    #[must_use]
    pub fn new() -> Self {
        Self::with_litter(&[])
    }

    /// Like [`Scratch::new`], for a server that also leaves these files elsewhere: they are removed
    /// with the folder.
    ///
    /// # Panics
    /// As [`Scratch::new`].
    #[must_use]
    pub fn with_litter(files: &[PathBuf]) -> Self {
        Self::below(&std::env::temp_dir(), files)
    }

    /// Like [`Scratch::new`], in memory if there is much room: for a server, whose files are written
    /// and synced all the time, and of which no test cares where they are.
    ///
    /// # Panics
    /// As [`Scratch::new`].
    #[must_use]
    pub fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        let room = rustix::fs::statvfs(memory).map_or(0, |found| found.f_bavail * found.f_frsize);
        if room < ROOM_IN_MEMORY { Self::new() } else { Self::below(memory, &[]) }
    }

    fn below(parent: &Path, files: &[PathBuf]) -> Self {
        let dir =
            tempfile::Builder::new().prefix("xb-").tempdir_in(parent).expect("temporary folder");
        // `read` returns when this process's end of the pipe closes, however the process ends. The
        // servers in the folder die at the same moment, hence the second try.
        let script = r#"read -r _; rm -rf "$@" 2>/dev/null || { sleep 1; rm -rf "$@"; }"#;
        let janitor = Command::new("sh")
            .args(["-c", script, "janitor"])
            .arg(dir.path())
            .args(files)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh");
        Self { dir, janitor }
    }

    /// Returns the path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns a path inside the folder.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Creates an empty folder inside the folder.
    ///
    /// # Panics
    /// The folder exists or cannot be created.
    #[must_use]
    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        std::fs::create_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}

/// Reads a file of `/proc` about a process; `None` if the process no longer exists.
pub(crate) fn proc_file(pid: u32, name: &str) -> Option<String> {
    match std::fs::read_to_string(format!("/proc/{pid}/{name}")) {
        Ok(text) => Some(text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        // ESRCH: the process ended during the read.
        Err(_) => None,
    }
}

/// Returns the running child processes of `pid`.
#[must_use]
pub fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok())
        .flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// Returns the process IDs of all children, their children, and so on.
#[must_use]
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut found = children(pid);
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        found.extend(children(pid));
        next += 1;
    }
    found
}

/// Returns the short name of a running process; `None` if it has ended, even as a zombie.
#[must_use]
pub fn process_name(pid: u32) -> Option<String> {
    let status = proc_file(pid, "status")?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let dead = field("State:")?.starts_with(['Z', 'X']);
    field("Name:").filter(|_| !dead).map(str::to_owned)
}

/// Kills a process that this test has (indirectly) started. A process that no longer exists is
/// ignored.
///
/// # Panics
/// The process cannot be killed for any other reason.
pub fn kill_9(pid: u32) {
    let raw = i32::try_from(pid).expect("process id");
    let pid = rustix::process::Pid::from_raw(raw).expect("process id");
    match rustix::process::kill_process(pid, rustix::process::Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(e) => panic!("kill -9 {raw}: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_daemon_is_dead() {
        let scratch = Scratch::new();
        let daemon =
            Daemon::start(Path::new("/bin/sleep"), &["1000".to_owned()], &scratch.join("log"));
        let pid = daemon.pid();
        assert!(daemon.ended().is_none());
        drop(daemon);
        assert_eq!(proc_file(pid, "status"), None);
    }

    #[test]
    fn the_end_of_a_daemon_is_seen() {
        let scratch = Scratch::new();
        let args = ["-c", "echo said; exit 3"].map(str::to_owned);
        let daemon = Daemon::start(Path::new("/bin/sh"), &args, &scratch.join("log"));
        assert_eq!(daemon.wait(Duration::from_secs(10)).and_then(|s| s.code()), Some(3));
        assert_eq!(daemon.log(), "said\n");
    }

    #[test]
    fn scratch_is_gone_after_drop() {
        let scratch = Scratch::new();
        let path = scratch.dir("inner");
        std::fs::write(path.join("file"), b"x").unwrap();
        let root = scratch.path().to_path_buf();
        drop(scratch);
        assert!(!root.exists());
    }
}
