//! Counters for progress reports and for finding the slowest stage.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Live counters of one transfer; read them with [`Counters::snapshot`].
#[derive(Debug, Default)]
pub struct Counters {
    pub(crate) sent: AtomicU64,
    pub(crate) resent: AtomicU64,
    pub(crate) acknowledged: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) duplicate: AtomicU64,
    pub(crate) delivered: AtomicU64,
    pub(crate) reconnects: AtomicU64,
    pub(crate) connections: AtomicU32,
    pub(crate) round_trip: AtomicU64,
    pub(crate) network: AtomicU64,
    pub(crate) source: AtomicU64,
    pub(crate) reader: AtomicU64,
}

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
        let nanos = |value: &AtomicU64| Duration::from_nanos(value.load(Relaxed));
        Snapshot {
            sent: self.sent.load(Relaxed),
            resent: self.resent.load(Relaxed),
            acknowledged: self.acknowledged.load(Relaxed),
            received: self.received.load(Relaxed),
            duplicate: self.duplicate.load(Relaxed),
            delivered: self.delivered.load(Relaxed),
            reconnects: self.reconnects.load(Relaxed),
            connections: self.connections.load(Relaxed),
            round_trip: nanos(&self.round_trip),
            waited_for_network: nanos(&self.network),
            waited_for_source: nanos(&self.source),
            waited_for_reader: nanos(&self.reader),
        }
    }
}

pub(crate) fn add(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Relaxed);
}

pub(crate) fn add_time(counter: &AtomicU64, more: Duration) {
    counter.fetch_add(u64::try_from(more.as_nanos()).unwrap_or(u64::MAX), Relaxed);
}
