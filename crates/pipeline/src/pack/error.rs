//! Why packing fails.

use xb_compressor::CodecError;
use xb_encryptor::SealError;
use xb_encryptor::xbcrypt::XbcryptError;
use xb_frame::FrameError;
use xb_reader::{PathError, RelPath};

use crate::extract::decode::UndoError;
use crate::flow::ordered_pool::{Closed, WorkerDied};
use crate::flow::plan::PlanError;
use crate::scan::scanner::StreamError;

/// Why packing failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// The input could not be read.
    #[error("cannot read the stream at offset {position}: {source}")]
    Read {
        /// Offset in the stream.
        position: u64,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The stream is damaged or incomplete.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The stream cannot be cut the classic way.
    #[error(transparent)]
    Cut(CutError),
    /// The format's own limits were reached.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A codec refused its work.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The seal refused its work.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// A chunk could not be encrypted.
    #[error(transparent)]
    Xbcrypt(#[from] XbcryptError),
    /// A file cannot be compressed or encrypted on its own.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// The memory is too little for what is to be done.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The system refuses a thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
    /// A thread of the pipeline died.
    #[error(transparent)]
    Worker(#[from] WorkerDied),
    /// The next stage stopped; it knows the cause.
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

/// A chunk that the classic layout has no key for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CutError {
    /// The next stage has stopped.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// An object's key must be text.
    #[error("{path}: the name is not UTF-8, so no object can have it: use the packed layout")]
    NotText {
        /// The file.
        path: RelPath,
    },
    /// Stock readers know payload, sparse and end chunks only.
    #[error(
        "{path}: chunk at stream offset {position} renames, removes, seeks in or replaces a file, which the classic layout cannot hold: use the packed layout"
    )]
    Dialect {
        /// The file.
        path: RelPath,
        /// Offset of the chunk in the stream.
        position: u64,
    },
}

/// Why a file cannot be transformed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemberError {
    /// Its name does not go with that of another file, or with any.
    #[error("{path}: {source}")]
    Name {
        /// Its name in the stream.
        path: RelPath,
        /// What is wrong.
        source: UndoError,
    },
    /// With its suffixes the name is too long.
    #[error("{path}: its name with suffixes: {source}")]
    TooLong {
        /// Its name in the stream.
        path: RelPath,
        /// What is wrong.
        source: PathError,
    },
}
