//! Takes blocks that the joiner has out of a chunk, and completes the chunk again.
//!
//! A chunk without them is a sparse chunk of the xbstream format, with the flag *ignorable*, which no writer of backups
//! sets: so it cannot be taken for a file with holes. Its map is that of the group and the joiner's reply, and nothing else.

use std::io;

use xb_reader::{ChunkHead, ChunkKind, ChunkWriter, FLAG_IGNORABLE, MapEntry, RelPath};

use super::group::{Group, HeldBlocks};

/// Offset of the flags in a chunk.
const FLAGS: usize = 8;

/// Returns whether this chunk lacks blocks that the joiner has.
pub(crate) fn is_cut(head: &ChunkHead) -> bool {
    matches!(head.kind, ChunkKind::Sparse { .. }) && head.flags & FLAG_IGNORABLE != 0
}

/// The holes and pieces of a chunk that lacks what the joiner has.
fn map_of(group: &Group, have: HeldBlocks) -> Vec<MapEntry> {
    let mut map: Vec<MapEntry> = Vec::new();
    let mut skip = 0;
    for (number, block) in group.blocks().enumerate() {
        // A group has at most 1 MiB.
        let len = u32::try_from(block.len()).unwrap_or(u32::MAX);
        if have.has(number) {
            skip += len;
        } else {
            match map.last_mut() {
                Some(last) if skip == 0 => last.len += len,
                _ => map.push(MapEntry { skip, len }),
            }
            skip = 0;
        }
    }
    if skip > 0 {
        map.push(MapEntry { skip, len: 0 });
    }
    map
}

/// Returns the head of a payload chunk, whose bytes follow.
///
/// # Errors
/// None for a part of a chunk that was read.
pub(crate) fn head(path: &RelPath, offset: u64, len: u64, crc: u32) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    ChunkWriter::new(&mut head).payload_head(path, offset, len, crc)?;
    Ok(head)
}

/// Returns the head of the chunk of a group that is sent whole. `crc`: the CRC-32 of its bytes.
///
/// # Errors
/// None for a group of a chunk that was read.
pub(crate) fn whole_head(group: &Group, crc: u32) -> io::Result<Vec<u8>> {
    head(&group.path, group.offset, group.len as u64, crc)
}

/// Returns the chunk of a group without the blocks that the joiner has, of which there are some.
///
/// # Errors
/// None for a group of a chunk that was read.
pub(crate) fn write(group: &Group, have: HeldBlocks, data: &[u8]) -> io::Result<Vec<u8>> {
    let mut rest = Vec::with_capacity(data.len().saturating_sub(have.bytes(group)));
    for (_, block) in group.blocks().enumerate().filter(|(number, _)| !have.has(*number)) {
        rest.extend_from_slice(data.get(block).unwrap_or_default());
    }
    let mut out = Vec::new();
    ChunkWriter::new(&mut out).sparse(&group.path, group.offset, &map_of(group, have), &rest)?;
    if let Some(flags) = out.get_mut(FLAGS) {
        *flags |= FLAG_IGNORABLE;
    }
    Ok(out)
}

/// Returns whether `head` is that of this group's chunk, without exactly these blocks.
pub(crate) fn fits(head: &ChunkHead, group: &Group, have: HeldBlocks) -> bool {
    let is_there = |offset: u64| head.path == group.path && offset == group.offset;
    match &head.kind {
        ChunkKind::Sparse { offset, map, .. } => {
            is_cut(head) && is_there(*offset) && **map == map_of(group, have)[..]
        }
        _ => false,
    }
}
