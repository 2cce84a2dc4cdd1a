//! Waits for a socket, a wake-up from another thread, or a time, whichever comes first.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// Wakes one thread that waits in [`wait`].
#[derive(Debug)]
pub(crate) struct Wake(OwnedFd);

impl Wake {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn wake(&self) {
        // Can only fail after 2^64 unread calls: then the thread is woken anyway.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    fn quiet(&self) {
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

/// Result of a wait.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Readiness {
    /// There is data to read, or the end of the stream.
    pub(crate) read: bool,
    /// There is room to write, or an error to report.
    pub(crate) write: bool,
}

/// The socket events to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    Read,
    ReadWrite,
}

/// Waits until `socket` is ready, `wake` was woken, or `until` has passed. With a time in the past
/// it only polls.
pub(crate) fn wait(
    socket: Option<(BorrowedFd<'_>, Interest)>,
    wake: &Wake,
    until: Option<Instant>,
) -> io::Result<Readiness> {
    let timeout = until.map(|at| at.saturating_duration_since(Instant::now()));
    // Rounded up: otherwise the last fraction of a millisecond would be spent in a busy loop.
    let timeout = timeout.map(|t| timespec(t.saturating_add(Duration::from_micros(50))));
    let wake_fd = PollFd::new(&wake.0, PollFlags::IN);
    let mut ready = Readiness::default();
    let woken = match socket {
        None => {
            let mut fds = [wake_fd];
            turn(poll(&mut fds, timeout.as_ref()))?;
            !fds[0].revents().is_empty()
        }
        Some((fd, want)) => {
            let mut flags = PollFlags::IN;
            if want == Interest::ReadWrite {
                flags |= PollFlags::OUT;
            }
            let mut fds = [PollFd::new(&fd, flags), wake_fd];
            turn(poll(&mut fds, timeout.as_ref()))?;
            let got = fds[0].revents();
            let broken = got.intersects(PollFlags::ERR | PollFlags::HUP);
            ready.read = broken || got.contains(PollFlags::IN);
            ready.write = broken || got.contains(PollFlags::OUT);
            !fds[1].revents().is_empty()
        }
    };
    if woken {
        wake.quiet();
    }
    Ok(ready)
}

/// An interrupting signal is no error: the caller polls again.
fn turn(result: Result<usize, Errno>) -> io::Result<()> {
    match result {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
