//! Several xbstreams over FIFOs, as `xtrabackup --fifo-streams` writes and `xbstream -x` reads them.
//!
//! The FIFOs are `DIR/thread_0` to `DIR/thread_N-1`. The writer creates them; the reader removes
//! them. A writer first sends one control byte, then a complete xbstream. A file is never divided
//! between two FIFOs, so any number of streams can be merged to one, and one divided into several,
//! by whole chunks.
//!
//! - [`Merge`] reads all FIFOs as one stream. The bytes of each FIFO keep their order.
//! - [`Split`] divides one stream between FIFOs, file by file.

mod error;
mod merge;
mod names;
mod source;
mod split;

use std::path::PathBuf;
use std::time::Duration;

use xb_reader::Dialect;

pub use error::FifoError;
pub use merge::Merge;
pub use names::FifoNames;
pub use split::Split;

/// Maximum number of FIFOs of one backup.
const MAX_FIFOS: usize = 256;

/// Which FIFOs to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fifos {
    /// Directory of the FIFOs.
    pub dir: PathBuf,
    /// Number of FIFOs, at least 1.
    pub streams: usize,
    /// Time to wait until the program at the other end of each FIFO has opened it.
    pub timeout: Duration,
    /// Meaning of the chunk type `S` in the streams.
    pub dialect: Dialect,
}

/// The options of the stock tools for FIFOs do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FifoSettingsError {
    /// There is no directory.
    #[error("--fifo-streams requires --fifo-dir")]
    NoDir,
    /// There is a directory, but no number.
    #[error("--fifo-dir requires --fifo-streams")]
    NoStreams,
    /// More streams than a backup can have.
    #[error("--fifo-streams={streams} is too many: at most {MAX_FIFOS}")]
    TooMany {
        /// Number of streams.
        streams: u64,
    },
}

impl Fifos {
    /// Default of `--fifo-timeout`, in seconds.
    pub const TIMEOUT: u64 = 60;

    /// Creates settings from the values of `--fifo-streams`, `--fifo-dir` and `--fifo-timeout`.
    /// `None`: one stream, on standard input or output.
    ///
    /// # Errors
    /// [`FifoSettingsError`] if the values do not fit together.
    pub fn new(
        streams: Option<u64>,
        dir: Option<PathBuf>,
        timeout: Option<u64>,
        dialect: Dialect,
    ) -> Result<Option<Self>, FifoSettingsError> {
        if streams.is_none() && dir.is_some() {
            return Err(FifoSettingsError::NoStreams);
        }
        let streams = streams.unwrap_or(1);
        if streams < 2 {
            return Ok(None);
        }
        let dir = dir.ok_or(FifoSettingsError::NoDir)?;
        let number = usize::try_from(streams).ok().filter(|number| *number <= MAX_FIFOS);
        let number = number.ok_or(FifoSettingsError::TooMany { streams })?;
        let timeout = Duration::from_secs(timeout.unwrap_or(Self::TIMEOUT));
        Ok(Some(Self { dir, streams: number, timeout, dialect }))
    }

    /// Path of the FIFO with this number.
    pub(crate) fn path(&self, number: usize) -> PathBuf {
        self.dir.join(format!("thread_{number}"))
    }
}
