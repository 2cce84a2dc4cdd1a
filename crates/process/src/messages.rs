//! Dividing what a program writes into lines, and describing how the program ended.

use std::io::{ErrorKind, Read};
use std::process::ExitStatus;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time to wait for the last messages after the program has ended.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest piece of a message that is passed on at once, in bytes.
const MAX_LINE: usize = 64 << 10;

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

/// Calls `each` with every line that a program writes, without its end. A line longer than 64 KiB
/// arrives in pieces. Returns at the end of the pipe, or when reading fails.
pub(crate) fn lines(mut pipe: impl Read, mut each: impl FnMut(&[u8])) {
    let (mut lines, mut buffer) = (LineBuffer::default(), [0; 8 << 10]);
    loop {
        match pipe.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return lines.end(&mut each),
            Ok(len) => lines.push(buffer.get(..len).unwrap_or_default(), &mut each),
        }
    }
}

/// Divides what a program writes into lines.
#[derive(Debug, Default)]
pub(crate) struct LineBuffer(Vec<u8>);

impl LineBuffer {
    /// Takes the next bytes; calls `each` with the lines that they complete.
    pub(crate) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (piece, is_whole) = match piece.strip_suffix(b"\n") {
                Some(line) => (line, true),
                None => (piece, false),
            };
            self.0.extend_from_slice(piece);
            if is_whole || self.0.len() >= MAX_LINE {
                each(&self.0);
                self.0.clear();
            }
        }
    }

    /// Ends the last line.
    pub(crate) fn end(&mut self, mut each: impl FnMut(&[u8])) {
        if !self.0.is_empty() {
            each(&self.0);
            self.0.clear();
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
