//! Waiting for what another thread or program does.

use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything takes that is waited for, on a busy machine, too.
const LIMIT: Duration = Duration::from_secs(600);
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(25);

/// Calls `reached` until it returns true. Between two calls it sleeps: what is waited for needs the processor.
///
/// # Panics
/// Ten minutes have passed. The message has `what`.
pub fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < LIMIT, "waited in vain: {what}");
        thread::sleep(pause(start));
    }
}

/// The time to sleep after an attempt: the longer, the longer it has been since `start`.
pub(crate) fn pause(start: Instant) -> Duration {
    (start.elapsed() / 20).clamp(FIRST_PAUSE, LAST_PAUSE)
}
