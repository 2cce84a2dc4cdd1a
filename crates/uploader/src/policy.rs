//! How patient we are with a store. Plain numbers; nothing here waits.

use std::time::Duration;

/// Retry and time limits for one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Tries after the first one, for each object or part. Stock default: 10.
    pub max_retries: u32,
    /// Longest pause between two tries. Stock default: 300 s.
    pub max_backoff: Duration,
    /// How long a request may bring nothing forward. Stock default: 120 s. Zero: no limit.
    pub stall: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_retries: 10,
            max_backoff: Duration::from_secs(300),
            stall: Duration::from_secs(120),
        }
    }
}

/// Slowest transfer that still counts as one, in bytes a second.
const SLOWEST: u64 = 64 * 1024;

impl Policy {
    /// The pause before try `retry` (from 1): two to the power of `retry` seconds plus up to one
    /// second of jitter, so that many clients do not come back in step; never below what the
    /// store asked for, never above [`Policy::max_backoff`] unless it did.
    #[must_use]
    pub fn pause(&self, retry: u32, asked: Option<Duration>, jitter: f64) -> Duration {
        let doubled = Duration::from_secs(1_u64.checked_shl(retry.min(20)).unwrap_or(u64::MAX));
        let own = doubled
            .saturating_add(Duration::from_secs_f64(jitter.clamp(0.0, 1.0)))
            .min(self.max_backoff);
        asked.map_or(own, |asked| own.max(asked))
    }

    /// The time after which a request that carries `bytes` counts as stalled.
    ///
    /// A total that grows with the size, so that a slow but steady transfer is never cut off.
    #[must_use]
    pub fn deadline(&self, bytes: u64) -> Option<Duration> {
        if self.stall.is_zero() {
            return None;
        }
        Some(self.stall.saturating_add(Duration::from_secs(bytes / SLOWEST)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_respect_retry_after() {
        let policy = Policy { max_backoff: Duration::from_secs(10), ..Policy::default() };
        assert_eq!(policy.pause(1, None, 0.0), Duration::from_secs(2));
        assert_eq!(policy.pause(3, None, 1.0), Duration::from_secs(9));
        assert_eq!(policy.pause(9, None, 0.0), Duration::from_secs(10));
        assert_eq!(policy.pause(u32::MAX, None, f64::NAN.max(0.0)), Duration::from_secs(10));
        assert_eq!(policy.pause(1, Some(Duration::from_secs(60)), 0.0), Duration::from_secs(60));
    }

    #[test]
    fn default_patience_is_not_below_the_stock_tools() {
        let policy = Policy::default();
        let total: Duration = (1..=policy.max_retries).map(|k| policy.pause(k, None, 0.0)).sum();
        // Stock: min(2^k s, 300 s) for k from 1 to 10.
        assert!(total >= Duration::from_secs(2 + 4 + 8 + 16 + 32 + 64 + 128 + 256 + 300 + 300));
    }

    #[test]
    fn a_steady_mebibyte_a_second_is_never_a_stall() {
        let policy = Policy::default();
        for size in [1_u64 << 20, 64 << 20, 5 << 30] {
            assert!(policy.deadline(size).unwrap() > Duration::from_secs(size >> 20));
        }
        assert_eq!(Policy { stall: Duration::ZERO, ..policy }.deadline(1), None);
    }
}
