//! Writes table files without their zeros, so that holes remain.
//!
//! Page-compressed tables of MySQL and MariaDB have a hole after each page. The hole passed through
//! the compressor as zeros, and MariaDB writes zeros even without a compressor. Skipping all blocks
//! of zeros creates the same holes as walking over the pages would, needs no page size or type,
//! never writes blocks only to punch them out again, and reads back the same in any case. Only
//! tablespaces are treated this way: other files may be preallocated on purpose.

use xb_reader::{PartialFile, RelPath, TargetError};

/// Size of a block that can be a hole, as on ext4 and XFS. If blocks are larger, there are fewer
/// holes.
const BLOCK: usize = 4096;
const ZEROS: [u8; BLOCK] = [0; BLOCK];

/// Returns whether zeros in a file of this name may become holes.
pub(crate) fn may_have_holes(name: &RelPath) -> bool {
    name.as_bytes().ends_with(b".ibd")
}

/// Writes `bytes` except blocks of zeros. The range must not have been written before.
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

/// Returns the parts of `bytes` to write: index and length. Blocks count from the start of the
/// file. At both ends, a partial block of zeros may be skipped as well; the rest of that block is
/// judged separately.
fn runs(offset: u64, bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        // Less than a block, so the conversion cannot fail.
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
        // Blocks count from the start of the file.
        assert_eq!(runs(1, &bytes[..4097]), [(4095, 2)]);
        assert_eq!(runs(4095, &bytes[4095..4100]), [(1, 4)]);
        assert_eq!(runs(7, &[]), []);
    }
}
