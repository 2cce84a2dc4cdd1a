//! The joiner's ledger: the blocks received so far, in order for the reader. Pure: no I/O, no
//! clock.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::protocol::error::ProtocolError;
use crate::protocol::head::{DataHead, MAX_RANGES};
use crate::protocol::message::Ack;
use crate::protocol::message_reader::Disposition;

/// Blocks that wait for earlier blocks or for the reader.
#[derive(Debug)]
pub(crate) struct ReceiveLedger {
    held: BTreeMap<u64, (DataHead, Bytes)>,
    /// Whether the stream has begun again, which it may do once.
    began_again: bool,
    /// All blocks before this one have arrived.
    next: u64,
    delivered_blocks: u64,
    delivered_bytes: u64,
    window_bytes: u64,
    window_blocks: u64,
    totals: Option<(u64, u64)>,
}

impl ReceiveLedger {
    pub(crate) fn new(window_bytes: u64, window_blocks: u64) -> Self {
        Self {
            held: BTreeMap::new(),
            began_again: false,
            next: 0,
            delivered_blocks: 0,
            delivered_bytes: 0,
            window_bytes,
            window_blocks,
            totals: None,
        }
    }

    /// Returns whether a block is needed, before memory is allocated for it.
    pub(crate) fn disposition(&self, head: &DataHead) -> Result<Disposition, ProtocolError> {
        let wrong =
            |what| Err(ProtocolError::Block { number: head.number, offset: head.offset, what });
        if head.number < self.next || self.held.contains_key(&head.number) {
            return Ok(Disposition::Skip);
        }
        let Some(end) = head.offset.checked_add(u64::from(head.len)) else {
            return wrong("its end is out of range");
        };
        if head.number >= self.credit_blocks() || end > self.credit_bytes() {
            return wrong("it exceeds the credit");
        }
        // All of many blocks that overlap would be within the credit, and together need more memory than the window.
        let before = self.held.range(..head.number).next_back();
        let received = before.map_or(self.delivered_bytes, |(_, (before, _))| {
            before.offset.saturating_add(u64::from(before.len))
        });
        let behind = self.held.range(head.number..).next();
        if head.offset < received || behind.is_some_and(|(_, (behind, _))| behind.offset < end) {
            return wrong("it overlaps received data");
        }
        if self.totals.is_some_and(|(blocks, bytes)| head.number >= blocks || end > bytes) {
            return wrong("it starts after the end of the stream");
        }
        Ok(Disposition::Keep)
    }

    /// Adds a block whose checksum is valid. Returns `Ok(false)` if it has already arrived on
    /// another connection.
    pub(crate) fn insert(
        &mut self,
        head: &DataHead,
        payload: Bytes,
    ) -> Result<bool, ProtocolError> {
        if self.disposition(head)? == Disposition::Skip {
            return Ok(false);
        }
        self.held.insert(head.number, (*head, payload));
        while self.held.contains_key(&self.next) {
            self.next += 1;
        }
        Ok(true)
    }

    /// Returns the next block, if it has arrived, and whether the stream begins again with it.
    pub(crate) fn deliver(&mut self) -> Result<Option<(Bytes, bool)>, ProtocolError> {
        let number = self.delivered_blocks;
        let Some((head, payload)) = self.held.remove(&number) else { return Ok(None) };
        let offset = head.offset;
        if offset != self.delivered_bytes {
            let what = "it does not follow the previous block";
            return Err(ProtocolError::Block { number, offset, what });
        }
        if head.again && (number == 0 || std::mem::replace(&mut self.began_again, true)) {
            let what = "the stream may begin again only once, and not with its first block";
            return Err(ProtocolError::Block { number, offset, what });
        }
        self.delivered_blocks += 1;
        self.delivered_bytes += payload.len() as u64;
        Ok(Some((payload, head.again)))
    }

    /// Records the donor's totals.
    pub(crate) fn end_at(&mut self, blocks: u64, bytes: u64) -> Result<(), ProtocolError> {
        let last = self.held.last_key_value().map_or(self.next, |(last, _)| last + 1);
        let wrong = match self.totals {
            Some(totals) => totals != (blocks, bytes),
            None => {
                last > blocks
                    || self.delivered_bytes > bytes
                    || (self.delivered_blocks == blocks && self.delivered_bytes != bytes)
            }
        };
        if wrong {
            return Err(ProtocolError::Unexpected { what: "fin with different totals" });
        }
        self.totals = Some((blocks, bytes));
        Ok(())
    }

    /// Returns whether the reader has received everything. The error: block and byte counts
    /// disagree.
    pub(crate) fn is_whole(&self) -> Result<bool, ProtocolError> {
        match self.totals {
            Some((blocks, bytes)) if blocks == self.delivered_blocks => {
                if bytes == self.delivered_bytes {
                    Ok(true)
                } else {
                    Err(ProtocolError::Unexpected {
                        what: "end: the number of bytes differs from the announced one",
                    })
                }
            }
            _ => Ok(false),
        }
    }

    /// Returns the acknowledgement for the donor.
    pub(crate) fn ack(&self) -> Ack {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for &number in self.held.range(self.next..).map(|(number, _)| number) {
            match ranges.last_mut() {
                Some((_, end)) if *end == number => *end += 1,
                _ => ranges.push((number, number + 1)),
            }
            if ranges.len() > MAX_RANGES {
                ranges.pop();
                break;
            }
        }
        Ack {
            next: self.next,
            credit_bytes: self.credit_bytes(),
            credit_blocks: self.credit_blocks(),
            ranges,
        }
    }

    /// Returns the stream offset and the block number up to which the donor may send.
    pub(crate) fn credit(&self) -> (u64, u64) {
        (self.credit_bytes(), self.credit_blocks())
    }

    fn credit_bytes(&self) -> u64 {
        self.delivered_bytes.saturating_add(self.window_bytes)
    }

    fn credit_blocks(&self) -> u64 {
        self.delivered_blocks.saturating_add(self.window_blocks)
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use super::*;
    use crate::ledger::send::{SendLedger, Take};
    use proptest::prelude::*;

    /// An event in a transfer over several connections.
    #[derive(Debug, Clone)]
    enum Step {
        Push(usize),
        Take(u64),
        /// The oldest block on this connection arrives.
        Arrive(u64),
        Deliver,
        Ack,
        /// This connection is lost with all blocks on it, which are then released.
        Lose(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (1_usize..2000).prop_map(Step::Push),
            4 => (0_u64..3).prop_map(Step::Take),
            4 => (0_u64..3).prop_map(Step::Arrive),
            3 => Just(Step::Deliver),
            2 => Just(Step::Ack),
            1 => (0_u64..3).prop_map(Step::Lose),
        ]
    }

    #[test]
    fn blocks_that_wait_do_not_overlap() {
        let mut ledger = ReceiveLedger::new(1 << 20, 64);
        let mut arrives = |number, offset: u64| {
            let head = DataHead { number, offset, len: 100, summed: false, again: false };
            ledger.insert(&head, Bytes::from_static(&[0; 100]))
        };
        assert_eq!(arrives(4, 400), Ok(true));
        for (number, offset) in [(5, 400), (5, 499), (7, 0), (3, 301), (3, 400), (1, 500)] {
            assert!(arrives(number, offset).is_err(), "{number} at {offset}");
        }
        for (number, offset) in [(5, 500), (3, 300), (1, 100), (4, 400)] {
            assert!(arrives(number, offset).is_ok(), "{number} at {offset}");
        }
    }

    #[test]
    fn a_stream_begins_again_once_and_not_with_its_first_block() {
        let blocks = |again: [bool; 3]| {
            let mut ledger = ReceiveLedger::new(1 << 20, 64);
            let mut told = Vec::new();
            for (number, again) in (0_u64..).zip(again) {
                let head = DataHead { number, offset: number * 4, len: 4, summed: false, again };
                ledger.insert(&head, Bytes::from_static(b"data")).unwrap();
                told.push(ledger.deliver().ok().flatten().map(|block| block.1));
            }
            told
        };
        assert_eq!(blocks([false, true, false]), [Some(false), Some(true), Some(false)]);
        assert_eq!(blocks([true, false, false])[0], None);
        assert_eq!(blocks([false, true, true]), [Some(false), Some(true), None]);
    }

    proptest! {
        /// Whatever is lost, and in whatever order blocks and acknowledgements arrive: the stream
        /// arrives complete, nothing acknowledged is sent again, and no window is exceeded.
        #[test]
        fn books_agree(steps in proptest::collection::vec(step(), 0..400), window in 4000_usize..9000) {
            let mut sending = SendLedger::new(window);
            let mut receiving = ReceiveLedger::new(window as u64, 6);
            sending.acknowledge(&receiving.ack()).unwrap();
            let mut wires: Vec<Vec<(DataHead, Bytes)>> = vec![Vec::new(); 3];
            let (mut made, mut got): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
            let mut acked = 0;
            let mut run = |step: Step, made: &mut Vec<u8>, got: &mut Vec<u8>| {
                match step {
                    Step::Push(len) => {
                        if sending.has_room(len) {
                            let bytes: Vec<u8> = (0..len).map(|n| (made.len() + n) as u8).collect();
                            made.extend(&bytes);
                            sending.push(vec![bytes.into()], len as u32);
                        }
                    }
                    Step::Take(link) => {
                        if let Take::Block(block) = sending.take(link) {
                            assert!(block.head.number >= acked, "acknowledged and sent again");
                            wires[link as usize].push((block.head, block.payload.concat().into()));
                        }
                    }
                    Step::Arrive(link) => {
                        let wire = &mut wires[link as usize];
                        if !wire.is_empty() {
                            let (head, payload) = wire.remove(0);
                            receiving.insert(&head, payload).unwrap();
                        }
                    }
                    Step::Deliver => {
                        if let Some((bytes, _)) = receiving.deliver().unwrap() {
                            got.extend(&bytes);
                        }
                    }
                    Step::Ack => {
                        let ack = receiving.ack();
                        acked = ack.next;
                        sending.acknowledge(&ack).unwrap();
                    }
                    Step::Lose(link) => {
                        wires[link as usize].clear();
                        sending.lost(link);
                        sending.release(link);
                    }
                }
                let held: usize = receiving.held.values().map(|(_, bytes)| bytes.len()).sum();
                assert!(held <= window && receiving.held.len() <= 6);
            };
            for step in steps {
                run(step, &mut made, &mut got);
            }
            // Then it runs to its end without further losses.
            while got.len() < made.len() {
                for step in [Step::Lose(1), Step::Lose(2), Step::Take(0), Step::Arrive(0), Step::Deliver, Step::Ack] {
                    run(step, &mut made, &mut got);
                }
            }
            run(Step::Ack, &mut made, &mut got);
            let (blocks, bytes) = sending.totals();
            receiving.end_at(blocks, bytes).unwrap();
            prop_assert_eq!(receiving.is_whole(), Ok(true));
            prop_assert!(!sending.is_under_way() && !sending.has_ready());
            prop_assert_eq!(got, made);
        }

        #[test]
        fn no_block_panics(heads in proptest::collection::vec((0_u64..20, 0_u64..100, 1_u32..40), 0..60), fin: Option<(u8, u8)>) {
            let mut receiving = ReceiveLedger::new(200, 10);
            if let Some((blocks, bytes)) = fin {
                let _ = receiving.end_at(blocks.into(), bytes.into());
            }
            for (number, offset, len) in heads {
                let again = number % 3 == 0;
                let head = DataHead { number, offset, len, summed: false, again };
                let _ = receiving.insert(&head, Bytes::from(vec![0; len as usize]));
                let _ = receiving.deliver();
                let _ = receiving.is_whole();
            }
        }
    }
}
