//! Plans how many chunks of which length form a part of an exact size.

use xb_reader::RelPath;

use crate::classic::object::MAX_XBSTREAM_CHUNK;
use crate::flow::plan::PackPlan;

/// Length of a payload chunk without path and payload, and of an end chunk without its path.
const PAYLOAD_HEAD: u64 = 34;
const END_HEAD: u64 = 14;

/// Minimum object size in bytes: space for several heads with the longest path.
pub(crate) const MIN_OBJECT: u64 = 4096;

/// Smallest part of an object that is sent in parts, in bytes.
const MIN_PART: u64 = 5 << 20;

/// On stores that require equal parts: number of open files whose parts should fit into memory.
const FILES: u64 = 16;

/// Lengths of the chunk heads of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heads {
    pub(super) payload: u64,
    pub(super) end: u64,
}

impl Heads {
    pub(super) fn of(path: &RelPath) -> Self {
        let len = path.as_bytes().len() as u64;
        Self { payload: PAYLOAD_HEAD + len, end: END_HEAD + len }
    }
}

/// A number of payload bytes in a number of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fill {
    pub(super) payload: u64,
    chunks: u64,
}

impl Fill {
    /// Puts `payload` bytes into as few chunks as possible.
    pub(super) fn all(payload: u64) -> Self {
        Self { payload, chunks: payload.div_ceil(MAX_XBSTREAM_CHUNK) }
    }

    /// Fills exactly `room` bytes, heads included, with as few chunks as possible. `room` is at
    /// least [`MIN_OBJECT`].
    pub(super) fn exactly(room: u64, heads: Heads) -> Self {
        Self::of(room, heads, room.div_ceil(heads.payload + MAX_XBSTREAM_CHUNK))
    }

    /// Like [`Fill::exactly`], with one more chunk.
    pub(super) fn exactly_with_one_more(room: u64, heads: Heads) -> Self {
        Self::of(room, heads, room.div_ceil(heads.payload + MAX_XBSTREAM_CHUNK) + 1)
    }

    fn of(room: u64, heads: Heads, chunks: u64) -> Self {
        Self { payload: room.saturating_sub(chunks * heads.payload), chunks }
    }

    /// Length including heads.
    pub(super) fn total(self, heads: Heads) -> u64 {
        self.payload + self.chunks * heads.payload
    }

    /// Lengths of the chunks' payloads: as equal as possible, so that none is very short.
    pub(super) fn chunks(self) -> impl Iterator<Item = u64> {
        let Self { payload, chunks } = self;
        let (each, more) = (payload.checked_div(chunks), payload.checked_rem(chunks));
        let (each, more) = (each.unwrap_or(0), more.unwrap_or(0));
        (0..chunks).map(move |n| each + u64::from(n < more))
    }
}

/// Sizes of objects and parts, in bytes, heads included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Size of every object of a file except the last.
    pub(crate) object: u64,
    /// Size of a full part, if the object is larger.
    pub(crate) part: u64,
    /// Smallest part that may be sent early; if it equals the object size, no part may.
    pub(crate) least: u64,
}

impl Sizes {
    /// Derives sizes for objects of the plan's object size, if open files may hold `limit` bytes.
    pub(crate) fn new(plan: &PackPlan, limit: u64) -> Self {
        let (object, limits) = (plan.object_size.get(), plan.limits);
        let least = MIN_PART.max(limits.min).max(object.div_ceil(limits.count.max(1)));
        // With less than this, the parts that follow would be very short.
        let rest = if limits.equal { least } else { MIN_OBJECT };
        if object < least + rest {
            return Self { object, part: object, least: object };
        }
        if limits.equal {
            // Equal parts of at least this size, so that the last one is not very short either.
            let parts = object / (limit / FILES).clamp(least, object);
            return Self { object, part: object.div_ceil(parts), least: object };
        }
        Self { object, part: plan.part_size.max(least), least }
    }

    /// Minimum number of bytes that open files must be allowed to hold.
    pub(crate) fn needed(self) -> u64 {
        if self.least < self.object { self.least } else { self.part }
    }

    /// Length of the next part of an object of which `sent` bytes have been sent.
    pub(super) fn room(self, sent: u64) -> u64 {
        let left = self.object - sent;
        // The rest must have room for a chunk, and for a chunk with the end chunk.
        if left < self.part + MIN_OBJECT { left } else { self.part }
    }

    /// Length of a part that is sent early, if `there` bytes are available; `None` if the part
    /// would be too short.
    pub(super) fn early(self, sent: u64, there: u64) -> Option<u64> {
        let most = (self.object - sent).saturating_sub(MIN_OBJECT);
        let part = there.min(most);
        (self.least < self.object && part >= self.least).then_some(part)
    }
}
