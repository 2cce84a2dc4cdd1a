//! Errors of unpacking.

use xb_compressor::CodecError;
use xb_encryptor::SealError;
use xb_frame::{ErrorLocation, FrameError, Part};

use crate::flow::ordered_pool::{Closed, WorkerDied};
use crate::unpack::frame_decoder::FrameDecodeError;

/// Reason why unpacking failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnpackError<E> {
    /// The native stream is damaged or cut.
    #[error(transparent)]
    Frame(FrameError),
    /// The seal does not match: the key is wrong, or the bytes were changed.
    #[error(transparent)]
    Seal(SealError),
    /// A frame does not decode to the length in its header, or not at all.
    #[error("{place}: {source}")]
    Codec {
        /// Location of the frame.
        place: ErrorLocation,
        /// Error of the codec.
        source: CodecError,
    },
    /// A thread of the pipeline died.
    #[error(transparent)]
    Worker(#[from] WorkerDied),
    /// The sink of plain bytes failed.
    #[error(transparent)]
    Sink(E),
    /// The source of the ranges stopped and has the cause.
    #[error("the ranges stopped arriving")]
    Stopped,
    /// The system cannot start a thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl<E> UnpackError<E> {
    /// Location of the damage, counted from the first byte of the unsealed body, if it is known.
    #[must_use]
    pub fn place(&self) -> Option<ErrorLocation> {
        match self {
            Self::Frame(error) => error.place(),
            Self::Codec { place, .. } => Some(*place),
            _ => None,
        }
    }
}

/// Reason why no more frames were found.
#[derive(Debug)]
pub(crate) enum NoMoreFrames {
    /// The next stage stopped.
    Closed,
    /// The source of the ranges stopped.
    Source,
    Frame(FrameError),
    Seal(SealError),
    Worker(WorkerDied),
}

/// Error for an unsealed stream if a key was given: its bytes are not authenticated.
pub(crate) fn not_sealed() -> NoMoreFrames {
    NoMoreFrames::Frame(FrameError::Mismatch {
        place: ErrorLocation { part: Part::StreamHeader, position: 0 },
        field: "seal",
        expected: 1,
        got: 0,
    })
}

impl From<Closed> for NoMoreFrames {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<FrameError> for NoMoreFrames {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

impl<E> From<NoMoreFrames> for UnpackError<E> {
    fn from(stop: NoMoreFrames) -> Self {
        match stop {
            NoMoreFrames::Closed | NoMoreFrames::Source => Self::Stopped,
            NoMoreFrames::Frame(error) => Self::Frame(error),
            NoMoreFrames::Seal(error) => Self::Seal(error),
            NoMoreFrames::Worker(died) => Self::Worker(died),
        }
    }
}

impl<E> From<FrameDecodeError> for UnpackError<E> {
    fn from(undecoded: FrameDecodeError) -> Self {
        match undecoded {
            FrameDecodeError::Frame(error) => Self::Frame(error),
            FrameDecodeError::Codec(place, source) => Self::Codec { place, source },
        }
    }
}
