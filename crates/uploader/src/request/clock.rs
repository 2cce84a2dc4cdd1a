//! Time by a store's own clock. Ages of objects are computed from this clock, never from the local
//! one.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Last time that a store reported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heard {
    /// Seconds since 1970 by the store's clock.
    seconds: i64,
    /// Local time of that report.
    at: Instant,
}

impl Heard {
    /// A time that the store reported just now, in seconds since 1970.
    pub(crate) fn new(seconds: i64) -> Self {
        Self { seconds, at: Instant::now() }
    }

    /// Reads the `Date` header of a response (RFC 9110, 6.6.1).
    pub(crate) fn date(value: &str) -> Option<Self> {
        Some(Self::new(jiff::fmt::rfc2822::parse(value).ok()?.timestamp().as_second()))
    }

    /// That time, plus the time since.
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
        let heard = Heard::date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        assert_eq!(heard.seconds, 784_111_777);
        assert!((784_111_777..784_111_800).contains(&heard.now()));
        assert!(Heard::date("yesterday").is_none());
    }
}
