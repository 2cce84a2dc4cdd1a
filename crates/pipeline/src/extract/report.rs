//! How to extract, and what may come of it.

use std::fmt;
use std::io;
use std::sync::Arc;

use xb_reader::{DecodeError, Dialect, Limits, OrderError, RelPath, TargetError, Unfinished};

use crate::extract::decode::{Undo, UndoError};
use crate::flow::observer::Observer;
use crate::flow::ordered_pool::WorkerDied;

/// When extracted files are made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Each file before it gets its name, and the file system once more at the end.
    File,
    /// The whole file system once, at the end.
    #[default]
    End,
    /// Not at all: the system will write it some time, and failures of that are not seen.
    None,
}

/// How to extract.
#[derive(Debug, Clone)]
pub struct ExtractOptions {
    /// Worker threads, at least one.
    pub threads: usize,
    /// What a chunk of type `S` means.
    pub dialect: Dialect,
    /// What a chunk may announce.
    pub limits: Limits,
    /// Keep the whole files of a stream that was cut, instead of failing.
    pub allow_truncated: bool,
    /// When files are made durable.
    pub durability: Durability,
    /// What to decompress and decrypt on the way. While anything is undone, blocks of zeros in
    /// `.ibd` files become holes.
    pub undo: Undo,
    /// Counts bytes of the stream and files that have their names.
    pub observer: Observer,
    /// Told of a failure when it is found, which may be long before more input comes.
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
            undo: Undo::default(),
            observer: Observer::default(),
            on_failure: OnFailure::default(),
        }
    }
}

/// Who is told that extraction has failed, so that nobody waits for input that is of no use any more.
/// It is called by a thread of the extractor, at least once, and must not wait for that; which failure
/// was the first, [`Extractor::finish`](crate::Extractor::finish) tells.
#[derive(Clone, Default)]
pub struct OnFailure(Option<Arc<Tell>>);

type Tell = dyn Fn(&ExtractCause) + Send + Sync;

impl OnFailure {
    /// Tells `tell`.
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
        f.write_str(if self.0.is_some() { "OnFailure" } else { "OnFailure(nobody)" })
    }
}

/// Told what is proven while it is extracted, so that a later run need not do it again. It is called
/// by several threads, for one file by one at a time.
pub trait ExtractLog: Send + Sync {
    /// Of the file `path` of the stream, which grows under this number, all bytes before the
    /// offset `upto` are right and written, and have the CRC-32 `crc`. The chunk that ends there took
    /// `chunk` bytes of the stream.
    fn proven(&self, path: &RelPath, number: u64, upto: u64, chunk: u64, crc: u32);

    /// What was said of the file of this number no longer holds: what was written is overwritten.
    fn overwritten(&self, number: u64);

    /// The file `path` of the stream, which grew under this number, is whole. Its length is `size`,
    /// and right after this it is called `name`. The CRC-32 of its content is `crc`; that of a file
    /// that was written out of order is not known.
    fn whole(&self, path: &RelPath, number: u64, name: &RelPath, size: u64, crc: Option<u32>);

    /// The stream takes back files or names: nothing that was said can be gone on with.
    fn taken_back(&self);
}

/// A file that an earlier run has begun, and no layer of which is undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BegunFile {
    /// Its name in the stream.
    pub path: RelPath,
    /// The number under which it grows.
    pub number: u64,
    /// All bytes before this offset are there,
    pub upto: u64,
    /// and have this CRC-32.
    pub crc: u32,
}

/// What was extracted.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ExtractReport {
    /// Files that are whole and have their names.
    pub files: u64,
    /// How many of them were decrypted.
    pub decrypted: u64,
    /// Bytes of the stream that were taken.
    pub bytes: u64,
    /// How the stream was cut, if it was and that is allowed.
    pub truncated: Option<Box<Truncated>>,
}

/// A stream that ended too early, and what was lost with its end.
#[derive(Debug)]
#[non_exhaustive]
pub struct Truncated {
    /// How it ended.
    pub cause: ExtractCause,
    /// Files that were begun and dropped, with the offset in bytes up to which they had come, by
    /// name.
    pub dropped: Vec<(RelPath, u64)>,
}

/// Extraction failed. Files that were whole before stay under their names; all others are gone.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
#[non_exhaustive]
pub struct ExtractError {
    /// The first cause, in the order of the stream.
    #[source]
    pub cause: ExtractCause,
    /// What was extracted before.
    pub report: ExtractReport,
}

/// Why extraction failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractCause {
    /// The input could not be read.
    #[error("cannot read at stream offset {position}: {source}")]
    Read {
        /// Bytes taken before.
        position: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// The input is no well-formed stream, or a checksum does not hold.
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
        /// Where the chunk in question begins in the stream.
        position: u64,
        /// What went wrong, with file and offset.
        source: TargetError,
    },
    /// A file could not be decrypted or decompressed.
    #[error("{path}: {source} (stream offset {position})")]
    Undo {
        /// Its name in the stream.
        path: RelPath,
        /// Where the chunk in question begins in the stream.
        position: u64,
        /// What went wrong, with the place in the file where there is one.
        source: UndoError,
    },
    /// What was written could not be made durable.
    #[error(transparent)]
    Sync(TargetError),
    /// A thread ended without a result.
    #[error(transparent)]
    Worker(#[from] WorkerDied),
    /// The system gave no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

impl ExtractCause {
    /// Whether this is what a cut stream looks like.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        matches!(
            self,
            Self::Decode(DecodeError::Truncated { .. })
                | Self::Unfinished(Unfinished::Files { .. })
        )
    }
}

/// Adds the file and the chunk's position to why it cannot be undone.
pub(super) fn cannot_undo(path: &RelPath, position: u64) -> impl Fn(UndoError) -> ExtractCause {
    let path = path.clone();
    move |source| ExtractCause::Undo { path: path.clone(), position, source }
}

/// The extractor has stopped: an error was found. [`Extractor::finish`](crate::Extractor::finish) tells which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("extraction has stopped")]
pub struct Stopped;
