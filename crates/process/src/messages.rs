//! Reading a program's standard error line by line, and describing how the program ended.

use std::io::{BufRead as _, BufReader, Read};
use std::process::ExitStatus;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time to wait for the last messages after the program has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest piece of a message that is passed on at once, in bytes.
const MAX_LINE: u64 = 64 << 10;

/// A thread that reads a program's messages.
#[derive(Debug)]
pub struct Messages {
    thread: JoinHandle<()>,
}

impl Messages {
    pub(crate) fn read_by(thread: JoinHandle<()>) -> Self {
        Self { thread }
    }

    /// Waits, after the program has ended, until its last messages have been passed on. Does not
    /// wait for a grandchild that keeps stderr open.
    pub fn drain_output(self) {
        let begin = Instant::now();
        while !self.thread.is_finished() && begin.elapsed() < DRAIN_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Calls `each` with every line that a program writes, including the line end. A line longer than
/// 64 KiB arrives in pieces. Returns at the end of the pipe, or when reading fails.
pub fn lines(pipe: impl Read, mut each: impl FnMut(&[u8])) {
    let mut lines = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        match lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => each(&line),
        }
    }
}

/// Describes an exit status: `failed with exit status 1`, `was killed by signal 9`.
#[must_use]
pub fn how_it_ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("failed with exit status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "failed".to_owned(),
    }
}
