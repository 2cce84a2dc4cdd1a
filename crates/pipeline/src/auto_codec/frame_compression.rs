//! Codec of a stream's frames: one for all, or one for each.

use xb_compressor::{Algorithm, Compression};

use super::levels::Rung;
use super::run::AutoCodec;
use crate::flow::plan::SLAB;

/// Returns the memory in bytes that the codec of one worker needs for frames, beyond their slabs.
#[must_use]
pub fn codec_memory(compress: Compression) -> u64 {
    match compress {
        Compression::Fixed(algorithm) => algorithm.working_memory(SLAB),
        // Probes have a buffer for their output.
        Compression::Auto => {
            Rung::STRONGEST.algorithm().working_memory(SLAB) + (SLAB + SLAB / 4) as u64
        }
    }
}

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
