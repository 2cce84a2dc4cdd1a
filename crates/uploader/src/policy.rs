//! Retry and time limits for a store. Plain numbers; nothing here waits.

use std::time::Duration;

/// Retry and time limits for one run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// Number of retries for each object or part. Stock default: 10.
    pub max_retries: u32,
    /// Minimum time for which a request is retried, whatever the number of tries: a shorter outage
    /// never fails a run. Zero: only the number of tries counts.
    pub retry_timeout: Duration,
    /// Maximum time for which requests are retried, and for which one may stall, before the store
    /// has responded for the first time: until then, a wrong address is more likely than an outage.
    /// Zero: no other limits than later.
    pub reach: Duration,
    /// Maximum pause between two tries, also of one that the store requests. Stock default: 300 s.
    pub max_backoff: Duration,
    /// Time limit without progress of a request. Stock default: 120 s. Zero: no limit.
    pub stall: Duration,
    /// HTTP statuses that are retried, besides the built-in ones.
    pub also_statuses: Vec<u16>,
    /// Transport errors that are retried besides the built-in ones, by libcurl's numbers. All but
    /// 60 (a certificate that cannot be verified) are built in.
    pub also_transport: Vec<u32>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_retries: 10,
            retry_timeout: Self::OUTAGE,
            reach: Self::REACH,
            max_backoff: Duration::from_secs(300),
            stall: Duration::from_secs(120),
            also_statuses: Vec::new(),
            also_transport: Vec::new(),
        }
    }
}

impl Policy {
    /// Default of [`Policy::retry_timeout`].
    const OUTAGE: Duration = Duration::from_secs(30 * 60);

    /// Default of [`Policy::reach`].
    const REACH: Duration = Duration::from_secs(60);

    /// Sets the number of retries.
    #[must_use]
    pub fn with_max_retries(mut self, max_retries: u32) -> Self {
        self.max_retries = max_retries;
        self
    }

    /// Sets the minimum time for which a request is retried.
    #[must_use]
    pub fn with_retry_timeout(mut self, retry_timeout: Duration) -> Self {
        self.retry_timeout = retry_timeout;
        self
    }

    /// Sets the maximum pause between two tries.
    #[must_use]
    pub fn with_max_backoff(mut self, max_backoff: Duration) -> Self {
        self.max_backoff = max_backoff;
        self
    }

    /// Sets the time limit without progress.
    #[must_use]
    pub fn with_stall(mut self, stall: Duration) -> Self {
        self.stall = stall;
        self
    }

    /// Returns the pause before try `retry` (from 1): two to the power of `retry` seconds plus up
    /// to one second of jitter, so that many clients do not retry in step; or what the store
    /// requested, if that is longer. It is at most [`Policy::max_backoff`]: no store may keep a run
    /// waiting for longer than its operator allows.
    #[must_use]
    pub fn pause(&self, retry: u32, asked: Option<Duration>, jitter: f64) -> Duration {
        let doubled = Duration::from_secs(1_u64.checked_shl(retry.min(20)).unwrap_or(u64::MAX));
        let own = doubled.saturating_add(Duration::from_secs_f64(jitter.clamp(0.0, 1.0)));
        asked.map_or(own, |asked| own.max(asked)).min(self.max_backoff)
    }

    /// Returns how much longer a request may be retried that has failed `tries` times, first
    /// `since` ago: `None` means without limit (tries are left), zero means not at all. `has_responded`:
    /// the store has responded before.
    #[must_use]
    pub fn patience(&self, tries: u32, since: Duration, has_responded: bool) -> Option<Duration> {
        let later = (tries > self.max_retries).then(|| self.retry_timeout.saturating_sub(since));
        if has_responded || self.reach.is_zero() {
            return later;
        }
        let now = self.reach.saturating_sub(since);
        Some(later.map_or(now, |later| later.min(now)))
    }

    /// Returns the time limit for the response after the last byte of a request. It is twice the
    /// stall: buffered data still has to arrive, and a store may have to join parts.
    #[must_use]
    pub fn answer(&self) -> Duration {
        self.stall.saturating_mul(2)
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
        assert_eq!(policy.pause(1, Some(Duration::from_secs(7)), 0.0), Duration::from_secs(7));
        assert_eq!(policy.pause(1, Some(Duration::from_secs(60)), 0.0), Duration::from_secs(10));
    }

    #[test]
    fn default_patience_is_not_below_the_stock_tools() {
        let policy = Policy::default();
        let total: Duration = (1..=policy.max_retries).map(|k| policy.pause(k, None, 0.0)).sum();
        // Stock: min(2^k s, 300 s) for k from 1 to 10.
        assert!(total >= Duration::from_secs(2 + 4 + 8 + 16 + 32 + 64 + 128 + 256 + 300 + 300));
    }

    #[test]
    fn both_the_number_of_tries_and_the_time_must_be_used_up() {
        let policy =
            Policy { max_retries: 2, retry_timeout: Duration::from_secs(60), ..Policy::default() };
        let seconds = Duration::from_secs;
        assert_eq!(policy.patience(2, seconds(1000), true), None);
        assert_eq!(policy.patience(3, seconds(50), true), Some(seconds(10)));
        assert_eq!(policy.patience(3, seconds(61), true), Some(Duration::ZERO));
        assert!(policy.answer() >= policy.stall);
    }

    #[test]
    fn a_store_that_never_responded_is_given_up_sooner() {
        let policy = Policy::default();
        let seconds = Duration::from_secs;
        assert_eq!(policy.patience(1, seconds(0), false), Some(seconds(60)));
        assert_eq!(policy.patience(5, seconds(61), false), Some(Duration::ZERO));
        assert_eq!(policy.patience(5, seconds(61), true), None);
        let no_retries =
            Policy { max_retries: 0, retry_timeout: Duration::ZERO, ..Policy::default() };
        assert_eq!(no_retries.patience(1, seconds(0), false), Some(Duration::ZERO));
        let unlimited = Policy { reach: Duration::ZERO, ..Policy::default() };
        assert_eq!(unlimited.patience(1, seconds(900), false), None);
    }
}
