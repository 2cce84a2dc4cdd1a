//! Whether standard output was closed when the program started.
//!
//! The runtime opens `/dev/null` in place of a closed stream before `main`. Afterwards it cannot be
//! told from one that the caller has opened, so this looks before the runtime does.

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

ctor::declarative::ctor! {
    #[ctor(unsafe)]
    fn look() {
        let flags = rustix::io::fcntl_getfd(rustix::stdio::stdout());
        CLOSED.store(flags == Err(rustix::io::Errno::BADF), Ordering::Relaxed);
    }
}

/// Whether standard output was closed when the program started.
pub(crate) fn was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Records it for a program that executes itself again, because the runtime has opened `/dev/null`
/// since.
pub(crate) fn note_closed() {
    CLOSED.store(true, Ordering::Relaxed);
}
