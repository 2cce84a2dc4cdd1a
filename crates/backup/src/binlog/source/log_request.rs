//! Request of a log from a server, as a replica makes it.

use std::time::Duration;

use xb_mysql::Replica;

/// Time limit of each step of a login and of each short statement.
pub(crate) const LOGIN_LIMIT: Duration = Duration::from_secs(30);

/// A server's error for a log or a position that it cannot send.
pub(crate) const NO_SUCH_POSITION: u16 = 1236;
/// The same for a log that is in its index and not on its disk.
pub(crate) const NO_FILE: u16 = 29;

/// How a log is received.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogRequest {
    /// ID that the receiver announces.
    pub(crate) server_id: u32,
    /// An unstored byte waits for this time at most.
    pub(crate) age: Duration,
    /// A segment has at most about this many plain bytes.
    pub(crate) size: usize,
    /// The time for which an object counts that a commit waits for: in the long run, one is begun for each such time.
    pub(crate) each: Duration,
    /// A log without checksums is an error.
    pub(crate) needs_checksums: bool,
}

impl LogRequest {
    /// Returns the receiver's announcement, and the time limit for the server's next message.
    pub(crate) fn replica(&self, acknowledges: bool) -> (Replica, Duration) {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim().to_owned();
        // A sign of life comes in time to cut a segment.
        let heartbeat = (self.age / 2).clamp(Duration::from_millis(100), Duration::from_secs(5));
        (
            Replica { server_id: self.server_id, host, heartbeat, acknowledges },
            heartbeat * 4 + LOGIN_LIMIT,
        )
    }
}
