//! Counters for progress reports and for finding the slowest stage.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Live counters of one transfer; read them with [`Counters::snapshot`].
#[derive(Debug, Default)]
pub struct Counters(Mutex<Snapshot>);

/// The counters at one moment. Bytes are payload, without framing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Donor: bytes written to connections, including repeated ones.
    pub sent: u64,
    /// Donor: bytes of these that were repeated after a connection was lost.
    pub resent: u64,
    /// Donor: bytes that the joiner has.
    pub acknowledged: u64,
    /// Joiner: bytes that arrived, each counted once.
    pub received: u64,
    /// Joiner: bytes that arrived more than once.
    pub duplicate: u64,
    /// Joiner: bytes passed to the reader.
    pub delivered: u64,
    /// Connections that were reopened.
    pub reconnects: u64,
    /// Open connections.
    pub connections: u32,
    /// Donor: last measured round-trip time; zero before the first.
    pub round_trip: Duration,
    /// Donor: time that `send` and `finish` waited for the network or the joiner. Joiner: time that
    /// the reader waited for bytes.
    pub waited_for_network: Duration,
    /// Donor: time during which the connections had nothing to send.
    pub waited_for_source: Duration,
    /// Donor: time during which there was data to send but the joiner's reader was behind.
    pub waited_for_reader: Duration,
}

impl Counters {
    /// Returns the current values.
    pub fn snapshot(&self) -> Snapshot {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
