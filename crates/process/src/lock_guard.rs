//! The two pipes of a running producer: its messages are watched for locks, and while it blocks
//! commits its output passes through a spool.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{ChildStderr, ChildStdout};
use std::time::Duration;

use crate::lock_messages::{Change, change};
use crate::messages::{Messages, lines};
use crate::spool::{LockSwitch, SpoolReader, SpoolSettings, spooled};

/// Time for which the producer must block commits before the spool takes its output: some versions
/// announce all locks at once, and name the harmless ones a moment later.
const MIN_LOCK_TIME: Duration = Duration::from_millis(100);

/// Settings for the time in which a producer blocks the commits of its server and the consumer
/// reads its output too slowly.
#[derive(Debug, Clone, Default)]
pub struct LockGuard {
    /// Directory of the spool file, which has no name there; `None`: no spool.
    pub spool_dir: Option<PathBuf>,
    /// Size of the spool in bytes.
    pub spool_size: u64,
    /// Total time for which the producer may wait for us while it blocks commits and the spool is
    /// full; `None`: no limit.
    pub lock_stall: Option<Duration>,
}

impl LockGuard {
    /// Creates the spool file, if one is configured.
    ///
    /// # Errors
    /// If the file cannot be created in the directory.
    pub fn spool(&self) -> io::Result<Option<std::fs::File>> {
        self.spool_dir.as_ref().map(tempfile::tempfile_in).transpose()
    }
}

/// A producer's output, read through the spool when necessary.
pub type GuardedOutput<R = ChildStdout> = SpoolReader<R>;

/// Takes over the output and the messages of a producer that has just been started. The output is
/// its stdout, or what it writes elsewhere.
///
/// `spool` is the file that [`LockGuard::spool`] created. `message` gets every line of the
/// producer's stderr, without the line end. `on_stall` is called once if the producer blocked
/// commits for too long while its output could not be stored, with the error of the spool's disk if
/// that was the cause; it should end the producer. The output then
/// returns an error.
///
/// # Errors
/// If the system cannot start a thread.
pub fn guard<R: Read + Send + 'static>(
    output: R,
    stderr: ChildStderr,
    spool: Option<std::fs::File>,
    how: &LockGuard,
    mut message: impl FnMut(&[u8]) + Send + 'static,
    on_stall: impl FnOnce(Option<io::Error>) + Send + 'static,
) -> io::Result<(GuardedOutput<R>, Messages)> {
    let settings = SpoolSettings {
        file: spool.map(|file| (file, how.spool_size)),
        patience: MIN_LOCK_TIME,
        stall: how.lock_stall,
    };
    let (output, switch) = spooled(output, settings, on_stall)?;
    let thread = std::thread::Builder::new()
        .name("messages".into())
        .spawn(move || pass_on(stderr, &switch, &mut message))?;
    Ok((output, Messages::read_by(thread)))
}

fn pass_on(stderr: ChildStderr, switch: &LockSwitch, message: &mut impl FnMut(&[u8])) {
    lines(stderr, |line| {
        match change(line) {
            Some(Change::Locked) => switch.lock(),
            Some(Change::Partly) => switch.spool(),
            Some(Change::Unlocked) => switch.unlock(),
            None => {}
        }
        message(line);
    });
}
