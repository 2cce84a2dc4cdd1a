//! Highest rate that a stage allows.

use super::mean::Mean;

/// Seconds of measurements that a bound remembers: longer than the bursts of a link, and short enough
/// to follow a change.
const MEMORY: f64 = 0.25;
/// Most seconds for which one measurement counts. A long window may include a pause in which the
/// sender prepared a batch, so it must not replace all that is known.
const LONGEST: f64 = 0.1;
/// Bytes per second that no stage reaches. A bound that has grown beyond it says nothing any more.
const HIGHEST: f64 = 1e12;

/// Highest rate that a stage allows, in bytes per second; infinite while unknown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    rate: Mean,
    growth: f64,
}

impl Bound {
    /// Creates an unknown bound. Once known, it is multiplied by `growth` at each [`Self::at_least`].
    pub(super) fn unknown(growth: f64) -> Self {
        Self { rate: Mean::new(f64::INFINITY, MEMORY), growth }
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate.value()
    }

    pub(super) fn is_known(&self) -> bool {
        self.rate().is_finite()
    }

    /// The stage was the limit for `seconds`, and worked at `rate`.
    pub(super) fn measured(&mut self, rate: f64, seconds: f64) {
        self.rate.add(rate, seconds.min(LONGEST));
    }

    /// The stage worked at `rate`, and may have been the limit.
    pub(super) fn no_less_than(&mut self, rate: f64) {
        self.rate.set(self.rate().max(rate));
    }

    /// The stage worked at `rate`, and was not the limit. The bound grows, so that a change is noticed.
    pub(super) fn at_least(&mut self, rate: f64) {
        let grown = self.rate().max(rate) * self.growth;
        if grown < HIGHEST {
            self.rate.set(grown);
        } else {
            *self = Self::unknown(self.growth);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_that_was_not_measured_for_hours_is_measured_again() {
        let mut bound = Bound::unknown(1.02);
        bound.measured(1e8, 0.1);
        (0..40_000).for_each(|_| bound.at_least(0.0));
        (0..50).for_each(|_| bound.measured(1e8, 0.1));
        assert!((bound.rate() / 1e8 - 1.0).abs() < 0.01, "{}", bound.rate());
    }
}
