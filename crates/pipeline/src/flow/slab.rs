//! Pooled buffers: bytes are read into a slab once and leave it only when the last reader of the
//! frozen slab is done, be that the store's client or the disk.
//!
//! Fixed buffers are reused instead of being given back to the allocator: fresh megabyte buffers
//! freed by other threads make a process grow to several times what is alive.

use std::io::Read;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::flow::budget::Permit;

/// A pool of equal buffers.
#[derive(Debug, Clone)]
pub struct SlabPool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    size: usize,
    keep: usize,
    free: Mutex<Vec<Box<[u8]>>>,
}

impl SlabPool {
    /// A pool of buffers of `size` bytes that keeps at most `keep` unused ones.
    #[must_use]
    pub fn new(size: usize, keep: usize) -> Self {
        Self { inner: Arc::new(Inner { size, keep, free: Mutex::new(Vec::new()) }) }
    }

    /// A pool of buffers of `size` bytes that keeps as many unused ones as `memory` bytes hold.
    #[must_use]
    pub fn for_memory(size: usize, memory: u64) -> Self {
        Self::new(size, usize::try_from(memory / size as u64).unwrap_or(usize::MAX))
    }

    /// Size of every buffer, in bytes.
    #[must_use]
    pub fn slab_size(&self) -> usize {
        self.inner.size
    }

    /// An empty slab. `permit`, where given, is held until the last byte of it is no longer used.
    #[must_use]
    pub fn take(&self, permit: Option<Permit>) -> Slab {
        let reused = self.inner.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let buffer = reused.unwrap_or_else(|| vec![0; self.inner.size].into_boxed_slice());
        Slab { buffer, len: 0, pool: Arc::clone(&self.inner), permit }
    }
}

/// A buffer of fixed size with a filled front part.
#[derive(Debug)]
pub struct Slab {
    buffer: Box<[u8]>,
    len: usize,
    pool: Arc<Inner>,
    permit: Option<Permit>,
}

impl Slab {
    /// The part that is not filled yet.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.len..]
    }

    /// Whether there is no room left.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len == self.buffer.len()
    }

    /// Counts `n` more bytes of [`Slab::room`] as filled.
    ///
    /// # Panics
    /// When `n` is more than there was room for, which is a bug of the caller.
    pub fn advance(&mut self, n: usize) {
        assert!(n <= self.buffer.len() - self.len, "advanced past the end of a slab");
        self.len += n;
    }

    /// Copies from the front of `input` what fits, and takes it off there.
    pub fn fill_from(&mut self, input: &mut &[u8]) {
        let n = input.len().min(self.buffer.len() - self.len);
        let (now, later) = input.split_at(n);
        self.buffer[self.len..self.len + n].copy_from_slice(now);
        self.len += n;
        *input = later;
    }

    /// Reads until the slab is full or the input is over.
    ///
    /// # Errors
    /// Those of the input, other than an interrupted call.
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

    /// Forgets what is filled behind the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Takes the permit out: the bytes are about to be copied to a slab that it will pay for.
    pub fn take_permit(&mut self) -> Option<Permit> {
        self.permit.take()
    }

    /// Takes a permit over, up to the size of the slab: more it can never hold.
    pub fn pay(&mut self, permit: Permit) {
        let size = self.buffer.len() as u64;
        let held = self.permit.get_or_insert_default();
        held.merge(permit);
        held.shrink_to(size);
    }

    /// The filled part as shared bytes; the buffer returns to its pool, and the permit to its
    /// budget, with the last clone.
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
        // The permit goes back after the buffer: the stage it admits finds the buffer in the pool.
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
    fn fills_no_further_than_its_size() {
        let pool = SlabPool::new(3, 1);
        let mut slab = pool.take(None);
        let mut input = &b"abcd"[..];
        slab.fill_from(&mut input);
        assert!(slab.is_full());
        assert_eq!((&slab[..], input), (&b"abc"[..], &b"d"[..]));
    }
}
