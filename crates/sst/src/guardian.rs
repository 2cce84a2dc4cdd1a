//! Between us and a program that we start stands a guardian: this very program once more, which
//! does nothing but wait. When we are gone, however that came about, it ends the program and all that
//! this has started; the program itself the system ends, should the guardian be gone.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use nix::sys::signal::{SigSet, Signal as Raised};
use rustix::process::{
    Pid, Signal, getpgrp, getpid, getppid, kill_process, kill_process_group,
    set_parent_process_death_signal,
};

/// The first argument of this program when it is to be a guardian. Its standard input is a pipe to
/// which nothing is written: that ends when we do.
const GUARD: &str = "--as-guardian-of";
/// In front of the guardian's process id, as the first argument of this program when it is to become
/// another.
const CHILD: &str = "--as-child-of=";
/// This program.
pub(crate) const SELF: &str = "/proc/self/exe";
/// Exit status that says that a program could not be started, as shells have it.
pub const NOT_STARTED: u8 = 127;

/// Starts `program` by way of `helper`, which is this program or one that calls [`help`]. Who waits
/// for it must keep its standard input.
pub(crate) fn command(helper: &Path, program: &OsStr) -> Command {
    let mut command = Command::new(helper);
    command.arg(GUARD).arg(program).stdin(Stdio::piped());
    command
}

/// Does what this process was started for, if that was to help another of this program: the exit
/// status, or why a program could not be started, which is to be said, with [`NOT_STARTED`]. To be
/// called first thing.
pub fn help(mut args: impl Iterator<Item = OsString>) -> Option<io::Result<u8>> {
    let first = args.next()?;
    let first = first.to_str()?;
    if first == GUARD {
        return Some(guard(args));
    }
    let guardian = first.strip_prefix(CHILD)?.parse().ok()?;
    Some(Err(become_child(guardian, args)))
}

fn guard(words: impl Iterator<Item = OsString>) -> io::Result<u8> {
    // What the group is told is for the program: this process ends after it.
    SigSet::all().thread_block()?;
    let mut child = Command::new(SELF)
        .arg(format!("{CHILD}{}", std::process::id()))
        .args(words)
        .stdin(Stdio::null())
        .spawn()?;
    // Its pipes have an end when it closes them.
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    std::thread::Builder::new().name("guardian".into()).spawn(|| {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
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
