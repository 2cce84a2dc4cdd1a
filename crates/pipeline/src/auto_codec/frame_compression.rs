//! Codec of a stream's frames: one for all, or one for each.

use xb_compressor::Algorithm;

use super::run::AutoCodec;

/// Codec of the frames of a stream.
#[derive(Debug, Clone)]
pub enum FrameCompression {
    /// One codec for all frames.
    Fixed(Algorithm),
    /// A codec for each frame.
    Auto(AutoCodec),
}

impl FrameCompression {
    /// Returns whether no frame is compressed.
    #[must_use]
    pub fn is_none(&self) -> bool {
        matches!(self, Self::Fixed(Algorithm::None))
    }
}

impl From<Algorithm> for FrameCompression {
    fn from(algorithm: Algorithm) -> Self {
        Self::Fixed(algorithm)
    }
}
