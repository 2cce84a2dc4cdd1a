//! Errors of packing.

use xb_compressor::CodecError;
use xb_encryptor::SealError;
use xb_encryptor::xbcrypt::XbcryptError;
use xb_frame::FrameError;
use xb_reader::{PathError, RelPath};

use crate::extract::decode::FileDecodeError;
use crate::flow::ordered_pool::{Closed, WorkerDied};
use crate::flow::plan::PlanError;
use crate::scan::scanner::StreamError;

/// Reason why packing failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// The input could not be read.
    #[error("cannot read the stream at offset {position}: {source}")]
    Read {
        /// Offset in the stream.
        position: u64,
        /// System error.
        source: std::io::Error,
    },
    /// The stream is damaged or incomplete.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The stream cannot be stored in the classic layout.
    #[error(transparent)]
    Cut(CutError),
    /// The stream exceeds a limit of the native format.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A codec failed.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// Sealing failed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// A chunk could not be encrypted.
    #[error(transparent)]
    Xbcrypt(#[from] XbcryptError),
    /// A file cannot be compressed or encrypted on its own.
    #[error(transparent)]
    Member(#[from] TransformError),
    /// The memory is too small for the settings.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The system cannot start a thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
    /// A thread of the pipeline died.
    #[error(transparent)]
    Worker(#[from] WorkerDied),
    /// The next stage stopped and has the cause.
    #[error(transparent)]
    Closed(#[from] Closed),
}

impl From<CutError> for PackError {
    fn from(error: CutError) -> Self {
        match error {
            CutError::Closed(closed) => Self::Closed(closed),
            other => Self::Cut(other),
        }
    }
}

/// A chunk that cannot be stored in the classic layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CutError {
    /// The next stage stopped.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// An object key must be valid text, and the file name is not.
    #[error("{path}: the name is not UTF-8, which object names require; use the packed layout")]
    NotText {
        /// The file.
        path: RelPath,
    },
    /// The name cannot be part of an object key.
    #[error("{path}: the classic layout cannot store this name: {why}; use the packed layout")]
    NoKey {
        /// The file.
        path: RelPath,
        /// Fault of the name.
        why: &'static str,
    },
    /// Stock readers only know payload, sparse and end chunks.
    #[error(
        "{path}: the chunk at stream offset {position} renames, removes, seeks in or replaces a file, which the classic layout cannot store; use the packed layout"
    )]
    Dialect {
        /// The file.
        path: RelPath,
        /// Offset of the chunk in the stream.
        position: u64,
    },
}

/// Reason why a file cannot be transformed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransformError {
    /// The name is invalid, or conflicts with the name of another file.
    #[error("{path}: {source}")]
    Name {
        /// Name in the stream.
        path: RelPath,
        /// Cause.
        source: FileDecodeError,
    },
    /// The name is too long with its suffixes.
    #[error("{path}: invalid name with suffixes: {source}")]
    TooLong {
        /// Name in the stream.
        path: RelPath,
        /// Cause.
        source: PathError,
    },
}
