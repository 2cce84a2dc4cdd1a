//! Time for which each stage held up the others, whichever threads waited.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Stage that the pipeline waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Bytes from the producer or the store.
    Source = 0,
    /// A worker.
    Workers = 1,
    /// The last stage: on the way into the store, for memory, which is returned when bytes were sent;
    /// on the way back, for whatever takes the bytes.
    Sink = 2,
}

/// All stages, in the order of the bytes.
pub(crate) const WAITS: [Wait; 3] = [Wait::Source, Wait::Workers, Wait::Sink];

/// Attributes every moment to one stage at most: of the stages that something waits for, to the last
/// one in the order of the bytes. A stage that is itself blocked by a later one is not slow.
#[derive(Debug, Default)]
pub(crate) struct StageWaits(Mutex<Waits>);

#[derive(Debug, Clone, Copy, Default)]
struct Waits {
    /// Number of threads that wait for each stage.
    waiting: [u32; 3],
    held: [Duration; 3],
    /// Time up to which `held` counts.
    counted: Option<Instant>,
}

impl Waits {
    /// Counts the time up to `now`.
    fn count(&mut self, now: Instant) {
        let counted = self.counted.unwrap_or(now);
        let blamed = WAITS.into_iter().rev().find(|what| self.waiting[*what as usize] > 0);
        if let Some(what) = blamed {
            self.held[what as usize] += now.saturating_duration_since(counted);
        }
        self.counted = Some(counted.max(now));
    }
}

impl StageWaits {
    /// Begins a wait.
    pub(crate) fn begin(&self, what: Wait, now: Instant) {
        let mut waits = self.waits();
        waits.count(now);
        waits.waiting[what as usize] += 1;
    }

    /// Ends a wait that was begun.
    pub(crate) fn end(&self, what: Wait, now: Instant) {
        let mut waits = self.waits();
        waits.count(now);
        let waiting = &mut waits.waiting[what as usize];
        *waiting = waiting.saturating_sub(1);
    }

    /// Returns for how long each stage has held up the others.
    pub(crate) fn held(&self, now: Instant) -> [Duration; 3] {
        let mut waits = *self.waits();
        waits.count(now);
        waits.held
    }

    fn waits(&self) -> MutexGuard<'_, Waits> {
        // The counters are only added to, so a panic elsewhere leaves them usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_stage_that_a_later_one_blocks_holds_up_nothing() {
        let (waits, begin) = (StageWaits::default(), Instant::now());
        // The reader waits for a worker for ten seconds, and the packer for the store from the third
        // to the ninth.
        waits.begin(Wait::Workers, begin);
        waits.begin(Wait::Sink, begin + 2 * S);
        waits.end(Wait::Sink, begin + 8 * S);
        waits.end(Wait::Workers, begin + 10 * S);
        // Then the reader waits for the source, and no other thread waits.
        waits.begin(Wait::Source, begin + 12 * S);
        assert_eq!(waits.held(begin + 13 * S), [S, 4 * S, 6 * S]);
        waits.end(Wait::Source, begin + 15 * S);
        assert_eq!(waits.held(begin + 99 * S), [3 * S, 4 * S, 6 * S]);
    }

    #[test]
    fn two_threads_that_wait_for_one_stage_count_once() {
        let (waits, begin) = (StageWaits::default(), Instant::now());
        waits.begin(Wait::Sink, begin);
        waits.begin(Wait::Sink, begin + S);
        waits.end(Wait::Sink, begin + 2 * S);
        assert_eq!(waits.held(begin + 3 * S), [Duration::ZERO, Duration::ZERO, 3 * S]);
        waits.end(Wait::Sink, begin + 4 * S);
        // Threads may arrive in another order than they looked at the clock.
        waits.begin(Wait::Source, begin + 3 * S);
        waits.end(Wait::Source, begin + 5 * S);
        assert_eq!(waits.held(begin + 9 * S), [S, Duration::ZERO, 4 * S]);
    }
}
