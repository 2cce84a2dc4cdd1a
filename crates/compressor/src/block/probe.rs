//! A cheap test of data before a slow codec. Encrypted tables and data that is already compressed
//! would take such a codec the most time, and save nothing.

use std::fmt;

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

/// Approximate number of bytes that are counted.
const SAMPLE: usize = 16 << 10;
/// Length of the runs in which they are sampled.
const RUN: usize = 64;
/// With fewer bytes the sample would be too small, and compressing is cheap.
const LEAST: usize = 4096;

/// Test for data that no codec compresses, such as encrypted or compressed tables.
pub struct RandomnessTest {
    table: CompressTable,
}

impl Default for RandomnessTest {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RandomnessTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RandomnessTest").finish_non_exhaustive()
    }
}

impl RandomnessTest {
    /// Creates a test. Use one per worker thread: it allocates nothing from block to block.
    #[must_use]
    pub fn new() -> Self {
        Self { table: CompressTable::large() }
    }

    /// Length that `out` must have in [`RandomnessTest::is_random`] for `plain_len` plain bytes.
    #[must_use]
    pub fn room(plain_len: usize) -> usize {
        get_maximum_output_size(plain_len)
    }

    /// Returns whether all byte values are about equally frequent, so that coding single bytes would save
    /// less than one percent, and LZ4 finds no repeats either.
    ///
    /// The count uses a sample of the bytes; LZ4, which is very fast on data that does not shrink,
    /// gets all of them.
    pub fn is_random(&mut self, plain: &[u8], out: &mut [u8]) -> bool {
        Self::is_flat(plain)
            && compress_into_with_table(plain, out, &mut self.table)
                .is_ok_and(|len| len >= plain.len())
    }

    /// Returns whether all byte values are about equally frequent in a sample. With data in which a codec
    /// finds no repeats, that means it is random.
    #[must_use]
    pub fn is_flat(plain: &[u8]) -> bool {
        if plain.len() < LEAST {
            return false;
        }
        let mut counts = [0_u64; 256];
        // An odd number of runs: else they would be at the same places of every page.
        let step = (plain.len() / SAMPLE) | 1;
        for &byte in plain.chunks(RUN).step_by(step).flatten() {
            if let Some(count) = counts.get_mut(usize::from(byte)) {
                *count += 1;
            }
        }
        // The chance that two bytes are equal, times 256, is 1 for random bytes; the sample adds
        // 256 / n by comparing bytes with themselves. 5 % above that is 0.04 bits per byte.
        let n: u64 = counts.iter().sum();
        let same: u64 = counts.iter().map(|count| count * count).sum();
        same * 256 * 20 < (n * n + n * 256) * 21
    }
}

#[cfg(test)]
mod tests {
    use xb_testkit::data::{noise, pages};

    use super::*;

    fn is_random(plain: &[u8]) -> bool {
        RandomnessTest::new().is_random(plain, &mut vec![0; RandomnessTest::room(plain.len())])
    }

    #[test]
    fn noise_is_seen() {
        for (seed, len) in [(1, 4096), (2, 65_536), (3, 1 << 20), (4, 12_345_678)] {
            assert!(is_random(&noise(seed, len)), "{len}");
        }
        assert!(!is_random(&noise(5, 4095)), "too few to tell");
    }

    #[test]
    fn shrinking_data_is_not_given_up() {
        let random = noise(6, 1 << 20);
        assert!(!is_random(&pages(1, 1 << 20)));
        // All values equally frequent, but in order.
        assert!(!is_random(&(0..1 << 20).map(|n: u32| n.to_le_bytes()[0]).collect::<Vec<_>>()));
        // Seven bits of eight; a repeat; one sixteenth zeros.
        assert!(!is_random(&random.iter().map(|byte| byte & 0x7f).collect::<Vec<_>>()));
        assert!(!is_random(&[&random[..50_000], &random[..50_000]].concat()));
        assert!(!is_random(&[&random[..], &[0; 1 << 16]].concat()));
    }
}
