//! How many requests to keep in flight.
//!
//! Many requests hide the latency of a store and add up the rates of its connections. Where ranges
//! arrive fast, the processors are the limit, and more requests only take more memory, whose first
//! use costs time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Rate of a fast connection in bytes a second. Three of them fill a link of 10 Gbit/s.
const FAST: u64 = 512 << 20;

/// Time by which ranges may arrive later than over fast connections, all of them together. Ranges
/// that arrive earlier make up for it. The system may stop a process for so long.
const MAX_LATENESS: Duration = Duration::from_millis(60);

/// Number of requests in flight: few at first, and all that the plan allows as soon as ranges arrive
/// late. Short ranges mostly wait for the store, so they need many requests, and get them, as they
/// soon are late.
#[derive(Debug)]
pub(super) struct Window {
    size: usize,
    all: usize,
    behind: Duration,
    late: Arc<Notify>,
}

impl Window {
    /// Creates a window of at most `all` requests, whose responses `threads` threads receive.
    pub(super) fn new(all: usize, threads: usize) -> Self {
        // A connection occupies one thread; one more covers the time between two ranges.
        let size = all.min(threads + 1);
        Self { size, all, behind: Duration::ZERO, late: Arc::default() }
    }

    /// Number of requests that may be in flight.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns whether more requests may be in flight later.
    pub(super) fn can_widen(&self) -> bool {
        self.size < self.all
    }

    /// Waits for a range that is late, and widens the window.
    pub(super) async fn late(&mut self) {
        self.late.notified().await;
        self.size = self.all;
    }

    /// Begins to time a range of `len` bytes.
    pub(super) fn arrival(&self, len: u64) -> Arrival {
        let fast = Duration::from_nanos(len.saturating_mul(1_000_000_000) / FAST);
        Arrival { fast, late: Arc::clone(&self.late) }
    }

    /// Counts a range that has arrived, and widens the window if ranges are late altogether.
    pub(super) fn arrived(&mut self, ArrivedRange { took, fast }: ArrivedRange) {
        self.behind = (self.behind + took).saturating_sub(fast);
        if self.behind > MAX_LATENESS {
            self.size = self.all;
        }
    }
}

/// Arrival of a range that is being fetched.
#[derive(Debug)]
pub(super) struct Arrival {
    /// Time that it takes over a fast connection.
    fast: Duration,
    late: Arc<Notify>,
}

/// A range that has arrived.
#[derive(Debug)]
pub(super) struct ArrivedRange {
    took: Duration,
    fast: Duration,
}

impl Arrival {
    /// Waits for the range, and reports it while it is still awaited if it is late.
    pub(super) async fn of<T>(self, fetching: impl Future<Output = T>) -> (T, ArrivedRange) {
        let Self { fast, late } = self;
        let begun = Instant::now();
        let mut fetching = std::pin::pin!(fetching);
        let result = match tokio::time::timeout(fast + MAX_LATENESS, &mut fetching).await {
            Ok(result) => result,
            Err(_) => {
                late.notify_one();
                fetching.await
            }
        };
        (result, ArrivedRange { took: begun.elapsed(), fast })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const RANGE: u64 = 16 << 20;

    /// Fetches a range that takes so many milliseconds. A fast one takes 31.
    async fn fetch(window: &mut Window, len: u64, ms: u64) {
        let arrival = window.arrival(len);
        let ((), arrived) = arrival.of(sleep(Duration::from_millis(ms))).await;
        window.arrived(arrived);
    }

    #[tokio::test(start_paused = true)]
    async fn the_window_stays_narrow_while_ranges_are_fast_or_make_up_for_late_ones() {
        let mut window = Window::new(8, 2);
        for ms in [31, 31, 80, 10, 10, 10, 80] {
            fetch(&mut window, RANGE, ms).await;
            assert_eq!((window.size(), window.can_widen()), (3, true), "{ms}");
        }
        assert!(tokio::time::timeout(Duration::from_secs(9), window.late()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn ranges_that_are_a_little_late_widen_it_together() {
        let mut window = Window::new(8, 2);
        let mut sizes = Vec::new();
        for _ in 0..5 {
            fetch(&mut window, RANGE, 50).await;
            sizes.push(window.size());
        }
        assert_eq!(sizes, [3, 3, 3, 8, 8]);
        assert!(!window.can_widen());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_range_widens_it_before_it_has_arrived() {
        let mut window = Window::new(8, 2);
        let begun = Instant::now();
        let slow = tokio::spawn(window.arrival(RANGE).of(sleep(Duration::from_secs(3600))));
        window.late().await;
        assert_eq!((window.size(), begun.elapsed().as_millis() / 10), (8, 9));
        assert!(!slow.is_finished());
        slow.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn short_ranges_must_be_as_fast_as_long_ones() {
        let mut window = Window::new(8, 2);
        for _ in 0..20 {
            fetch(&mut window, RANGE / 16, 6).await;
        }
        assert_eq!(window.size(), 8);
    }

    #[test]
    fn it_is_never_wider_than_the_plan() {
        for (all, threads, size) in [(2, 2, 2), (1, 8, 1), (8, 1, 2), (8, 16, 8)] {
            assert_eq!(Window::new(all, threads).size(), size, "{all}, {threads}");
        }
    }
}
