//! Errors of measuring this machine.

use std::path::PathBuf;

use xb_compressor::CodecError;
use xb_encryptor::{NoRandom, SealError};

/// Reason why a sample could not be read, or the machine not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// A file or directory cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The sample is empty.
    #[error("the sample is empty: {}", path.display())]
    Empty {
        /// Source of the sample.
        path: PathBuf,
    },
    /// A codec failed.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The cipher failed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The system has no random numbers.
    #[error(transparent)]
    Random(#[from] NoRandom),
}
