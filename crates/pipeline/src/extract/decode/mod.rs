//! Undoing what was done to the files of a backup one by one: compression and encryption, as the
//! suffixes of their names tell.
//!
//! ```text
//! settler ──► queue of each file ──► crew ─────────────────────────────► final name
//! in order    bounded by `flight`    one thread at a time for a file:     at the file's end,
//!                                    decrypt, decompress, write           every layer whole
//! ```
//!
//! # Memory, and why nobody waits for ever
//!
//! [`Undo::memory`] is divided into three parts.
//!
//! - *Flight*: bytes between the feeder and the crew. They can always be taken without any further
//!   input, so the feeder, which waits for this part, waits only for work.
//! - *States*: what open files hold between two pieces: a chunk that is not whole, windows, blocks.
//!   A decoder asks before it takes any. It never waits for it: its file may end only after others
//!   have gone on. Where there is nothing left the file is *parked*: from then on its stored bytes
//!   go to a nameless file beside its own, and at its end it is undone from there.
//! - *The seat*, more than half: parked files are undone one at a time, and who sits there may hold
//!   all of it. He needs nothing but his own file, so he always comes to an end. What does not fit
//!   the seat fits nowhere and is an error with the number.
//!
//! So windows of 128 MiB are at most as many at a time as *states* holds, and one more; the others
//! wait in the order of their ends, on disk.

mod codec_chain;
mod file_queue;
mod sparse_write;
mod suffixes;
#[cfg(test)]
mod tests;
mod workers;

use std::fmt;
use std::sync::Arc;

use xb_compressor::CodecError;
use xb_encryptor::xbcrypt::{Cipher, XbcryptError};
use xb_reader::{PathError, RelPath};

pub(crate) use codec_chain::{Chain, Flow, Want};
pub(crate) use file_queue::Member;
pub(crate) use sparse_write::{may_have_holes, write_with_holes};
pub(crate) use suffixes::{Layer, Names, Plan};
pub(crate) use workers::Crew;

use crate::flow::plan::SLAB;

/// What is to be undone.
#[derive(Debug, Clone)]
pub struct Undo {
    /// Decompress `.qp`, `.lz4` and `.zst` files.
    pub decompress: bool,
    /// What to do with `.xbcrypt` files.
    pub decrypt: Decrypt,
    /// Threads for it, at least one. Files are undone side by side, one file by one thread.
    pub threads: usize,
    /// Ceiling in bytes for what is on its way, for chunks, blocks and windows; at least
    /// [`Undo::MIN_MEMORY`] is taken. A file that needs more than five eighths of it is refused.
    pub memory: u64,
}

/// What to do with encrypted files.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Decrypt {
    /// They stay as they are, with their suffix, and so does what is inside.
    #[default]
    Leave,
    /// The first one is an error.
    Refuse,
    /// They are decrypted.
    With(Arc<Cipher>),
}

impl Undo {
    /// The least memory: a few pieces on their way, and room for ordinary files.
    pub const MIN_MEMORY: u64 = 16 << 20;

    /// Whether anything is to be done.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.decompress || !matches!(self.decrypt, Decrypt::Leave)
    }

    /// How the memory is divided.
    fn shares(&self) -> Shares {
        let memory = self.memory.max(Self::MIN_MEMORY);
        let flight = (memory / 8).max(4 * SLAB as u64);
        let states = memory / 4;
        Shares { flight, states, seat: memory - flight - states }
    }

    /// Bytes that may be between the feeder and the crew.
    pub(crate) fn flight(&self) -> u64 {
        self.shares().flight
    }
}

impl Default for Undo {
    /// Nothing is undone.
    fn default() -> Self {
        Self { decompress: false, decrypt: Decrypt::Leave, threads: 1, memory: 256 << 20 }
    }
}

#[derive(Debug, Clone, Copy)]
struct Shares {
    flight: u64,
    states: u64,
    seat: u64,
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

/// Why a file cannot be undone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UndoError {
    /// The compressed bytes are refused.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The encrypted bytes are refused, or the key is another.
    #[error(transparent)]
    Xbcrypt(#[from] XbcryptError),
    /// An encrypted file where there must be none without a key.
    #[error("it is encrypted, and no key was given")]
    NoKey,
    /// Its windows, blocks or chunks are too large.
    #[error("needs {needed} bytes of memory to be undone, {allowed} are allowed")]
    Memory {
        /// What it asks for.
        needed: u64,
        /// The most that one file may hold.
        allowed: u64,
    },
    /// Two files of the stream would have one name.
    #[error("without its suffixes it is called {name}, and so is {other}")]
    Taken {
        /// The name that both would have.
        name: RelPath,
        /// The other file, as the stream names it.
        other: RelPath,
    },
    /// A file of the stream cannot have others in it.
    #[error("it lies in {name}, which is a file of the stream")]
    InFile {
        /// What should be a folder.
        name: RelPath,
    },
    /// A folder of the stream has that name.
    #[error("it would be called {name}, which is a folder of the stream")]
    Folder {
        /// The name without suffixes.
        name: RelPath,
    },
    /// The name belongs to what a restore keeps in the target.
    #[error("names that begin with {prefix} are reserved")]
    Reserved {
        /// What it begins with.
        prefix: &'static str,
    },
    /// No producer wraps files so often.
    #[error("its name has more than {max} suffixes to undo")]
    Layers {
        /// The most.
        max: usize,
    },
    /// What is left of the name without suffixes is none.
    #[error("without its suffixes it has no name: {0}")]
    Name(PathError),
    /// Holes and seeks cannot be in what was compressed or encrypted front to back.
    #[error("it is compressed or encrypted, and its chunks have holes or go back")]
    OutOfOrder,
    /// A rename that would make it a file of another kind.
    #[error("it is renamed to {to}, which has other suffixes")]
    Renamed {
        /// The new name.
        to: RelPath,
    },
}
