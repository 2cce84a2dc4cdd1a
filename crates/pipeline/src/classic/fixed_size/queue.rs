//! Queue of the bytes that one file has yet to send.

use std::collections::VecDeque;

use bytes::Bytes;
use xb_reader::PieceCheck;

use crate::classic::object::page_rounded;
use crate::flow::budget::{PAGE, Permit};

/// Maximum length of a block of copied bytes.
const BLOCK: u64 = 64 << 10;

/// Bytes of a file, in order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    blocks: VecDeque<Block>,
    /// Copied bytes that follow the blocks.
    tail: Tail,
    len: u64,
    held: u64,
}

#[derive(Debug)]
struct Block {
    bytes: Bytes,
    sum: Option<PieceCheck>,
    /// Memory that the block holds, even after a part of it was taken.
    held: u64,
}

/// A buffer that grows with the file, because most files are small.
#[derive(Debug, Default)]
struct Tail {
    bytes: Vec<u8>,
    permit: Permit,
}

impl AsRef<[u8]> for Tail {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Bytes from the front of a queue.
pub(super) struct Taken {
    pub(super) bytes: Vec<Bytes>,
    pub(super) sum: PieceCheck,
}

impl Queue {
    /// Number of bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of memory that they hold.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    pub(super) fn push(&mut self, bytes: Bytes, sum: Option<PieceCheck>, held: u64) {
        self.freeze();
        self.len += bytes.len() as u64;
        self.held += held;
        self.blocks.push_back(Block { bytes, sum, held });
    }

    /// Returns how many bytes can be copied before the next lease, or the size of that lease.
    pub(super) fn copy_room(&self) -> Result<u64, u64> {
        let (len, capacity) = (self.tail.bytes.len() as u64, self.tail.permit.bytes());
        match capacity - len.min(capacity) {
            // As large as the queue so far, so that at least half of it is used.
            0 if capacity < BLOCK => Err(page_rounded(self.len).clamp(PAGE, BLOCK - capacity)),
            0 => Err(BLOCK),
            room => Ok(room),
        }
    }

    /// Adds memory for more copied bytes.
    pub(super) fn grow(&mut self, permit: Permit) {
        if self.tail.permit.bytes() >= BLOCK {
            self.freeze();
        }
        self.held += permit.bytes();
        self.tail.permit.merge(permit);
        let capacity = usize::try_from(self.tail.permit.bytes()).unwrap_or(usize::MAX);
        self.tail.bytes.reserve_exact(capacity - self.tail.bytes.len().min(capacity));
    }

    /// Copies bytes, which must fit.
    pub(super) fn copy(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        self.tail.bytes.extend_from_slice(bytes);
    }

    /// Turns the tail into a block.
    fn freeze(&mut self) {
        if self.tail.bytes.is_empty() {
            return;
        }
        let mut tail = std::mem::take(&mut self.tail);
        self.held -= tail.permit.bytes();
        // A block less than half full is copied to one of its own size.
        if tail.bytes.capacity() - tail.bytes.len() >= tail.bytes.len() {
            tail.bytes.shrink_to_fit();
            tail.permit.shrink_to(tail.bytes.len() as u64);
        }
        let held = tail.permit.bytes();
        self.held += held;
        self.blocks.push_back(Block { bytes: Bytes::from_owner(tail), sum: None, held });
    }

    /// Takes `wanted` bytes, which the queue must hold.
    pub(super) fn take(&mut self, wanted: u64) -> Taken {
        let blocks: u64 = self.len - self.tail.bytes.len() as u64;
        if blocks < wanted {
            self.freeze();
        }
        let mut taken = Taken { bytes: Vec::new(), sum: PieceCheck::of(&[]) };
        let mut left = wanted;
        while left > 0 {
            let Some(front) = self.blocks.front_mut() else { break };
            let len = front.bytes.len() as u64;
            let piece = if left < len {
                // The memory stays with the rest.
                front.sum = None;
                front.bytes.split_to(usize::try_from(left).unwrap_or(usize::MAX))
            } else {
                self.held -= front.held;
                std::mem::take(&mut front.bytes)
            };
            left -= piece.len() as u64;
            self.len -= piece.len() as u64;
            match front.sum.take() {
                Some(sum) => taken.sum.append(&sum),
                None => taken.sum.update(&piece),
            }
            taken.bytes.push(piece);
            if self.blocks.front().is_some_and(|front| front.bytes.is_empty()) {
                self.blocks.pop_front();
            }
        }
        taken
    }
}
