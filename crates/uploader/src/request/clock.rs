//! Time by a store's own clock. Ages of objects are computed from this clock, never from the local
//! one.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Last time that a store reported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreClock {
    /// Seconds since 1970 by the store's clock.
    seconds: i64,
    /// Local time of that report.
    at: Instant,
}

impl StoreClock {
    /// Reads the `Date` header of a response that has just arrived (RFC 9110, 6.6.1).
    pub(crate) fn date(value: &str) -> Option<Self> {
        let seconds = jiff::fmt::rfc2822::parse(value).ok()?.timestamp().as_second();
        Some(Self { seconds, at: Instant::now() })
    }

    /// The time of an object, in seconds since 1970, whose write was sent at `sent`; `None` if the store states no time:
    /// then it reads as 1970, or as an earlier year.
    pub(crate) fn written(modified: i64, sent: Instant) -> Option<Self> {
        (modified > 0).then_some(Self { seconds: modified, at: sent })
    }

    /// Returns the time on the store's clock now: the one that was read, plus the time since.
    pub(crate) fn now(self) -> i64 {
        self.seconds.saturating_add(i64::try_from(self.at.elapsed().as_secs()).unwrap_or(0))
    }
}

/// Seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_an_answer_counts() {
        let store_clock = StoreClock::date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        assert_eq!(store_clock.seconds, 784_111_777);
        assert!((784_111_777..784_111_800).contains(&store_clock.now()));
        assert!(StoreClock::date("yesterday").is_none());
    }
}
