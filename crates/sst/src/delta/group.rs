//! The unit of a question: consecutive bytes of one file.

use std::ops::Range;

use xb_reader::RelPath;

/// Length of a block in bytes. Blocks begin at multiples of it, whatever the page size: equality is of bytes.
pub(crate) const BLOCK: u64 = 16 << 10;
/// Maximum number of blocks in a group.
pub(crate) const MAX_BLOCKS: usize = 64;

/// Bytes of a file that lie in one chunk of the backup, at most 1 MiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// Name of the file in the backup.
    pub(crate) path: RelPath,
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Length in bytes, at least 1 and at most [`Group::room`].
    pub(crate) len: usize,
}

impl Group {
    /// Maximum length of a group at `offset`.
    pub(crate) fn room(offset: u64) -> usize {
        let room = MAX_BLOCKS as u64 * BLOCK - offset % BLOCK;
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// The blocks, relative to the group. The first and the last one may be short.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (offset, len) = (self.offset, self.len);
        let mut start = 0_usize;
        std::iter::from_fn(move || {
            let left = BLOCK - offset.wrapping_add(start as u64) % BLOCK;
            let end = len.min(start.saturating_add(usize::try_from(left).unwrap_or(usize::MAX)));
            let block = start..end;
            start = end;
            (!block.is_empty()).then_some(block)
        })
    }
}

/// Which blocks of a group the joiner has: the first block is the lowest bit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HeldBlocks(pub(crate) u64);

impl HeldBlocks {
    pub(crate) fn has(self, block: usize) -> bool {
        u32::try_from(block)
            .is_ok_and(|block| self.0.checked_shr(block).is_some_and(|n| n & 1 == 1))
    }

    pub(crate) fn add(&mut self, block: usize) {
        self.0 |= u32::try_from(block).ok().and_then(|block| 1_u64.checked_shl(block)).unwrap_or(0);
    }

    /// Reads a reply about `group`; `None` if it is none.
    pub(crate) fn read(reply: &[u8], group: &Group) -> Option<Self> {
        let have = Self(u64::from_le_bytes(reply.try_into().ok()?));
        let blocks = u32::try_from(group.blocks().count()).ok()?;
        (have.0.checked_shr(blocks).unwrap_or(0) == 0).then_some(have)
    }

    pub(crate) fn write(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// Bytes of `group` that the joiner has.
    pub(crate) fn bytes(self, group: &Group) -> usize {
        let blocks = group.blocks().enumerate().filter(|(number, _)| self.has(*number));
        blocks.map(|(_, block)| block.len()).sum()
    }
}
