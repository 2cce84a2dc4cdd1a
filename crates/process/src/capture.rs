//! Runs a short program and stores its output, within limits.

use std::io;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use crate::messages::how_it_ended;
use crate::program::Program;
use crate::run::{Exchange, Output, RunError, Termination, run};

/// Reason why a program has no usable output. Never repeats the program's output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The program cannot be started.
    #[error("cannot be started: {0}")]
    Start(#[source] io::Error),
    /// A pipe to it failed.
    #[error("cannot be read from: {0}")]
    Io(#[source] io::Error),
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

/// Runs `program` within `timeout`, gives it `input` to read, and stores what it writes to its
/// standard output in `output`, which must be large enough. Returns the number of bytes. A program
/// that exceeds a limit is killed.
///
/// # Errors
/// [`CaptureError`], also if the exit status is not 0.
pub fn capture(
    program: Program,
    input: Option<&[u8]>,
    output: &mut [u8],
    timeout: Duration,
) -> Result<usize, CaptureError> {
    let begin = Instant::now();
    let stop = || (begin.elapsed() >= timeout).then_some(Termination::Kill(()));
    let exchange = Exchange { input, stdout: Output::Into(output), stderr: Output::AsDescribed };
    match run(program, exchange, stop) {
        Ok((status, stored)) if status.success() => Ok(stored),
        Ok((status, _)) => Err(CaptureError::Failed(status)),
        Err(RunError::Start(error)) => Err(CaptureError::Start(error)),
        Err(RunError::Io(error)) => Err(CaptureError::Io(error)),
        Err(RunError::TooMuch(limit)) => Err(CaptureError::TooMuch(limit)),
        Err(RunError::Stopped(())) => Err(CaptureError::Timeout(timeout)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, timeout: Duration) -> Result<Vec<u8>, CaptureError> {
        let mut output = vec![0; 1000];
        let len = capture(Program::new("sh").args(["-c", script]), None, &mut output, timeout)?;
        output.truncate(len);
        Ok(output)
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
        let none = capture(Program::new("/no/such/program"), None, &mut [0; 9], long);
        assert!(matches!(none, Err(CaptureError::Start(_))));
    }
}
