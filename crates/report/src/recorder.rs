//! Samples of counters, in bounded memory however long a run takes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::seconds;

/// Number of stages in a section at most.
pub const MAX_LANES: usize = 4;

/// Number of samples of a section at most.
const MAX_SAMPLES: usize = 600;

/// Time between two samples at first. It doubles whenever the samples are thinned out.
const FIRST_INTERVAL: Duration = Duration::from_millis(100);

/// Counters of one stage since the beginning of the section.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneCount {
    /// Bytes that have passed.
    pub bytes: u64,
    /// Time for which this stage held up the others.
    #[serde(rename = "held_up", with = "seconds")]
    pub limiting: Duration,
}

/// Counters of all stages at one moment. They only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Time since the beginning of the section.
    #[serde(with = "seconds")]
    pub at: Duration,
    /// Of each stage, in the order of the bytes. Those beyond the stages of the section are zero.
    #[serde(rename = "stages")]
    pub lanes: [LaneCount; MAX_LANES],
    /// Tries that followed a failed one.
    pub retries: u64,
}

/// Samples of one section. Because the counters are totals, leaving out samples loses only detail.
/// As JSON it is the list of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Vec<Sample>", into = "Vec<Sample>")]
pub struct Recorder {
    samples: Vec<Sample>,
    interval: Duration,
    max: usize,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new(MAX_SAMPLES)
    }
}

impl From<Vec<Sample>> for Recorder {
    fn from(samples: Vec<Sample>) -> Self {
        Self { samples, ..Self::default() }
    }
}

impl From<Recorder> for Vec<Sample> {
    fn from(recorder: Recorder) -> Self {
        recorder.samples
    }
}

impl PartialEq for Recorder {
    fn eq(&self, other: &Self) -> bool {
        self.samples == other.samples
    }
}

impl Recorder {
    /// Creates a recorder for at most `max` samples, at least 4. The first one is zero.
    pub(crate) fn new(max: usize) -> Self {
        Self { samples: vec![Sample::default()], interval: FIRST_INTERVAL, max: max.max(4) }
    }

    /// Adds a sample. Drops every other sample when the list is full.
    pub fn push(&mut self, sample: Sample) {
        if self.samples.len() >= self.max {
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.interval = self.interval.saturating_mul(2);
        }
        self.samples.push(sample);
    }

    /// Returns the time until the next sample is due.
    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns the samples, oldest first.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(n: u64, bytes: u64) -> Sample {
        let lane = LaneCount { bytes, limiting: Duration::from_millis(n) };
        Sample { at: Duration::from_millis(100 * n), lanes: [lane; MAX_LANES], retries: n / 7 }
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_totals_are_kept(steps in proptest::collection::vec(0_u64..1 << 40, 0..3000), max in 4_usize..700) {
            let mut recorder = Recorder::new(max);
            let mut bytes = 0;
            let mut last = Sample::default();
            for (n, step) in steps.iter().enumerate() {
                bytes += step;
                last = sample(n as u64 + 1, bytes);
                recorder.push(last);
                prop_assert!(recorder.samples().len() <= max);
            }
            let samples = recorder.samples();
            prop_assert_eq!(samples[0], Sample::default());
            prop_assert_eq!(samples.last(), Some(&last));
            let sum: u64 = samples.windows(2).map(|pair| pair[1].lanes[0].bytes - pair[0].lanes[0].bytes).sum();
            prop_assert_eq!(sum, bytes);
            prop_assert!(samples.windows(2).all(|pair| pair[0].at < pair[1].at));
        }
    }

    #[test]
    fn a_full_recorder_halves_its_resolution() {
        let mut recorder = Recorder::new(8);
        for n in 1..=8 {
            recorder.push(sample(n, n));
        }
        assert_eq!(recorder.interval(), 2 * FIRST_INTERVAL);
        let kept: Vec<u64> = recorder.samples().iter().map(|s| s.lanes[0].bytes).collect();
        assert_eq!(kept, [0, 2, 4, 6, 8]);
    }
}
