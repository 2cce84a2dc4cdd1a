//! What can be wrong with the bytes of a stream.

use crate::{PathError, Printable, RelPath};

/// The input is not a well-formed stream of chunks.
///
/// `position` is always the offset in the stream of the chunk's first byte.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Something else stands where a chunk must begin: often text that a program wrote to stdout
    /// before or between the chunks.
    #[error("no chunk at stream offset {position}: expected XBSTCK01, found \"{found}\"")]
    Magic {
        /// Where the chunk should be.
        position: u64,
        /// What stands there: the first line of it, up to 80 bytes.
        found: Printable,
    },
    /// The input ended inside a chunk.
    #[error("the stream ends at offset {end}, inside the chunk at {position}{}", of(path.as_ref()))]
    Truncated {
        /// Where the cut chunk begins.
        position: u64,
        /// Where the input ended.
        end: u64,
        /// The chunk's file, as far as it is known.
        path: Option<RelPath>,
    },
    /// The stated length of the path is beyond the limit.
    #[error(
        "chunk at stream offset {position} announces a file name of {len} bytes, more than {max}"
    )]
    PathLength {
        /// Where the chunk begins.
        position: u64,
        /// The stated length.
        len: u32,
        /// The longest allowed.
        max: usize,
    },
    /// The name of the file, or the new name in a rename, is not acceptable.
    #[error("chunk at stream offset {position}: {source}")]
    Path {
        /// Where the chunk begins.
        position: u64,
        /// What is wrong with the name.
        source: PathError,
    },
    /// The type is unknown and not marked as ignorable.
    #[error("chunk at stream offset {position} has the unknown type 0x{type_byte:02x}")]
    UnknownType {
        /// Where the chunk begins.
        position: u64,
        /// The type as it came.
        type_byte: u8,
    },
    /// The stated length of the payload is beyond the limit.
    #[error("{path}: chunk at stream offset {position} announces {len} bytes, more than {max}")]
    PayloadLength {
        /// Where the chunk begins.
        position: u64,
        /// The chunk's file.
        path: RelPath,
        /// The stated length in bytes.
        len: u64,
        /// The limit in bytes; see [`Limits::max_payload`](crate::Limits).
        max: u64,
    },
    /// A sparse map has more entries than the limit allows, or none.
    #[error(
        "{path}: sparse chunk at stream offset {position} announces {entries} map entries, allowed are 1 to {max}"
    )]
    MapEntries {
        /// Where the chunk begins.
        position: u64,
        /// The chunk's file.
        path: RelPath,
        /// The stated number.
        entries: u32,
        /// The limit; see [`Limits::max_map_entries`](crate::Limits).
        max: u32,
    },
    /// The lengths in a sparse map do not add up to the length of the payload.
    #[error(
        "{path}: map of the sparse chunk at stream offset {position} adds up to {got} bytes, the payload has {expected}"
    )]
    MapSum {
        /// Where the chunk begins.
        position: u64,
        /// The chunk's file.
        path: RelPath,
        /// Length of the payload.
        expected: u64,
        /// Sum over the map.
        got: u64,
    },
    /// An entry without bytes stands before the last one of a sparse map.
    #[error(
        "{path}: map of the sparse chunk at stream offset {position} has an empty entry before the last"
    )]
    MapEmptyEntry {
        /// Where the chunk begins.
        position: u64,
        /// The chunk's file.
        path: RelPath,
    },
    /// The chunk would reach beyond the largest file offset.
    #[error(
        "{path}: chunk at stream offset {position} reaches beyond the largest file offset, from {offset}"
    )]
    OffsetTooLarge {
        /// Where the chunk begins.
        position: u64,
        /// The chunk's file.
        path: RelPath,
        /// The stated file offset.
        offset: u64,
    },
    /// The payload is not what the writer wrote.
    #[error(
        "{path}: checksum mismatch in the chunk for file offset {offset} (stream offset {position}): expected {expected:08x}, got {got:08x}"
    )]
    Checksum {
        /// Where the chunk begins.
        position: u64,
        /// The chunk's file.
        path: RelPath,
        /// The chunk's offset in the file.
        offset: u64,
        /// The stored CRC-32.
        expected: u32,
        /// The CRC-32 of what came.
        got: u32,
    },
}

impl DecodeError {
    /// Offset in the stream of the chunk that is wrong.
    #[must_use]
    pub fn position(&self) -> u64 {
        match self {
            Self::Magic { position, .. }
            | Self::Truncated { position, .. }
            | Self::PathLength { position, .. }
            | Self::Path { position, .. }
            | Self::UnknownType { position, .. }
            | Self::PayloadLength { position, .. }
            | Self::MapEntries { position, .. }
            | Self::MapSum { position, .. }
            | Self::MapEmptyEntry { position, .. }
            | Self::OffsetTooLarge { position, .. }
            | Self::Checksum { position, .. } => *position,
        }
    }

    /// The file in whose chunk the fault was found, if it got that far.
    #[must_use]
    pub fn path(&self) -> Option<&RelPath> {
        match self {
            Self::Magic { .. }
            | Self::PathLength { .. }
            | Self::Path { .. }
            | Self::UnknownType { .. } => None,
            Self::Truncated { path, .. } => path.as_ref(),
            Self::PayloadLength { path, .. }
            | Self::MapEntries { path, .. }
            | Self::MapSum { path, .. }
            | Self::MapEmptyEntry { path, .. }
            | Self::OffsetTooLarge { path, .. }
            | Self::Checksum { path, .. } => Some(path),
        }
    }
}

fn of(path: Option<&RelPath>) -> String {
    path.map(|path| format!(" of {path}")).unwrap_or_default()
}
