//! Handling of the signals HUP, INT and TERM.

use std::fmt;
use std::io;
use std::os::raw::c_int;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Handle;
use signal_hook::low_level;

/// First signal that was caught; 0 before.
static CAUGHT: AtomicI32 = AtomicI32::new(0);

/// Signal that has arrived, set by its handler: the thread that tells of it may come later.
static ARRIVED: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// Minimum time before another signal counts. A closed terminal, a service manager or a wrapper
/// often sends two signals at once for one request to end. Only a later signal means that the user
/// does not want to wait.
const SAME_WISH: Duration = Duration::from_millis(500);

/// Returns the signal that asked this process to end, if any.
pub fn interrupted() -> Option<i32> {
    let arrived = i32::try_from(ARRIVED.load(Ordering::Acquire)).unwrap_or_default();
    let _ = CAUGHT.compare_exchange(0, arrived, Ordering::AcqRel, Ordering::Acquire);
    Some(CAUGHT.load(Ordering::Acquire)).filter(|signal| *signal != 0)
}

/// Catches HUP, INT and TERM until it is dropped.
///
/// The first signal sets [`interrupted`] and calls the callback; the program then cancels its work,
/// cleans up, and ends with [`Exit::Interrupted`](crate::Exit::Interrupted). Another signal, half a
/// second or more later, calls the callback and ends the process at once, with the exit code 128 +
/// its number. Signals that were ignored when the process started, as under `nohup`, stay ignored.
///
/// SIGPIPE is not caught: Rust starts with it ignored, so a closed pipe causes a write error.
pub struct Signals {
    handle: Option<Handle>,
    thread: Option<JoinHandle<()>>,
}

impl Signals {
    /// Starts to catch signals. `on_signal` receives each signal's number on its own thread. It may
    /// lock and block, but while it blocks, no later signal is handled.
    ///
    /// # Errors
    /// The handler cannot be installed or the thread cannot be started.
    pub fn catch(on_signal: impl Fn(i32) + Send + 'static) -> io::Result<Self> {
        Self::catch_and_tell(on_signal, |_| ())
    }

    /// Like [`Signals::catch`]. `at_once` is called before another signal ends the process at once.
    ///
    /// # Errors
    /// As [`Signals::catch`].
    pub fn catch_and_tell(
        on_signal: impl Fn(i32) + Send + 'static,
        at_once: impl Fn(i32) + Send + 'static,
    ) -> io::Result<Self> {
        let ignored = ignored_mask();
        let wanted = [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|s| !is_in(ignored, *s));
        for signal in wanted.clone() {
            let number = usize::try_from(signal).unwrap_or_default();
            let _ = signal_hook::flag::register_usize(signal, Arc::clone(&ARRIVED), number)?;
        }
        let mut signals = signal_hook::iterator::Signals::new(wanted)?;
        let handle = signals.handle();
        let run = move || {
            let mut first: Option<Instant> = None;
            for signal in signals.forever() {
                let _ = CAUGHT.compare_exchange(0, signal, Ordering::AcqRel, Ordering::Acquire);
                on_signal(signal);
                let first = *first.get_or_insert_with(Instant::now);
                if first.elapsed() >= SAME_WISH {
                    at_once(signal);
                    low_level::exit(128 + signal);
                }
            }
        };
        let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(run)?;
        Ok(Self { handle: Some(handle), thread: Some(thread) })
    }
}

/// Lets a write beyond the limit of `ulimit -f` fail with an error, instead of ending the program
/// without a message. Child programs start with the system's own behaviour.
pub(crate) fn survive_file_size_limit() {
    // Without the handler, the program only ends without a message.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            handle.close();
        }
        if let Some(thread) = self.thread.take() {
            // A callback that panicked has already printed its message.
            let _ = thread.join();
        }
    }
}

/// Returns a mask in which bit n - 1 is set if signal n was ignored at the start; zero without
/// `/proc`.
fn ignored_mask() -> u64 {
    std::fs::read_to_string("/proc/self/status").map_or(0, |status| mask_in(&status))
}

fn mask_in(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn is_in(mask: u64, signal: c_int) -> bool {
    u32::try_from(signal - 1).is_ok_and(|bit| mask.checked_shr(bit).unwrap_or(0) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let status = "Name:\tx\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        assert_eq!(mask_in(status), 0x1001);
        assert_eq!(mask_in(""), 0);
        assert_eq!(mask_in("SigIgn:\tzz\n"), 0);
        assert!(is_in(0x1001, SIGHUP));
        assert!(is_in(0x1001, 13));
        assert!(!is_in(0x1001, SIGINT));
        assert!(!is_in(u64::MAX, 0) && !is_in(u64::MAX, 65));
        // Rust ignores SIGPIPE at the start, so this process is an example.
        assert!(is_in(ignored_mask(), 13));
    }
}
