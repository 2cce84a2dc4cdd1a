//! Lengths: how many chunks of what length make a part of exactly so many bytes.

use xb_reader::RelPath;

use crate::classic::object::MAX_XBSTREAM_CHUNK;
use crate::flow::plan::PackPlan;

/// Bytes of a payload chunk around its path and payload, and of an end chunk around its path.
const PAYLOAD_HEAD: u64 = 34;
const END_HEAD: u64 = 14;

/// The smallest object that can be asked for, in bytes: several heads with the longest path.
pub(crate) const MIN_OBJECT: u64 = 4096;

/// The smallest part that a file gathers for, where its object is larger.
const MIN_PART: u64 = 5 << 20;

/// On stores that want all parts alike: for so many open files the parts are to fit into memory.
const FILES: u64 = 16;

/// Lengths of the heads of one file's chunks.
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

/// So much payload in so many chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fill {
    pub(super) payload: u64,
    chunks: u64,
}

impl Fill {
    /// `payload` bytes in as few chunks as can be.
    pub(super) fn all(payload: u64) -> Self {
        Self { payload, chunks: payload.div_ceil(MAX_XBSTREAM_CHUNK) }
    }

    /// As few chunks as can be that take exactly `room` bytes with their heads; `room` is at least
    /// [`MIN_OBJECT`].
    pub(super) fn exactly(room: u64, heads: Heads) -> Self {
        Self::of(room, heads, room.div_ceil(heads.payload + MAX_XBSTREAM_CHUNK))
    }

    /// As [`Fill::exactly`], and one chunk more.
    pub(super) fn exactly_with_one_more(room: u64, heads: Heads) -> Self {
        Self::of(room, heads, room.div_ceil(heads.payload + MAX_XBSTREAM_CHUNK) + 1)
    }

    fn of(room: u64, heads: Heads, chunks: u64) -> Self {
        Self { payload: room.saturating_sub(chunks * heads.payload), chunks }
    }

    /// Bytes with the heads.
    pub(super) fn total(self, heads: Heads) -> u64 {
        self.payload + self.chunks * heads.payload
    }

    /// Lengths of the chunks' payloads: as equal as can be, so that none is a sliver.
    pub(super) fn chunks(self) -> impl Iterator<Item = u64> {
        let Self { payload, chunks } = self;
        let (each, more) = (payload.checked_div(chunks), payload.checked_rem(chunks));
        let (each, more) = (each.unwrap_or(0), more.unwrap_or(0));
        (0..chunks).map(move |n| each + u64::from(n < more))
    }
}

/// Sizes of objects and parts, in bytes with all heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Every object of a file but its last.
    pub(crate) object: u64,
    /// A part that is full, where the object is larger.
    pub(crate) part: u64,
    /// The smallest part that may go early; none may where that is the object's size.
    pub(crate) least: u64,
}

impl Sizes {
    /// Sizes for objects of the plan's object size, where open files may hold `limit` bytes.
    pub(crate) fn new(plan: &PackPlan, limit: u64) -> Self {
        let (object, limits) = (plan.object_size.get(), plan.limits);
        let least = MIN_PART.max(limits.min).max(object.div_ceil(limits.count.max(1)));
        // With less than that in the parts that follow, these would be slivers.
        let rest = if limits.equal { least } else { MIN_OBJECT };
        if object < least + rest {
            return Self { object, part: object, least: object };
        }
        if limits.equal {
            // At least so large, so that the last one is no sliver either.
            let parts = object / (limit / FILES).clamp(least, object);
            return Self { object, part: object.div_ceil(parts), least: object };
        }
        Self { object, part: plan.part_size.max(least), least }
    }

    /// The least that open files must be allowed to hold.
    pub(crate) fn needed(self) -> u64 {
        if self.least < self.object { self.least } else { self.part }
    }

    /// Length of the next part of an object of which `sent` bytes have gone.
    pub(super) fn room(self, sent: u64) -> u64 {
        let left = self.object - sent;
        // What follows must have room for a chunk, and for one with the end chunk.
        if left < self.part + MIN_OBJECT { left } else { self.part }
    }

    /// Length of a part that goes early, with which at most `there` bytes can go; `None` when it
    /// would be too short.
    pub(super) fn early(self, sent: u64, there: u64) -> Option<u64> {
        let most = (self.object - sent).saturating_sub(MIN_OBJECT);
        let part = there.min(most);
        (self.least < self.object && part >= self.least).then_some(part)
    }
}
