//! Line to another process of this executable: a pipe that closes when this process ends, for whatever
//! reason. Nothing but its task is written to it.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsRawFd as _;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::{FdFlags, fcntl_setfd};

/// This executable, even if its file has been replaced since the start.
pub(crate) const SELF: &str = "/proc/self/exe";

/// Whether this program calls [`serve_as_guardian`](crate::serve_as_guardian).
static IS_AVAILABLE: AtomicBool = AtomicBool::new(false);
/// Held while a child process could inherit the line.
static STARTING: Mutex<()> = Mutex::new(());

/// States that this executable, started with a role, serves in it.
pub(crate) fn make_available() {
    IS_AVAILABLE.store(true, Ordering::Relaxed);
}

pub(crate) fn is_available() -> bool {
    IS_AVAILABLE.load(Ordering::Relaxed)
}

/// Calls `start` to start this executable once more, in the role of this name, on a line that
/// closes when this process ends.
pub(crate) fn with_line(
    role: &str,
    start: impl FnOnce(Command) -> io::Result<Child>,
) -> io::Result<(Child, PipeWriter)> {
    let (theirs, ours): (PipeReader, PipeWriter) = io::pipe()?;
    let starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    // Inheritable only for this moment, so that no other child gets the descriptor. A child started
    // elsewhere may still inherit it: it could read from the line, but not keep it open.
    fcntl_setfd(&theirs, FdFlags::empty())?;
    let mut command = Command::new(SELF);
    command.arg(format!("{role}{}", theirs.as_raw_fd()));
    let child = start(command);
    drop(theirs);
    drop(starting);
    Ok((child?, ours))
}

/// Opens the line again, so that the inherited descriptor can be closed and is not inherited
/// further.
pub(crate) fn open_line(line: i32) -> io::Result<File> {
    let file = File::open(format!("/proc/self/fd/{line}"))?;
    nix::unistd::close(line)?;
    Ok(file)
}

/// Returns when the line's other end has closed.
pub(crate) fn read_line_to_its_end(line: i32) -> io::Result<()> {
    io::copy(&mut open_line(line)?, &mut io::sink()).map(drop)
}
