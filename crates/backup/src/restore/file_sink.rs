//! Sink of a restore: passes the stream to the extractor, and explains its errors.

use std::path::PathBuf;

use bytes::Bytes;
use xb_encryptor::xbcrypt::XbcryptError;
use xb_pipeline::{ExtractCause, ExtractError, ExtractReport, Extractor, FileDecodeError};

use crate::error::BackupError;
use crate::read::stream_sink::StreamSink;

/// Passes the stream to the extractor.
pub(super) struct FileSink {
    extractor: Option<Extractor>,
    target: PathBuf,
}

impl FileSink {
    pub(super) fn new(extractor: Extractor, target: PathBuf) -> Self {
        Self { extractor: Some(extractor), target }
    }

    /// Returns the report of the extraction, once everything is written.
    pub(super) fn finish(mut self) -> Result<ExtractReport, BackupError> {
        match self.extractor.take() {
            Some(extractor) => extractor.finish().map_err(|error| self.failed(&error)),
            None => Err(BackupError::Bug("the extractor was used after it ended")),
        }
    }

    fn failed(&self, error: &ExtractError) -> BackupError {
        let kept = match error.report.files {
            0 => String::new(),
            files => format!(" (complete files kept: {files})"),
        };
        let what = format!("{error}{kept}");
        match &error.cause {
            ExtractCause::FileDecoding {
                source: FileDecodeError::NoKey | FileDecodeError::Xbcrypt(XbcryptError::Hash { .. }),
                ..
            } => BackupError::FileKey { what },
            _ => BackupError::of_target(&self.target, what),
        }
    }
}

impl StreamSink for FileSink {
    fn take(&mut self, bytes: Bytes) -> Result<(), BackupError> {
        let Some(extractor) = &mut self.extractor else {
            return Err(BackupError::Bug("the extractor was used after it ended"));
        };
        if extractor.feed(bytes).is_ok() {
            return Ok(());
        }
        // The extractor has stopped, and reports the reason when it is finished.
        match self.extractor.take().map(Extractor::finish) {
            Some(Err(error)) => Err(self.failed(&error)),
            _ => Err(BackupError::Bug("the extractor stopped without a cause")),
        }
    }
}
