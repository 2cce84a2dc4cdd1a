//! What a compressed file may ask for.

/// What a member may make its decoder allocate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberLimits {
    /// The largest zstd window, in bytes; 128 MiB by default, which all levels stay below unless
    /// long distance matching is asked for.
    pub max_window: u64,
    /// The most plain bytes in one qpress block; 64 MiB by default. The stock tools write 64 KiB,
    /// or what `--compress-chunk-size` says.
    pub max_qpress_block: u32,
}

impl Default for MemberLimits {
    fn default() -> Self {
        Self { max_window: 128 << 20, max_qpress_block: 64 << 20 }
    }
}
