//! The donor's ledger: the state of every block not yet acknowledged. Pure: no I/O, no clock.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::protocol::error::ProtocolError;
use crate::protocol::head::DataHead;
use crate::protocol::message::Ack;

/// Holder of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    /// In the queue, until a connection takes it.
    Queue,
    /// Assigned to this connection.
    Link(u64),
    /// This connection is lost; the joiner may have received the block or not.
    Doubt(u64),
}

#[derive(Debug)]
struct Block {
    offset: u64,
    len: u32,
    payload: Vec<Bytes>,
    holder: Holder,
    sent_before: bool,
    /// Whether the stream begins again with it.
    again: bool,
}

/// A block for a connection to send.
#[derive(Debug)]
pub(crate) struct Outbound {
    /// The flag for a payload checksum is not set yet.
    pub(crate) head: DataHead,
    pub(crate) payload: Vec<Bytes>,
    /// Whether it was sent before.
    pub(crate) repeated: bool,
}

/// Result of [`SendLedger::take`].
#[derive(Debug)]
pub(crate) enum Take {
    Block(Outbound),
    /// No block waits to be sent.
    Empty,
    /// A block waits, but the joiner has not granted enough credit.
    NoCredit,
}

/// All blocks that the joiner has not acknowledged.
#[derive(Debug)]
pub(crate) struct SendLedger {
    blocks: BTreeMap<u64, Block>,
    ready: BTreeSet<u64>,
    next_number: u64,
    next_offset: u64,
    held_bytes: usize,
    under_way: usize,
    window: usize,
    credit_bytes: u64,
    credit_blocks: u64,
    begins_again: bool,
}

impl SendLedger {
    pub(crate) fn new(window: usize) -> Self {
        Self {
            blocks: BTreeMap::new(),
            ready: BTreeSet::new(),
            next_number: 0,
            next_offset: 0,
            held_bytes: 0,
            under_way: 0,
            window,
            credit_bytes: 0,
            credit_blocks: 0,
            begins_again: false,
        }
    }

    /// Returns whether a block of `len` bytes can be added now.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.held_bytes == 0 || self.held_bytes.saturating_add(len) <= self.window
    }

    /// Adds the next block of the stream, which must not be empty.
    pub(crate) fn push(&mut self, payload: Vec<Bytes>, len: u32) {
        let number = self.next_number;
        let block = Block {
            offset: self.next_offset,
            len,
            payload,
            holder: Holder::Queue,
            sent_before: false,
            again: std::mem::take(&mut self.begins_again),
        };
        self.held_bytes += len as usize;
        self.next_offset += u64::from(len);
        self.next_number += 1;
        self.blocks.insert(number, block);
        self.ready.insert(number);
    }

    /// Begins the stream again with the next block. Nothing has begun before the first one.
    pub(crate) fn begin_again(&mut self) {
        self.begins_again = self.next_number > 0;
    }

    /// Returns whether the stream begins again with a block that is still to come.
    pub(crate) fn is_beginning(&self) -> bool {
        self.begins_again
    }

    /// Assigns the oldest waiting block to connection `link`.
    pub(crate) fn take(&mut self, link: u64) -> Take {
        let Some(&number) = self.ready.first() else { return Take::Empty };
        let Some(block) = self.blocks.get_mut(&number) else { return Take::Empty };
        let end = block.offset.saturating_add(u64::from(block.len));
        if number >= self.credit_blocks || end > self.credit_bytes {
            return Take::NoCredit;
        }
        self.ready.pop_first();
        self.under_way += 1;
        block.holder = Holder::Link(link);
        let repeated = std::mem::replace(&mut block.sent_before, true);
        let Block { offset, len, again, .. } = *block;
        let head = DataHead { number, offset, len, summed: false, again };
        Take::Block(Outbound { head, payload: block.payload.clone(), repeated })
    }

    /// Drops the blocks that the joiner has. Returns the number of bytes dropped, and whether there
    /// is more credit.
    pub(crate) fn acknowledge(&mut self, ack: &Ack) -> Result<(usize, bool), ProtocolError> {
        let last = ack.ranges.last().map_or(ack.next, |(_, end)| *end);
        if last > self.next_number {
            return Err(ProtocolError::Unexpected { what: "ack of a block that was never made" });
        }
        let mut freed = 0;
        while let Some((&number, _)) = self.blocks.first_key_value()
            && number < ack.next
        {
            freed += self.drop_block(number);
        }
        for (first, end) in &ack.ranges {
            while let Some((&number, _)) = self.blocks.range(first..end).next() {
                freed += self.drop_block(number);
            }
        }
        let more = ack.credit_bytes > self.credit_bytes || ack.credit_blocks > self.credit_blocks;
        self.credit_bytes = self.credit_bytes.max(ack.credit_bytes);
        self.credit_blocks = self.credit_blocks.max(ack.credit_blocks);
        Ok((freed, more))
    }

    /// Drops all blocks after the joiner's confirmation, which may overtake acknowledgements.
    /// Returns the number of bytes dropped.
    pub(crate) fn acknowledge_all(&mut self) -> usize {
        let numbers: Vec<u64> = self.blocks.keys().copied().collect();
        numbers.into_iter().map(|number| self.drop_block(number)).sum()
    }

    fn drop_block(&mut self, number: u64) -> usize {
        let Some(block) = self.blocks.remove(&number) else { return 0 };
        if block.holder == Holder::Queue {
            self.ready.remove(&number);
        } else {
            self.under_way -= 1;
        }
        self.held_bytes -= block.len as usize;
        block.len as usize
    }

    /// Records the loss of `link`: its blocks are in doubt until [`SendLedger::release`].
    pub(crate) fn lost(&mut self, link: u64) {
        for block in self.blocks.values_mut() {
            if block.holder == Holder::Link(link) {
                block.holder = Holder::Doubt(link);
            }
        }
    }

    /// Queues the blocks of `link` that are still in doubt, to be sent again.
    pub(crate) fn release(&mut self, link: u64) {
        for (number, block) in &mut self.blocks {
            if matches!(block.holder, Holder::Doubt(id) | Holder::Link(id) if id == link) {
                block.holder = Holder::Queue;
                self.under_way -= 1;
                self.ready.insert(*number);
            }
        }
    }

    /// Returns whether blocks are assigned to connections and not acknowledged.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way > 0
    }

    /// Returns whether blocks wait for a connection.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the number of blocks and bytes ever added.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.next_number, self.next_offset)
    }
}
