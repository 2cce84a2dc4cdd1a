//! Watches for events that end a transfer: signals, and the end of the server.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
use xb_cli::Signals;
use xb_sst::{Args, CancelReason, CancelToken, ErrorLog};

/// Maximum number of shells between this process and the server.
const MAX_SHELLS: usize = 4;

/// Cancels the transfer on a signal. Without this handler a signal ends only this process; the
/// system then ends its children.
pub(crate) fn signals(cancel: &CancelToken, error_log: &ErrorLog) -> Option<Signals> {
    let asking = cancel.clone();
    match Signals::catch(move |signal| asking.cancel(CancelReason::Signal(signal))) {
        Ok(signals) => Some(signals),
        Err(error) => {
            error_log.warn(format_args!("cannot catch signals: {error}"));
            None
        }
    }
}

/// Cancels the transfer when one of these processes ends: the server that the arguments name, the
/// parent of this process, and further ancestors as long as only shells are between.
pub(crate) fn parent(args: &Args, cancel: &CancelToken, error_log: &ErrorLog) {
    let named = args.parent.and_then(Pid::from_raw);
    let watched: Vec<Pid> = named.into_iter().chain(ancestors()).collect();
    for pid in watched {
        let cancel = cancel.clone();
        let watching = std::thread::Builder::new().name("parent".into()).spawn(move || {
            if wait_for_end(pid) {
                cancel.cancel(CancelReason::ServerGone);
            }
        });
        if let Err(error) = watching {
            error_log.warn(format_args!("cannot watch for the end of the server: {error}"));
        }
    }
}

/// Ends the program if it does not end by itself in time.
pub(crate) fn exit_after_grace(cancel: &CancelToken, error_log: &ErrorLog, grace: Duration) {
    let (cancel, error_log) = (cancel.clone(), error_log.clone());
    let _ = std::thread::Builder::new().name("grace".into()).spawn(move || {
        while cancel.wait(Duration::from_secs(3600)).is_none() {}
        std::thread::sleep(grace);
        error_log
            .error("shutdown is taking too long; exiting now, the next transfer will clean up");
        std::process::exit(3);
    });
}

/// Returns the parent of this process; if that is a shell, also the shell's parent, and so on.
fn ancestors() -> Vec<Pid> {
    let mut found = Vec::new();
    let mut next = getppid();
    while let Some(pid) = next.filter(|pid| !pid.is_init()) {
        found.push(pid);
        let Some((name, parent)) = about(pid) else { break };
        let is_shell = matches!(name.as_str(), "sh" | "dash" | "bash" | "ash" | "busybox" | "ksh");
        if !is_shell || found.len() > MAX_SHELLS {
            break;
        }
        next = Pid::from_raw(parent);
    }
    found
}

/// Returns name and parent of a process.
fn about(pid: Pid) -> Option<(String, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name is in brackets and may contain brackets.
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let parent = after.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some((name.to_owned(), parent))
}

/// Waits for a process to end. Returns false on a system that cannot detect that.
fn wait_for_end(pid: Pid) -> bool {
    let handle = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(rustix::io::Errno::SRCH) => return true,
        Err(_) => return false,
    };
    loop {
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], None) {
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_process_is_seen() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let watching = std::thread::spawn(move || wait_for_end(pid));
        child.kill().unwrap();
        assert!(watching.join().unwrap());
        let _ = child.wait();
        assert!(wait_for_end(pid), "one that is gone already");
    }

    #[test]
    fn processes_tell_of_themselves() {
        let child = std::process::Command::new("sleep").arg("0").spawn();
        let mut child = child.unwrap();
        let (_, parent) = about(Pid::from_child(&child)).unwrap();
        assert_eq!(u32::try_from(parent).unwrap(), std::process::id());
        let _ = child.wait();
        assert!(ancestors().len() <= MAX_SHELLS + 1);
    }
}
