//! Options and results of extraction.

use std::fmt;
use std::io;
use std::sync::Arc;

use xb_reader::{DecodeError, Dialect, Limits, OrderError, RelPath, TargetError, Unfinished};

use crate::extract::decode::{FileDecodeError, FileDecoding};
use crate::flow::observer::Observer;
use crate::flow::ordered_pool::WorkerDied;

/// When extracted files are made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[non_exhaustive]
pub enum Durability {
    /// Sync each file before it gets its name, and the file system once more at the end.
    File,
    /// Sync the whole file system once, at the end.
    #[default]
    End,
    /// Never sync: the system writes the data later, and write errors are not detected.
    None,
}

/// Options for extraction.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ExtractOptions {
    /// Worker threads, at least one.
    pub threads: usize,
    /// Meaning of the chunk type `S`.
    pub dialect: Dialect,
    /// Limits on the sizes that a chunk may declare.
    pub limits: Limits,
    /// Keep the complete files of a stream that was cut, instead of failing.
    pub allow_truncated: bool,
    /// When files are made durable.
    pub durability: Durability,
    /// Layers to decompress and decrypt on the way. If any are decoded, blocks of zeros in `.ibd`
    /// files become holes.
    pub decoding: FileDecoding,
    /// Counts bytes of the stream, and files that have their final names.
    pub observer: Observer,
    /// Callback for a failure, called when it is found, possibly long before more input arrives.
    pub on_failure: OnFailure,
}

impl Default for ExtractOptions {
    fn default() -> Self {
        Self {
            threads: 1,
            dialect: Dialect::Auto,
            limits: Limits::default(),
            allow_truncated: false,
            durability: Durability::default(),
            decoding: FileDecoding::default(),
            observer: Observer::default(),
            on_failure: OnFailure::default(),
        }
    }
}

impl ExtractOptions {
    /// Sets the number of worker threads.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets when files are made durable.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets the layers to decompress and decrypt.
    #[must_use]
    pub fn with_decoding(mut self, decoding: FileDecoding) -> Self {
        self.decoding = decoding;
        self
    }
}

/// Callback for a failed extraction, so that the caller can stop waiting for input that is now
/// useless. A thread of the extractor calls it at least once. The callback must not wait for the
/// extraction to end; [`Extractor::finish`](crate::Extractor::finish) returns the first failure.
#[derive(Clone, Default)]
pub struct OnFailure(Option<Arc<Tell>>);

type Tell = dyn Fn(&ExtractCause) + Send + Sync;

impl OnFailure {
    /// Creates a callback from a function.
    pub fn new(tell: impl Fn(&ExtractCause) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }

    pub(crate) fn tell(&self, cause: &ExtractCause) {
        if let Some(tell) = &self.0 {
            tell(cause);
        }
    }
}

impl fmt::Debug for OnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "OnFailure" } else { "OnFailure(none)" })
    }
}

/// Log of proven data, so that a later run need not extract it again. Several threads call it, but
/// only one at a time for each file.
pub trait ExtractLog: Send + Sync {
    /// All bytes of the file `path` of the stream before the offset `upto` are correct, written,
    /// and have the CRC-32 `crc`. `number` is the file's number among the partial files. The chunk
    /// that ends at `upto` has `chunk` bytes in the stream.
    fn proven(&self, path: &RelPath, number: u64, upto: u64, chunk: u64, crc: u32);

    /// Earlier reports about the file of this number are no longer valid: its bytes are
    /// overwritten.
    fn overwritten(&self, number: u64);

    /// The file `path` of the stream, the partial file of this number, is complete. It has `size`
    /// bytes and is about to be renamed to `name`. `crc` is the CRC-32 of its content, unless it
    /// was written out of order.
    fn whole(&self, path: &RelPath, number: u64, name: &RelPath, size: u64, crc: Option<u32>);

    /// The stream removes or renames the file whose final name is `name`, or gives that name to another one: earlier
    /// reports about it are no longer valid.
    fn taken_back(&self, name: &RelPath);
}

/// A file that an earlier run left unfinished, without layers to decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialFileState {
    /// Name in the stream.
    pub path: RelPath,
    /// Number of the partial file.
    pub number: u64,
    /// All bytes before this offset are present.
    pub upto: u64,
    /// CRC-32 of the bytes before `upto`.
    pub crc: u32,
}

/// Totals of an extraction.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ExtractReport {
    /// Complete files that have their final names.
    pub files: u64,
    /// Number of decrypted ones among them.
    pub decrypted: u64,
    /// Bytes of the stream that were processed.
    pub bytes: u64,
    /// Description of the truncation, if the stream was truncated and the options allow it.
    pub truncated: Option<Box<Truncated>>,
}

/// A stream that ended too early, and the files lost by it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Truncated {
    /// The error at the end of the stream.
    pub cause: ExtractCause,
    /// Unfinished files that were dropped, sorted by name, each with the offset in bytes that it
    /// had reached.
    pub dropped: Vec<(RelPath, u64)>,
}

impl Truncated {
    pub(super) fn new<'a>(
        cause: ExtractCause,
        open: impl Iterator<Item = (&'a RelPath, u64)>,
    ) -> Self {
        let mut dropped: Vec<_> = open.map(|(path, offset)| (path.clone(), offset)).collect();
        dropped.sort();
        Self { cause, dropped }
    }
}

/// Extraction failed. Files that were complete before keep their names; all others are removed.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
#[non_exhaustive]
pub struct ExtractError {
    /// The first cause, in the order of the stream.
    #[source]
    pub cause: ExtractCause,
    /// Totals up to the failure.
    pub report: ExtractReport,
}

impl ExtractError {
    /// Creates an error for a failure before the first file.
    pub(super) fn early(cause: ExtractCause) -> Self {
        Self { cause, report: ExtractReport::default() }
    }
}

/// Reason why extraction failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractCause {
    /// The input could not be read.
    #[error("cannot read at stream offset {position}: {source}")]
    Read {
        /// Number of bytes processed before.
        position: u64,
        /// System error.
        source: io::Error,
    },
    /// The input is not a well-formed stream, or a checksum does not match.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A chunk does not fit those before it.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// The input ended too early.
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// A file could not be written or settled.
    #[error("{source} (stream offset {position})")]
    Target {
        /// Stream offset of the chunk.
        position: u64,
        /// Cause, with file and offset.
        source: TargetError,
    },
    /// A file could not be decrypted or decompressed.
    #[error("{path}: {source} (stream offset {position})")]
    FileDecoding {
        /// Name in the stream.
        path: RelPath,
        /// Stream offset of the chunk.
        position: u64,
        /// Cause, with the position in the file if it is known.
        source: FileDecodeError,
    },
    /// The written data could not be made durable.
    #[error(transparent)]
    Sync(TargetError),
    /// A thread ended without a result.
    #[error(transparent)]
    Worker(#[from] WorkerDied),
    /// The system could not start a thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

impl ExtractCause {
    /// Returns whether this error is typical of a stream that was cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        matches!(
            self,
            Self::Decode(DecodeError::Truncated { .. })
                | Self::Unfinished(Unfinished::Files { .. })
        )
    }
}

/// Adds the file and the chunk's position to an error of decoding.
pub(super) fn cannot_decode(
    path: &RelPath,
    position: u64,
) -> impl Fn(FileDecodeError) -> ExtractCause {
    let path = path.clone();
    move |source| ExtractCause::FileDecoding { path: path.clone(), position, source }
}

/// The extractor stopped because of an error. [`Extractor::finish`](crate::Extractor::finish)
/// returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("extraction has stopped")]
pub struct Stopped;
