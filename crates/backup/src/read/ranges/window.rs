//! How many requests to keep in flight.
//!
//! Many requests hide the latency of a store and add up the rates of its connections. Where ranges
//! arrive fast, there is nothing to hide: the processors are the limit, and more requests only take
//! more memory, whose first use costs time.

use std::time::Duration;

use tokio::sync::watch;
use xb_pipeline::UnpackPlan;

/// Rate of a fast connection, in bytes a second.
const FAST: u64 = 256 << 20;

/// Number of requests in flight: few at first, and all that the plan allows from the first range
/// that takes longer than over a fast connection.
#[derive(Debug)]
pub(super) struct Window {
    size: watch::Receiver<usize>,
    widen: Widen,
}

impl Window {
    /// Creates the window of a plan.
    pub(super) fn new(plan: &UnpackPlan) -> Self {
        // A connection occupies at most one processor; one more covers the time between two ranges.
        let few = plan.parallel.min(plan.threads + 1);
        let (to, size) = watch::channel(few);
        Self { size, widen: Widen { to, all: plan.parallel } }
    }

    /// Number of requests that may be in flight.
    pub(super) fn size(&self) -> usize {
        *self.size.borrow()
    }

    /// Waits until the window has become wider.
    pub(super) async fn widened(&mut self) {
        if self.size.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// The arrival of a range of `len` bytes.
    pub(super) fn arrival(&self, len: u64) -> Arrival {
        let fast = Duration::from_nanos(len.saturating_mul(1_000_000_000) / FAST);
        Arrival { fast, widen: self.widen.clone() }
    }
}

#[derive(Debug, Clone)]
struct Widen {
    to: watch::Sender<usize>,
    all: usize,
}

/// Arrival of a range, which widens the window if it takes long.
#[derive(Debug)]
pub(super) struct Arrival {
    /// Time that the range takes over a fast connection.
    fast: Duration,
    widen: Widen,
}

impl Arrival {
    /// Waits for the range that is being fetched.
    pub(super) async fn of<T>(self, fetching: impl Future<Output = T>) -> T {
        let mut fetching = std::pin::pin!(fetching);
        if let Ok(arrived) = tokio::time::timeout(self.fast, &mut fetching).await {
            return arrived;
        }
        let Widen { to, all } = self.widen;
        to.send_if_modified(|size| std::mem::replace(size, all) != all);
        fetching.await
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const RANGE: u64 = 16 << 20;

    fn window(threads: usize, parallel: usize) -> Window {
        let plan = UnpackPlan::new(1 << 30, threads, parallel).unwrap();
        assert_eq!(plan.parallel, parallel);
        Window::new(&plan)
    }

    #[tokio::test(start_paused = true)]
    async fn ranges_that_arrive_fast_are_fetched_by_few_requests() {
        let mut window = window(2, 8);
        for len in [RANGE, RANGE / 16, 0] {
            // A little faster than 256 MiB a second.
            let fetching = sleep(Duration::from_micros(len * 62 / RANGE * 1000));
            window.arrival(len).of(fetching).await;
        }
        assert_eq!(window.size(), 3);
        assert!(tokio::time::timeout(Duration::from_secs(9), window.widened()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_range_opens_the_window_before_it_has_arrived() {
        let mut window = window(2, 8);
        let arrival = window.arrival(RANGE);
        let begun = tokio::time::Instant::now();
        let slow = tokio::spawn(arrival.of(sleep(Duration::from_secs(3600))));
        window.widened().await;
        assert_eq!((window.size(), begun.elapsed().as_millis() / 10), (8, 6));
        assert!(!slow.is_finished());
        // Once is enough.
        let again = window.arrival(RANGE).of(sleep(Duration::from_secs(1)));
        again.await;
        assert!(tokio::time::timeout(Duration::from_secs(9), window.widened()).await.is_err());
        slow.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_range_must_be_as_fast_as_a_long_one() {
        let window = window(2, 8);
        window.arrival(RANGE / 16).of(sleep(Duration::from_millis(5))).await;
        assert_eq!(window.size(), 8);
    }

    #[test]
    fn the_plan_and_the_processors_limit_the_window() {
        for (threads, parallel, size) in [(2, 2, 2), (1, 8, 2), (4, 8, 5), (16, 8, 8)] {
            assert_eq!(window(threads, parallel).size(), size, "{threads}, {parallel}");
        }
    }
}
