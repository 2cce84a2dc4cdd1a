//! Search through all interleavings of a model.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hash, Hasher};

use twox_hash::XxHash3_128;

/// The world before each one that was seen; nothing is before the first. Both are digests, so that millions
/// of worlds need little memory.
type Seen = HashMap<u128, Option<u128>, BuildHasherDefault<OfDigest>>;

/// Searches breadth-first from `start`. Returns the shortest way to a world that is `violated`, from the first
/// world to that one, and the number of worlds seen.
pub fn search<W: Clone + Hash>(
    start: W,
    is_violated: impl Fn(&W) -> bool,
    successors: impl Fn(&W) -> Vec<W>,
) -> (Option<Vec<W>>, usize) {
    let mut digests = Digests::default();
    let first = digests.of(&start);
    let mut seen = Seen::from_iter([(first, None)]);
    let mut waiting = VecDeque::from([(first, start.clone())]);
    while let Some((here, world)) = waiting.pop_front() {
        if is_violated(&world) {
            return (Some(way(start, here, &seen, successors)), seen.len());
        }
        for next in successors(&world) {
            let there = digests.of(&next);
            if let Entry::Vacant(entry) = seen.entry(there) {
                entry.insert(Some(here));
                waiting.push_back((there, next));
            }
        }
    }
    (None, seen.len())
}

/// Worlds on the way from the first one to the one with this digest.
fn way<W: Hash>(start: W, last: u128, seen: &Seen, successors: impl Fn(&W) -> Vec<W>) -> Vec<W> {
    let mut back: Vec<_> = std::iter::successors(Some(last), |digest| seen[digest]).collect();
    // The start is there.
    back.pop();
    let (mut worlds, mut digests) = (vec![start], Digests::default());
    for wanted in back.into_iter().rev() {
        let next = successors(&worlds[worlds.len() - 1]);
        worlds.extend(next.into_iter().find(|world| digests.of(world) == wanted));
    }
    worlds
}

/// Makes digests of worlds, in room that is used again. Two worlds with one digest would count as one: with 128 bits,
/// and without an adversary, that does not happen.
#[derive(Default)]
struct Digests(Bytes);

impl Digests {
    fn of(&mut self, world: &impl Hash) -> u128 {
        self.0.0.clear();
        world.hash(&mut self.0);
        XxHash3_128::oneshot(&self.0.0)
    }
}

/// The bytes that a hash is made of.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Hasher for Bytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("only the bytes are used")
    }
}

/// A digest is as good as its hash.
#[derive(Default)]
struct OfDigest(u64);

impl Hasher for OfDigest {
    #[expect(clippy::cast_possible_truncation, reason = "one half is enough for a table")]
    fn write_u128(&mut self, digest: u128) {
        self.0 = digest as u64;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only digests are hashed");
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_way_is_found() {
        // From each number to the next one and to its double.
        let next = |n: &u32| vec![n + 1, n * 2];
        let (way, seen) = search(1, |n| *n == 24, next);
        assert_eq!(way.unwrap(), [1, 2, 3, 6, 12, 24]);
        assert!(seen > 10);
        let (way, seen) = search(1, |n| *n == 24, |n| vec![n * 2 % 64]);
        assert_eq!((way, seen), (None, 7));
    }
}
