//! What the server waits for. No I/O: segments go in, and come out once it is time to store them.
//!
//! A server with semi-synchronous replication asks at the end of a transaction, so a segment is cut right there. It
//! is held as long as more arrives that one object can have, too, such as the rest of a group commit. What
//! arrives behind it is never part of what may be acknowledged: that is the end of the last segment that is stored.

use std::time::{Duration, Instant};

use crate::binlog::segmenter::{Cut, SIZE};

/// The longest time that a server is kept waiting because more arrives.
const LINGER: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// When the server asked first, since the last acknowledgement.
    asked: Option<Instant>,
    held: Option<Cut>,
    /// Segments came out since the last acknowledgement.
    is_owed: bool,
}

impl Waiting {
    /// The server has asked for what was received up to now.
    pub(super) fn ask(&mut self) {
        self.asked.get_or_insert_with(Instant::now);
    }

    /// Takes segments, and returns those to store now: all, if the server does not wait.
    pub(super) fn take(&mut self, cuts: Vec<Cut>) -> Vec<Cut> {
        let mut out = Vec::new();
        for cut in cuts {
            let next = match &mut self.held {
                Some(held) => held.join(cut, SIZE),
                None => Some(cut),
            };
            if let Some(next) = next {
                out.extend(self.held.replace(next));
            }
        }
        self.is_owed |= !out.is_empty();
        if self.asked.is_none() {
            out.extend(self.release());
        }
        out
    }

    /// Returns what is held.
    pub(super) fn release(&mut self) -> Option<Cut> {
        self.is_owed |= self.held.is_some();
        self.held.take()
    }

    /// Whether the server should get an acknowledgement before more is received.
    pub(super) fn is_due(&self, has_more: impl FnOnce() -> bool) -> bool {
        let Some(asked) = self.asked else { return false };
        let has_any = self.held.is_some() || self.is_owed;
        has_any && (asked.elapsed() >= LINGER || !has_more())
    }

    /// Everything that came out is stored, and its end is acknowledged.
    pub(super) fn acknowledged(&mut self) {
        (self.asked, self.is_owed) = (None, false);
    }
}
