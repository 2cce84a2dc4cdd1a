//! Buffers for received blocks, reused after their last slice is dropped.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::limits::MAX_BLOCK;

/// Blocks up to this size get a buffer of exactly their size: with full-size buffers, small blocks
/// could take much more memory than the window.
const SMALL: usize = 16 << 10;

/// Keeps free buffers of one size. Taking a buffer never waits: the window limits the memory.
#[derive(Debug, Clone)]
pub struct Pool(Arc<Free>);

#[derive(Debug)]
struct Free {
    size: usize,
    most: usize,
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl Pool {
    /// Creates a pool that keeps at most `most` free buffers of `size` bytes.
    pub fn new(size: usize, most: usize) -> Self {
        Self(Arc::new(Free {
            size: size.clamp(SMALL, MAX_BLOCK as usize),
            most,
            buffers: Mutex::default(),
        }))
    }

    /// Returns a buffer of `len` bytes with arbitrary content.
    pub(crate) fn take(&self, len: usize) -> Buffer {
        let size = self.0.size;
        if len <= SMALL || len > size {
            return Buffer { bytes: vec![0; len], len, home: None };
        }
        let free = self.0.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bytes = free.unwrap_or_else(|| vec![0; size]);
        Buffer { bytes, len, home: Some(Arc::clone(&self.0)) }
    }
}

/// Buffer for one block.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    len: usize,
    home: Option<Arc<Free>>,
}

impl Buffer {
    pub(crate) fn space(&mut self, from: usize) -> &mut [u8] {
        self.bytes.get_mut(from..self.len).unwrap_or_default()
    }

    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            let mut free = home.buffers.lock().unwrap_or_else(PoisonError::into_inner);
            if free.len() < home.most {
                free.push(std::mem::take(&mut self.bytes));
            }
        }
    }
}
