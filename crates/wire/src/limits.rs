//! Every limit in one place, so that tests can use small ones.

use std::num::{NonZeroU8, NonZeroU64};
use std::time::Duration;

/// The most bytes of an offer or an answer.
pub const MAX_OFFER: usize = 64 << 10;
/// The most bytes of a reason for a refusal or an abort; more is cut.
pub const MAX_REASON: usize = 1 << 10;
/// The most connections of one transfer.
pub(crate) const MAX_CONNECTIONS: u8 = 16;
/// The most payload bytes in one block on the wire.
pub(crate) const MAX_BLOCK: u32 = 1 << 20;
/// Blocks smaller than this are gathered, but for the last one; it bounds their number.
pub(crate) const MIN_BLOCK: usize = 4 << 10;
/// Connections that have not shown yet who they are; when one more comes, one of them has to go.
pub(crate) const MAX_PENDING_PEERS: usize = 32;
/// Threads of connections, those included that just take their leave; others wait outside.
pub(crate) const MAX_PEER_THREADS: usize = 2 * (MAX_PENDING_PEERS + MAX_CONNECTIONS as usize);

/// Times, sizes and counts of a transfer. The defaults are meant for production.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// How long one try to connect may take, and for how long the first contact is tried.
    pub connect: Duration,
    /// From an open connection to a peer that has shown who it is.
    pub handshake: Duration,
    /// How long the donor waits for the joiner's answer to the offer.
    pub answer: Duration,
    /// Something is sent at least this often.
    pub heartbeat: Duration,
    /// A connection on which nothing arrives for this long is given up and opened anew.
    pub stall: Duration,
    /// How long the blocks of a lost connection wait for it to come back, with the joiner's word of
    /// what it has, before another connection sends them again.
    pub doubt: Duration,
    /// Without any progress for this long the transfer has failed.
    pub resume: Duration,
    /// When the joiner's address refuses every connection for this long, nobody listens there any
    /// more and the donor gives up; never longer than `resume`.
    pub refused: Duration,
    /// How long the joiner, once it has confirmed, waits for a donor whose connections are lost.
    pub receipt: Duration,
    /// How long a goodbye with its reason may take.
    pub farewell: Duration,
    /// The most bytes that each side holds: the donor not yet acknowledged ones, the joiner those
    /// that wait for their turn or their reader. At least 4 blocks.
    pub window: usize,
    /// Payload bytes of a block on the wire, 4 KiB to 1 MiB.
    pub block: usize,
    /// Number of connections, at most 16. `None`: chosen from round-trip time and cores.
    pub connections: Option<NonZeroU8>,
    /// The most payload bytes a second that the donor sends.
    pub rate: Option<NonZeroU64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            handshake: Duration::from_secs(10),
            answer: Duration::from_secs(120),
            heartbeat: Duration::from_secs(5),
            stall: Duration::from_secs(20),
            doubt: Duration::from_secs(2),
            resume: Duration::from_secs(600),
            refused: Duration::from_secs(30),
            receipt: Duration::from_secs(60),
            farewell: Duration::from_secs(2),
            window: 64 << 20,
            block: 256 << 10,
            connections: None,
            rate: None,
        }
    }
}

/// Longer than anybody waits, and short enough for every sum with a moment.
const MOST: Duration = Duration::from_secs(365 * 24 * 3600);

pub(crate) fn bounded(time: Duration) -> Duration {
    time.min(MOST)
}

impl Limits {
    /// Times that can be reckoned with, and heartbeats that a stall limit cannot miss.
    pub(crate) fn bounded(mut self) -> Self {
        for time in [
            &mut self.connect,
            &mut self.handshake,
            &mut self.answer,
            &mut self.stall,
            &mut self.doubt,
            &mut self.resume,
            &mut self.refused,
            &mut self.receipt,
            &mut self.farewell,
        ] {
            *time = bounded(*time);
        }
        self.heartbeat = self.heartbeat.min(self.stall / 3);
        self
    }

    /// The size of blocks as it is used: within its bounds, and small enough that a slow rate is
    /// smooth and a small window holds several.
    pub(crate) fn block_size(&self) -> usize {
        let by_rate = self.rate.map_or(u64::MAX, |rate| rate.get() / 16);
        let by_rate = usize::try_from(by_rate).unwrap_or(usize::MAX);
        self.block.min(by_rate).min(self.window / 4).clamp(MIN_BLOCK, MAX_BLOCK as usize)
    }

    /// The window as it is used.
    pub(crate) fn window_size(&self) -> usize {
        self.window.max(4 * MIN_BLOCK)
    }

    /// How many blocks a window may be cut into.
    pub(crate) fn window_blocks(&self) -> u64 {
        (self.window_size() / MIN_BLOCK) as u64 + u64::from(MAX_CONNECTIONS)
    }
}
