//! A donor's question: does the joiner have these blocks? Offset (8), length (4), length of the name (2), name, and a hash
//! of 16 bytes for each block. Integers are little-endian.

use xb_reader::RelPath;

use super::group::{BLOCK, Group, HeldBlocks};

/// Length of the hash of a block, in bytes.
const HASH_LEN: usize = 16;

/// Key of the hashes, made by the donor for one transfer: without it, blocks that collide cannot be prepared.
pub(crate) type Key = [u8; 32];

/// The hash of a block, of its length and bytes.
pub(crate) fn hash(key: &Key, block: &[u8]) -> [u8; HASH_LEN] {
    let hash = blake3::keyed_hash(key, block);
    let mut short = [0; HASH_LEN];
    short.copy_from_slice(&hash.as_bytes()[..HASH_LEN]);
    short
}

/// A group, and the hashes of its blocks as the donor has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) group: Group,
    /// One for each block.
    pub(crate) hashes: Vec<[u8; HASH_LEN]>,
}

impl Question {
    /// Asks about `group`, which has the bytes `data` on the donor.
    pub(crate) fn about(group: Group, data: &[u8], key: &Key) -> Self {
        let blocks = group.blocks().filter_map(|block| data.get(block));
        let hashes = blocks.map(|block| hash(key, block)).collect();
        Self { group, hashes }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let Group { path, offset, len } = &self.group;
        let path = path.as_bytes();
        let mut out = Vec::with_capacity(14 + path.len() + self.hashes.len() * HASH_LEN);
        out.extend(offset.to_le_bytes());
        // At most 1 MiB, and at most 511 bytes.
        out.extend(u32::try_from(*len).unwrap_or(0).to_le_bytes());
        out.extend(u16::try_from(path.len()).unwrap_or(0).to_le_bytes());
        out.extend(path);
        self.hashes.iter().for_each(|hash| out.extend(hash));
        out
    }

    /// Reads a question; `None` if it is none.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (offset, rest) = bytes.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (path_len, rest) = rest.split_first_chunk()?;
        let offset = u64::from_le_bytes(*offset);
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        let (path, hashes) = rest.split_at_checked(u16::from_le_bytes(*path_len).into())?;
        let end = offset.checked_add(len as u64)?;
        if len == 0 || len > Group::room(offset) || end > xb_reader::MAX_FILE_OFFSET {
            return None;
        }
        let named = RelPath::new(path).ok()?;
        let group = Group { path: named, offset, len };
        let (hashes, odd) = hashes.as_chunks::<HASH_LEN>();
        // A name has one form only, so that the donor finds the group again.
        let fits = odd.is_empty() && hashes.len() == group.blocks().count();
        (fits && group.path.as_bytes() == path).then(|| Self { group, hashes: hashes.to_vec() })
    }

    /// Returns which blocks `old` holds: what the joiner has read of the group's place in its old file, which may be less
    /// than the group. Only whole blocks count: a donor could find out the bytes of a short one by trying them.
    pub(crate) fn compare(&self, old: &[u8], key: &Key) -> HeldBlocks {
        let mut have = HeldBlocks::default();
        for (number, (block, wanted)) in self.group.blocks().zip(&self.hashes).enumerate() {
            let is_whole = block.len() as u64 == BLOCK;
            if is_whole && old.get(block).is_some_and(|block| hash(key, block) == *wanted) {
                have.add(number);
            }
        }
        have
    }
}
