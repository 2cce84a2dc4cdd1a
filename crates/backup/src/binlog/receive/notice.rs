//! Reports of a receiver while it runs.

use std::sync::Arc;

use jiff::Timestamp;
use xb_repo::archive::stream::StreamOrigin;

/// Reports what happens.
pub(crate) type Tell = Arc<dyn Fn(Notice) + Send + Sync>;

/// Event in the life of a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A stream begins.
    Begins {
        /// Its ID.
        stream: String,
        /// Position of its first byte, as `FILE:POSITION`.
        at: String,
        /// Origin of the stream.
        begins: StreamOrigin,
    },
    /// Segments are stored up to a position.
    Stored {
        /// The position, as `FILE:POSITION`.
        position: String,
        /// Time of the last transaction up to there, in whole seconds.
        until: Option<Timestamp>,
    },
    /// The log has events that no replay crosses: older backups can only be restored up to the first of them.
    Barrier {
        /// ID of the stream.
        stream: String,
        /// Position of the first one that was stored just now, as `FILE:POSITION`.
        at: String,
        /// What it is, for people.
        what: &'static str,
    },
    /// Everything that the server had committed at this time is stored.
    Covered(Timestamp),
    /// The archive is known to have nothing beyond its last transaction, because of this; `None` once more is known.
    Uncovered(Option<String>),
    /// Every commit between these times has waited until it was stored; without them, that is not known.
    Acknowledged(Option<[Timestamp; 2]>),
    /// Commits do not wait for the archive as they should, because of this.
    NotWaiting(String),
    /// The clocks of the server and of this host differ, so that times of transactions may decide no stop.
    ClocksDiffer(String),
    /// A replay of the log may give other data than the server has, because of this.
    Doubtful(String),
    /// The server's settings were changed: a stream with the new ones follows.
    Changed(String),
    /// The stream has a new sign of life.
    Alive,
    /// The store does not take a segment; the receiver has stopped reading until it does.
    StoreAway(String),
    /// A roll-up of heads was not stored, because of this: reading the archive takes more requests.
    NotRolledUp(String),
    /// The store takes segments again.
    StoreBack,
    /// The server, which differs from that of the archive's end, lacks stored transactions: nothing is received
    /// until it has them.
    Behind(String),
    /// The connection ended, and another one will be tried.
    Disconnected(String),
    /// The log that the server writes is damaged, as it says here: nothing more is received until the server begins another one.
    Damaged(String),
    /// The archive lacks a segment that this host stored: it was removed or changed.
    Lost(String),
    /// The archive lacks a segment before its end, and log files have it, or should.
    Hole(String),
}
