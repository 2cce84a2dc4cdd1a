//! Time that a worker takes for a step.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Clock of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkClock {
    /// Time that passes, which includes waiting for a processor.
    Passing,
    /// Time in which the thread ran. Only where the load of the machine is known as well.
    Running,
}

/// Measures one step of the thread that started it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stopwatch {
    Passing(Instant),
    Running(Duration),
}

impl Stopwatch {
    pub(crate) fn start(clock: WorkClock) -> Self {
        match clock {
            WorkClock::Passing => Self::Passing(Instant::now()),
            WorkClock::Running => Self::Running(running()),
        }
    }

    pub(crate) fn seconds(&self) -> f64 {
        match self {
            Self::Passing(begin) => begin.elapsed().as_secs_f64(),
            Self::Running(begin) => running().saturating_sub(*begin).as_secs_f64(),
        }
    }
}

fn running() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
