//! Search through all interleavings of a model.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

/// Searches breadth-first from `start`. Returns the first world that is `violated`, and the number of worlds seen.
pub fn search<W: Clone + Eq + Hash>(
    start: W,
    is_violated: impl Fn(&W) -> bool,
    successors: impl Fn(&W) -> Vec<W>,
) -> (Option<W>, usize) {
    let mut seen = HashSet::from([start.clone()]);
    let mut waiting = VecDeque::from([start]);
    while let Some(world) = waiting.pop_front() {
        if is_violated(&world) {
            return (Some(world), seen.len());
        }
        for next in successors(&world) {
            if seen.insert(next.clone()) {
                waiting.push_back(next);
            }
        }
    }
    (None, seen.len())
}
