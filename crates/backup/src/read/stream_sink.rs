//! Receivers of a backup's stream.

use bytes::Bytes;

use crate::error::BackupError;

/// Receiver of the stream, in order. The bytes have passed their checksums, but only the end of the
/// run proves that the stream is complete.
pub trait StreamSink: Send + 'static {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// Why the bytes cannot be taken; the error ends the run.
    fn take(&mut self, bytes: Bytes) -> Result<(), BackupError>;
}

/// Sink that writes to a file or pipe.
#[derive(Debug)]
pub struct Output<W> {
    to: W,
    what: String,
}

impl<W: std::io::Write + Send + 'static> Output<W> {
    /// Creates a sink that writes to `to`; errors refer to it as `what`.
    pub fn new(to: W, what: &str) -> Self {
        Self { to, what: what.to_owned() }
    }

    /// Returns where the bytes went.
    pub fn into_inner(self) -> W {
        self.to
    }

    /// Flushes the bytes written so far.
    ///
    /// # Errors
    /// [`BackupError::Output`].
    pub fn finish(mut self) -> Result<(), BackupError> {
        self.to.flush().map_err(|source| BackupError::Output { what: self.what, source })
    }
}

impl<W: std::io::Write + Send + 'static> StreamSink for Output<W> {
    fn take(&mut self, bytes: Bytes) -> Result<(), BackupError> {
        self.to
            .write_all(&bytes)
            .map_err(|source| BackupError::Output { what: self.what.clone(), source })
    }
}
