//! Time that a worker takes for a step.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Measures one step of the thread that started it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stopwatch {
    clock: ClockId,
    begun: Duration,
}

impl Stopwatch {
    /// Starts with a clock that never goes back: the time that passes, or in which the thread runs.
    pub(super) fn start(clock: ClockId) -> Self {
        Self { clock, begun: read(clock) }
    }

    /// Returns the seconds since the start.
    pub(super) fn seconds(&self) -> f64 {
        read(self.clock).saturating_sub(self.begun).as_secs_f64()
    }
}

fn read(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}
