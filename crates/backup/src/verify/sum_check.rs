//! Compares the checksums of a backup's objects with those that were stored.

use super::intact_objects::IntactObjects;
use crate::objects::checksums::ObjectsRoot;
use crate::objects::range::Range;

/// Compares the checksums of objects one by one.
pub(super) struct SumCheck {
    /// Number and checksum of the remaining objects, the next one last.
    expected: Vec<(u64, u64)>,
    pub(super) root: ObjectsRoot,
    pub(super) wrong: Vec<(u64, u64, u64)>,
}

impl SumCheck {
    pub(super) fn new(known: Option<&[u64]>, sound: &IntactObjects) -> Self {
        let known = (0..).zip(known.unwrap_or_default().iter().copied());
        let mut expected: Vec<(u64, u64)> =
            known.filter(|(number, _)| sound.contains(*number)).collect();
        expected.reverse();
        Self { expected, root: ObjectsRoot::default(), wrong: Vec::new() }
    }

    pub(super) fn range(&mut self, range: &Range, sum: u64) {
        if let Some(crc) = self.root.range(range, sum)
            && let Some((number, expected)) = self.expected.pop()
            && expected != crc
        {
            self.wrong.push((number, crc, expected));
        }
    }
}
