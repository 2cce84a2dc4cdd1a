//! Guardian: a process between this one and a program that it starts. It is this very executable,
//! started once more, and only waits. When this process is gone, for whatever reason, the guardian
//! ends the program and everything that the program has started. If the guardian dies, the kernel
//! kills the program.
//!
//! ```text
//! this process ── line ──► guardian ── PR_SET_PDEATHSIG ──► program
//! ```
//!
//! The line is a pipe that closes when this process ends. Only the arguments of the program are written
//! to it: they may hold a password, which the program hides in the process list, and the guardian must
//! not show. The guardian leaves the program's three standard streams untouched. A program in the group
//! of this process gets the signals that ask the guardian to end.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeWriter, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread::Builder;

use nix::sys::signal::{SigSet, Signal as Raised};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, kill_process_group,
    set_parent_process_death_signal, test_kill_process_group,
};

use crate::confine::{confine, is_supported, why_not_supported};
use crate::line::{SELF, is_available, make_available, open_line, with_line};
use crate::remover::{REMOVE, remove};

/// Prefix of the first argument that makes this executable a guardian; the descriptor of the line
/// follows.
const GUARD: &str = "--as-guardian-on=";
/// Prefix of the first argument that makes this executable replace itself by another program; the
/// guardian's process id follows.
const CHILD: &str = "--as-child-of=";
/// Prefix of the arguments after that one that name places to which the program is confined.
const WRITES: &str = "--writing-below=";
/// Exit status of a guardian whose program could not be started, as in shells.
pub const NOT_STARTED: u8 = 127;

/// Serves as a guardian if this process was started as one, and then returns the exit status with
/// which the process must end. Otherwise every [`Program`](crate::Program) that this process starts
/// from now on gets a guardian. An executable that never calls this function starts its children
/// without guardians.
///
/// Call it first in `main`, before any thread exists.
#[must_use]
pub fn serve_as_guardian() -> Option<ExitCode> {
    match serve(std::env::args_os().skip(1)) {
        None => {
            make_available();
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
    if let Some(number) = first.strip_prefix(REMOVE) {
        return Some(number.parse().map_err(io::Error::other).and_then(|line| remove(line, args)));
    }
    let guardian = first.strip_prefix(CHILD)?.parse().ok()?;
    Some(Err(become_child(guardian, args)))
}

/// Returns whether the programs that this process starts can be confined
/// ([`Program::writing_only_below`](crate::Program::writing_only_below)).
///
/// # Errors
/// Reason why they cannot be.
pub fn can_confine() -> Result<(), &'static str> {
    match (is_available(), is_supported()) {
        (false, _) => Err("this program does not guard the programs that it starts"),
        (_, false) => Err(why_not_supported()),
        (true, true) => Ok(()),
    }
}

/// Calls `start` to start `program` with these arguments behind a guardian, which ends the program when the line
/// closes. The program can write below `writable` only, if there is any.
pub(crate) fn start_guarded(
    program: &OsStr,
    args: &[OsString],
    writable: &[PathBuf],
    start: impl FnOnce(Command) -> io::Result<Child>,
) -> io::Result<(Child, PipeWriter)> {
    if args.iter().any(|word| word.as_bytes().contains(&0)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let (child, mut line) = with_line(GUARD, |mut command| {
        for place in writable {
            let mut word = OsString::from(WRITES);
            word.push(place);
            command.arg(word);
        }
        command.arg(program);
        start(command)
    })?;
    // If the guardian has ended, its status says why.
    let _ = send(&mut line, args);
    Ok((child, line))
}

/// Writes the number of bytes that follow, and each word with a NUL behind it.
fn send(line: &mut PipeWriter, words: &[OsString]) -> io::Result<()> {
    let mut text = Vec::new();
    for word in words {
        text.extend_from_slice(word.as_bytes());
        text.push(0);
    }
    line.write_all(&(text.len() as u64).to_le_bytes())?;
    line.write_all(&text)
}

fn receive(line: &mut File) -> io::Result<Vec<OsString>> {
    let (mut len, mut text) = ([0; 8], Vec::new());
    line.read_exact(&mut len)?;
    let len = u64::from_le_bytes(len);
    if line.take(len).read_to_end(&mut text)? as u64 != len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let words = text.split_inclusive(|byte| *byte == 0);
    let words = words.map(|word| word.strip_suffix(&[0]).unwrap_or(word).to_vec());
    Ok(words.map(OsString::from_vec).collect())
}

fn guard(line: i32, words: impl Iterator<Item = OsString>) -> io::Result<u8> {
    // Signals to the group are meant for the program: the guardian must outlive it.
    SigSet::all().thread_block()?;
    let mut inherited = open_line(line)?;
    let args = receive(&mut inherited)?;
    let mut child = Command::new(SELF)
        .arg(format!("{CHILD}{}", std::process::id()))
        .args(words)
        .args(args)
        .spawn()?;
    // The guardian must not keep the program's streams open after the program has closed them.
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let program = Pid::from_child(&child);
    Builder::new().name("guardian".into()).spawn(move || {
        let _ = io::copy(&mut inherited, &mut io::sink());
        end_all(program);
    })?;
    match has_group() {
        true => pass_on_earlier_signals(program)?,
        false => {
            Builder::new().name("signals".into()).spawn(move || pass_signals_on(program))?;
        }
    }
    Ok(end_as(child.wait()?))
}

/// What asks a program to end.
fn asked() -> SigSet {
    [Raised::SIGTERM, Raised::SIGINT, Raised::SIGHUP, Raised::SIGQUIT].into_iter().collect()
}

/// Passes on what the group was asked for before it had the program.
fn pass_on_earlier_signals(program: Pid) -> io::Result<()> {
    let pending = SignalFd::with_flags(&asked(), SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    while let Ok(Some(signal)) = pending.read_signal() {
        let number = i32::try_from(signal.ssi_signo).ok();
        if let Some(signal) = number.and_then(Signal::from_named_raw) {
            let _ = kill_process(program, signal);
        }
    }
    Ok(())
}

/// Passes on what this process is asked for. A signal for the group, such as that of a terminal, reaches the program by
/// itself, too: to be asked twice does not matter to it.
fn pass_signals_on(program: Pid) {
    let asked = asked();
    while let Ok(signal) = asked.wait() {
        if let Some(signal) = Signal::from_named_raw(signal as i32) {
            let _ = kill_process(program, signal);
        }
    }
}

/// Whether the guardian and its program have a group of their own. `getpgrp` has no answer for a group that began outside
/// this process namespace, as under `nsenter` or `unshare`.
fn has_group() -> bool {
    test_kill_process_group(getpid()).is_ok()
}

/// Ends the program, and with it this process, which waits for it.
fn end_all(program: Pid) {
    let ended = match has_group() {
        true => kill_process_group(getpid(), Signal::KILL),
        // At the end of this process, the kernel spares a program that has changed its user, as `setpriv` does.
        false => kill_process(program, Signal::KILL),
    };
    if ended.is_err() {
        let _ = kill_process(getpid(), Signal::KILL);
    }
}

/// Ends the same way as the program, so that a waiting parent sees how the program ended.
fn end_as(status: ExitStatus) -> u8 {
    let Some(number) = status.signal() else {
        return status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
    };
    // The program has already dumped core if there was a reason to.
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    // `raise` is not enough: this process ignores or handles some signals, whatever the program
    // did.
    if let Ok(signal) = Raised::try_from(number) {
        let _ = SigSet::from(signal).thread_unblock();
        let _ = signal_hook::low_level::emulate_default_handler(number);
    }
    u8::MAX
}

/// Replaces this process by the program. Undoes every change that this process made to itself and
/// that a program must not inherit; no other function does that.
fn become_child(guardian: i32, mut args: impl Iterator<Item = OsString>) -> io::Error {
    let mut writable = Vec::new();
    let program = loop {
        let Some(word) = args.next() else { return io::ErrorKind::InvalidInput.into() };
        match word.as_bytes().strip_prefix(WRITES.as_bytes()) {
            Some(place) => writable.push(PathBuf::from(OsStr::from_bytes(place))),
            None => break word,
        }
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    // The guardian may have died before the death signal was set.
    if getppid().map(Pid::as_raw_nonzero).map(i32::from) != Some(guardian) {
        return io::Error::other("the program that asked for it has ended");
    }
    if let Err(error) = SigSet::empty().thread_set_mask() {
        return error.into();
    }
    if !writable.is_empty()
        && let Err(error) = confine(&writable)
    {
        return error;
    }
    let error = Command::new(&program).args(args).exec();
    // The program was found before.
    match error.kind() {
        io::ErrorKind::NotFound if Path::new(&program).exists() => io::Error::other(format!(
            "{error}: what runs {} is missing, the program in its first line (#!) or its loader",
            Path::new(&program).display()
        )),
        _ => error,
    }
}
