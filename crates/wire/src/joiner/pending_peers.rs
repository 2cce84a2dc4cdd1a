//! Connections whose peer is not authenticated yet. Their number is limited; one more connection
//! closes the oldest, so that silent peers cannot keep the donor out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::limits::MAX_PENDING_PEERS;
use crate::link::wake::Wake;

/// All pending connections, in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct PendingPeers(Vec<Arc<PendingPeer>>);

/// A pending connection.
#[derive(Debug)]
pub(super) struct PendingPeer {
    pub(super) wake: Arc<Wake>,
    has_spoken: AtomicBool,
    is_evicted: AtomicBool,
}

impl PendingPeer {
    pub(super) fn new(wake: Wake) -> Self {
        Self { wake: Arc::new(wake), has_spoken: false.into(), is_evicted: false.into() }
    }

    /// Records that the donor's first line was valid. A real donor sends it immediately.
    pub(super) fn spoke(&self) {
        self.has_spoken.store(true, Ordering::Relaxed);
    }

    /// Returns whether the donor's first line was valid.
    pub(super) fn has_spoken(&self) -> bool {
        self.has_spoken.load(Ordering::Relaxed)
    }

    /// Returns whether it was closed to make room.
    pub(super) fn is_evicted(&self) -> bool {
        self.is_evicted.load(Ordering::Acquire)
    }
}

impl PendingPeers {
    /// Adds a connection. Above the limit the oldest silent one is evicted, or the oldest of all.
    pub(super) fn insert(&mut self, pending: Arc<PendingPeer>) {
        if self.0.len() >= MAX_PENDING_PEERS {
            let is_silent = |pending: &Arc<PendingPeer>| !pending.has_spoken();
            let gone = self.0.remove(self.0.iter().position(is_silent).unwrap_or(0));
            gone.is_evicted.store(true, Ordering::Release);
            gone.wake.wake();
        }
        self.0.push(pending);
    }

    /// Wakes the threads of all pending connections.
    pub(super) fn wake(&self) {
        self.0.iter().for_each(|pending| pending.wake.wake());
    }

    /// Removes a connection whose peer is now authenticated, or that has ended.
    pub(super) fn remove(&mut self, pending: &Arc<PendingPeer>) {
        self.0.retain(|other| !Arc::ptr_eq(other, pending));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_silent_makes_room_and_then_the_oldest_of_all() {
        let mut pending_peers = PendingPeers::default();
        let mut peers = Vec::new();
        for number in 0..MAX_PENDING_PEERS + 3 {
            let pending = Arc::new(PendingPeer::new(Wake::new().unwrap()));
            pending_peers.insert(Arc::clone(&pending));
            if number != 1 {
                pending.spoke();
            }
            peers.push(pending);
        }
        let away: Vec<_> = (0..peers.len()).filter(|n| peers[*n].is_evicted()).collect();
        assert_eq!(away, [0, 1, 2]);
        pending_peers.remove(&peers[5]);
        pending_peers.insert(Arc::new(PendingPeer::new(Wake::new().unwrap())));
        assert_eq!(pending_peers.0.len(), MAX_PENDING_PEERS);
        assert!(!peers[3].is_evicted(), "there was room");
    }
}
