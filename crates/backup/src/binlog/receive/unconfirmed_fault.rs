//! A finding about a server's logs counts once a second connection has made it, too.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::archive_error::ArchiveError;

/// A log that the server could not read for this time is passed over, behind a named gap.
const UNREAD_LIMIT: Duration = Duration::from_secs(600);

/// The finding of the last connection.
#[derive(Debug, Default)]
pub(super) struct UnconfirmedFault(Option<String>);

impl UnconfirmedFault {
    /// Notes what was found; returns whether it is what was found the last time.
    pub(super) fn is_found_again(&mut self, what: String) -> bool {
        self.0.replace(what) == self.0
    }
}

/// Logs that the server cannot read, and since when. Memory and descriptors come back; a bad sector or a removed file does
/// not, and the logs behind it may be purged meanwhile.
#[derive(Debug, Default)]
pub(super) struct UnreadableLogs(BTreeMap<String, Instant>);

impl UnreadableLogs {
    /// Notes the error of a connection. Returns the log if only such errors were found for [`UNREAD_LIMIT`]. `is_behind`:
    /// the connection had passed over another one. The time of that one begins anew, so that it is asked for again before
    /// it is passed over once more: both may come back.
    pub(super) fn lasting(
        &mut self,
        error: &ArchiveError,
        is_behind: bool,
        now: Instant,
    ) -> Option<String> {
        let ArchiveError::Unread { log, .. } = error else {
            self.0.clear();
            return None;
        };
        let since = self.0.entry(log.clone()).or_insert(now);
        let is_lasting = now.saturating_duration_since(*since) >= UNREAD_LIMIT;
        if is_lasting && !is_behind {
            *since = now;
        }
        is_lasting.then(|| log.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_connection_finds_counts_once_another_one_finds_it() {
        let mut finding = UnconfirmedFault::default();
        let found = ["damaged: 1", "damaged: 2", "other", "other", "other"];
        let again = found.map(|what| finding.is_found_again(what.to_owned()));
        assert_eq!(again, [false, false, false, true, true]);
    }

    #[test]
    fn a_log_that_stays_unread_is_a_gap_and_one_that_was_for_moments_is_not() {
        let begin = Instant::now();
        let error = |log: &str| ArchiveError::Unread { log: log.to_owned(), what: String::new() };
        let mut unread = UnreadableLogs::default();
        let mut after = |error: &ArchiveError, seconds| {
            unread.lasting(error, false, begin + Duration::from_secs(seconds))
        };
        let limit = UNREAD_LIMIT.as_secs();
        assert_eq!(after(&error("bin.1"), 0), None);
        assert_eq!(after(&error("bin.1"), limit - 1), None);
        // It was sent again meanwhile.
        assert_eq!(after(&ArchiveError::Ended, limit), None);
        assert_eq!(after(&error("bin.1"), limit), None);
        assert_eq!(after(&error("bin.2"), 2 * limit), None);
        assert_eq!(after(&error("bin.2"), 3 * limit), Some("bin.2".to_owned()));
        assert_eq!(after(&error("bin.2"), 3 * limit), None);
    }

    #[test]
    fn of_several_logs_that_stay_unread_each_is_passed_over() {
        let begin = Instant::now();
        let mut unread = UnreadableLogs::default();
        let mut after = |log: &str, is_behind, seconds| {
            let error = ArchiveError::Unread { log: log.to_owned(), what: String::new() };
            unread.lasting(&error, is_behind, begin + Duration::from_secs(seconds))
        };
        let (limit, first, next) = (UNREAD_LIMIT.as_secs(), "bin.1", "bin.2");
        assert_eq!(after(first, false, 0), None);
        assert_eq!(after(first, false, limit), Some(first.to_owned()));
        // What follows may be unread for a moment.
        assert_eq!(after(next, true, limit), None);
        assert_eq!(after(first, false, 2 * limit - 1), None);
        assert_eq!(after(first, false, 2 * limit), Some(first.to_owned()));
        assert_eq!(after(next, true, 2 * limit), Some(next.to_owned()));
        assert_eq!(after("bin.3", true, 2 * limit), None);
        assert_eq!(after(first, false, 3 * limit), Some(first.to_owned()));
        assert_eq!(after(next, true, 3 * limit), Some(next.to_owned()));
        assert_eq!(after("bin.3", true, 3 * limit), Some("bin.3".to_owned()));
    }
}
