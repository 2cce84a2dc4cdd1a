//! The check that copied objects are those that were stored.

use crate::objects::checksums::{ObjectsRoot, Summing};
use crate::objects::classic::ClassicFiles;
use crate::objects::range::Range;

/// An object to copy: its key below both folders, and its size.
pub(super) type Object = (String, u64);

/// The known checksums of the objects.
pub(super) enum Sums {
    /// By object number.
    Packed(Vec<u64>),
    /// By file and object number.
    Classic(ClassicFiles),
}

impl Sums {
    pub(super) fn of(&self, key: &str) -> Option<u64> {
        match self {
            Self::Packed(sums) => sums.get(key.parse::<usize>().ok()?).copied(),
            Self::Classic(files) => files.sum_of(key),
        }
    }
}

/// Checks that objects, which arrive in ranges, are those that were stored.
pub(super) enum Check {
    /// Each object against its own checksum; the expected ones are a stack with the next on top.
    Each { expected: Vec<(String, u64)>, wrong: Vec<String>, summing: Summing },
    /// All objects together, against the root digest.
    Whole(ObjectsRoot),
    /// No checksum is known.
    Nothing,
}

impl Check {
    pub(super) fn each(known: &Sums, objects: &[Object]) -> Self {
        let objects = objects.iter().rev().filter(|(_, size)| *size > 0);
        let expected = objects.filter_map(|(key, _)| Some((key.clone(), known.of(key)?)));
        let summing = Summing::default();
        Self::Each { expected: expected.collect(), wrong: Vec::new(), summing }
    }

    /// `all`: no object is skipped.
    pub(super) fn whole(all: bool) -> Self {
        match all {
            true => Self::Whole(ObjectsRoot::default()),
            false => Self::Nothing,
        }
    }

    pub(super) fn range(&mut self, range: &Range, sum: u64) {
        match self {
            Self::Each { expected, wrong, summing } => {
                if let Some((_, crc)) = summing.range(range, sum)
                    && let Some((key, expected)) = expected.pop()
                    && expected != crc
                {
                    wrong.push(key);
                }
            }
            Self::Whole(root) => {
                root.range(range, sum);
            }
            Self::Nothing => {}
        }
    }

    /// The first damaged object.
    pub(super) fn wrong(&self) -> Option<&str> {
        match self {
            Self::Each { wrong, .. } => wrong.first().map(String::as_str),
            _ => None,
        }
    }

    pub(super) fn finish(self, expected: &str) -> Result<(), String> {
        match self {
            Self::Whole(root) => root.compare(expected),
            _ => Ok(()),
        }
    }
}
