//! Memory limits of a decoder.

/// Limits on the memory that a member can make its decoder allocate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileCodecLimits {
    /// The largest zstd window, in bytes; 128 MiB by default. All levels stay below it unless long
    /// distance matching is used.
    pub max_window: u64,
    /// Maximum number of plain bytes in one qpress block; 64 MiB by default. The stock tools write
    /// 64 KiB, or the size given by `--compress-chunk-size`.
    pub max_qpress_block: u32,
}

impl Default for FileCodecLimits {
    fn default() -> Self {
        Self { max_window: 128 << 20, max_qpress_block: 64 << 20 }
    }
}
