//! What a receiver reports while it runs.

use std::sync::Arc;

use xb_repo::archive::stream::Begins;

/// Reports what happens.
pub(crate) type Tell = Arc<dyn Fn(Notice) + Send + Sync>;

/// What happens to a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A stream begins.
    Begins {
        /// Its ID.
        stream: String,
        /// Position of its first byte, as `FILE:POSITION`.
        at: String,
        /// What it follows.
        begins: Begins,
    },
    /// Segments are stored up to a position.
    Stored {
        /// The position, as `FILE:POSITION`.
        position: String,
    },
    /// The store does not take a segment; the receiver has stopped reading until it does.
    StoreAway(String),
    /// The store takes segments again.
    StoreBack,
    /// The connection ended, and another one will be tried.
    Disconnected(String),
    /// The archive lacks what this host remembers: it was removed or changed.
    Lost(String),
}
