//! The layout of a chunk, shared by the reading and writing parts of this crate.
//!
//! All integers are unsigned and little-endian. A chunk is a head (magic, flags, type, length of
//! the path, path), a part that depends on the type, and for some types a payload:
//!
//! | type | written by | behind the path |
//! |---|---|---|
//! | `P` payload | all | payload length u64, offset u64, CRC-32 u32, payload |
//! | `E` end of file | all | nothing |
//! | `S` sparse | Percona 8.0 and later | entries N u32, payload length u64, offset u64, CRC-32 u32, N x (skip u32, len u32), payload |
//! | `S` seek | MariaDB | new offset u64 |
//! | `R` rename | MariaDB | length u32, new path |
//! | `D` remove | MariaDB | nothing |
//!
//! The CRC is that of zlib. For `P` it covers the payload, for sparse `S` the map and then the
//! payload; nothing covers the head.

pub(crate) mod checksum;
pub(crate) mod combine;
pub(crate) mod decode;

use std::sync::Arc;

use crate::RelPath;

/// The first bytes of every chunk.
pub const MAGIC: [u8; 8] = *b"XBSTCK01";

/// Length in bytes of the part that all chunks share, up to the path: magic, flags, type, path
/// length.
pub(crate) const FIXED_LEN: usize = 14;

/// Flag bit: a reader that does not know the type should skip the chunk. No stock writer sets it.
pub const FLAG_IGNORABLE: u8 = 0x01;
/// Flag bit, MariaDB: the file replaces an earlier one of the stream.
pub const FLAG_REWRITE: u8 = 0x02;

pub(crate) mod kind {
    pub(crate) const PAYLOAD: u8 = b'P';
    pub(crate) const END: u8 = b'E';
    pub(crate) const SPARSE_OR_SEEK: u8 = b'S';
    pub(crate) const RENAME: u8 = b'R';
    pub(crate) const REMOVE: u8 = b'D';
}

/// Bytes of `P` between path and payload: length, offset, CRC.
pub(crate) const PAYLOAD_FIELDS: usize = 20;
/// Bytes of a sparse `S` between path and map: entries, length, offset, CRC.
pub(crate) const SPARSE_FIELDS: usize = 24;
/// Bytes of a seek `S` behind the path: the offset.
pub(crate) const SEEK_FIELDS: usize = 8;
/// Size of the field between the two paths of an `R` chunk: the second path's length.
pub(crate) const RENAME_FIELDS: usize = 4;
/// Bytes of one map entry.
pub(crate) const MAP_ENTRY_LEN: usize = 8;

/// Highest possible file offset: the largest signed 64-bit number.
pub const MAX_FILE_OFFSET: u64 = i64::MAX as u64;

/// One step of a sparse chunk: leave `skip` bytes of the file as a hole, then write the next
/// `len` bytes of the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapEntry {
    /// Length of the hole before the bytes.
    pub skip: u32,
    /// Length of the payload after the hole. Zero only in a chunk's last entry: the file continues
    /// (or ends) after the hole.
    pub len: u32,
}

/// All fields of a chunk before its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkHead {
    /// Offset in the stream of the chunk's first byte.
    pub position: u64,
    /// Bytes from the magic to the payload, a sparse map included.
    pub head_len: u64,
    /// The flags as stored; see [`FLAG_IGNORABLE`] and [`FLAG_REWRITE`].
    pub flags: u8,
    /// The file the chunk is about.
    pub path: RelPath,
    /// The type of the chunk, with its fields.
    pub kind: ChunkKind,
}

/// The type of a chunk, with its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkKind {
    /// `len` bytes for the file at `offset`.
    Payload {
        /// Offset in the file, in bytes.
        offset: u64,
        /// Length of the payload in bytes.
        len: u64,
        /// CRC-32 of the payload, as stored.
        crc: u32,
    },
    /// Bytes and holes for the file from `offset` on.
    Sparse {
        /// Offset in the file of the first hole or byte.
        offset: u64,
        /// Length of the payload in bytes, holes not counted.
        len: u64,
        /// CRC-32 of the map and then the payload, as stored.
        crc: u32,
        /// Holes and pieces, in order. The decoder has checked that they add up to `len`.
        map: Arc<[MapEntry]>,
        /// CRC-32 of the map alone. Combined with the CRC of the payload it must equal `crc`.
        map_crc: u32,
    },
    /// The file is complete.
    End,
    /// The file's next payload is for this offset.
    Seek {
        /// The new offset.
        offset: u64,
    },
    /// The file is renamed.
    Rename {
        /// The new name.
        to: RelPath,
    },
    /// The file is no longer needed.
    Remove,
    /// A chunk of a type that is unknown here and that the writer marked as ignorable.
    Ignored {
        /// The type as stored.
        type_byte: u8,
        /// Length of the payload in bytes.
        len: u64,
    },
}

impl ChunkHead {
    /// Length of the payload after the head; 0 for types without payload.
    #[must_use]
    pub fn payload_len(&self) -> u64 {
        match self.kind {
            ChunkKind::Payload { len, .. }
            | ChunkKind::Sparse { len, .. }
            | ChunkKind::Ignored { len, .. } => len,
            ChunkKind::End
            | ChunkKind::Seek { .. }
            | ChunkKind::Rename { .. }
            | ChunkKind::Remove => 0,
        }
    }

    /// Returns whether the writer allowed this chunk to replace an existing file.
    #[must_use]
    pub fn is_rewrite(&self) -> bool {
        self.flags & FLAG_REWRITE != 0
    }

    /// Offset in the stream of the first byte after the chunk.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.position.saturating_add(self.head_len).saturating_add(self.payload_len())
    }

    /// Returns the position in the file for each byte of the chunk's payload. Chunks without a file
    /// offset have an empty placement.
    #[must_use]
    pub fn placement(&self) -> Placement {
        match &self.kind {
            ChunkKind::Payload { offset, len, .. } => Placement::plain(*offset, *len),
            ChunkKind::Sparse { offset, map, .. } => Placement::sparse(*offset, Arc::clone(map)),
            _ => Placement::plain(0, 0),
        }
    }
}

/// A position in a chunk's payload and the matching position in the file. Cheap to clone, so that
/// several threads can write pieces of one payload.
///
/// ```
/// use xb_reader::{MapEntry, Placement};
///
/// let map = [MapEntry { skip: 4096, len: 10 }, MapEntry { skip: 100, len: 20 }];
/// let mut place = Placement::sparse(0, map.into());
/// assert_eq!(place.take(15), Some((4096, 10)));
/// assert_eq!(place.take(5), Some((4206, 5)));
/// assert_eq!(place.take(99), Some((4211, 15)));
/// assert_eq!(place.take(1), None);
/// ```
#[derive(Debug, Clone)]
pub struct Placement {
    /// File offset of the next byte of payload.
    offset: u64,
    /// Bytes left until the next hole.
    run: u64,
    map: Option<(Arc<[MapEntry]>, usize)>,
}

impl Placement {
    /// `len` bytes from `offset` on, without holes.
    #[must_use]
    pub fn plain(offset: u64, len: u64) -> Self {
        Self { offset, run: len, map: None }
    }

    /// The pieces of `map`, beginning at `offset`.
    #[must_use]
    pub fn sparse(offset: u64, map: Arc<[MapEntry]>) -> Self {
        Self { offset, run: 0, map: Some((map, 0)) }
    }

    /// Returns whether there may be holes between the pieces.
    #[must_use]
    pub fn is_sparse(&self) -> bool {
        self.map.is_some()
    }

    /// Takes at most `max` bytes of payload that are contiguous in the file. Returns their file
    /// offset and their number, or `None` when `max` is 0 or the payload is used up.
    pub fn take(&mut self, max: u64) -> Option<(u64, u64)> {
        while self.run == 0 {
            let (map, at) = self.map.as_mut()?;
            let entry = map.get(*at)?;
            *at += 1;
            self.offset = self.offset.saturating_add(u64::from(entry.skip));
            self.run = u64::from(entry.len);
        }
        let len = self.run.min(max);
        if len == 0 {
            return None;
        }
        let offset = self.offset;
        self.offset = self.offset.saturating_add(len);
        self.run -= len;
        Some((offset, len))
    }

    /// Skips `len` bytes of payload.
    pub fn skip(&mut self, mut len: u64) {
        while let Some((_, taken)) = self.take(len) {
            len -= taken;
        }
    }
}
