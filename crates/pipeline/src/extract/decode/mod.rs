//! Reverses the compression and encryption of single files in a backup, as indicated by the
//! suffixes of their names.
//!
//! ```text
//! finalizer ► queue of each file ──► workers ──────────────────────────► final name
//! in order    limited by `flight`    one thread at a time for a file:     at the file's end,
//!                                    decrypt, decompress, write           every layer complete
//! ```
//!
//! # Memory, and why there is no deadlock
//!
//! [`FileDecoding::memory`] is divided into three parts.
//!
//! - *Flight*: bytes between the feeder and the workers. They can always be consumed without
//!   further input, so the feeder, which waits for this part, only waits for work to be done.
//! - *States*: memory that open files hold between two pieces: an incomplete chunk, windows,
//!   blocks. A decoder requests it in advance and never waits for it, because its file may end only
//!   after others have advanced. If none is left, the file is *parked*: from then on its stored
//!   bytes go to an unnamed file beside its own, and at its end it is decoded from there.
//! - *The seat*, more than half: parked files are decoded one at a time, and that file may use the
//!   whole seat. It depends on nothing but its own bytes, so it always finishes. A file that does
//!   not fit into the seat is an error, which states the memory needed.
//!
//! So the number of 128 MiB windows in memory is at most what *states* holds, plus one; the other
//! files wait on disk, in the order of their ends.

mod codec_chain;
mod file_queue;
mod sparse_write;
mod suffixes;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use xb_compressor::CodecError;
use xb_encryptor::xbcrypt::{Cipher, XbcryptError};
use xb_reader::{PathError, RelPath};

pub(crate) use codec_chain::{ChainStop, CodecChain, MemoryNeed};
pub(crate) use file_queue::{FileWork, Item, Member, SpilledFile};
pub(crate) use sparse_write::{may_have_holes, write_with_holes};
pub(crate) use suffixes::{Layer, Names, Plan};

use crate::flow::plan::SLAB;

/// Layers of files that are decoded during extraction.
#[derive(Debug, Clone)]
pub struct FileDecoding {
    /// Decompress `.qp`, `.lz4` and `.zst` files.
    pub decompress: bool,
    /// Treatment of `.xbcrypt` files.
    pub decrypt: Decrypt,
    /// Threads for decoding, at least one. Files are decoded in parallel, each by one thread at a
    /// time.
    pub threads: usize,
    /// Limit in bytes for data in flight, chunks, blocks and windows; raised to
    /// [`FileDecoding::MIN_MEMORY`] if lower. A file that needs more than five eighths of it is an error.
    pub memory: u64,
}

/// Treatment of encrypted files.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Decrypt {
    /// They stay encrypted, with their suffix, and their inner layers are left, too.
    #[default]
    Leave,
    /// The first encrypted file is an error.
    Refuse,
    /// They are decrypted.
    With(Arc<Cipher>),
}

impl FileDecoding {
    /// Minimum memory: a few pieces in flight, and space for ordinary files.
    pub const MIN_MEMORY: u64 = 16 << 20;

    /// Returns whether any layer must be decoded.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.decompress || !matches!(self.decrypt, Decrypt::Leave)
    }

    /// Division of the memory.
    pub(crate) fn shares(&self) -> Shares {
        let memory = self.memory.max(Self::MIN_MEMORY);
        let flight = (memory / 8).max(4 * SLAB as u64);
        let states = memory / 4;
        Shares { flight, states, seat: memory - flight - states }
    }

    /// Maximum number of bytes between the feeder and the workers.
    pub(crate) fn flight(&self) -> u64 {
        self.shares().flight
    }
}

impl Default for FileDecoding {
    /// Decodes nothing.
    fn default() -> Self {
        Self { decompress: false, decrypt: Decrypt::Leave, threads: 1, memory: 256 << 20 }
    }
}

/// Division of the memory, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    pub(crate) flight: u64,
    pub(crate) states: u64,
    pub(crate) seat: u64,
}

impl fmt::Debug for Decrypt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leave => "Leave",
            Self::Refuse => "Refuse",
            Self::With(_) => "With(***)",
        })
    }
}

/// Reason why the layers of a file cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileDecodeError {
    /// The compressed bytes are invalid.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The encrypted bytes are invalid, or the key is wrong.
    #[error(transparent)]
    Xbcrypt(#[from] XbcryptError),
    /// An encrypted file, and no key was given.
    #[error("the file is encrypted, but no key was given")]
    NoKey,
    /// The windows, blocks or chunks of the file are too large.
    #[error("decoding needs {needed} bytes of memory, the limit is {allowed}")]
    Memory {
        /// Memory that the file needs, in bytes.
        needed: u64,
        /// Maximum memory for one file, in bytes.
        allowed: u64,
    },
    /// Two files of the stream would have the same name.
    #[error("without suffixes it is named {name}, as is {other}")]
    Taken {
        /// The common name.
        name: RelPath,
        /// The other file's name in the stream.
        other: RelPath,
    },
    /// The path of this file leads through another file of the stream.
    #[error("its directory {name} is a file in the stream")]
    InFile {
        /// Name that would have to be a directory.
        name: RelPath,
    },
    /// A directory of the stream has this name.
    #[error("without suffixes it is named {name}, which is a directory in the stream")]
    Folder {
        /// Name without suffixes.
        name: RelPath,
    },
    /// The name is reserved for files that a restore keeps in the target directory.
    #[error("names starting with {prefix} are reserved")]
    Reserved {
        /// Reserved prefix of the name.
        prefix: &'static str,
    },
    /// The file has more layers than any producer writes.
    #[error("its name has more than {max} suffixes")]
    Layers {
        /// Maximum number of layers.
        max: usize,
    },
    /// Without its suffixes the name is invalid.
    #[error("without suffixes its name is invalid: {0}")]
    Name(PathError),
    /// The file has holes or seeks, which are impossible in compressed or encrypted files.
    #[error("it is compressed or encrypted, but its chunks have holes or are out of order")]
    OutOfOrder,
    /// A rename would change the layers of the file.
    #[error("it is renamed to {to}, which has different suffixes")]
    Renamed {
        /// New name.
        to: RelPath,
    },
}
