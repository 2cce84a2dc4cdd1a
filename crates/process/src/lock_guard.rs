//! The two pipes of a running producer: its messages are watched for locks, and while it blocks
//! commits its output passes through a spool.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{ChildStderr, ChildStdout};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

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
    /// full, and time for which it may ask for one and the same place of the redo log meanwhile; `None`: no limit.
    pub lock_stall: Option<Duration>,
}

/// What a producer waited for while it blocked commits.
#[derive(Debug)]
pub enum Stall {
    /// Room in the spool.
    Full,
    /// Room in the spool, whose disk failed.
    Disk(io::Error),
    /// Redo log that its server has overwritten: it would wait for ever.
    Overwritten,
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
/// commits for too long, with what it waited for; it should end the producer. If that was the spool, the output
/// then returns an error.
///
/// # Errors
/// If the system cannot start a thread.
pub fn guard<R: Read + Send + 'static>(
    output: R,
    stderr: ChildStderr,
    spool: Option<std::fs::File>,
    how: &LockGuard,
    mut message: impl FnMut(&[u8]) + Send + 'static,
    on_stall: impl FnOnce(Stall) + Send + 'static,
) -> io::Result<(GuardedOutput<R>, Messages)> {
    let settings = SpoolSettings {
        file: spool.map(|file| (file, how.spool_size)),
        patience: MIN_LOCK_TIME,
        stall: how.lock_stall,
    };
    let on_stall = Arc::new(Mutex::new(Some(on_stall)));
    let once = move |stall| {
        if let Some(on_stall) = on_stall.lock().unwrap_or_else(PoisonError::into_inner).take() {
            on_stall(stall);
        }
    };
    let of_spool = once.clone();
    let (output, switch) = spooled(output, settings, move |disk| {
        of_spool(disk.map_or(Stall::Full, Stall::Disk));
    })?;
    let mut retries = Retries { limit: how.lock_stall, is_locked: false, same: None };
    let thread = std::thread::Builder::new().name("messages".into()).spawn(move || {
        lines(stderr, |line| {
            let change = change(line);
            follow(&switch, change);
            message(line);
            if retries.are_endless(line, change) {
                once(Stall::Overwritten);
            }
        });
    })?;
    Ok((output, Messages::read_by(thread)))
}

fn follow(switch: &LockSwitch, change: Option<Change>) {
    match change {
        Some(Change::Locked) => switch.lock(),
        Some(Change::Partly) => switch.spool(),
        Some(Change::Unlocked) => switch.unlock(),
        None => {}
    }
}

/// Beginning of the message of mariadb-backup (10.11 and 11.8, about once a second) that it cannot read the redo log at
/// a place. If its server has overwritten that place while commits are blocked, it goes on with that for ever.
const RETRY: &[u8] = b"Retrying read of log at LSN=";

/// Watches whether a producer asks for one and the same place of the redo log while it blocks commits.
struct Retries {
    limit: Option<Duration>,
    is_locked: bool,
    /// The place, and when it was asked for first.
    same: Option<(Vec<u8>, Instant)>,
}

impl Retries {
    fn are_endless(&mut self, line: &[u8], change: Option<Change>) -> bool {
        if let Some(change) = change {
            self.is_locked = change == Change::Locked;
        }
        if !self.is_locked {
            self.same = None;
        }
        let Some(limit) = self.limit.filter(|_| self.is_locked) else { return false };
        let Some(at) = line.windows(RETRY.len()).position(|piece| piece == RETRY) else {
            return false;
        };
        let place = line.get(at..).unwrap_or_default();
        match &self.same {
            Some((same, since)) if same == place => since.elapsed() >= limit,
            _ => {
                self.same = Some((place.to_vec(), Instant::now()));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::Program;

    /// Runs a script as a producer, and returns how it stalled, if it did.
    fn stall(script: &str, limit: Duration) -> Option<Stall> {
        let mut program = Program::new("sh");
        let piped = std::process::Stdio::piped;
        program = program.args(["-c", script]).stdout(piped()).stderr(piped());
        let mut running = program.start().unwrap();
        let (stdout, stderr) = (running.stdout().unwrap(), running.stderr().unwrap());
        let how = LockGuard { lock_stall: Some(limit), ..LockGuard::default() };
        let (told, stalled) = mpsc::channel();
        let on_stall = move |stall| told.send(stall).unwrap();
        let (output, messages) = guard(stdout, stderr, None, &how, |_| {}, on_stall).unwrap();
        drop(output);
        // The sender is gone once the messages have ended.
        let stall = stalled.recv().ok();
        drop(running);
        messages.drain_output();
        stall
    }

    #[test]
    fn a_producer_that_waits_for_overwritten_redo_while_it_blocks_commits_is_ended() {
        let script = |lock: &str, lsn: &str, times: &str| {
            format!(
                "echo 'Acquired locks for BACKUP STAGE {lock}' >&2; n=0; while [ $n -lt {times} ]; do \
                 n=$((n + 1)); echo \"[00] 2026-11-30 05:08:26 Retrying read of log at LSN={lsn}\" >&2; done"
            )
        };
        let endless = script("BLOCK_COMMIT", "67162593", "100000000");
        let stalled = stall(&endless, Duration::from_millis(20));
        assert!(matches!(stalled, Some(Stall::Overwritten)), "{stalled:?}");
        // It goes on, or blocks no commits.
        for (lock, lsn) in [("BLOCK_COMMIT", "$n"), ("BLOCK_DDL", "67162593")] {
            let stalled = stall(&script(lock, lsn, "1000"), Duration::ZERO);
            assert!(stalled.is_none(), "{lock} {lsn}: {stalled:?}");
        }
    }
}
