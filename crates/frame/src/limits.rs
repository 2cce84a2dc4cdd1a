//! Lengths and limits of the format (`docs/spec/format.md`, "Limits").

/// Maximum number of sources in a stream; source numbers are below it.
pub const MAX_SOURCES: u16 = 256;

/// Maximum length of the payload of an end frame, in bytes. Version 1.0 needs 48 bytes plus 8 for
/// each source; the rest is reserved for later minor versions.
pub const MAX_END_PLAIN: usize = 4096;

/// Length of the payload before the list of sources.
pub(crate) const END_FIXED_LEN: usize = 48;

/// Highest position and length in a stream: 2^63 - 1, so that the signed difference of any two
/// cannot overflow (`docs/spec/format.md`, "Limits").
pub const MAX_POSITION: u64 = i64::MAX as u64;

/// Length of a frame header in bytes.
pub const FRAME_HEADER_LEN: usize = 32;

/// Length of the trailer in bytes.
pub const TRAILER_LEN: usize = 64;

/// Maximum length of the payload of an index frame, in bytes.
pub const MAX_INDEX_PLAIN: usize = 1 << 20;

/// Length of the fixed head of an index frame's payload.
pub const INDEX_HEAD_LEN: usize = 16;
