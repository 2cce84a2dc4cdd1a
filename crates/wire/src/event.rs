//! What happens beside the data, for the log.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Something that an operator may want to know. `Display` gives one line.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// Somebody connected who is no donor, or not the one that is awaited.
    Stranger {
        /// From where.
        peer: SocketAddr,
        /// What it did.
        what: String,
    },
    /// A connection of the transfer is there.
    Connected {
        /// Its number, from 0.
        connection: u16,
        /// The other end.
        peer: SocketAddr,
        /// Whether it takes the place of one that was lost.
        again: bool,
    },
    /// A connection of the transfer was lost; the donor opens it anew.
    Lost {
        /// Its number, from 0.
        connection: u16,
        /// Why.
        why: String,
    },
    /// How many connections the donor uses, and why.
    Chosen {
        /// Their number.
        connections: u8,
        /// The round-trip time measured on the first.
        round_trip: Duration,
    },
    /// The transfer has failed; calls on it give the error. Sent once, so that a source that is
    /// silent can be ended.
    Failed {
        /// The first cause.
        why: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stranger { peer, what } => write!(f, "refused a connection from {peer}: {what}"),
            Self::Connected { connection, peer, again: false } => {
                write!(f, "connection {connection} with {peer}")
            }
            Self::Connected { connection, peer, again: true } => {
                write!(f, "connection {connection} with {peer} is there again")
            }
            Self::Lost { connection, why } => write!(f, "lost connection {connection}: {why}"),
            Self::Chosen { connections, round_trip } => {
                let millis = round_trip.as_secs_f64() * 1e3;
                write!(f, "{connections} connections for a round trip of {millis:.1} ms")
            }
            Self::Failed { why } => write!(f, "the transfer has failed: {why}"),
        }
    }
}

/// Who is told of events; called from the transfer's own threads, and must not block.
#[derive(Clone, Default)]
pub struct Observer(Option<Arc<Tell>>);

type Tell = dyn Fn(&Event) + Send + Sync;

impl Observer {
    /// Tells `tell`.
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
