//! Trials of a codec while frames are stored.
//!
//! Near the rate at which a link and the processors limit a run together, predictions are wrong by more than
//! the difference between storing and the fastest codec: storing is slower than either limit alone would
//! allow; and a probe takes longer than a codec in use, because the kernel counts the interrupts of the busy
//! link as time of whichever thread runs, and its copies leave less of the memory's speed. So storing is not
//! predicted faster than it was, and from time to time the best codec is used for a moment, which measures it.

use std::time::Duration;

use super::mean::Mean;

/// Duration of a trial: enough frames to measure a codec.
const TRIAL: Duration = Duration::from_millis(300);
/// Time from the beginning of the first trial to the next. Each further time is twice as long, because the
/// codec was slower.
const PAUSE: Duration = Duration::from_secs(2);
/// A codec that is predicted to reach less than this share of the rate of storing is not tried.
const NEAR: f64 = 0.85;
/// Seconds of measurements that the rate of storing remembers.
const MEMORY: f64 = 0.5;
/// Seconds of measurements until it is known.
const LEAST: f64 = 0.25;
/// Growth of that rate in a second in which frames are not stored, so that a change is noticed.
const GROWTH: f64 = 0.02;

/// What storing has reached, and when a codec is tried instead.
#[derive(Debug)]
pub(super) struct Trials {
    /// Bytes per second.
    storing: Mean,
    /// Seconds of all its measurements.
    measured: f64,
    /// End of the current trial.
    end: Duration,
    /// Earliest begin of the next one.
    next: Duration,
    pause: Duration,
}

impl Trials {
    pub(super) fn new() -> Self {
        Self {
            storing: Mean::new(f64::INFINITY, MEMORY),
            measured: 0.0,
            end: Duration::ZERO,
            next: Duration::ZERO,
            pause: PAUSE,
        }
    }

    /// Learns the rate at which stored frames have left for some seconds.
    pub(super) fn stored(&mut self, rate: f64, seconds: f64) {
        self.storing.add(rate, seconds);
        self.measured += seconds;
    }

    /// Learns that frames were compressed for some seconds.
    pub(super) fn compressed(&mut self, seconds: f64) {
        self.storing.set(self.storing.value() * (GROWTH * seconds).exp());
    }

    /// Highest rate of storing in bytes per second; infinite until it is known.
    pub(super) fn storing(&self) -> f64 {
        if self.measured < LEAST { f64::INFINITY } else { self.storing.value() }
    }

    /// Whether the rung in use is being tried.
    pub(super) fn is_running(&self, now: Duration) -> bool {
        now < self.end
    }

    /// While frames are stored, begins a trial of the codec with the highest prediction, if it is time for one
    /// and the codec may be faster. Both rates are in plain bytes per second.
    pub(super) fn begin(&mut self, now: Duration, predicted: f64) -> bool {
        let storing = self.storing();
        let is_due = now >= self.next && storing.is_finite() && predicted >= NEAR * storing;
        if is_due {
            self.end = now + TRIAL;
            self.next = now + self.pause;
            self.pause = self.pause.saturating_mul(2);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn known() -> Trials {
        let mut trials = Trials::new();
        trials.stored(1e9, LEAST);
        trials
    }

    #[test]
    fn a_codec_is_tried_only_if_it_may_be_faster() {
        assert!(!Trials::new().begin(SECOND, 2e9), "nothing is known about storing");
        assert!(!known().begin(SECOND, 0.84e9));
        assert!(known().begin(SECOND, 0.86e9));
    }

    #[test]
    fn trials_become_rare() {
        let mut trials = known();
        let begun: Vec<u64> =
            (0..100_000).filter(|at| trials.begin(Duration::from_millis(*at), 1e9)).collect();
        assert_eq!(begun, [0, 2000, 6000, 14_000, 30_000, 62_000]);
        assert!(trials.is_running(Duration::from_millis(62_299)));
        assert!(!trials.is_running(Duration::from_millis(62_300)));
    }

    #[test]
    fn the_rate_of_storing_is_forgotten_slowly() {
        let mut trials = known();
        (0..100).for_each(|_| trials.compressed(0.1));
        assert!((trials.storing() / 1e9 - 1.22).abs() < 0.01, "{}", trials.storing());
        (0..20).for_each(|_| trials.stored(0.9e9, 0.1));
        assert!((trials.storing() / 0.9e9 - 1.0).abs() < 0.01, "{}", trials.storing());
    }
}
