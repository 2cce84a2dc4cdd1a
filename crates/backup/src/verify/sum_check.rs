//! Compares the checksums of a backup's objects with those that were stored.

use xb_pipeline::RootDigest;

use super::intact_objects::IntactObjects;
use crate::objects::checksums::Summing;
use crate::objects::range::Range;

/// Compares the checksums of objects one by one.
pub(super) struct SumCheck {
    /// Number and checksum of the remaining objects, the next one last.
    expected: Vec<(u64, u64)>,
    pub(super) root: RootDigest,
    pub(super) wrong: Vec<(u64, u64, u64)>,
    summing: Summing,
}

impl SumCheck {
    pub(super) fn new(known: Option<&[u64]>, sound: &IntactObjects) -> Self {
        let known = (0..).zip(known.unwrap_or_default().iter().copied());
        let mut expected: Vec<(u64, u64)> =
            known.filter(|(number, _)| sound.contains(*number)).collect();
        expected.reverse();
        let (root, summing) = (RootDigest::default(), Summing::default());
        Self { expected, root, wrong: Vec::new(), summing }
    }

    pub(super) fn range(&mut self, range: &Range, sum: u64) {
        let Some((len, crc)) = self.summing.range(range, sum) else { return };
        self.root.object(len, crc);
        if let Some((number, expected)) = self.expected.pop()
            && expected != crc
        {
            self.wrong.push((number, crc, expected));
        }
    }
}
