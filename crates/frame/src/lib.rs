//! The native stream, format version 1: one self-describing byte stream that carries any input and
//! returns it bit for bit.
//!
//! A stream is a fixed header, then a *body* of frames that ends with an end frame, then a fixed
//! trailer. A data frame carries about 1 MiB of the input, with a checksum and the offset of its
//! bytes in the input. Index frames locate files and chunks. The format is specified in
//! `docs/spec/format.md`, the source of all numbers here.
//!
//! This crate only handles bytes: it does no I/O, starts no threads, compresses nothing and has no
//! keys. Payload never passes through the writing side and is never copied on the reading side.
//!
//! # Writing
//!
//! [`StreamWriter`] returns frame headers and tracks all positions. The caller sends each header,
//! then its own payload buffer, and must end with [`StreamWriter::finish`]: readers reject a stream
//! without its [`Tail`].
//!
//! ```
//! use xb_frame::{Codec, StreamHeader, StreamId, StreamWriter, crc32c};
//!
//! # fn main() -> Result<(), xb_frame::FrameError> {
//! let header = StreamHeader::new(StreamId([7; 16])); // take random bytes
//! let mut stream = header.encode().to_vec();
//! let mut writer = StreamWriter::new(&header);
//! for piece in [&b"first "[..], b"second"] {
//!     let len = u32::try_from(piece.len()).unwrap_or(u32::MAX);
//!     stream.extend(writer.data_frame(0, Codec::None, len, len, crc32c(piece))?);
//!     stream.extend(piece);
//!     if writer.index_due() {
//!         stream.extend(writer.index_frame().unwrap_or_default());
//!     }
//! }
//! let tail = writer.finish();
//! stream.extend(&tail.bytes);
//! assert_eq!(stream.len() as u64, tail.summary.stream_len);
//! # Ok(())
//! # }
//! ```
//!
//! # Reading
//!
//! [`StreamReader`] takes slices of any size and returns [`Event`]s. It checks everything except
//! the checksums of data payloads. The caller checks those with [`FrameHeader::check_payload`], so
//! that workers can do it in parallel. Only [`StreamReader::finish`] proves that the stream is
//! complete.
//!
//! ```
//! use xb_frame::{Event, Kind, Limits, StreamReader};
//!
//! fn plain(mut stream: &[u8]) -> Result<Vec<u8>, xb_frame::FrameError> {
//!     let mut reader = StreamReader::new(Limits::default());
//!     let (mut plain, mut frame) = (Vec::new(), Vec::new());
//!     while let Some(event) = reader.next(&mut stream)? {
//!         match event {
//!             Event::Frame(_) => frame.clear(),
//!             Event::Payload(bytes) => frame.extend_from_slice(bytes),
//!             Event::FrameEnd(header) if header.kind == Kind::Data => {
//!                 header.check_payload(&frame)?;
//!                 plain.extend_from_slice(&frame); // header.codec says how it is stored
//!             }
//!             _ => {}
//!         }
//!     }
//!     reader.finish()?;
//!     Ok(plain)
//! }
//! assert!(plain(b"not a native stream").is_err());
//! ```
//!
//! # Random access
//!
//! The last 64 bytes of a stream are its [`Trailer`], which locates the end frame and the last
//! index frame. Each index frame locates the one before it. [`index::parse`] parses one.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod end_frame;
mod error;
mod fields;
mod frame;
mod header;
pub mod index;
mod limits;
mod read;
mod stream_id;
mod trailer;
mod write;

pub use end_frame::{EndRecord, IndexPlace, Summary};
pub use error::{ErrorLocation, FrameError, Part};
pub use fields::crc32c;
pub use frame::{Codec, FRAME_MAGIC, FrameHeader, Kind};
pub use header::{
    DEFAULT_FRAME_PLAIN, MAGIC, MAX_FRAME_PLAIN, STREAM_HEADER_LEN, Seal, StreamHeader, is_native,
};
pub use index::Record;
pub use limits::{FRAME_HEADER_LEN, MAX_END_PLAIN, MAX_POSITION, MAX_SOURCES, TRAILER_LEN};
pub use read::event::Event;
pub use read::{Limits, StreamReader};
pub use stream_id::StreamId;
pub use trailer::{TRAILER_MAGIC, Trailer};
pub use write::{StreamWriter, Tail};
