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
