//! The two pipes of a running producer: messages are watched for locks, output goes by way of a
//! spool from the first lock on.

use std::io;
use std::path::PathBuf;
use std::process::{ChildStderr, ChildStdout};
use std::time::Duration;

use crate::lock_messages::{Change, change};
use crate::messages::{Messages, lines};
use crate::spool::{LockSwitch, SpoolReader, SpoolSettings, spooled};

/// Size we ask for its pipe, in bytes: what an unprivileged process may have.
const PIPE: usize = 1 << 20;
/// How long its output may lie about while it holds locks, before the spool takes it.
const PATIENCE: Duration = Duration::from_secs(1);

/// What happens while a producer holds locks on its server and nobody takes its output.
#[derive(Debug, Clone, Default)]
pub struct LockGuard {
    /// Folder for the spool, which has no name there; `None`: no spool.
    pub spool_dir: Option<PathBuf>,
    /// Size of the spool in bytes.
    pub spool_size: u64,
    /// How long the server may be held up once there is no room in the spool; `None`: for ever.
    pub lock_stall: Option<Duration>,
}

impl LockGuard {
    /// Makes the spool's file, if there is to be one.
    ///
    /// # Errors
    /// When the folder takes no file.
    pub fn spool(&self) -> io::Result<Option<std::fs::File>> {
        self.spool_dir.as_ref().map(tempfile::tempfile_in).transpose()
    }
}

/// What a producer writes to its stdout, by way of the spool where that was needed.
pub type GuardedOutput = SpoolReader<ChildStdout>;

/// Takes over the pipes of a producer that has just been started.
///
/// `spool` is the file that [`LockGuard::spool`] made. `message` gets every line of its stderr,
/// without the line's end. `on_stall` is called once if the producer held up its server for too
/// long: who gets the call should end it, and the output gives an error.
///
/// # Errors
/// When the system has no thread for us.
pub fn guard(
    (stdout, stderr): (ChildStdout, ChildStderr),
    spool: Option<std::fs::File>,
    how: &LockGuard,
    mut message: impl FnMut(&[u8]) + Send + 'static,
    on_stall: impl FnOnce() + Send + 'static,
) -> io::Result<(GuardedOutput, Messages)> {
    let _ = rustix::pipe::fcntl_setpipe_size(&stdout, PIPE);
    let settings = SpoolSettings {
        file: spool.map(|file| (file, how.spool_size)),
        patience: PATIENCE,
        stall: how.lock_stall,
    };
    let (output, switch) = spooled(stdout, settings, on_stall)?;
    let thread = std::thread::Builder::new()
        .name("messages".into())
        .spawn(move || pass_on(stderr, &switch, &mut message))?;
    Ok((output, Messages::read_by(thread)))
}

fn pass_on(stderr: ChildStderr, switch: &LockSwitch, message: &mut impl FnMut(&[u8])) {
    lines(stderr, |line| {
        match change(line) {
            Some(Change::Locked) => switch.lock(),
            Some(Change::Unlocked) => switch.unlock(),
            None => {}
        }
        message(line.strip_suffix(b"\n").unwrap_or(line));
    });
}
