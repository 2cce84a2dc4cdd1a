//! Zeros are not written to table files: a hole stays.
//!
//! Page-compressed tables, MySQL's and MariaDB's, have a hole behind each page, which came as zeros
//! through the compressor, and from MariaDB even without one. To leave out all blocks of zeros makes
//! the same holes as a walk over the pages would, needs to know no page size or type, never writes
//! what is then punched out again, and reads back the same in any case. Only table spaces are
//! treated so: other files may be preallocated with intent.

use xb_reader::{PartialFile, RelPath, TargetError};

/// Blocks that can be a hole: those of ext4 and XFS. Where blocks are larger, fewer holes come of
/// it.
const BLOCK: usize = 4096;
const ZEROS: [u8; BLOCK] = [0; BLOCK];

/// Whether the file of this name may have holes for zeros.
pub(crate) fn may_have_holes(name: &RelPath) -> bool {
    name.as_bytes().ends_with(b".ibd")
}

/// Writes `bytes`, but for blocks of zeros. Nothing may have been written there before.
pub(crate) fn write_with_holes(
    file: &PartialFile,
    offset: u64,
    bytes: &[u8],
) -> Result<(), TargetError> {
    let mut from = 0;
    for (at, len) in runs(offset, bytes) {
        debug_assert!(from <= at);
        from = at + len;
        file.write_at(offset + at as u64, &bytes[at..from])?;
    }
    Ok(())
}

/// The parts of `bytes` that are to be written: index and length. Blocks count from the start of
/// the file; the parts of a block at both ends may be left out as well, its other parts decide.
fn runs(offset: u64, bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        // Less than a block, so it fits.
        let into = usize::try_from((offset + at as u64) % BLOCK as u64).unwrap_or(0);
        let len = (BLOCK - into).min(bytes.len() - at);
        if bytes[at..at + len] != ZEROS[..len] {
            match runs.last_mut() {
                Some((start, run)) if *start + *run == at => *run += len,
                _ => runs.push((at, len)),
            }
        }
        at += len;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_leave_out_blocks_of_zeros() {
        let mut bytes = vec![0; 5 * 4096];
        assert_eq!(runs(0, &bytes), []);
        bytes[4096] = 1;
        bytes[8191 + 4096] = 1;
        assert_eq!(runs(0, &bytes), [(4096, 8192)]);
        bytes[4 * 4096] = 1;
        assert_eq!(runs(0, &bytes), [(4096, 8192), (4 * 4096, 4096)]);
        // Blocks are those of the file.
        assert_eq!(runs(1, &bytes[..4097]), [(4095, 2)]);
        assert_eq!(runs(4095, &bytes[4095..4100]), [(1, 4)]);
        assert_eq!(runs(7, &[]), []);
    }
}
