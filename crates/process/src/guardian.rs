//! Between us and a program that we start stands a guardian: this very program once more, which
//! does nothing but wait. When we are gone, however that came about, it ends the program and all that
//! this has started; the program itself the system ends, should the guardian be gone.
//!
//! ```text
//! this process ── line ──► guardian ── PR_SET_PDEATHSIG ──► program
//! ```
//!
//! The line is a pipe to which nothing is written: it ends when we do. The program's three standard
//! streams go through the guardian untouched.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use nix::sys::signal::{SigSet, Signal as Raised};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, Signal, getpgrp, getpid, getppid, kill_process, kill_process_group,
    set_parent_process_death_signal,
};

/// In front of the line's descriptor, as the first argument of this program when it is to be a
/// guardian.
const GUARD: &str = "--as-guardian-on=";
/// In front of the guardian's process id, as the first argument of this program when it is to become
/// another.
const CHILD: &str = "--as-child-of=";
/// This program, also when its file has been replaced meanwhile.
const SELF: &str = "/proc/self/exe";
/// Exit status that says that a program could not be started, as shells have it.
pub const NOT_STARTED: u8 = 127;

/// Whether this program calls [`serve_as_guardian`].
static IS_AVAILABLE: AtomicBool = AtomicBool::new(false);
/// Held while a line can be inherited.
static STARTING: Mutex<()> = Mutex::new(());

/// Serves as a guardian if this process was started as one: then it gives the exit status, and there
/// is nothing else to do. Otherwise every [`Program`](crate::Program) that this process starts from
/// now on gets a guardian; a program that never calls this starts its children without.
///
/// To be called first thing in `main`, before there are threads.
#[must_use]
pub fn serve_as_guardian() -> Option<ExitCode> {
    match serve(std::env::args_os().skip(1)) {
        None => {
            IS_AVAILABLE.store(true, Ordering::Relaxed);
            None
        }
        Some(Ok(status)) => Some(status.into()),
        Some(Err(error)) => {
            let _ = writeln!(io::stderr(), "{error}");
            Some(NOT_STARTED.into())
        }
    }
}

fn serve(mut args: impl Iterator<Item = OsString>) -> Option<io::Result<u8>> {
    let first = args.next()?;
    let first = first.to_str()?;
    if let Some(number) = first.strip_prefix(GUARD) {
        return Some(number.parse().map_err(io::Error::other).and_then(|line| guard(line, args)));
    }
    let guardian = first.strip_prefix(CHILD)?.parse().ok()?;
    Some(Err(become_child(guardian, args)))
}

pub(crate) fn is_available() -> bool {
    IS_AVAILABLE.load(Ordering::Relaxed)
}

/// Has `start` start `program` behind a guardian, which ends it when the line is closed.
pub(crate) fn start_guarded(
    program: &OsStr,
    start: impl FnOnce(Command) -> io::Result<Child>,
) -> io::Result<(Child, PipeWriter)> {
    let (theirs, ours): (PipeReader, PipeWriter) = io::pipe()?;
    let starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    // Only for this moment, so that no other child gets it. One started elsewhere may: it could read
    // from the line, but not keep it open.
    fcntl_setfd(&theirs, FdFlags::empty())?;
    let mut command = Command::new(SELF);
    command.arg(format!("{GUARD}{}", theirs.as_raw_fd())).arg(program);
    let child = start(command);
    drop(theirs);
    drop(starting);
    Ok((child?, ours))
}

fn guard(line: i32, words: impl Iterator<Item = OsString>) -> io::Result<u8> {
    // What the group is told is for the program: this process ends after it.
    SigSet::all().thread_block()?;
    // Opened anew, so that the one that was inherited can be closed and goes no further.
    let mut inherited = File::open(format!("/proc/self/fd/{line}"))?;
    nix::unistd::close(line)?;
    let mut child =
        Command::new(SELF).arg(format!("{CHILD}{}", std::process::id())).args(words).spawn()?;
    // The program's streams have an end when it closes them.
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    std::thread::Builder::new().name("guardian".into()).spawn(move || {
        let _ = io::copy(&mut inherited, &mut io::sink());
        end_group();
    })?;
    Ok(end_as(child.wait()?))
}

fn end_group() {
    // The system ends the program with this process, if nobody else.
    let _ = match getpgrp() == getpid() {
        true => kill_process_group(getpid(), Signal::KILL),
        false => kill_process(getpid(), Signal::KILL),
    };
}

/// Ends like the program, so that who waits sees how that ended.
fn end_as(status: ExitStatus) -> u8 {
    let Some(number) = status.signal() else {
        return status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
    };
    // What there is to be seen, the program has left.
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    // Raising it would not do: some signals are ignored or handled here, whatever the program did.
    if let Ok(signal) = Raised::try_from(number) {
        let _ = SigSet::from(signal).thread_unblock();
        let _ = signal_hook::low_level::emulate_default_handler(number);
    }
    u8::MAX
}

/// Becomes the program. What this process has changed for itself and a program must not inherit is
/// put back here, and nowhere else.
fn become_child(guardian: i32, mut args: impl Iterator<Item = OsString>) -> io::Error {
    let Some(program) = args.next() else { return io::ErrorKind::InvalidInput.into() };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    // It may have died before that was said.
    if getppid().map(Pid::as_raw_nonzero).map(i32::from) != Some(guardian) {
        return io::Error::other("the program that wanted it is gone");
    }
    if let Err(error) = SigSet::empty().thread_set_mask() {
        return error.into();
    }
    Command::new(program).args(args).exec()
}
