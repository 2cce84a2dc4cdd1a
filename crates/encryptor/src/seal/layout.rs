//! Positions of plain bytes in the sealed body: arithmetic only.

use std::ops::Range;

use crate::aead::TAG_LEN;

/// Length of a segment of the sealed body in bytes, including the tag. The last one is shorter, and
/// the first one includes the head.
pub const SEGMENT_LEN: usize = 1 << 20;

/// Length of the head of a sealed body: its own length (1 byte), salt (32), nonce prefix (7).
pub const SEAL_HEAD_LEN: usize = 40;

/// Maximum number of segments: a segment's number takes 32 bits of its nonce.
const MAX_SEGMENTS: u64 = 1 << 32;

const HEAD: u64 = SEAL_HEAD_LEN as u64;
const TAG: u64 = TAG_LEN as u64;

/// Mapping between the bytes of the body and the segments (`docs/spec/format.md`,
/// section 8, "Lengths").
///
/// *Plain* positions count in the body, *sealed* positions in the sealed body, head included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentLayout {
    segment: u64,
}

/// Position of a plain byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentPlace {
    /// Number of the segment, from 0.
    pub index: u64,
    /// Offset in the plain bytes of that segment.
    pub within: usize,
}

impl SegmentLayout {
    /// The layout of native streams: segments of 1 MiB.
    pub const NATIVE: SegmentLayout = SegmentLayout { segment: SEGMENT_LEN as u64 };

    /// A layout with small segments, so that tests can try all cases.
    #[cfg(test)]
    pub(crate) fn small(segment: u64) -> Self {
        assert!(segment > HEAD + TAG);
        Self { segment }
    }

    /// Number of plain bytes in segment `index` when it is full.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "a segment is 1 MiB")]
    pub fn capacity(self, index: u64) -> usize {
        (self.segment - TAG - if index == 0 { HEAD } else { 0 }) as usize
    }

    fn first(self) -> u64 {
        self.segment - HEAD - TAG
    }

    fn later(self) -> u64 {
        self.segment - TAG
    }

    /// Number of segments of a body of `plain_len` bytes; `None` when it exceeds the maximum
    /// (4 PiB).
    #[must_use]
    pub fn segments(self, plain_len: u64) -> Option<u64> {
        let segments = 1 + plain_len.saturating_sub(self.first()).div_ceil(self.later());
        (segments <= MAX_SEGMENTS).then_some(segments)
    }

    /// Length of the sealed body of `plain_len` bytes; `None` when it exceeds the maximum.
    #[must_use]
    pub fn sealed_len(self, plain_len: u64) -> Option<u64> {
        let tags = self.segments(plain_len)? * TAG;
        plain_len.checked_add(HEAD + tags)
    }

    /// Length of the body whose sealed length is `sealed_len`; `None` when no body has this length.
    #[must_use]
    pub fn plain_len(self, sealed_len: u64) -> Option<u64> {
        let segments = sealed_len.div_ceil(self.segment);
        if segments > MAX_SEGMENTS {
            return None;
        }
        let plain = sealed_len.checked_sub(HEAD)?.checked_sub(segments * TAG)?;
        // A last segment with nothing but a tag is never written.
        (self.sealed_len(plain)? == sealed_len).then_some(plain)
    }

    /// Returns the segment that holds the plain byte at `position`.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "a remainder below 1 MiB")]
    pub fn locate(self, position: u64) -> SegmentPlace {
        match position.checked_sub(self.first()) {
            None => SegmentPlace { index: 0, within: position as usize },
            Some(past) => SegmentPlace {
                index: 1 + past / self.later(),
                within: (past % self.later()) as usize,
            },
        }
    }

    /// Range of the plain bytes of segment `index` in a body of `plain_len` bytes; empty past its
    /// end.
    #[must_use]
    pub fn plain_range(self, index: u64, plain_len: u64) -> Range<u64> {
        let start = match index.checked_sub(1) {
            None => 0,
            Some(before) => before.saturating_mul(self.later()).saturating_add(self.first()),
        };
        let start = start.min(plain_len);
        let capacity = if index == 0 { self.first() } else { self.later() };
        start..start.saturating_add(capacity).min(plain_len)
    }

    /// Range of segment `index`, including its tag, in the sealed body of a body of `plain_len`
    /// bytes. The head precedes segment 0. Empty past the end.
    #[must_use]
    pub fn sealed_range(self, index: u64, plain_len: u64) -> Range<u64> {
        let plain = self.plain_range(index, plain_len);
        let start = if index == 0 { HEAD } else { index.saturating_mul(self.segment) };
        if index > 0 && plain.is_empty() {
            let end = self.sealed_len(plain_len).unwrap_or(u64::MAX);
            return end..end;
        }
        start..start + (plain.end - plain.start) + TAG
    }

    /// Offset of segment `index` in the sealed body.
    #[must_use]
    pub(crate) fn sealed_start(self, index: u64) -> u64 {
        if index == 0 { HEAD } else { index.saturating_mul(self.segment) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_numbers_of_the_document() {
        let native = SegmentLayout::NATIVE;
        assert_eq!(native.capacity(0), 1_048_520);
        assert_eq!(native.capacity(1), 1_048_560);
        assert_eq!(native.sealed_len(0), Some(56));
        assert_eq!(native.sealed_len(1_048_520), Some(1_048_576));
        assert_eq!(native.sealed_len(1_048_521), Some(1_048_576 + 17));
        assert_eq!(native.segments((1 << 32) * 1_048_560 - 40), Some(1 << 32));
        assert_eq!(native.segments((1 << 32) * 1_048_560 - 39), None);
        assert_eq!(native.plain_len(u64::MAX), None);
        assert_eq!(native.sealed_len(u64::MAX), None);
    }

    /// Compares every plain byte with a position found by counting, for small segments.
    #[test]
    fn agrees_with_counting() {
        let layout = SegmentLayout::small(64);
        let mut taken = std::collections::BTreeSet::new();
        for plain_len in 0..400_u64 {
            let sealed_len = layout.sealed_len(plain_len).unwrap();
            taken.insert(sealed_len);
            assert_eq!(layout.plain_len(sealed_len), Some(plain_len));
            let (mut plain, mut sealed, mut index) = (0, HEAD, 0);
            loop {
                let here = (plain_len - plain).min(layout.capacity(index) as u64);
                assert_eq!(layout.plain_range(index, plain_len), plain..plain + here);
                let range = layout.sealed_range(index, plain_len);
                assert_eq!(range, sealed..sealed + here + TAG);
                assert_eq!(layout.sealed_start(index), sealed);
                for byte in plain..plain + here {
                    let within = (byte - plain) as usize;
                    assert_eq!(layout.locate(byte), SegmentPlace { index, within });
                }
                (plain, sealed, index) = (plain + here, range.end, index + 1);
                if plain == plain_len {
                    break;
                }
            }
            assert_eq!((index, sealed), (layout.segments(plain_len).unwrap(), sealed_len));
            assert!(layout.plain_range(index, plain_len).is_empty());
            assert!(layout.sealed_range(index, plain_len).is_empty());
        }
        for sealed_len in 0..*taken.last().unwrap() {
            assert_eq!(layout.plain_len(sealed_len).is_some(), taken.contains(&sealed_len));
        }
    }

    proptest! {
        #[test]
        fn never_overflows(number in any::<u64>(), len in any::<u64>()) {
            let layout = SegmentLayout::NATIVE;
            if let Some(plain) = layout.plain_len(number) {
                prop_assert_eq!(layout.sealed_len(plain), Some(number));
            }
            let place = layout.locate(number);
            prop_assert!(place.within < layout.capacity(place.index));
            let (plain, sealed) = (layout.plain_range(number, len), layout.sealed_range(number, len));
            prop_assert!(plain.start <= plain.end && sealed.start <= sealed.end);
        }
    }
}
