//! Contents of a progress display: counters, and the phase.

use std::time::Duration;

/// Counters at one moment. They never decrease; `slowest_stage` may change freely.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Bytes done so far, in all phases.
    pub done: u64,
    /// Total bytes of the work, in the same unit, if known. Not shown if there is a phase.
    pub total: Option<u64>,
    /// Current phase, if the work has phases.
    pub phase: Option<PhaseSnapshot>,
    /// Bytes stored after packing and compression, if the work stores data.
    pub stored: Option<u64>,
    /// Requests that were sent again.
    pub retries: u64,
    /// Stage that slows down the others, if there is a clear one.
    pub slowest_stage: Option<String>,
}

/// A phase of the work at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PhaseSnapshot {
    /// Short name, one word.
    pub name: String,
    /// Its number, from 1.
    pub number: u32,
    /// Number of phases. If there is only one, its name and number are not shown.
    pub of: u32,
    /// Bytes that it has done.
    pub done: u64,
    /// Bytes that it will have done at its end, if known.
    pub total: Option<u64>,
    /// Time since its begin.
    pub elapsed: Duration,
    /// If a program runs in it: time since the program last wrote a line, or since its start.
    pub silent: Option<Duration>,
}
