//! Seals segments: they are handed out in order, and each is sealed once, in any thread.

use std::fmt;
use std::sync::Arc;

use super::{Head, SEAL_HEAD_LEN, SealContext, SealError, Segments};
use crate::{Backend, DataKey, random};

/// Hands out the segments of the one stream that a [`FreshKey`](crate::FreshKey) seals.
///
/// A nonce is derived from a segment's number, and using one nonce twice would break the cipher.
/// Callers therefore cannot choose a number: [`next_segment`](Self::next_segment) returns each
/// once.
pub struct Sealer {
    segments: Arc<Segments>,
    head: [u8; SEAL_HEAD_LEN],
    next: u64,
    last_given: bool,
}

impl Sealer {
    pub(crate) fn new(
        key: &DataKey,
        context: &SealContext<'_>,
        backend: Backend,
    ) -> Result<Self, SealError> {
        let head = Head { salt: random::bytes()?, prefix: random::bytes()? };
        Self::with_head(key, context, backend, &head)
    }

    pub(super) fn with_head(
        key: &DataKey,
        context: &SealContext<'_>,
        backend: Backend,
        head: &Head,
    ) -> Result<Self, SealError> {
        if !key.fits(&context.stream_id, &context.commitment) {
            return Err(SealError::ForeignHeader);
        }
        let segments = Segments::new(key, context.header, head, backend);
        Ok(Self { segments: Arc::new(segments), head: head.encode(), next: 0, last_given: false })
    }

    /// The bytes before the first segment.
    #[must_use]
    pub fn head(&self) -> [u8; SEAL_HEAD_LEN] {
        self.head
    }

    /// Number of plain bytes in the next segment. All segments except the last must be full.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.segments.layout.capacity(self.next)
    }

    /// Returns the next segment, to be sealed in this or another thread. Pass `last` for the last
    /// one: it may be shorter, but not empty unless the body is empty.
    ///
    /// # Errors
    /// [`SealError::AfterLast`], and [`SealError::TooLong`] after 4 PiB.
    pub fn next_segment(&mut self, last: bool) -> Result<SegmentToSeal, SealError> {
        if self.last_given {
            return Err(SealError::AfterLast);
        }
        let index = u32::try_from(self.next).map_err(|_| SealError::TooLong)?;
        self.next += 1;
        self.last_given = last;
        Ok(SegmentToSeal { segments: Arc::clone(&self.segments), index, last })
    }

    /// Returns whether the last segment was handed out. Readers refuse a body without one.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.last_given
    }

    #[cfg(test)]
    pub(super) fn set_layout(&mut self, layout: super::SegmentLayout) {
        Arc::get_mut(&mut self.segments).unwrap().layout = layout;
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer")
            .field("next", &self.next)
            .field("last_given", &self.last_given)
            .finish_non_exhaustive()
    }
}

/// The permission to seal one segment, once.
#[must_use = "a segment that is not sealed leaves a hole"]
pub struct SegmentToSeal {
    segments: Arc<Segments>,
    index: u32,
    last: bool,
}

impl SegmentToSeal {
    /// Its number, from 0.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index.into()
    }

    /// Seals in place: `buf` holds the plain bytes and 16 more bytes for the tag. Afterwards `buf`
    /// is the segment as stored.
    ///
    /// # Errors
    /// [`SealError::Length`] unless `buf` is full, or the segment is the last one.
    pub fn seal(self, buf: &mut [u8]) -> Result<(), SealError> {
        self.segments.check_len(self.index, self.last, buf.len())?;
        let nonce = self.segments.nonce(self.index, self.last);
        self.segments.aead.seal(&nonce, &[], buf).ok_or(SealError::TooLong)
    }
}

impl fmt::Debug for SegmentToSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentToSeal")
            .field("index", &self.index)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}
