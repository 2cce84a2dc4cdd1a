//! Codecs for the frames of the native stream, and for the compressed members of stock backups.
//!
//! This crate works on bytes only: it does no I/O, starts no threads, and knows neither the native
//! stream nor the xbstream container. The caller provides every output buffer, and so limits the
//! output.
//!
//! - [`Algorithm`]: the values of `--compress`.
//! - [`BlockEncoder`], [`BlockDecoder`]: one slice in, one slice out; the payload of a native data
//!   frame. Use one of each per worker thread: they allocate nothing from block to block.
//! - [`FileDecoder`]: `.qp`, `.lz4` and `.zst` members in pieces of any size. [`Member`]
//!   recognizes them by name. [`FileDecoder::metered`] asks before it allocates memory.
//! - [`PieceEncoder`], [`FileEncoder`]: `.lz4` and `.zst` members that the stock tools can read;
//!   piece by piece for workers, or sequentially.
//!
//! # Blocks
//!
//! A block that would not be shorter than its plain bytes is not produced. A reader knows the plain
//! length beforehand, and refuses a block that decodes to one byte more or less.
//!
//! ```
//! use xb_compressor::{Algorithm, BlockDecoder, BlockEncoder, CodecError};
//!
//! let algorithm: Algorithm = "zstd:3".parse()?;
//! let mut encoder = BlockEncoder::new(algorithm)?;
//! let plain = [7; 4096];
//! let mut stored = vec![0; encoder.max_encoded_len(plain.len())];
//! let len = encoder.encode(&plain, &mut stored)?.ok_or("a page of one byte shrinks")?;
//!
//! let codec = algorithm.block_codec().ok_or("zstd has one")?;
//! let mut decoder = BlockDecoder::new();
//! let mut out = [0; 4096];
//! decoder.decode(codec, &stored[..len], &mut out)?;
//! assert_eq!(out, plain);
//!
//! let mut short = [0; 4095];
//! assert!(matches!(
//!     decoder.decode(codec, &stored[..len], &mut short),
//!     Err(CodecError::Mismatch { expected: 4095, got: 4096, .. })
//! ));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Members
//!
//! ```
//! use xb_compressor::{CodecError, Member, FileCodec, FileDecoder, FileEncoder, State};
//!
//! fn unpack(member: Member, mut input: &[u8]) -> Result<Vec<u8>, CodecError> {
//!     let mut decoder = FileDecoder::new(member)?;
//!     let (mut plain, mut out) = (Vec::new(), [0; 1000]);
//!     loop {
//!         let progress = decoder.decode(&mut input, &mut out)?;
//!         plain.extend_from_slice(&out[..progress.written]);
//!         match progress.state {
//!             State::OutputFull => {}
//!             _ => break, // there was only one piece
//!         }
//!     }
//!     decoder.finish()?;
//!     Ok(plain)
//! }
//!
//! let plain = vec![1; 5000];
//! let mut encoder = FileEncoder::new(FileCodec::Lz4)?;
//! let (mut stored, mut out) = (Vec::new(), [0; 1000]);
//! let mut input = &plain[..];
//! while !input.is_empty() {
//!     let progress = encoder.encode(&mut input, &mut out)?;
//!     stored.extend_from_slice(&out[..progress.written]);
//! }
//! stored.extend(encoder.finish()?.0);
//!
//! assert_eq!(unpack(Member::Lz4, &stored)?, plain);
//! stored.pop();
//! assert_eq!(
//!     unpack(Member::Lz4, &stored).unwrap_err().to_string(),
//!     format!("lz4 file at byte {}: the input ends inside a content checksum", stored.len())
//! );
//! # Ok::<(), CodecError>(())
//! ```

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod algorithm;
mod block;
mod block_codec;
mod error;
mod file_codec;
mod level;
mod zstd;

pub use algorithm::{Algorithm, AlgorithmError, Compression};
pub use block::{BlockDecoder, BlockEncoder, RandomnessTest};
pub use block_codec::{BlockCodec, MAX_BLOCK_PLAIN};
pub use error::{CodecError, ErrorLocation, Format};
pub use file_codec::{
    FileCodec, FileCodecLimits, FileDecoder, FileEncoder, FileTotals, Member, PIECE_PLAIN,
    PieceEncoder, Progress, State,
};
pub use level::{GzipLevel, Level, ZstdLevel};
