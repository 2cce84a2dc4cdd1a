//! A rate limit in bytes per second, shared by all connections.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// Maximum that a thread that wakes late may catch up; longer idle time is not credited.
const MAX_CATCH_UP: Duration = Duration::from_millis(60);

/// Schedules the times at which blocks may be sent.
#[derive(Debug)]
pub(crate) struct Rate {
    bytes_a_second: NonZeroU64,
    free_from: Option<Instant>,
}

impl Rate {
    pub(crate) fn new(bytes_a_second: NonZeroU64) -> Self {
        Self { bytes_a_second, free_from: None }
    }

    /// Reserves the time from which `bytes` may be sent, in turn with all other callers. That time
    /// may be in the past.
    pub(crate) fn reserve(&mut self, bytes: usize, now: Instant) -> Instant {
        let nanos = bytes as u128 * 1_000_000_000 / u128::from(self.bytes_a_second.get());
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let earliest = now.checked_sub(MAX_CATCH_UP).unwrap_or(now);
        let start = self.free_from.map_or(now, |at| at.max(earliest));
        self.free_from = Some(start.checked_add(takes).unwrap_or(start));
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_each_other_at_the_rate_and_idle_time_is_hardly_credit() {
        let mut rate = Rate::new(NonZeroU64::new(1 << 20).unwrap());
        let start = Instant::now();
        assert_eq!(rate.reserve(1 << 20, start), start);
        assert_eq!(rate.reserve(1 << 19, start), start + Duration::from_secs(1));
        assert_eq!(rate.reserve(1, start), start + Duration::from_millis(1500));
        let later = start + Duration::from_secs(60);
        assert_eq!(rate.reserve(1 << 20, later), later - MAX_CATCH_UP);
        assert_eq!(rate.reserve(1, later), later - MAX_CATCH_UP + Duration::from_secs(1));
    }
}
