//! Index frames: they locate files, chunks and data frames, so that a part of a stream can be read
//! without the rest (`docs/spec/format.md`, "Index frames").
//!
//! Each index frame can be parsed alone. The frames are chained backwards from the end of the
//! stream. A file's records may be spread over several index frames, in stream order.

mod build;
mod frame_runs;
mod parse;
mod varint;

pub use crate::limits::{INDEX_HEAD_LEN, MAX_INDEX_PLAIN};
pub(crate) use build::IndexBuilder;
pub use frame_runs::{FramePlace, FrameRun, MAX_RUN_FRAMES};
pub(crate) use parse::IndexHead;
pub use parse::{Records, parse};

/// Default length of the pending records, in bytes, at which a writer creates an index frame.
pub const DEFAULT_INDEX_TARGET: usize = 256 << 10;

/// Maximum length of a path in a File or Rename record, in bytes; the limit of the xbstream
/// container.
pub const MAX_PATH: usize = 511;

/// Lowest tag of the records that a reader may skip if it does not know them.
const IGNORABLE: u8 = 0x80;

const TAG_FILE: u8 = 1;
const TAG_CHUNK: u8 = 2;
const TAG_END: u8 = 3;
const TAG_RENAME: u8 = 4;
const TAG_REMOVE: u8 = 5;
const TAG_FRAMES: u8 = 6;

/// Type letters of the chunks that carry payload.
const CHUNK_KINDS: [u8; 2] = *b"PS";
const BAD_KIND: &str = "a chunk of the index is of kind P or S";

/// One record of the index. Positions and lengths are in bytes, each at most
/// [`MAX_POSITION`](crate::MAX_POSITION).
///
/// Records are in the order in which a reader of the source finds what they describe, so a later
/// record for a name or a file replaces an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record<'a> {
    /// A file begins. Later records refer to it by its id.
    File {
        /// Id of the file, unique in the stream.
        file: u64,
        /// Number of the source that holds the file.
        source: u16,
        /// Name of the file as the source has it, 1 to [`MAX_PATH`] bytes. Check it again before
        /// you create files from it.
        path: &'a [u8],
    },
    /// A chunk of a file with payload.
    Chunk(ChunkRecord),
    /// A file is complete.
    End {
        /// Id of the file.
        file: u64,
        /// Size of the file, holes included.
        size: u64,
    },
    /// A file was renamed.
    Rename {
        /// Id of the file.
        file: u64,
        /// New name, as in [`Record::File`].
        path: &'a [u8],
    },
    /// A file was removed.
    Remove {
        /// Id of the file.
        file: u64,
    },
    /// A run of data frames. [`StreamWriter`](crate::StreamWriter) creates these records itself.
    Frames(FrameRun<'a>),
}

/// Location of a chunk in its source, and of its data in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkRecord {
    /// Id of the file. The source is named by the file's File record.
    pub file: u64,
    /// Type letter of the chunk in the xbstream container: `P` payload or `S` sparse.
    pub kind: u8,
    /// Offset of the chunk's first byte (its magic) in the source.
    pub position: u64,
    /// Bytes from the chunk's first byte to its payload, including the map of a sparse chunk.
    pub head_len: u64,
    /// Length of the payload.
    pub payload_len: u64,
    /// Offset in the file at which the chunk begins.
    pub offset: u64,
    /// Bytes of the file that the chunk covers: its payload and, in a sparse chunk, its holes.
    pub logical_len: u64,
}
