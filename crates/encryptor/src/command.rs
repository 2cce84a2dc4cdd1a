//! The key command: a program that wraps and unwraps data keys (Vault, KMS, smart card).

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use xb_process::{CaptureError, Program, capture};
use zeroize::Zeroizing;

/// Longest wrapped data key that a program may return, in bytes.
pub const MAX_WRAPPED: usize = 8192;

/// Default time limit of a program.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// The operation of a key command, passed as the last argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Wrap,
    Unwrap,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Wrap => "wrap",
            Verb::Unwrap => "unwrap",
        })
    }
}

/// A program and its arguments, started without a shell.
///
/// The word `wrap` or `unwrap` is added as the last argument. The program reads its input from
/// stdin and must write the result, and nothing else, to stdout; it shares our stderr. A key is
/// never passed as an argument. `Debug` prints only the program, because the user's arguments may
/// contain secrets.
#[derive(Clone)]
pub struct KeyCommand {
    program: OsString,
    arguments: Vec<OsString>,
    timeout: Duration,
}

impl KeyCommand {
    /// Makes a command from these words; the first is the program. `None` when there are no words.
    #[must_use]
    pub fn new(words: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut words = words.into_iter();
        let program = words.next().filter(|word| !word.is_empty())?;
        Some(Self { program, arguments: words.collect(), timeout: DEFAULT_TIMEOUT })
    }

    /// Returns the program, without its arguments.
    #[must_use]
    pub fn program(&self) -> &Path {
        Path::new(&self.program)
    }

    /// Sets the time limit, after which the program is ended.
    #[cfg(test)]
    fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Runs the program. The result has at most [`MAX_WRAPPED`] bytes.
    pub(crate) fn run(&self, verb: Verb, input: &[u8]) -> Result<Zeroizing<Vec<u8>>, CommandError> {
        let program = Program::new(&self.program)
            .args(&self.arguments)
            .args([verb.to_string()])
            .stderr(Stdio::inherit())
            // The program may ask for a PIN.
            .in_our_group_at_a_terminal();
        // Allocated at full length: growing would leave copies of a key in memory.
        let mut output = Zeroizing::new(vec![0; MAX_WRAPPED]);
        let stored = capture(program, Some(input), &mut output, self.timeout);
        let stored = stored.map_err(|error| CommandError::new(self, verb, error.into()))?;
        output.truncate(stored);
        Ok(output)
    }
}

impl fmt::Debug for KeyCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyCommand").field("program", &self.program).finish_non_exhaustive()
    }
}

/// A failed key command. Contains the program's name, but nothing that it has read or written.
#[derive(Debug, thiserror::Error)]
#[error("key command {} {verb}: {fault}", program.display())]
pub struct CommandError {
    /// The program.
    pub program: OsString,
    verb: Verb,
    /// The fault.
    pub fault: CommandFault,
}

impl CommandError {
    pub(crate) fn new(command: &KeyCommand, verb: Verb, fault: CommandFault) -> Self {
        Self { program: command.program.clone(), verb, fault }
    }
}

/// Faults of a key command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandFault {
    /// The program cannot be started.
    #[error("cannot start it: {0}")]
    Start(io::Error),
    /// Reading or writing its pipes failed.
    #[error("{0}")]
    Io(io::Error),
    /// It exceeded its time limit and was ended.
    #[error("not finished after {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// It reported a failure by its exit status.
    #[error("it failed: {0}")]
    Status(ExitStatus),
    /// It wrote more than the longest wrapped key.
    #[error("it wrote more than {MAX_WRAPPED} bytes")]
    TooMuch,
    /// It wrote no output.
    #[error("it wrote nothing")]
    Nothing,
    /// The output of `wrap` contains the key in plain.
    #[error("it returned the key unwrapped")]
    NotWrapped,
    /// The output of `unwrap` does not have the length of a key.
    #[error("it wrote {0} bytes; a key has 32")]
    NotAKey(usize),
}

impl From<CaptureError> for CommandFault {
    fn from(error: CaptureError) -> Self {
        match error {
            CaptureError::Start(error) => Self::Start(error),
            CaptureError::Io(error) => Self::Io(error),
            CaptureError::Timeout(limit) => Self::Timeout(limit),
            CaptureError::TooMuch(_) => Self::TooMuch,
            CaptureError::Failed(status) => Self::Status(status),
            other => Self::Io(io::Error::other(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> KeyCommand {
        KeyCommand::new(["sh", "-c", script, "sh"].map(OsString::from)).unwrap()
    }

    fn fault(script: &str, timeout: Duration) -> CommandFault {
        let command = shell(script).with_timeout(timeout);
        command.run(Verb::Wrap, &[7; 32]).unwrap_err().fault
    }

    #[test]
    fn input_goes_in_and_output_comes_out() {
        let out = shell("printf '%s:' \"$1\"; cat").run(Verb::Unwrap, b"bytes").unwrap();
        assert_eq!(&out[..], b"unwrap:bytes");
        // More than a pipe may hold, written while nothing is read; then everything is read at
        // once.
        let input = vec![b'x'; MAX_WRAPPED];
        let out = shell("all=$(cat); printf %s \"$all\"").run(Verb::Wrap, &input).unwrap();
        assert_eq!(&out[..], &input[..]);
    }

    #[test]
    fn a_program_that_ignores_its_input_is_no_error_by_itself() {
        let out = shell("exec <&-; echo done").run(Verb::Wrap, &[0; MAX_WRAPPED]).unwrap();
        assert_eq!(&out[..], b"done\n");
    }

    #[test]
    fn faults_are_distinguished() {
        let long = Duration::from_secs(20);
        assert!(matches!(fault("cat >/dev/null; exit 3", long), CommandFault::Status(_)));
        assert!(matches!(fault("yes", long), CommandFault::TooMuch));
        let short = Duration::from_millis(50);
        assert!(matches!(fault("exec tail -f /dev/null", short), CommandFault::Timeout(_)));
        // The program closes its output and continues to run.
        let script = "exec >/dev/null; exec tail -f /dev/null";
        assert!(matches!(fault(script, short), CommandFault::Timeout(_)));
        let none = KeyCommand::new([OsString::from("/no/such/program")]).unwrap();
        let error = none.run(Verb::Wrap, b"").unwrap_err();
        assert!(
            error.to_string().starts_with("key command /no/such/program wrap: cannot start it")
        );
        assert!(KeyCommand::new([]).is_none());
        assert!(KeyCommand::new([OsString::new()]).is_none());
    }

    #[test]
    fn arguments_are_not_shown() {
        assert!(!format!("{:?}", shell("--token=hunter2")).contains("hunter2"));
    }
}
