//! All limits, in one place so that tests can use small ones.

use std::num::{NonZeroU8, NonZeroU64};
use std::time::Duration;

/// Maximum size of an offer or an answer, in bytes.
pub const MAX_OFFER: usize = 64 << 10;
/// Maximum size of a reason for a refusal or an abort, in bytes; a longer one is truncated.
pub(crate) const MAX_REASON: usize = 1 << 10;
/// Maximum size of a question, in bytes.
pub const MAX_QUESTION: usize = 4 << 10;
/// Maximum size of the reply to a question, in bytes.
pub const MAX_REPLY: usize = 64;
/// Maximum number of questions whose reply the donor has not taken.
pub(crate) const MAX_QUESTIONS: u64 = 256;
/// First version of the protocol in which a donor may begin its stream again.
pub(crate) const AGAIN_SINCE: u16 = 2;
/// First version of the protocol that has questions.
pub(crate) const QUESTIONS_SINCE: u16 = 2;
/// Versions of the protocol that this program speaks: oldest and newest.
const VERSIONS: (u16, u16) = (1, 2);
/// Maximum number of connections of one transfer.
pub(crate) const MAX_CONNECTIONS: u8 = 16;
/// Maximum payload of one block on the wire, in bytes.
pub(crate) const MAX_BLOCK: u32 = 1 << 20;
/// Blocks smaller than this are combined, except for the last one; this bounds their number.
pub(crate) const MIN_BLOCK: usize = 4 << 10;
/// Maximum number of connections whose peer is not authenticated yet; one more evicts one of them.
pub(crate) const MAX_PENDING_PEERS: usize = 32;
/// Maximum number of connection threads, including those of connections that are just closing;
/// further connections wait to be accepted.
pub(crate) const MAX_PEER_THREADS: usize = 2 * (MAX_PENDING_PEERS + MAX_CONNECTIONS as usize);

/// Time limits, sizes and counts of a transfer. The defaults are for production.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// Time limit for one attempt to connect, and for all attempts at the first contact.
    pub connect: Duration,
    /// Time limit from an open connection to an authenticated peer.
    pub handshake: Duration,
    /// Time for which the donor waits for the joiner's answer to the offer.
    pub answer: Duration,
    /// Something is sent at least this often.
    pub heartbeat: Duration,
    /// A connection on which nothing arrives for this long is closed and reopened.
    pub stall: Duration,
    /// Time for which the blocks of a lost connection wait for its return, which brings the
    /// joiner's report of the blocks it has, before another connection sends them again.
    pub doubt: Duration,
    /// The transfer fails after this long without any progress.
    pub resume: Duration,
    /// The donor gives up if the joiner's address refuses every connection for this long, because
    /// nothing listens there any more; never longer than `resume`.
    pub refused: Duration,
    /// Time for which the joiner, after its confirmation, waits for a donor whose connections are
    /// lost.
    pub receipt: Duration,
    /// Time limit for the final message with its reason.
    pub farewell: Duration,
    /// Maximum number of bytes that each side holds: on the donor those not acknowledged, on the
    /// joiner those that wait for earlier blocks or the reader. At least 4 blocks.
    pub window: usize,
    /// Payload bytes of a block on the wire, 4 KiB to 1 MiB.
    pub block: usize,
    /// Number of connections, at most 16. `None`: chosen from round-trip time and cores.
    pub connections: Option<NonZeroU8>,
    /// Rate limit of the donor, in payload bytes per second.
    pub rate: Option<NonZeroU64>,
    /// The newest version of the protocol that is offered to the peer.
    pub newest_version: u16,
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
            newest_version: VERSIONS.1,
        }
    }
}

/// Longer than any real wait, and short enough to be added to any `Instant`.
const MAX_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

pub(crate) fn bounded(time: Duration) -> Duration {
    time.min(MAX_LIMIT)
}

impl Limits {
    /// Limits durations to values that can be added without overflow, and heartbeats to less than
    /// the stall limit.
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

    /// The effective block size: within its bounds, and small enough that a slow rate is smooth and
    /// a small window holds several blocks.
    pub(crate) fn block_size(&self) -> usize {
        let by_rate = self.rate.map_or(u64::MAX, |rate| rate.get() / 16);
        let by_rate = usize::try_from(by_rate).unwrap_or(usize::MAX);
        self.block.min(by_rate).min(self.window / 4).clamp(MIN_BLOCK, MAX_BLOCK as usize)
    }

    /// The oldest and the newest version that is offered to the peer.
    pub(crate) fn versions(&self) -> (u16, u16) {
        (VERSIONS.0, self.newest_version.clamp(VERSIONS.0, VERSIONS.1))
    }

    /// The effective window size.
    pub(crate) fn window_size(&self) -> usize {
        self.window.max(4 * MIN_BLOCK)
    }

    /// Maximum number of blocks in a window.
    pub(crate) fn window_blocks(&self) -> u64 {
        (self.window_size() / MIN_BLOCK) as u64 + u64::from(MAX_CONNECTIONS)
    }
}
