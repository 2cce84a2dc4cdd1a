//! Runs a program to its end, and exchanges bytes with it on the way.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, WaitIdOptions};

use crate::messages::{DRAIN_TIMEOUT, LineBuffer};
use crate::program::Program;
use crate::running::KILL_AFTER;

/// Interval between two questions whether the program must end.
const INTERVAL: Duration = Duration::from_millis(100);
/// Longest interval between checks of a program that has closed its output but still runs.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Destination of a program's output.
pub enum Output<'a> {
    /// It goes where the description of the program says.
    AsDescribed,
    /// Each line is passed on without its end; one longer than 64 KiB in pieces.
    Lines(&'a dyn Fn(&[u8])),
    /// It is stored here, from the start. A program that writes more is killed. Nothing else has a
    /// copy, so the owner can erase a secret.
    Into(&'a mut [u8]),
}

/// Input and output of a program.
pub struct Exchange<'a> {
    /// Bytes for its standard input, which then ends; `None`: as its description says. A
    /// program that does not read all of it is no error.
    pub input: Option<&'a [u8]>,
    /// Its standard output.
    pub stdout: Output<'a>,
    /// Its standard error.
    pub stderr: Output<'a>,
}

impl fmt::Debug for Output<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AsDescribed => "AsDescribed",
            Self::Lines(_) => "Lines",
            Self::Into(_) => "Into",
        })
    }
}

impl fmt::Debug for Exchange<'_> {
    /// Omits the input, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stdout, stderr, .. } = self;
        f.debug_struct("Exchange")
            .field("stdout", stdout)
            .field("stderr", stderr)
            .finish_non_exhaustive()
    }
}

/// Way to end a program early, with the reason.
#[derive(Debug)]
pub enum Termination<R> {
    /// Kill it.
    Kill(R),
    /// Send it this signal, and kill it after 30 s. Meanwhile its output is read as before.
    Signal(i32, R),
}

/// Reason why a program did not run to its end.
#[derive(Debug)]
pub enum RunError<R> {
    /// It cannot be started.
    Start(io::Error),
    /// A pipe failed, or its exit status is unknown.
    Io(io::Error),
    /// It wrote more than fits into [`Output::Into`], this many bytes, and was killed.
    TooMuch(usize),
    /// It was ended on demand.
    Stopped(R),
}

/// Runs `program` to its end and returns its exit status, with the number of bytes stored by
/// [`Output::Into`]. `stop` is asked several times a second whether the program must end early. The
/// last output is read after its end, but not for more than 2 s, if a grandchild keeps a pipe open.
///
/// # Errors
/// [`RunError`]. The program has ended, and so has everything in its process group.
pub fn run<R>(
    mut program: Program,
    exchange: Exchange<'_>,
    mut stop: impl FnMut() -> Option<Termination<R>>,
) -> Result<(ExitStatus, usize), RunError<R>> {
    let Exchange { input, stdout, stderr } = exchange;
    if input.is_some() {
        program = program.stdin(Stdio::piped());
    }
    if !matches!(stdout, Output::AsDescribed) {
        program = program.stdout(Stdio::piped());
    }
    if !matches!(stderr, Output::AsDescribed) {
        program = program.stderr(Stdio::piped());
    }
    // Dropping it kills the program.
    let mut running = program.start().map_err(RunError::Start)?;
    let mut source = Source::new(running.stdin().map(OwnedFd::from), input.unwrap_or_default())?;
    let mut drains = [
        Drain::new(running.stdout().map(OwnedFd::from), stdout)?,
        Drain::new(running.stderr().map(OwnedFd::from), stderr)?,
    ];
    let (mut stopped, mut kill_at) = (None, None);
    let (mut ended, mut look, mut pause) = (None, Instant::now(), Duration::from_millis(1));
    let status = loop {
        let now = Instant::now();
        // Only looked at: reaping it would kill what it has started and what may still write.
        if ended.is_none() && running.has_ended(WaitIdOptions::NOHANG).map_err(RunError::Io)? {
            ended = Some(now);
        }
        match ended {
            Some(at) if drains.iter().all(Drain::is_closed) || now - at >= DRAIN_TIMEOUT => {
                break running.wait().map_err(RunError::Io)?;
            }
            None if kill_at.is_some_and(|at| now >= at) => running.kill(),
            None if stopped.is_none() && now >= look => {
                look = now + INTERVAL;
                match stop() {
                    Some(Termination::Kill(why)) => {
                        running.kill();
                        stopped = Some(why);
                    }
                    Some(Termination::Signal(signal, why)) => {
                        let signal = Signal::from_named_raw(signal).unwrap_or(Signal::TERM);
                        running.signaller().signal(signal);
                        (kill_at, stopped) = (Some(now + KILL_AFTER), Some(why));
                    }
                    None => {}
                }
            }
            _ => {}
        }
        if drains.iter().all(Drain::is_closed) && source.is_closed() {
            std::thread::sleep(pause);
            pause = (2 * pause).min(LONGEST_PAUSE);
        } else {
            wait(&source, &drains)?;
        }
        source.feed()?;
        for drain in &mut drains {
            drain.read()?;
        }
    };
    let stored = drains.iter().map(|drain| drain.stored).sum();
    stopped.map_or(Ok((status, stored)), |why| Err(RunError::Stopped(why)))
}

/// Waits until a pipe is ready, or it is time to look at the program.
fn wait<R>(source: &Source<'_>, drains: &[Drain<'_>]) -> Result<(), RunError<R>> {
    let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(3);
    fds.extend(source.pipe.iter().map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
    let open = drains.iter().filter_map(|drain| drain.pipe.as_ref());
    fds.extend(open.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
    match poll(&mut fds, Timespec::try_from(INTERVAL).ok().as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(RunError::Io(error.into())),
    }
}

/// Our end of a pipe, which never blocks: each side may wait for the other one.
fn unblocked<R>(pipe: Option<OwnedFd>) -> Result<Option<File>, RunError<R>> {
    let Some(pipe) = pipe else { return Ok(None) };
    rustix::io::ioctl_fionbio(&pipe, true).map_err(|error| RunError::Io(error.into()))?;
    Ok(Some(File::from(pipe)))
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

/// The input of a program, and the pipe until all of it is written.
struct Source<'a> {
    pipe: Option<File>,
    input: &'a [u8],
}

impl<'a> Source<'a> {
    fn new<R>(pipe: Option<OwnedFd>, input: &'a [u8]) -> Result<Self, RunError<R>> {
        Ok(Self { pipe: unblocked(pipe)?, input })
    }

    fn is_closed(&self) -> bool {
        self.pipe.is_none()
    }

    fn feed<R>(&mut self) -> Result<(), RunError<R>> {
        let Some(pipe) = self.pipe.as_mut().filter(|_| !self.input.is_empty()) else {
            self.pipe = None;
            return Ok(());
        };
        match pipe.write(self.input) {
            Ok(taken) => self.input = self.input.get(taken..).unwrap_or_default(),
            Err(error) if is_transient(&error) => {}
            // The program does not read its input: its output and its status show whether it has to.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.input = &[],
            Err(error) => return Err(RunError::Io(error)),
        }
        Ok(())
    }
}

/// A pipe into which the program writes until its end, and the use of the bytes.
struct Drain<'a> {
    pipe: Option<File>,
    output: Output<'a>,
    lines: LineBuffer,
    stored: usize,
}

impl<'a> Drain<'a> {
    fn new<R>(pipe: Option<OwnedFd>, output: Output<'a>) -> Result<Self, RunError<R>> {
        Ok(Self { pipe: unblocked(pipe)?, output, lines: LineBuffer::default(), stored: 0 })
    }

    fn is_closed(&self) -> bool {
        self.pipe.is_none()
    }

    fn read<R>(&mut self) -> Result<(), RunError<R>> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let read = match &mut self.output {
            Output::AsDescribed => Ok(0),
            Output::Lines(each) => {
                let mut buffer = [0; 8 << 10];
                pipe.read(&mut buffer).inspect(|len| match len {
                    0 => self.lines.end(each),
                    len => self.lines.push(buffer.get(..*len).unwrap_or_default(), each),
                })
            }
            Output::Into(buffer) => {
                let room = buffer.get_mut(self.stored..).unwrap_or_default();
                if !room.is_empty() {
                    pipe.read(room).inspect(|len| self.stored += len)
                } else if let end @ (Ok(0) | Err(_)) = pipe.read(&mut [0]) {
                    end
                } else {
                    return Err(RunError::TooMuch(self.stored));
                }
            }
        };
        match read {
            Ok(0) => self.pipe = None,
            Ok(_) => {}
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(RunError::Io(error)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn ran(
        script: &str,
        stop: impl FnMut() -> Option<Termination<&'static str>>,
    ) -> (Result<ExitStatus, RunError<&'static str>>, Vec<String>) {
        let lines = RefCell::new(Vec::new());
        let each =
            |line: &[u8]| lines.borrow_mut().push(String::from_utf8_lossy(line).into_owned());
        let exchange = Exchange {
            input: Some(b"given\n"),
            stdout: Output::Lines(&each),
            stderr: Output::Lines(&each),
        };
        let ended = run(Program::new("sh").args(["-c", script]), exchange, stop);
        (ended.map(|(status, _)| status), lines.into_inner())
    }

    #[test]
    fn both_outputs_are_read_while_the_input_is_written() {
        let (status, mut lines) = ran("echo first; cat; printf end >&2; exit 3", || None);
        lines.sort();
        assert_eq!(lines, ["end", "first", "given"]);
        assert_eq!(status.unwrap().code(), Some(3));
    }

    /// More than the pipes hold in all directions.
    #[test]
    fn no_side_blocks_the_other() {
        let (input, mut output) = (vec![b'x'; 1 << 20], vec![0; 1 << 20]);
        let lines = RefCell::new(0);
        let each = |line: &[u8]| *lines.borrow_mut() += line.len();
        let exchange = Exchange {
            input: Some(&input),
            stdout: Output::Into(&mut output),
            stderr: Output::Lines(&each),
        };
        let script = "head -c 3000000 /dev/zero >&2; cat; head -c 3000000 /dev/zero >&2";
        let program = Program::new("sh").args(["-c", script]);
        let (status, stored) = run(program, exchange, || None::<Termination<()>>).unwrap();
        assert!(status.success());
        assert_eq!((stored, *lines.borrow()), (1 << 20, 6_000_000));
        assert_eq!(output, input);
    }

    #[test]
    fn a_program_that_must_end_is_heard_to_its_end() {
        let mut asked = false;
        let stop =
            || std::mem::replace(&mut asked, true).then_some(Termination::Signal(15, "enough"));
        let script = "trap 'echo last; exit 0' TERM; echo up; while :; do sleep 0.01; done";
        let (ended, lines) = ran(script, stop);
        assert!(matches!(ended, Err(RunError::Stopped("enough"))), "{ended:?}");
        assert!(lines.iter().any(|line| line == "last"), "{lines:?}");
        let (ended, lines) = ran("trap '' TERM; exec sleep 600", || Some(Termination::Kill("now")));
        assert!(matches!(ended, Err(RunError::Stopped("now"))) && lines.is_empty());
    }

    /// As in `exec > >(filter)` of a shell, which does not wait for the filter.
    #[test]
    fn late_output_of_a_grandchild_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("mark");
        let lines = RefCell::new(Vec::new());
        let each = |line: &[u8]| {
            lines.borrow_mut().push(String::from_utf8_lossy(line).into_owned());
            std::fs::write(&mark, "").unwrap();
        };
        let script = format!(
            "(until grep -q ') Z' /proc/$$/stat; do :; done; echo first
              until [ -e {} ]; do :; done; for n in 1 2 3; do grep x /dev/null; done; echo late) &",
            mark.display()
        );
        let exchange =
            Exchange { input: None, stdout: Output::Lines(&each), stderr: Output::AsDescribed };
        let program = Program::new("sh").args(["-c", &script]);
        let (status, _) = run(program, exchange, || None::<Termination<()>>).unwrap();
        assert!(status.success());
        assert_eq!(lines.into_inner(), ["first", "late"]);
    }

    #[test]
    fn a_grandchild_that_keeps_a_pipe_is_not_waited_for() {
        // In a process group of its own, which does not end with the program's.
        let (status, lines) = ran("setsid sleep 600 & echo $!", || None);
        assert!(status.unwrap().success());
        let pid = lines[0].parse().ok().and_then(rustix::process::Pid::from_raw).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
    }
}
