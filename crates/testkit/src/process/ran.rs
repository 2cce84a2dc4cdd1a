//! Outcome of a program: status, output, time and memory.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

/// Maximum length of an output in a message, in bytes.
const SHOWN: usize = 8 * 1024;

/// Result of a run.
pub struct Ran {
    /// Command line, for messages.
    pub line: String,
    /// Exit status.
    pub status: ExitStatus,
    /// Content of stdout, unless it was sent elsewhere.
    pub stdout: Vec<u8>,
    /// Content of stderr.
    pub stderr: Vec<u8>,
    /// Time from start to end.
    pub wall: Duration,
    /// Peak memory in bytes, without child processes.
    pub peak_rss: u64,
}

impl Ran {
    /// Returns the exit code, or 128 + the signal that ended the program, as in a shell.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Returns the run unchanged if it has this exit code.
    ///
    /// # Panics
    /// The exit code differs. The message contains the command and its output.
    #[must_use]
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert!(self.code() == code, "expected exit {code}: {self:?}");
        self
    }

    /// Returns the run unchanged if it failed with an exit code from 1 to 127.
    ///
    /// # Panics
    /// The run succeeded or died by a signal. The message contains the command and its output.
    #[must_use]
    #[track_caller]
    pub fn expect_failure(self) -> Self {
        assert!((1..=127).contains(&self.code()), "expected a failure: {self:?}");
        self
    }

    /// Returns stdout as text.
    #[must_use]
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns stderr as text.
    #[must_use]
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

impl fmt::Debug for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(SHOWN)..]);
            format!(
                "({} bytes)\n{}",
                bytes.len(),
                text.escape_debug().to_string().replace("\\n", "\n")
            )
        };
        writeln!(f, "{}", self.line)?;
        writeln!(
            f,
            "{} after {:.1?}, peak memory {} KiB",
            self.status,
            self.wall,
            self.peak_rss >> 10
        )?;
        writeln!(f, "--- stderr {}", shown(&self.stderr))?;
        write!(f, "--- stdout {}", shown(&self.stdout))
    }
}
