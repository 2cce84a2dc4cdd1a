//! Opens segments, in any order and thread.

use std::fmt;

use super::{Head, SEAL_HEAD_LEN, SealContext, SealError, SegmentLayout, Segments};
use crate::{Backend, DataKey};

/// Opens the segments of one sealed body.
pub struct Opener {
    pub(super) segments: Segments,
}

impl Opener {
    /// Checks the commitment, then derives the stream's own key from `head`, the first 40 bytes of
    /// the sealed body.
    ///
    /// # Errors
    /// [`SealError::WrongKey`] and [`SealError::Head`]. A changed salt in the head is found at the
    /// first segment.
    pub fn new(
        key: &DataKey,
        context: &SealContext<'_>,
        head: &[u8; SEAL_HEAD_LEN],
        backend: Backend,
    ) -> Result<Self, SealError> {
        if !key.fits(&context.stream_id, &context.commitment) {
            return Err(SealError::WrongKey);
        }
        let head = Head::parse(head)?;
        Ok(Self { segments: Segments::new(key, context.header, &head, backend) })
    }

    /// Opens segment `index` in place: `buf` is the whole segment, including the tag. Returns the
    /// number of plain bytes, which are then at the front of `buf`. `last` states whether the
    /// sealed body ends here. A wrong value is an error, so a body that was cut is always found.
    ///
    /// # Errors
    /// [`SealError::Segment`] and [`SealError::Length`]; `buf` is then zeroed, so that no byte of a
    /// segment is output that is not authentic.
    pub fn open_segment(&self, index: u64, last: bool, buf: &mut [u8]) -> Result<usize, SealError> {
        let opened = self.try_open(index, last, buf);
        if opened.is_err() {
            buf.fill(0);
        }
        opened
    }

    fn try_open(&self, index: u64, last: bool, buf: &mut [u8]) -> Result<usize, SealError> {
        let number = u32::try_from(index).map_err(|_| SealError::TooLong)?;
        self.segments.check_len(number, last, buf.len())?;
        let nonce = self.segments.nonce(number, last);
        let offset = self.layout().sealed_start(index);
        self.segments.aead.open(&nonce, &[], buf).ok_or(SealError::Segment { index, offset })
    }

    /// The layout of the segments.
    #[must_use]
    pub fn layout(&self) -> SegmentLayout {
        self.segments.layout
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").finish_non_exhaustive()
    }
}
