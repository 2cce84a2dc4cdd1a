//! Errors of FIFOs.

use std::io;
use std::path::PathBuf;

use xb_reader::{DecodeError, OrderError, Unfinished};

/// Reason why the streams of several FIFOs cannot be read or written. Every message names the FIFO.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FifoError {
    /// The writer did not create the FIFO in time.
    #[error("FIFO {}: no program created it within {seconds} s", path.display())]
    Missing {
        /// Path of the FIFO.
        path: PathBuf,
        /// Time spent waiting for it.
        seconds: u64,
    },
    /// The program at the other end did not open the FIFO in time.
    #[error("FIFO {}: no program opened it for {} within {seconds} s", path.display(), whose(*.reading))]
    Alone {
        /// Path of the FIFO.
        path: PathBuf,
        /// Whether the other end reads.
        reading: bool,
        /// Time spent waiting for it.
        seconds: u64,
    },
    /// The program that was to write has ended.
    #[error("FIFO {}: the producer ended, or closed its standard output, before it wrote to this FIFO", path.display())]
    NoProducer {
        /// Path of the FIFO.
        path: PathBuf,
    },
    /// The producer wrote its stream, or a message, to standard output.
    #[error(
        "the producer writes to its standard output, although its streams are expected in FIFOs"
    )]
    OtherOutput,
    /// The writer closed the FIFO without writing to it.
    #[error("FIFO {}: its writer ended without writing anything", path.display())]
    Nothing {
        /// Path of the FIFO.
        path: PathBuf,
    },
    /// Something else has the name of the FIFO.
    #[error("{}: it exists, but is not a FIFO", path.display())]
    NotFifo {
        /// Path of the FIFO.
        path: PathBuf,
    },
    /// The FIFO to be created exists.
    #[error("FIFO {} already exists: another run may be using it", path.display())]
    Exists {
        /// Path of the FIFO.
        path: PathBuf,
    },
    /// The reader of a FIFO ended before everything was written.
    #[error("FIFO {}: its reader ended before the end of the stream", path.display())]
    ReaderGone {
        /// Path of the FIFO.
        path: PathBuf,
    },
    /// The stream is not well-formed, or ends inside a chunk.
    #[error("FIFO {}: {source}", path.display())]
    Decode {
        /// Path of the FIFO.
        path: PathBuf,
        /// Cause.
        source: DecodeError,
    },
    /// A chunk does not continue its file.
    #[error("FIFO {}: {source}", path.display())]
    Order {
        /// Path of the FIFO.
        path: PathBuf,
        /// Cause.
        source: OrderError,
    },
    /// The stream ends inside a file.
    #[error("FIFO {}: {source}", path.display())]
    Unfinished {
        /// Path of the FIFO.
        path: PathBuf,
        /// Cause.
        source: Unfinished,
    },
    /// The stream to be divided is not an xbstream.
    #[error("the stream cannot be divided between FIFOs: {0}")]
    Indivisible(#[source] DecodeError),
    /// The system refused to open, read or write a FIFO.
    #[error("FIFO {}: {source}", path.display())]
    System {
        /// Path of the FIFO.
        path: PathBuf,
        /// System error.
        source: io::Error,
    },
}

fn whose(reading: bool) -> &'static str {
    if reading { "reading" } else { "writing" }
}

impl FifoError {
    /// Returns the error of a FIFO inside an error of input or output.
    #[must_use]
    pub fn within(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// Returns whether the cause may be that the writer has failed.
    #[must_use]
    pub fn may_be_of_the_writer(&self) -> bool {
        !matches!(self, Self::OtherOutput)
    }

    /// Returns advice for the operator.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Missing { .. } | Self::Alone { reading: false, .. } => {
                "start the writer with the same --fifo-streams and --fifo-dir, or raise --fifo-timeout"
            }
            Self::Alone { .. } => {
                "start the reader with the same --fifo-streams and --fifo-dir, or raise --fifo-timeout"
            }
            Self::NoProducer { .. } | Self::OtherOutput => {
                "give the producer the same --fifo-streams and --fifo-dir, and read its messages"
            }
            Self::Nothing { .. } | Self::Unfinished { .. } => {
                "the writer stopped early; read its messages"
            }
            Self::NotFifo { .. } => "set --fifo-dir to a separate directory",
            Self::Exists { .. } => "remove it if no other run uses it, or give another --fifo-dir",
            Self::ReaderGone { .. } => "read the messages of the program that reads the FIFOs",
            Self::Decode { source: DecodeError::Truncated { .. }, .. } => {
                "the writer stopped early; read its messages"
            }
            Self::Decode { .. } | Self::Order { .. } => {
                "let only one program write to each FIFO, and let it write an xbstream"
            }
            Self::Indivisible(_) => "write it to standard output, without --fifo-streams",
            Self::System { .. } => "check that --fifo-dir exists and is writable",
        }
    }
}

impl From<FifoError> for io::Error {
    fn from(error: FifoError) -> Self {
        Self::other(error)
    }
}
