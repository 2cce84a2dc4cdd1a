//! What one file waits to send.

use std::collections::VecDeque;

use bytes::Bytes;
use xb_reader::PieceCheck;

use crate::classic::object::page_rounded;
use crate::flow::budget::{PAGE, Permit};

/// What is copied is kept in blocks of at most this many bytes.
const BLOCK: u64 = 64 << 10;

/// Bytes of a file, in order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    blocks: VecDeque<Block>,
    /// Bytes that were copied, behind the blocks.
    tail: Tail,
    len: u64,
    held: u64,
}

#[derive(Debug)]
struct Block {
    bytes: Bytes,
    sum: Option<PieceCheck>,
    /// What it holds of the memory, also when a part of it has gone.
    held: u64,
}

/// A buffer that grows as the file does: most files are small.
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

    /// How many bytes can be copied before the next lease, and how large that should be.
    pub(super) fn copy_room(&self) -> Result<u64, u64> {
        let (len, capacity) = (self.tail.bytes.len() as u64, self.tail.permit.bytes());
        match capacity - len.min(capacity) {
            // As large as what there is: so at least half of it is used.
            0 if capacity < BLOCK => Err(page_rounded(self.len).clamp(PAGE, BLOCK - capacity)),
            0 => Err(BLOCK),
            room => Ok(room),
        }
    }

    /// Makes room for bytes to be copied.
    pub(super) fn grow(&mut self, permit: Permit) {
        if self.tail.permit.bytes() >= BLOCK {
            self.freeze();
        }
        self.held += permit.bytes();
        self.tail.permit.merge(permit);
        let capacity = usize::try_from(self.tail.permit.bytes()).unwrap_or(usize::MAX);
        self.tail.bytes.reserve_exact(capacity - self.tail.bytes.len().min(capacity));
    }

    /// Copies bytes for which there is room.
    pub(super) fn copy(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        self.tail.bytes.extend_from_slice(bytes);
    }

    /// Makes a block of the tail.
    fn freeze(&mut self) {
        if self.tail.bytes.is_empty() {
            return;
        }
        let mut tail = std::mem::take(&mut self.tail);
        self.held -= tail.permit.bytes();
        // A block that is less than half full is copied to one of its own size.
        if tail.bytes.capacity() - tail.bytes.len() >= tail.bytes.len() {
            tail.bytes.shrink_to_fit();
            tail.permit.shrink_to(tail.bytes.len() as u64);
        }
        let held = tail.permit.bytes();
        self.held += held;
        self.blocks.push_back(Block { bytes: Bytes::from_owner(tail), sum: None, held });
    }

    /// Takes `wanted` bytes, which must be there.
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
