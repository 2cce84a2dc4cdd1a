//! Measurements of a run for the controller.

use std::time::Duration;

/// Totals of a run at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    /// Time since the start.
    pub(crate) at: Duration,
    /// Bytes read from the source.
    pub(crate) read: u64,
    /// Bytes out of the workers, for the link.
    pub(crate) produced: u64,
    /// Bytes that have left.
    pub(crate) sent: u64,
    /// Time for which the reader has waited for the source.
    pub(crate) source_wait: Duration,
}

impl Sample {
    pub(super) fn is_later(&self, earlier: &Self, least: Duration) -> bool {
        self.at.saturating_sub(earlier.at) >= least
    }

    pub(super) fn seconds_since(&self, earlier: &Self) -> f64 {
        self.at.saturating_sub(earlier.at).as_secs_f64().max(1e-9)
    }

    pub(super) fn read_rate(&self, earlier: &Self) -> f64 {
        self.read.saturating_sub(earlier.read) as f64 / self.seconds_since(earlier)
    }

    pub(super) fn sent_rate(&self, earlier: &Self) -> f64 {
        self.sent.saturating_sub(earlier.sent) as f64 / self.seconds_since(earlier)
    }
}
