//! Pooled buffers. Bytes are read into a slab once, and stay there until the last user of the
//! frozen slab, be it the store's client or the disk, has dropped it.
//!
//! Buffers are reused instead of returned to the allocator: allocating megabyte buffers and freeing
//! them in other threads makes a process grow to several times its live memory.

use std::io::Read;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::flow::budget::Permit;

/// Alignment of a slab's first byte. The kernel copies a page three times as slowly to an address
/// 16 bytes behind the start of a page, where an allocator places large buffers (measured on Zen 3).
const ALIGN: usize = 4096;

/// Pool of buffers of equal size.
#[derive(Debug, Clone)]
pub struct SlabPool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    size: usize,
    keep: usize,
    free: Mutex<Vec<Buffer>>,
}

impl SlabPool {
    /// Creates a pool of buffers of `size` bytes that keeps at most `keep` unused ones.
    #[must_use]
    pub fn new(size: usize, keep: usize) -> Self {
        Self { inner: Arc::new(Inner { size, keep, free: Mutex::new(Vec::new()) }) }
    }

    /// Creates a pool of buffers of `size` bytes that keeps as many unused ones as fit into
    /// `memory` bytes.
    #[must_use]
    pub fn for_memory(size: usize, memory: u64) -> Self {
        Self::new(size, usize::try_from(memory / size as u64).unwrap_or(usize::MAX))
    }

    /// Size of every buffer, in bytes.
    #[must_use]
    pub fn slab_size(&self) -> usize {
        self.inner.size
    }

    /// Returns an empty slab. If `permit` is given, it is held until the last byte of the slab is
    /// dropped.
    #[must_use]
    pub fn take(&self, permit: Option<Permit>) -> Slab {
        let reused = self.inner.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let buffer = reused.unwrap_or_else(|| Buffer::new(self.inner.size));
        Slab { buffer, len: 0, pool: Arc::clone(&self.inner), permit }
    }
}

/// Bytes that begin at a multiple of [`ALIGN`], inside an allocation that does not.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    allocated: Box<[u8]>,
    start: usize,
    size: usize,
}

impl Buffer {
    pub(crate) fn new(size: usize) -> Self {
        // The kernel provides the memory, zeroed, when it is first touched: the surplus costs
        // nothing.
        let allocated = vec![0; size.saturating_add(ALIGN)].into_boxed_slice();
        let start = allocated.as_ptr().align_offset(ALIGN).min(ALIGN);
        Self { allocated, start, size }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.allocated[self.start..self.start + self.size]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.allocated[self.start..self.start + self.size]
    }
}

/// A buffer of fixed size whose front is filled.
#[derive(Debug)]
pub struct Slab {
    buffer: Buffer,
    len: usize,
    pool: Arc<Inner>,
    permit: Option<Permit>,
}

impl Slab {
    /// The unfilled part.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.len..]
    }

    /// Returns whether the slab is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len == self.buffer.len()
    }

    /// Counts `n` more bytes of [`Slab::room`] as filled.
    ///
    /// # Panics
    /// If `n` exceeds the length of the unfilled part, which is a bug of the caller.
    pub fn advance(&mut self, n: usize) {
        assert!(n <= self.buffer.len() - self.len, "advanced past the end of a slab");
        self.len += n;
    }

    /// Moves as many bytes as fit from the front of `input` into the slab.
    pub(crate) fn fill_from(&mut self, input: &mut &[u8]) {
        let n = input.len().min(self.buffer.len() - self.len);
        let (now, later) = input.split_at(n);
        self.buffer[self.len..self.len + n].copy_from_slice(now);
        self.len += n;
        *input = later;
    }

    /// Reads until the slab is full or the input ends.
    ///
    /// # Errors
    /// Errors of the input, except an interrupted call.
    pub fn read_from(&mut self, source: &mut impl Read) -> std::io::Result<()> {
        while !self.is_full() {
            match source.read(self.room()) {
                Ok(0) => break,
                Ok(n) => self.advance(n),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Drops everything after the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Takes the permit out, because the bytes will be copied to a slab that it pays for.
    pub(crate) fn take_permit(&mut self) -> Option<Permit> {
        self.permit.take()
    }

    /// Absorbs a permit, up to the size of the slab, which can never hold more.
    pub(crate) fn pay(&mut self, permit: Permit) {
        let size = self.buffer.len() as u64;
        let held = self.permit.get_or_insert_default();
        held.merge(permit);
        held.shrink_to(size);
    }

    /// Returns the filled part as shared bytes. When the last clone is dropped, the buffer returns
    /// to its pool and the permit to its budget.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for Slab {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl DerefMut for Slab {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.len]
    }
}

impl AsRef<[u8]> for Slab {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.pool.keep {
            free.push(buffer);
        }
        // The permit is dropped after the buffer, so that the next stage admitted finds the buffer
        // in the pool.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::budget::Budget;

    #[test]
    fn buffer_and_permit_return_with_the_last_clone() {
        let budget = Budget::new(1 << 20);
        let pool = SlabPool::new(4096, 4);
        let mut slab = pool.take(Some(budget.lease(4096)));
        let mut input = &b"hello"[..];
        slab.fill_from(&mut input);
        assert!(input.is_empty());
        let bytes = slab.freeze();
        let part = bytes.slice(1..3);
        drop(bytes);
        assert_eq!(&part[..], b"el");
        assert_eq!(budget.in_use(), 4096, "a slice keeps the whole slab");
        assert_eq!(pool.inner.free.lock().unwrap().len(), 0);
        drop(part);
        assert_eq!(budget.in_use(), 0);
        assert_eq!(pool.inner.free.lock().unwrap().len(), 1);
        assert!(pool.take(None).is_empty(), "a reused slab starts empty");
    }

    #[test]
    fn slabs_begin_at_pages() {
        for size in [1, 4096, 1 << 20] {
            let pool = SlabPool::new(size, 2);
            let mut slabs = [pool.take(None), pool.take(None)];
            for slab in &mut slabs {
                assert_eq!((slab.room().as_ptr().addr() % ALIGN, slab.room().len()), (0, size));
            }
        }
    }

    #[test]
    fn fills_no_further_than_its_size() {
        let pool = SlabPool::new(3, 1);
        let mut slab = pool.take(None);
        let mut input = &b"abcd"[..];
        slab.fill_from(&mut input);
        assert!(slab.is_full());
        assert_eq!((&slab[..], input), (&b"abc"[..], &b"d"[..]));
    }
}
