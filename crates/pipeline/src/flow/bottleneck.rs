//! Which stage holds the others back: one judgement for the display and for `--compress=auto`.

use std::collections::VecDeque;
use std::time::Duration;

use super::observer::Wait;

/// Part of the time for which the reader waits for a source that is the limit.
const SOURCE_WAITS: f64 = 0.5;
/// Time span of a display's judgement.
const SPAN: Duration = Duration::from_secs(10);

/// How long the first stage has waited for each of the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    /// For bytes of the source.
    pub source: Duration,
    /// For a worker.
    pub workers: Duration,
    /// For memory, which returns when bytes have been sent.
    pub sink: Duration,
}

impl Waits {
    /// Whether the source is the limit, with these waits in a window of this length.
    #[must_use]
    pub fn source_limits(&self, window: Duration) -> bool {
        self.source.as_secs_f64() > SOURCE_WAITS * window.as_secs_f64()
    }

    /// What held the first stage back, with these waits in a window of this length.
    #[must_use]
    pub fn slowest(&self, window: Duration) -> Option<Wait> {
        match () {
            () if self.source_limits(window) => Some(Wait::Source),
            () if self.workers.max(self.sink).is_zero() => None,
            () if self.workers > self.sink => Some(Wait::Workers),
            () => Some(Wait::Sink),
        }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            source: self.source.saturating_sub(earlier.source),
            workers: self.workers.saturating_sub(earlier.workers),
            sink: self.sink.saturating_sub(earlier.sink),
        }
    }
}

/// Judges the last seconds of a run.
#[derive(Debug, Default)]
pub struct Bottleneck {
    moments: VecDeque<(Duration, Waits)>,
}

impl Bottleneck {
    /// Takes the waits at a moment of the run, and returns what holds it back.
    pub fn read(&mut self, at: Duration, waits: Waits) -> Option<Wait> {
        self.moments.push_back((at, waits));
        // Keep one moment older than the span as its beginning.
        while self.moments.get(1).is_some_and(|(then, _)| *then + SPAN <= at) {
            self.moments.pop_front();
        }
        let (since, before) = self.moments.front()?;
        waits.since(before).slowest(at.saturating_sub(*since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(source: u64, workers: u64, sink: u64) -> Waits {
        let [source, workers, sink] = [source, workers, sink].map(Duration::from_millis);
        Waits { source, workers, sink }
    }

    #[test]
    fn the_limit_is_where_the_reader_waits() {
        let window = Duration::from_secs(1);
        assert_eq!(waits(0, 0, 0).slowest(window), None);
        assert_eq!(waits(600, 0, 100).slowest(window), Some(Wait::Source));
        assert_eq!(waits(400, 0, 100).slowest(window), Some(Wait::Sink));
        assert_eq!(waits(0, 200, 100).slowest(window), Some(Wait::Workers));
    }

    #[test]
    fn only_the_last_seconds_count() {
        let mut judge = Bottleneck::default();
        let mut at = |seconds, waits| judge.read(Duration::from_secs(seconds), waits);
        assert_eq!(at(0, waits(0, 0, 0)), None);
        assert_eq!(at(100, waits(99_000, 0, 0)), Some(Wait::Source));
        assert_eq!(at(110, waits(99_000, 0, 9_000)), Some(Wait::Sink));
        assert_eq!(at(120, waits(99_000, 0, 9_000)), None);
        assert!(judge.moments.len() <= 2);
    }
}
