//! The objects of a packed backup that a listing shows to be sound.

use std::collections::BTreeSet;
use std::ops::Range;

/// Numbers of the objects that are there with the right size.
#[derive(Debug, Clone)]
pub(super) enum IntactObjects {
    All(Range<u64>),
    Some(BTreeSet<u64>),
}

impl IntactObjects {
    pub(super) fn is_all(&self) -> bool {
        matches!(self, Self::All(_))
    }

    pub(super) fn count(&self) -> u64 {
        match self {
            Self::All(all) => all.end,
            Self::Some(numbers) => numbers.len() as u64,
        }
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        match self {
            Self::All(all) => all.contains(&number),
            Self::Some(numbers) => numbers.contains(&number),
        }
    }

    pub(super) fn into_numbers(self) -> impl Iterator<Item = u64> {
        let (all, some) = match self {
            Self::All(all) => (all, BTreeSet::new()),
            Self::Some(numbers) => (0..0, numbers),
        };
        all.chain(some)
    }
}
