//! Mean of the latest measurements.

/// Weighted mean that forgets old measurements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mean {
    value: f64,
    /// Weight of all measurements so far, at most `memory`.
    weight: f64,
    memory: f64,
}

impl Mean {
    /// Creates a mean without measurements. Its value is `value` until the first one. All count by their
    /// weight until their weights add up to `memory`; then a new one replaces a share of
    /// `weight / memory`.
    pub(super) fn new(value: f64, memory: f64) -> Self {
        Self { value, weight: 0.0, memory }
    }

    pub(super) fn value(&self) -> f64 {
        self.value
    }

    /// Weight of all measurements so far, at most the memory.
    pub(super) fn weight(&self) -> f64 {
        self.weight
    }

    /// Adds a measurement.
    pub(super) fn add(&mut self, value: f64, weight: f64) {
        self.weight = (self.weight + weight).min(self.memory);
        if weight >= self.weight {
            self.value = value;
        } else {
            self.value += (value - self.value) * weight / self.weight;
        }
    }

    /// Replaces the value, and keeps its weight.
    pub(super) fn set(&mut self, value: f64) {
        self.value = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_measurements_count_by_their_weight() {
        let mut mean = Mean::new(f64::INFINITY, 10.0);
        mean.add(4.0, 1.0);
        assert!((mean.value() - 4.0).abs() < 1e-9);
        mean.add(8.0, 3.0);
        assert!((mean.value() - 7.0).abs() < 1e-9);
    }

    #[test]
    fn new_measurements_replace_old_ones() {
        let mut mean = Mean::new(0.0, 10.0);
        (0..100).for_each(|_| mean.add(1.0, 1.0));
        mean.add(2.0, 1.0);
        assert!((mean.value() - 1.1).abs() < 1e-9);
        mean.add(5.0, 20.0);
        assert!((mean.value() - 5.0).abs() < 1e-9);
    }
}
