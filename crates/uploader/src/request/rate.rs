//! Limit of bytes per second, shared by all transfers.

use std::num::NonZeroU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Maximum size of a piece of a body that is sent at once.
pub(crate) const SLICE: usize = 64 << 10;
/// Minimum size of a piece, however low the rate.
const LEAST: u64 = 1 << 10;
/// Minimum number of pieces per second, so that a low rate is smooth and servers do not consider
/// the connection dead.
const PIECES: u64 = 16;

/// Assigns the moments at which bytes may move. Unused time is not saved up: the rate is never
/// exceeded by more than one piece.
#[derive(Debug)]
pub(crate) struct RateLimit {
    bytes_a_second: NonZeroU64,
    free_from: Mutex<Option<Instant>>,
}

impl RateLimit {
    pub(crate) fn new(bytes_a_second: NonZeroU64) -> Self {
        Self { bytes_a_second, free_from: Mutex::new(None) }
    }

    /// Returns the size of the pieces to move.
    pub(crate) fn slice(&self) -> usize {
        let piece = (self.bytes_a_second.get() / PIECES).max(LEAST);
        usize::try_from(piece).unwrap_or(SLICE).min(SLICE)
    }

    /// Reserves a turn for `bytes` after all earlier reservations, and returns its start.
    pub(crate) fn reserve(&self, bytes: usize) -> Instant {
        let rate = u128::from(self.bytes_a_second.get());
        let nanos = bytes as u128 * 1_000_000_000 / rate;
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let mut free_from = self.free_from.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let start = free_from.map_or(now, |at| at.max(now));
        *free_from = Some(start.checked_add(takes).unwrap_or(start));
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_together_keep_to_one_rate_and_nothing_is_saved_up() {
        let limit = RateLimit::new(NonZeroU64::new(1 << 20).unwrap());
        let start = Instant::now();
        // An idle minute gives no credit.
        tokio::time::advance(Duration::from_secs(60)).await;
        let begin = Instant::now();
        let mut last = begin;
        for _ in 0..160 {
            last = limit.reserve(64 << 10);
        }
        // 10 MiB at 1 MiB/s: the last piece is sent after the 159 before it.
        let took = last - begin;
        assert!(
            took > Duration::from_millis(9930) && took < Duration::from_millis(9940),
            "{took:?}"
        );
        assert!(begin > start);
    }

    #[test]
    fn pieces_are_small_when_it_is_slow() {
        let slice = |rate| RateLimit::new(NonZeroU64::new(rate).unwrap()).slice();
        assert_eq!(slice(u64::MAX), SLICE);
        assert_eq!(slice(160 << 10), 10 << 10);
        assert_eq!(slice(1), 1 << 10);
    }
}
