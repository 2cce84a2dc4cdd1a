//! Extracts a plain xbstream into files, in parallel.
//!
//! ```text
//! feed ──► decoder, file table ──► batches ──► workers ──────────► finalizer
//! caller's thread: finds heads,    of steps    checksum pieces,    in order: compares checksums,
//! checks the order of chunks                   write them at       gives complete files their
//!                                              their offsets       names, renames, removes
//! ```
//!
//! A batch holds the steps of one slab of the stream. Workers may overtake each other, even within
//! one file, because every piece knows its offset. Only pieces that overlap others (after a seek)
//! are written by the finalizer. The finalizer sees the steps in stream order, so its first error is
//! the first in the stream.

pub(crate) mod decode;
pub(crate) mod extractor;
mod finalize;
pub(crate) mod from_reader;
pub(crate) mod report;
#[cfg(test)]
mod tests;
pub(crate) mod work;
