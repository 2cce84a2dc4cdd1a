//! Highest rate that a stage allows.

use super::mean::Mean;

/// Seconds of measurements that count.
const MEMORY: f64 = 0.25;
/// Seconds for which one measurement counts at most: a sender may prepare a batch for longer.
const LONGEST: f64 = 0.1;

/// Highest rate that a stage allows, in bytes per second; infinite while unknown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    rate: Mean,
    growth: f64,
}

impl Bound {
    /// Creates an unknown bound. Once it is known, it grows by this factor in each window in which the
    /// stage is not the limit, so that a change of circumstances is noticed.
    pub(super) fn unknown(growth: f64) -> Self {
        Self { rate: Mean::new(f64::INFINITY, MEMORY), growth }
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate.value()
    }

    pub(super) fn is_known(&self) -> bool {
        self.rate().is_finite()
    }

    /// The stage was the limit for so many seconds, at this rate.
    pub(super) fn measured(&mut self, rate: f64, seconds: f64) {
        self.rate.add(rate, seconds.min(LONGEST));
    }

    /// The stage may have been the limit, and allowed this rate.
    pub(super) fn no_less_than(&mut self, rate: f64) {
        self.rate.set(self.rate().max(rate));
    }

    /// The stage was not the limit, and allowed this rate.
    pub(super) fn at_least(&mut self, rate: f64) {
        self.rate.set(self.rate().max(rate) * self.growth);
    }
}
