//! Remover: a process that removes a directory once this one is gone, however it ended. It is this
//! very executable, started once more, and waits on a line like a guardian. Unlike a guardian it is
//! in no group that a signal for the programs reaches.

use std::ffi::OsString;
use std::io::{self, PipeWriter};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;

use crate::line::{is_available, read_line_to_its_end, with_line};

/// Prefix of the first argument that makes this executable a remover; the descriptor of the line
/// follows.
pub(crate) const REMOVE: &str = "--as-remover-on=";
/// Time for programs that still write into the directory to end.
const WRITERS_LIMIT: Duration = Duration::from_secs(60);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Keeps a directory from outliving this process. When it is dropped, the directory is removed if it
/// still exists.
#[derive(Debug)]
pub struct Remover {
    child: Child,
    line: Option<PipeWriter>,
}

impl Remover {
    /// Starts a process that removes `dir` when this process ends or drops the value. Returns `None`
    /// if this program never called [`serve_as_guardian`](crate::serve_as_guardian): a directory
    /// then stays behind if the process is killed.
    ///
    /// # Errors
    /// Any error of the system calls.
    pub fn start(dir: &Path) -> io::Result<Option<Self>> {
        if !is_available() {
            return Ok(None);
        }
        let (child, line) = with_line(REMOVE, |mut command| {
            command.arg(dir).process_group(0);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
        })?;
        Ok(Some(Self { child, line: Some(line) }))
    }
}

impl Drop for Remover {
    fn drop(&mut self) {
        self.line = None;
        let _ = self.child.wait();
    }
}

/// Removes the directory in `words` when the line ends, and returns the exit status.
pub(crate) fn remove(line: i32, mut words: impl Iterator<Item = OsString>) -> io::Result<u8> {
    SigSet::all().thread_block()?;
    let dir = words.next().ok_or(io::ErrorKind::InvalidInput)?;
    read_line_to_its_end(line)?;
    let begin = Instant::now();
    loop {
        match std::fs::remove_dir_all(&dir) {
            Ok(()) => return Ok(0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) if begin.elapsed() > WRITERS_LIMIT => return Err(error),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}
