//! Splits what arrives on a connection into messages, and reads blocks directly into their buffers.

use std::io::{self, Read};

use bytes::Bytes;

use crate::protocol::buffer_pool::{Buffer, Pool};
use crate::protocol::checksum::Sum;
use crate::protocol::error::ProtocolError;
use crate::protocol::head::{self, DATA_HEAD_LEN, DataHead, HEAD_LEN, Head};
use crate::protocol::message::Message;

/// Whether a block is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// Keep the block.
    Keep,
    /// The block is already here: skip its payload.
    Skip,
}

/// A message or block that has arrived completely.
#[derive(Debug)]
pub enum Item {
    /// A message.
    Message(Message),
    /// A block that was needed. If its checksum covers the payload, it was verified.
    Block(DataHead, Bytes),
    /// A block that was not needed.
    Skipped(DataHead),
}

/// Reason why reading cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum InboundError {
    /// The connection failed; `UnexpectedEof` if it ended.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer violated the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// Decoder state between two reads.
#[derive(Debug, Default)]
pub struct Inbound {
    state: State,
    scrap: Vec<u8>,
}

#[derive(Debug)]
enum State {
    Head {
        bytes: [u8; HEAD_LEN],
        filled: usize,
    },
    Body {
        head: [u8; HEAD_LEN],
        kind: u8,
        body: Vec<u8>,
        filled: usize,
    },
    BlockHead {
        head: [u8; HEAD_LEN],
        len: u32,
        summed: bool,
        again: bool,
        bytes: [u8; DATA_HEAD_LEN],
        filled: usize,
    },
    Block {
        block: DataHead,
        summing: Option<Summing>,
        buffer: Buffer,
        filled: usize,
    },
    Skip {
        block: DataHead,
        summing: Option<Summing>,
        left: usize,
    },
}

/// The checksum of a block so far, and the head with the expected checksum.
#[derive(Debug)]
struct Summing {
    head: [u8; HEAD_LEN],
    sum: Sum,
}

impl Summing {
    fn check(mut self, payload: &[u8]) -> Result<(), ProtocolError> {
        self.sum.update(payload);
        head::check(&self.head, &self.sum)
    }
}

impl Default for State {
    fn default() -> Self {
        Self::Head { bytes: [0; HEAD_LEN], filled: 0 }
    }
}

impl Inbound {
    /// Continues reading. Returns `Ok(None)` if no more data is available now. `disposition` is
    /// called for each block before memory is allocated for it.
    ///
    /// # Errors
    /// [`InboundError`]; the connection is not usable afterwards.
    pub fn next(
        &mut self,
        from: &mut impl Read,
        pool: &Pool,
        mut disposition: impl FnMut(&DataHead) -> Result<Disposition, ProtocolError>,
    ) -> Result<Option<Item>, InboundError> {
        loop {
            if !self.fill(from)? {
                return Ok(None);
            }
            if let Some(item) = self.advance(pool, &mut disposition)? {
                return Ok(Some(item));
            }
        }
    }

    /// Reads the bytes that the current state needs. Returns `Ok(false)` if they are not all
    /// available now.
    fn fill(&mut self, from: &mut impl Read) -> io::Result<bool> {
        match &mut self.state {
            State::Head { bytes, filled } => fill(from, bytes, filled),
            State::Body { body, filled, .. } => fill(from, body, filled),
            State::BlockHead { bytes, filled, .. } => fill(from, bytes, filled),
            State::Block { buffer, filled, .. } => {
                let mut got = 0;
                let more = fill(from, buffer.space(*filled), &mut got);
                *filled += got;
                more
            }
            State::Skip { left, summing, .. } => {
                self.scrap.resize(64 << 10, 0);
                let mut more = true;
                while *left > 0 && more {
                    let most = self.scrap.len().min(*left);
                    let mut got = 0;
                    let space = self.scrap.get_mut(..most).unwrap_or_default();
                    let result = fill(from, space, &mut got);
                    *left -= got;
                    if let Some(summing) = summing {
                        summing.sum.update(self.scrap.get(..got).unwrap_or_default());
                    }
                    more = result?;
                }
                Ok(more)
            }
        }
    }

    /// Moves to the next state once the current one has all its bytes.
    fn advance(
        &mut self,
        pool: &Pool,
        disposition: &mut impl FnMut(&DataHead) -> Result<Disposition, ProtocolError>,
    ) -> Result<Option<Item>, InboundError> {
        match std::mem::take(&mut self.state) {
            State::Head { bytes: head, .. } => match head::head(head)? {
                Head::Body { kind, len } => {
                    self.state = State::Body { head, kind, body: vec![0; len], filled: 0 };
                }
                Head::Data { len, summed, again } => {
                    let bytes = [0; DATA_HEAD_LEN];
                    self.state = State::BlockHead { head, len, summed, again, bytes, filled: 0 };
                }
            },
            State::Body { head, kind, body, .. } => {
                Summing { head, sum: head::sum(&head) }.check(&body)?;
                return Ok(Some(Item::Message(Message::read(kind, &body)?)));
            }
            State::BlockHead { head, len, summed, again, bytes, .. } => {
                let block = head::data_head(bytes, len, summed, again)?;
                let mut sum = head::sum(&head);
                sum.update(&bytes);
                let summing = Summing { head, sum };
                let summing = if summed {
                    Some(summing)
                } else {
                    summing.check(&[])?;
                    None
                };
                let size = usize::try_from(len).unwrap_or(usize::MAX);
                self.state = match disposition(&block)? {
                    Disposition::Keep => {
                        State::Block { block, summing, buffer: pool.take(size), filled: 0 }
                    }
                    Disposition::Skip => State::Skip { block, summing, left: size },
                };
            }
            State::Block { block, summing, buffer, .. } => {
                if let Some(summing) = summing {
                    summing.check(buffer.as_ref())?;
                }
                return Ok(Some(Item::Block(block, buffer.freeze())));
            }
            State::Skip { block, summing, .. } => {
                if let Some(summing) = summing {
                    summing.check(&[])?;
                }
                return Ok(Some(Item::Skipped(block)));
            }
        }
        Ok(None)
    }
}

/// Fills `space` from `filled` on. Returns `Ok(false)` if it is not full and no more data is
/// available now.
fn fill(from: &mut impl Read, space: &mut [u8], filled: &mut usize) -> io::Result<bool> {
    while let Some(rest) = space.get_mut(*filled..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => *filled += n.min(rest.len()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns its bytes in pieces, with `WouldBlock` between them.
    struct Pieces<'a> {
        bytes: &'a [u8],
        cuts: Vec<usize>,
        dry: bool,
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.dry = !self.dry;
            if self.dry {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let most = self.cuts.pop().unwrap_or(usize::MAX).max(1);
            let n = most.min(out.len()).min(self.bytes.len());
            let (now, later) = self.bytes.split_at(n);
            out[..n].copy_from_slice(now);
            self.bytes = later;
            Ok(n)
        }
    }

    fn all(bytes: &[u8], cuts: Vec<usize>) -> (Vec<String>, InboundError) {
        let mut from = Pieces { bytes, cuts, dry: false };
        let (mut inbound, pool) = (Inbound::default(), Pool::new(64 << 10, 2));
        let mut items = Vec::new();
        loop {
            let disposition = |head: &DataHead| {
                Ok(if head.number.is_multiple_of(2) {
                    Disposition::Keep
                } else {
                    Disposition::Skip
                })
            };
            match inbound.next(&mut from, &pool, disposition) {
                Ok(Some(item)) => items.push(format!("{item:?}")),
                Ok(None) => {}
                Err(error) => return (items, error),
            }
        }
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            blocks in proptest::collection::vec((any::<u64>(), proptest::collection::vec(any::<u8>(), 1..40_000)), 0..4),
            cuts in proptest::collection::vec(0_usize..5000, 0..200),
        ) {
            let mut bytes = Message::Ping(1).write();
            for (number, payload) in &blocks {
                let len = u32::try_from(payload.len()).unwrap();
                let head = DataHead { number: *number, offset: 7, len, summed: number % 3 > 0, again: number % 5 == 0 };
                bytes.extend(head::write_data_head(&head, [&payload[..]]));
                bytes.extend(payload);
                bytes.extend(Message::Fin { blocks: 1, bytes: 2 }.write());
            }
            let (whole, _) = all(&bytes, Vec::new());
            let (items, error) = all(&bytes, cuts);
            prop_assert_eq!(items.len(), 1 + 2 * blocks.len());
            prop_assert_eq!(items, whole);
            prop_assert!(matches!(error, InboundError::Io(e) if e.kind() == io::ErrorKind::UnexpectedEof));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(prop_oneof![0_u8..12, any::<u8>()], 0..300)) {
            all(&bytes, vec![3; 100]);
        }
    }
}
