//! Phases of a run, such as the fetching and the preparing of a restore.

use std::time::{Duration, Instant};

/// What the progress of a phase is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of the stream, or of a log.
    Bytes,
    /// Things with a plural, such as `tables`.
    Things(&'static str),
}

/// One phase, current or complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// What the run does in this phase.
    pub name: &'static str,
    /// Done in this phase.
    pub done: u64,
    /// All that is to be done, if it is known.
    pub total: Option<u64>,
    /// Unit of `done` and `total`.
    pub unit: Unit,
    /// Time since the phase began, or the duration of a complete one.
    pub lasted: Duration,
    /// Whether the phase has ended with success.
    pub complete: bool,
}

/// All phases so far, and the number expected in all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PhasesSeen {
    /// The phases in order; only the last one may be incomplete.
    pub phases: Vec<Phase>,
    /// Number of phases that the run will have.
    pub of: usize,
}

/// State of the phases of one run.
#[derive(Debug, Default)]
pub(super) struct Phases {
    begun: Vec<Begun>,
    of: usize,
}

#[derive(Debug)]
struct Begun {
    name: &'static str,
    total: Option<u64>,
    unit: Unit,
    /// Bytes of the run at the beginning of the phase.
    base: u64,
    /// Replaces the bytes of the run, once it is given.
    done: Option<u64>,
    at: Instant,
    /// Duration, and what was done, of a complete phase.
    end: Option<(Duration, u64)>,
}

impl Phases {
    pub(super) fn expect(&mut self, more: usize) {
        self.of = self.of.max(self.begun.len() + more);
    }

    pub(super) fn begin(&mut self, name: &'static str, total: Option<u64>, unit: Unit, bytes: u64) {
        self.complete(bytes);
        let done = (unit != Unit::Bytes).then_some(0);
        let at = Instant::now();
        self.begun.push(Begun { name, total, unit, base: bytes, done, at, end: None });
        self.of = self.of.max(self.begun.len());
    }

    pub(super) fn total(&mut self, total: u64) {
        if let Some(last) = self.begun.last_mut() {
            last.total = Some(total);
        }
    }

    /// Progress never goes back, whatever a program writes.
    pub(super) fn done(&mut self, done: u64) {
        if let Some(last) = self.begun.last_mut() {
            last.done = last.done.max(Some(done));
        }
    }

    /// Ends the current phase: what it knows of has been done.
    pub(super) fn complete(&mut self, bytes: u64) {
        if let Some(last) = self.begun.last_mut().filter(|last| last.end.is_none()) {
            let done = last.total.unwrap_or_else(|| last.done_at(bytes));
            last.end = Some((last.at.elapsed(), done));
        }
    }

    pub(super) fn seen(&self, bytes: u64) -> PhasesSeen {
        let phases = self.begun.iter().map(|phase| {
            let now = || (phase.at.elapsed(), phase.done_at(bytes));
            let (lasted, done) = phase.end.unwrap_or_else(now);
            Phase {
                name: phase.name,
                // Until the end, nothing may look complete.
                done: phase.total.map_or(done, |total| done.min(total)),
                total: phase.total,
                unit: phase.unit,
                lasted,
                complete: phase.end.is_some(),
            }
        });
        PhasesSeen { phases: phases.collect(), of: self.of }
    }
}

impl Begun {
    fn done_at(&self, bytes: u64) -> u64 {
        self.done.unwrap_or_else(|| bytes.saturating_sub(self.base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_follow_each_other_and_count_their_own_bytes() {
        let mut phases = Phases::default();
        phases.expect(3);
        phases.begin("find", None, Unit::Bytes, 0);
        phases.begin("fetch", Some(100), Unit::Bytes, 7);
        let seen = phases.seen(47);
        assert_eq!((seen.of, seen.phases.len()), (3, 2));
        assert_eq!((seen.phases[0].done, seen.phases[0].complete), (7, true));
        assert_eq!((seen.phases[1].done, seen.phases[1].complete), (40, false));
        // More than was stated never shows as more than all.
        assert_eq!(phases.seen(1000).phases[1].done, 100);
        phases.begin("check", Some(3), Unit::Things("tables"), 90);
        let seen = phases.seen(95);
        assert_eq!((seen.phases[1].done, seen.phases[1].complete), (100, true));
        assert_eq!(seen.phases[2].done, 0);
        phases.done(2);
        phases.done(1);
        assert_eq!(phases.seen(95).phases[2].done, 2);
        phases.complete(95);
        phases.complete(95);
        assert_eq!((phases.seen(95).phases[2].done, phases.seen(95).of), (3, 3));
    }

    #[test]
    fn expectations_of_nested_work_do_not_add_up() {
        let mut phases = Phases::default();
        phases.expect(4);
        phases.begin("list", None, Unit::Bytes, 0);
        phases.expect(3);
        assert_eq!(phases.seen(0).of, 4);
        phases.expect(5);
        assert_eq!(phases.seen(0).of, 6);
    }
}
