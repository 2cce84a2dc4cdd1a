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
//!
//! A small file whose steps are all in one batch is completed by the worker, which also gives it its
//! name ("brief" file). If the stream is in a regular file, long payload does not pass through the
//! feeder: the batch only states where it is, and the worker reads it ([`from_file`]).

pub(crate) mod decode;
mod decode_workers;
pub(crate) mod extractor;
mod finalize;
pub(crate) mod from_file;
pub(crate) mod from_reader;
mod open_file;
mod piece;
pub(crate) mod report;
#[cfg(test)]
mod tests;
pub(crate) mod work;
