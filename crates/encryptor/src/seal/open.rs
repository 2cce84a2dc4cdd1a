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

    /// Opens segment `index` like [`Opener::open_segment`], but from `sealed` to the front of
    /// `plain`, which needs room for the segment without its tag.
    ///
    /// # Errors
    /// As [`Opener::open_segment`]; bytes written to `plain` are then zeroed.
    pub fn open_segment_into(
        &self,
        index: u64,
        last: bool,
        sealed: &[u8],
        plain: &mut [u8],
    ) -> Result<usize, SealError> {
        let nonce = self.checked_nonce(index, last, sealed.len())?;
        let opened = self.segments.aead.open_into(&nonce, &[], sealed, plain);
        opened.ok_or_else(|| self.not_authentic(index))
    }

    fn try_open(&self, index: u64, last: bool, buf: &mut [u8]) -> Result<usize, SealError> {
        let nonce = self.checked_nonce(index, last, buf.len())?;
        self.segments.aead.open(&nonce, &[], buf).ok_or_else(|| self.not_authentic(index))
    }

    /// Nonce of a segment of `len` bytes, once its length has been checked.
    fn checked_nonce(&self, index: u64, last: bool, len: usize) -> Result<[u8; 12], SealError> {
        let number = u32::try_from(index).map_err(|_| SealError::TooLong)?;
        self.segments.check_len(number, last, len)?;
        Ok(self.segments.nonce(number, last))
    }

    fn not_authentic(&self, index: u64) -> SealError {
        SealError::Segment { index, offset: self.layout().sealed_start(index) }
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
