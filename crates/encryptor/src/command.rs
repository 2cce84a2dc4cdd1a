//! The key command: a program that wraps and unwraps data keys (Vault, KMS, smart card).

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use xb_process::{Program, Running};
use zeroize::Zeroizing;

/// Longest wrapped data key that a program may return, in bytes.
pub const MAX_WRAPPED: usize = 8192;

/// Default time limit of a program.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval between checks of a program that has closed its output but still runs.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

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
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Runs the program. The result has at most [`MAX_WRAPPED`] bytes.
    pub(crate) fn run(&self, verb: Verb, input: &[u8]) -> Result<Zeroizing<Vec<u8>>, CommandError> {
        let deadline = Instant::now() + self.timeout;
        let fault = |what| CommandError::new(self, verb, what);
        let io = |source| fault(CommandFault::Io(source));
        let program = Program::new(&self.program)
            .args(&self.arguments)
            .args([verb.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            // The program may ask for a PIN.
            .in_our_group_at_a_terminal();
        // Dropping it ends the program.
        let mut program = program.start().map_err(|e| fault(CommandFault::Start(e)))?;
        let output = exchange(&mut program, input, deadline, self.timeout).map_err(fault)?;
        let status = loop {
            match program.try_wait().map_err(io)? {
                Some(status) => break status,
                None if Instant::now() >= deadline => {
                    return Err(fault(CommandFault::Timeout(self.timeout)));
                }
                None => thread::sleep(LOOK_AGAIN),
            }
        };
        if status.success() { Ok(output) } else { Err(fault(CommandFault::Status(status))) }
    }
}

impl fmt::Debug for KeyCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyCommand").field("program", &self.program).finish_non_exhaustive()
    }
}

/// Writes and reads as soon as the program is ready, so that neither side blocks the other.
fn exchange(
    program: &mut Running,
    mut input: &[u8],
    deadline: Instant,
    timeout: Duration,
) -> Result<Zeroizing<Vec<u8>>, CommandFault> {
    let mut stdin = program.stdin();
    let no_pipe = || CommandFault::Io(io::ErrorKind::BrokenPipe.into());
    let mut stdout = program.stdout().ok_or_else(no_pipe)?;
    if let Some(pipe) = &stdin {
        rustix::io::ioctl_fionbio(pipe, true).map_err(|e| CommandFault::Io(e.into()))?;
    }
    // Allocated at full length: growing would leave copies of a key in memory.
    let mut output = Zeroizing::new(vec![0; MAX_WRAPPED + 1]);
    let mut have = 0;
    loop {
        if input.is_empty() {
            stdin = None;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(CommandFault::Timeout(timeout));
        }
        let (readable, writable) = ready(&stdout, stdin.as_ref(), left)?;
        if let (true, Some(pipe)) = (writable, &mut stdin) {
            match pipe.write(input) {
                Ok(taken) => input = input.get(taken..).unwrap_or_default(),
                Err(e) if is_transient(&e) => {}
                // The program does not read its input: the check of its output shows whether that
                // is correct.
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => input = &[],
                Err(e) => return Err(CommandFault::Io(e)),
            }
        }
        if readable {
            match stdout.read(output.get_mut(have..).unwrap_or_default()) {
                Ok(0) => break,
                Ok(more) => have += more,
                Err(e) if is_transient(&e) => {}
                Err(e) => return Err(CommandFault::Io(e)),
            }
            if have > MAX_WRAPPED {
                return Err(CommandFault::TooMuch);
            }
        }
    }
    output.truncate(have);
    Ok(output)
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

/// Returns which of the two pipes is ready.
fn ready(
    stdout: &impl AsFd,
    stdin: Option<&impl AsFd>,
    left: Duration,
) -> Result<(bool, bool), CommandFault> {
    let mut fds = vec![PollFd::new(stdout, PollFlags::IN)];
    fds.extend(stdin.map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
    let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    match poll(&mut fds, Some(&left)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(e) => return Err(CommandFault::Io(e.into())),
    }
    let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
    Ok((is_ready(0), is_ready(1)))
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
    fn faults_are_told_apart() {
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
