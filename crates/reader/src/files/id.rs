//! Numbers of files.

/// A file of the stream, numbered from 0 in the order of opening. A file that replaces another
/// (see [`ChunkHead::is_rewrite`](crate::ChunkHead::is_rewrite)) is a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);
