//! Runs a short program and returns its output, within limits.

use std::io::{self, Read as _};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::messages::how_it_ended;
use crate::program::Program;

/// Interval between checks of a program that has closed its output but still runs.
const INTERVAL: Duration = Duration::from_millis(5);

/// Reason why a program has no usable output. Never repeats what the program wrote.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The program cannot be started.
    #[error("cannot be started: {0}")]
    Start(#[source] io::Error),
    /// Its pipe failed.
    #[error("cannot be read from: {0}")]
    Read(#[source] io::Error),
    /// It ran for too long, and was ended.
    #[error("was ended, because it did not finish within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// It wrote too much, and was ended.
    #[error("was ended, because it wrote more than {0} bytes")]
    TooMuch(usize),
    /// The program failed.
    #[error("{}", how_it_ended(*.0))]
    Failed(ExitStatus),
}

/// Runs `program`, whose standard output is replaced, and returns what it writes there: at most
/// `largest` bytes, within `timeout`. A program that exceeds a limit is killed.
///
/// # Errors
/// [`CaptureError`], also if the exit status is not 0.
pub fn capture(
    program: Program,
    largest: usize,
    timeout: Duration,
) -> Result<Vec<u8>, CaptureError> {
    let deadline = Instant::now() + timeout;
    let left = || match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(CaptureError::Timeout(timeout)),
        left => Ok(left),
    };
    // Dropping it kills the program.
    let mut running = program.stdout(Stdio::piped()).start().map_err(CaptureError::Start)?;
    let no_pipe = || CaptureError::Read(io::ErrorKind::BrokenPipe.into());
    let mut pipe = running.stdout().ok_or_else(no_pipe)?;
    // Allocated at full length: growing would leave copies of a secret in memory.
    let mut output = vec![0; largest + 1];
    let mut len = 0;
    loop {
        let wait = Timespec::try_from(left()?).ok();
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], wait.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(CaptureError::Read(error.into())),
        }
        match pipe.read(output.get_mut(len..).unwrap_or_default()) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(CaptureError::Read(error)),
        }
        if len > largest {
            return Err(CaptureError::TooMuch(largest));
        }
    }
    let status = loop {
        match running.try_wait().map_err(CaptureError::Read)? {
            Some(status) => break status,
            None => std::thread::sleep(INTERVAL.min(left()?)),
        }
    };
    output.truncate(len);
    if status.success() { Ok(output) } else { Err(CaptureError::Failed(status)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, timeout: Duration) -> Result<Vec<u8>, CaptureError> {
        capture(Program::new("sh").args(["-c", script]), 1000, timeout)
    }

    #[test]
    fn output_comes_back_and_faults_are_told_apart() {
        let long = Duration::from_secs(60);
        assert_eq!(run("printf a; printf b", long).unwrap(), b"ab");
        assert_eq!(run("head -c 1000 /dev/zero", long).unwrap().len(), 1000);
        assert!(matches!(run("head -c 1001 /dev/zero", long), Err(CaptureError::TooMuch(1000))));
        assert!(matches!(run("yes", long), Err(CaptureError::TooMuch(_))));
        let failed = run("printf secret; exit 3", long).unwrap_err().to_string();
        assert_eq!(failed, "failed with exit status 3");
        let short = Duration::from_millis(50);
        assert!(matches!(run("exec tail -f /dev/null", short), Err(CaptureError::Timeout(_))));
        let silent = "exec >/dev/null; exec tail -f /dev/null";
        assert!(matches!(run(silent, short), Err(CaptureError::Timeout(_))));
        let none = capture(Program::new("/no/such/program"), 9, long);
        assert!(matches!(none, Err(CaptureError::Start(_))));
    }
}
