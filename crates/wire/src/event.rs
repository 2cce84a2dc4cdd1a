//! Events of a transfer, for the log.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Something that an operator may want to know. `Display` formats one line.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A peer connected that is not a donor, or not the expected one.
    RejectedPeer {
        /// The peer's address.
        peer: SocketAddr,
        /// Action of the peer.
        what: String,
        /// Whether it spoke this protocol, and so is probably a donor.
        spoke: bool,
    },
    /// A connection of the transfer was established.
    Connected {
        /// Its number, from 0.
        connection: u16,
        /// The peer's address.
        peer: SocketAddr,
        /// Whether it replaces one that was lost.
        again: bool,
    },
    /// A connection of the transfer was lost; the donor reopens it.
    Lost {
        /// Its number, from 0.
        connection: u16,
        /// The reason.
        why: String,
    },
    /// The donor chose the number of connections.
    Chosen {
        /// Number of connections.
        connections: u8,
        /// Round-trip time measured on the first connection.
        round_trip: Duration,
    },
    /// The transfer has failed; calls on it return the error. Sent once, so that a source that
    /// produces no data can be ended.
    Failed {
        /// The first cause.
        why: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RejectedPeer { peer, what, .. } => {
                write!(f, "refused a connection from {peer}: {what}")
            }
            Self::Connected { connection, peer, again: false } => {
                write!(f, "connection {connection} to {peer}")
            }
            Self::Connected { connection, peer, again: true } => {
                write!(f, "connection {connection} to {peer} is re-established")
            }
            Self::Lost { connection, why } => write!(f, "lost connection {connection}: {why}"),
            Self::Chosen { connections, round_trip } => {
                let millis = round_trip.as_secs_f64() * 1e3;
                write!(f, "connections: {connections}, for a round trip of {millis:.1} ms")
            }
            Self::Failed { why } => write!(f, "the transfer failed: {why}"),
        }
    }
}

/// Receiver of events. It is called from the transfer's own threads, and must not block.
#[derive(Clone, Default)]
pub struct Observer(Option<Arc<Tell>>);

type Tell = dyn Fn(&Event) + Send + Sync;

impl Observer {
    /// Creates an observer that calls `tell`.
    pub fn new(tell: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }

    pub(crate) fn tell(&self, event: &Event) {
        if let Some(tell) = &self.0 {
            tell(event);
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Observer" } else { "Observer(nobody)" })
    }
}
