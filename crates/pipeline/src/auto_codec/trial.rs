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
const LEAST: f64 = 0.2;
/// Growth of that rate in a second in which frames are not stored, so that a change is noticed.
const GROWTH: f64 = 0.02;

/// Throughput without a codec, and the time of the next trial of one.
#[derive(Debug)]
pub(super) struct Trials {
    /// Bytes per second; each measurement weighs as many seconds as it took.
    storing: Mean,
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
            end: Duration::ZERO,
            next: Duration::ZERO,
            pause: PAUSE,
        }
    }

    /// Learns the rate at which stored frames have left for some seconds.
    pub(super) fn stored(&mut self, rate: f64, seconds: f64) {
        self.storing.add(rate, seconds);
    }

    /// Learns that frames were compressed for some seconds.
    pub(super) fn compressed(&mut self, seconds: f64) {
        self.storing.set(self.storing.value() * (GROWTH * seconds).exp());
    }

    /// Highest rate of storing in bytes per second; infinite until it is known.
    pub(super) fn storing(&self) -> f64 {
        if self.storing.weight() < LEAST { f64::INFINITY } else { self.storing.value() }
    }

    /// Returns whether the rung in use is being tried.
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
    use super::super::controller::Controller;
    use super::super::levels::{Encoding, Probe, Rung};
    use super::super::sample::Sample;
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

    const MIB: usize = 1 << 20;
    const STEP: Duration = Duration::from_millis(10);

    /// Frames shrink to half. `used` is the time of snappy in seconds.
    fn encoding(rung: Rung, used: f64) -> Encoding {
        let times = [0.0, 1.0, 1.1, 1.8, 2.1, 3.1, 3.6, 6.0, 7.8, 10.0, 11.8];
        let seconds = used * times[rung.index()];
        let stored = if rung == Rung::STORED { MIB } else { MIB / 2 };
        Encoding { rung, plain: MIB, stored, seconds }
    }

    /// Two workers and a link of 1 MiB/ms. Snappy takes 2.6 ms in the first second, then 1.6 ms in use and
    /// 2.2 ms in a probe. Returns for how long frames are stored, of a minute.
    #[allow(clippy::cast_possible_truncation, reason = "the numbers are small")]
    fn stored() -> Duration {
        let mut controller = Controller::new(2, MIB as u64, None);
        let (mut read, mut produced, mut sent) = (0.0, 0.0, 0.0);
        let mut stored = Duration::ZERO;
        for step in 1..=6000 {
            let used = if step < 100 { 2.6e-3 } else { 1.6e-3 };
            let mut rung = Rung::STORED;
            for _ in 0..4 {
                let choice = controller.choose();
                rung = choice.rung;
                let chosen = encoding(rung, used);
                controller.encoded(&chosen, 1e-5);
                if let Some(probe) = choice.probe {
                    let encoding = encoding(probe, used * 1.4);
                    let seconds = 2.0 * encoding.seconds;
                    controller.compared(&Probe { encoding, seconds }, &chosen);
                }
            }
            let speed = 2e-3 / encoding(rung, used).seconds.max(1e-9);
            stored += STEP * u32::from(rung == Rung::STORED);
            // While frames are stored, the link has always more to send.
            match rung == Rung::STORED {
                true => (read, sent, produced) = (read + 10.0, sent + 10.0, sent + 30.0),
                false => {
                    read += 10.0 * speed;
                    produced = f64::max(produced, sent) + 5.0 * speed;
                    sent = f64::min(produced, sent + 10.0);
                }
            }
            let [read, produced, sent] =
                [read, produced, sent].map(|mib| (mib * MIB as f64) as u64);
            let at = STEP * step;
            let source_wait = Duration::ZERO;
            controller.observe(Sample { at, read, produced, sent, source_wait }, || None);
        }
        stored
    }

    #[test]
    fn a_codec_is_used_although_probes_take_longer() {
        let stored = stored();
        assert!((SECOND / 2..20 * SECOND).contains(&stored), "{stored:?}");
    }
}
