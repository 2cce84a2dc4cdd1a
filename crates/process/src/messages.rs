//! What a program writes to its standard error, line by line, and how it ended.

use std::io::{BufRead as _, BufReader, Read};
use std::process::ExitStatus;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the last messages may take after the program's end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Most bytes of a message that are passed on in one piece.
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

    /// Waits, after the program's end, until its last messages were passed on. A grandchild that
    /// keeps its stderr open is not waited for.
    pub fn hear_out(self) {
        let begin = Instant::now();
        while !self.thread.is_finished() && begin.elapsed() < DRAIN_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Calls `each` with every line that a program writes, its end included; one of more than 64 KiB
/// comes in pieces. Returns at the end of the pipe, or when it breaks.
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

/// `failed with exit status 1`, `was killed by signal 9`.
#[must_use]
pub fn how_it_ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("failed with exit status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "failed".to_owned(),
    }
}
