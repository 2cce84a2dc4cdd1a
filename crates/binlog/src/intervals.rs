//! Sets of numbers as ranges: the algebra under GTID sets.

use std::ops::Range;

/// A set of numbers, as half-open ranges: in order, not empty, and neither overlapping nor touching.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Intervals(Vec<Range<u64>>);

impl Intervals {
    /// Unites any ranges.
    pub(crate) fn of(mut ranges: Vec<Range<u64>>) -> Self {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_unstable_by_key(|range| range.start);
        let mut united: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match united.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => united.push(range),
            }
        }
        Self(united)
    }

    pub(crate) fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        let after = self.0.partition_point(|range| range.start <= number);
        let range = after.checked_sub(1).and_then(|at| self.0.get(at));
        range.is_some_and(|range| range.contains(&number))
    }

    /// Adds a number below `u64::MAX`. Fast if it continues the last range.
    pub(crate) fn insert(&mut self, number: u64) {
        let end = number.saturating_add(1);
        match self.0.last_mut() {
            Some(last) if last.end == number => last.end = end,
            Some(last) if last.end > number => {
                if !self.contains(number) {
                    self.0.push(number..end);
                    *self = Self::of(std::mem::take(&mut self.0));
                }
            }
            _ => self.0.push(number..end),
        }
    }

    pub(crate) fn unite(&mut self, other: &Self) {
        let mut all = std::mem::take(&mut self.0);
        all.extend_from_slice(&other.0);
        *self = Self::of(all);
    }

    /// Returns the numbers that are in `self` and not in `other`.
    pub(crate) fn without(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        let mut holes = other.0.iter().peekable();
        for range in &self.0 {
            let mut from = range.start;
            while let Some(hole) = holes.peek().filter(|hole| hole.start < range.end) {
                if from < hole.start {
                    left.push(from..hole.start);
                }
                from = from.max(hole.end);
                if hole.end > range.end {
                    // This hole may reach into the next range.
                    break;
                }
                holes.next();
            }
            if from < range.end {
                left.push(from..range.end);
            }
        }
        Self(left)
    }
}
