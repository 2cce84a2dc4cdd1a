//! The xbstream container of MySQL and MariaDB backups: bytes, chunks and files.
//!
//! An xbstream is a sequence of chunks, each with a piece of one file; the files may be
//! interleaved. It has no head, no index and no end mark. Percona's and MariaDB's tools share the
//! format and have each added chunk types of their own; this crate reads them all.
//!
//! The layers, from the bottom:
//!
//! - [`ChunkHead`], [`ChunkKind`], [`RelPath`]: what a chunk is.
//! - [`Decoder`]: finds the chunks in bytes that arrive in pieces. It does no I/O, keeps no
//!   payload, and checks every stated length against [`Limits`] before using it.
//! - [`PayloadCheck`], [`PieceCheck`]: the checksum of a payload, sequential or in parallel.
//! - [`FileTable`]: tracks the files: order, ends, new names.
//! - [`ChunkReader`], [`ChunkWriter`]: the above over [`std::io::Read`] and [`std::io::Write`].
//! - [`TargetDir`]: files beneath a directory, under their names only when they are complete.
//!
//! This crate starts no threads; the pipeline crate extracts in parallel with the same parts.
//!
//! # Reading and writing
//!
//! ```
//! use xb_reader::{Change, ChunkReader, ChunkWriter, Dialect, Item, Limits};
//!
//! let mut writer = ChunkWriter::new(Vec::new());
//! writer.payload("ibdata1", 0, &[0; 16384])?;
//! writer.end("ibdata1")?;
//! let stream = writer.finish()?;
//!
//! let mut reader = ChunkReader::new(&stream[..], Dialect::Auto, Limits::default());
//! while let Some(item) = reader.next()? {
//!     if let Item::Chunk(head, Change::Ended { size, .. }) = item {
//!         println!("{size} {}", head.path);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is an error
//!
//! Everything that the stock tools accept although data is lost: a file without its end chunk,
//! empty input, a chunk after the end of its file, a gap. And everything that a hostile stream
//! could try: names that leave the directory, lengths beyond the limits, a sparse map that does not
//! add up.
//!
//! ```
//! use xb_reader::{ChunkReader, ChunkWriter, Dialect, Limits, ReadError, Unfinished};
//!
//! let mut writer = ChunkWriter::new(Vec::new());
//! writer.payload("t1.ibd", 0, b"only the beginning")?;
//! let cut = writer.finish()?;
//!
//! let mut reader = ChunkReader::new(&cut[..], Dialect::Auto, Limits::default());
//! let error = loop {
//!     match reader.next() {
//!         Ok(Some(_)) => {}
//!         Ok(None) => panic!("accepted as complete"),
//!         Err(error) => break error,
//!     }
//! };
//! assert_eq!(error.to_string(), "the stream is truncated: 1 file has no end chunk: t1.ibd (at 18)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod chunk;
mod error;
mod files;
mod path;
mod read;
mod target;
mod write;

pub use chunk::checksum::{PayloadCheck, PieceCheck, crc32};
pub use chunk::combine::CrcCombiner;
pub use chunk::decode::{Decoder, Dialect, Event, Limits};
pub use chunk::{
    ChunkHead, ChunkKind, FLAG_IGNORABLE, FLAG_REWRITE, MAGIC, MAX_FILE_OFFSET, MapEntry, Placement,
};
pub use error::DecodeError;
pub use files::content::{ContentSum, sum_of};
pub use files::{Change, FileId, FileTable, OrderError, Unfinished};
pub use path::{PathError, Printable, RelPath};
pub use read::{ChunkReader, Item, ReadError};
pub use target::TargetDir;
pub use target::error::TargetError;
pub use target::existing::IfMissing;
pub use target::partial_dir::reserved;
pub use target::partial_file::PartialFile;
pub use write::ChunkWriter;
