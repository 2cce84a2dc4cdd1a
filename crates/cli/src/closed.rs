//! Whether standard input or output was closed when the program started.
//!
//! The runtime opens `/dev/null` in place of a closed stream before `main`. Afterwards it cannot be
//! told from one that the caller has opened, so this looks before the runtime does.

use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::{Errno, fcntl_getfd};

/// Bits of the streams that were closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// A standard stream, by its bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stream {
    Input = 1,
    Output = 2,
}

ctor::declarative::ctor! {
    #[ctor(unsafe)]
    fn look() {
        let input = fcntl_getfd(rustix::stdio::stdin()) == Err(Errno::BADF);
        let output = fcntl_getfd(rustix::stdio::stdout()) == Err(Errno::BADF);
        note_closed(u8::from(input) | u8::from(output) << 1);
    }
}

/// Returns whether a stream was closed when the program started.
pub(crate) fn was_closed(stream: Stream) -> bool {
    closed() & stream as u8 != 0
}

/// The streams that were closed, for [`note_closed`].
pub(crate) fn closed() -> u8 {
    CLOSED.load(Ordering::Relaxed)
}

/// Records closed streams for a program that executes itself again, because the runtime has opened
/// `/dev/null` since.
pub(crate) fn note_closed(streams: u8) {
    CLOSED.fetch_or(streams, Ordering::Relaxed);
}
