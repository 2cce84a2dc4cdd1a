//! Index frames: where files, chunks and data frames lie, so that a part of a stream can be read
//! without the rest (`docs/format.md`, "Index frames").
//!
//! Each index frame can be parsed alone; they are chained backwards from the end of the stream. A
//! file's records may be spread over several index frames, in the order of the stream.

mod build;
mod frame_runs;
mod parse;
mod varint;

pub use crate::limits::{INDEX_HEAD_LEN, MAX_INDEX_PLAIN};
pub(crate) use build::IndexBuilder;
pub use frame_runs::{FramePlace, FrameRun, MAX_RUN_FRAMES};
pub(crate) use parse::IndexHead;
pub use parse::{Records, parse};

/// Bytes of waiting records at which a writer makes an index frame, by default.
pub const DEFAULT_INDEX_TARGET: usize = 256 << 10;

/// The longest path in a File or Rename record in bytes; the limit of the xbstream container.
pub const MAX_PATH: usize = 511;

/// Records that a reader does not know and may pass over have tags from here on.
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

/// One record of the index. Positions and lengths are bytes, each at most
/// [`MAX_POSITION`](crate::MAX_POSITION).
///
/// Records stand in the order in which a reader of the source comes upon what they tell, so a
/// later record on a name or a file replaces an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record<'a> {
    /// A file begins. Later records mean it by its id.
    File {
        /// Its id, unique in the stream.
        file: u64,
        /// The source that holds it.
        source: u16,
        /// Its name as the source gives it, 1 to [`MAX_PATH`] bytes. A reader that makes files of
        /// it has to check it again.
        path: &'a [u8],
    },
    /// A chunk of a file with payload.
    Chunk(ChunkRecord),
    /// A file is whole.
    End {
        /// The file's id.
        file: u64,
        /// Its size, holes included.
        size: u64,
    },
    /// A file has got another name.
    Rename {
        /// The file's id.
        file: u64,
        /// The new name, as in [`Record::File`].
        path: &'a [u8],
    },
    /// A file has been removed.
    Remove {
        /// The file's id.
        file: u64,
    },
    /// Data frames. Made by [`StreamWriter`](crate::StreamWriter) itself.
    Frames(FrameRun<'a>),
}

/// Where a chunk lies in its source and what it gives to its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkRecord {
    /// The file's id; its File record names the source.
    pub file: u64,
    /// The chunk's type letter in the xbstream container: `P` payload or `S` sparse.
    pub kind: u8,
    /// Place of the chunk's first byte, its magic, in the source.
    pub position: u64,
    /// Bytes from there to the payload, the map of a sparse chunk included.
    pub head_len: u64,
    /// Bytes of payload.
    pub payload_len: u64,
    /// Where in the file the chunk begins.
    pub offset: u64,
    /// Bytes of the file that the chunk covers: its payload and, when sparse, its holes.
    pub logical_len: u64,
}
