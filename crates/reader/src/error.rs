//! Errors in the bytes of a stream.

use crate::{PathError, Printable, RelPath};

/// The input is not a well-formed stream of chunks.
///
/// `position` is always the offset in the stream of the chunk's first byte.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// There is something other than a chunk: often text that a program wrote to stdout before or
    /// between the chunks.
    #[error("not a chunk at stream offset {position}: expected XBSTCK01, found \"{found}\"")]
    Magic {
        /// Offset at which the chunk should begin.
        position: u64,
        /// The text in its place: its first line, up to 80 bytes.
        found: Printable,
    },
    /// The input ended inside a chunk.
    #[error("the stream ends at offset {end}, inside the chunk at {position}{}", of(path.as_ref()))]
    Truncated {
        /// Offset of the incomplete chunk.
        position: u64,
        /// Offset at which the input ended.
        end: u64,
        /// The chunk's file, as far as it is known.
        path: Option<RelPath>,
    },
    /// The stated length of the path exceeds the limit.
    #[error(
        "chunk at stream offset {position} has a file name of {len} bytes, more than the limit of {max}"
    )]
    PathLength {
        /// Offset of the chunk.
        position: u64,
        /// The stated length.
        len: u32,
        /// The longest allowed.
        max: usize,
    },
    /// The name of the file, or the new name in a rename, is not allowed.
    #[error("chunk at stream offset {position}: {source}")]
    Path {
        /// Offset of the chunk.
        position: u64,
        /// Defect of the name.
        source: PathError,
    },
    /// The type is unknown and not marked as ignorable.
    #[error("chunk at stream offset {position} has the unknown type 0x{type_byte:02x}")]
    UnknownType {
        /// Offset of the chunk.
        position: u64,
        /// The type as stored.
        type_byte: u8,
    },
    /// The stated length of the payload exceeds the limit.
    #[error(
        "{path}: chunk at stream offset {position} has {len} bytes, more than the limit of {max}"
    )]
    PayloadLength {
        /// Offset of the chunk.
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
        "{path}: sparse chunk at stream offset {position} has {entries} map entries, allowed range 1 to {max}"
    )]
    MapEntries {
        /// Offset of the chunk.
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
        "{path}: the map of the sparse chunk at stream offset {position} adds up to {got} bytes, but the payload has {expected}"
    )]
    MapSum {
        /// Offset of the chunk.
        position: u64,
        /// The chunk's file.
        path: RelPath,
        /// Length of the payload.
        expected: u64,
        /// Total of the map.
        got: u64,
    },
    /// A sparse map has an entry without bytes before the last one.
    #[error(
        "{path}: the map of the sparse chunk at stream offset {position} has an empty entry before the last"
    )]
    MapEmptyEntry {
        /// Offset of the chunk.
        position: u64,
        /// The chunk's file.
        path: RelPath,
    },
    /// The chunk would reach beyond the largest file offset.
    #[error(
        "{path}: chunk at stream offset {position} for file offset {offset} extends past the largest possible offset"
    )]
    OffsetTooLarge {
        /// Offset of the chunk.
        position: u64,
        /// The chunk's file.
        path: RelPath,
        /// The stated file offset.
        offset: u64,
    },
    /// The payload does not match its checksum.
    #[error(
        "{path}: checksum mismatch in the chunk for file offset {offset} (stream offset {position}): expected {expected:08x}, got {got:08x}"
    )]
    Checksum {
        /// Offset of the chunk.
        position: u64,
        /// The chunk's file.
        path: RelPath,
        /// The chunk's offset in the file.
        offset: u64,
        /// The stored CRC-32.
        expected: u32,
        /// The CRC-32 of the payload received.
        got: u32,
    },
}

impl DecodeError {
    /// Offset in the stream of the faulty chunk.
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

    /// The file of the faulty chunk, if it is known.
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
