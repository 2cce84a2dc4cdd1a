//! Completes a donor's stream with the blocks that the joiner holds, so that everything behind it gets the stream of a full
//! transfer.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use xb_reader::{
    ChunkHead, ChunkWriter, DecodeError, Decoder, Dialect, Event, Limits, PayloadCheck, crc32,
};

use super::cut;
use super::held::{HeldGroup, HeldGroups};

/// A stream that does not fit what the joiner holds.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FillError {
    /// It is no xbstream, or the checksum of a chunk is wrong.
    #[error(transparent)]
    Stream(#[from] DecodeError),
    /// A chunk lacks other blocks than those that this node has said that it holds.
    #[error("{path}: the donor has left out blocks at {offset} that this node does not hold")]
    NotHeld {
        /// The file.
        path: String,
        /// Offset in the file.
        offset: u64,
    },
    /// A chunk cannot be written.
    #[error("cannot complete a chunk: {0}")]
    Write(#[from] std::io::Error),
}

/// Completes a stream that arrives in pieces of any size.
#[derive(Debug)]
pub(crate) struct Filler {
    decoder: Decoder,
    held: Arc<HeldGroups>,
    /// Bytes taken since the last event: the next chunk's head.
    head: Vec<u8>,
    chunk: Chunk,
    out: VecDeque<Bytes>,
    filled: u64,
    /// Bytes of them that were counted.
    counted: u64,
}

/// Treatment of the current chunk.
#[derive(Debug)]
enum Chunk {
    /// It is passed on.
    Whole,
    /// It lacks blocks.
    Cut(Box<Filling>),
}

#[derive(Debug)]
struct Filling {
    head: ChunkHead,
    check: PayloadCheck,
    held: HeldGroup,
    /// The block, and the place in it, where the next byte of the payload goes.
    block: usize,
    at: usize,
}

impl Filler {
    pub(crate) fn new(held: Arc<HeldGroups>) -> Self {
        Self {
            decoder: Decoder::new(Dialect::Auto, Limits::default()),
            held,
            head: Vec::new(),
            chunk: Chunk::Whole,
            out: VecDeque::new(),
            filled: 0,
            counted: 0,
        }
    }

    /// For a stream that leaves nothing out: nothing is held, and a chunk that lacks blocks is refused.
    pub(crate) fn of_whole() -> Self {
        Self::new(Arc::new(HeldGroups::new(0)))
    }

    /// Bytes put in so far.
    pub(crate) fn filled(&self) -> u64 {
        self.filled
    }

    /// Bytes put in since the last call.
    pub(crate) fn take_count(&mut self) -> u64 {
        let before = std::mem::replace(&mut self.counted, self.filled);
        self.filled - before
    }

    /// Takes the next bytes of the donor's stream.
    ///
    /// # Errors
    /// [`FillError`].
    pub(crate) fn push(&mut self, bytes: &Bytes) -> Result<(), FillError> {
        let mut input = &bytes[..];
        loop {
            let before = input;
            let event = self.decoder.next(&mut input)?;
            let taken = before.len() - input.len();
            match event {
                Some(Event::Head(head)) => {
                    self.head.extend_from_slice(before.get(..taken).unwrap_or_default());
                    self.begin(head)?;
                }
                Some(Event::Data(piece)) => {
                    // The piece is the end of what was taken.
                    let end = bytes.len() - input.len();
                    self.piece(bytes.slice(end - piece.len()..end));
                }
                Some(Event::ChunkEnd) => self.end()?,
                None => {
                    self.head.extend_from_slice(before.get(..taken).unwrap_or_default());
                    return Ok(());
                }
            }
        }
    }

    /// Ends the input. What is still held was not needed: the donor has sent its bytes, or has begun again before it sent
    /// anything.
    ///
    /// # Errors
    /// [`FillError`].
    pub(crate) fn finish(&mut self) -> Result<(), FillError> {
        while let Some(event) = self.decoder.finish()? {
            match event {
                Event::Head(head) => self.begin(head)?,
                Event::Data(_) => {}
                Event::ChunkEnd => self.end()?,
            }
        }
        self.held.close();
        Ok(())
    }

    /// Takes the next bytes of the completed stream.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.out.pop_front()
    }

    fn begin(&mut self, head: ChunkHead) -> Result<(), FillError> {
        // Bytes after the head were read to find its end.
        let len = usize::try_from(head.head_len).unwrap_or(usize::MAX).min(self.head.len());
        let raw: Vec<u8> = self.head.drain(..len).collect();
        if !cut::is_cut(&head) {
            self.chunk = Chunk::Whole;
            self.out.push_back(raw.into());
            return Ok(());
        }
        let held = self.held.pop().filter(|held| cut::fits(&head, &held.group, held.have));
        let Some(held) = held else {
            let (path, offset) = (head.path.to_string(), offset(&head));
            return Err(FillError::NotHeld { path, offset });
        };
        let check = PayloadCheck::new(&head);
        let filling = Filling { head, check, held, block: 0, at: 0 };
        self.chunk = Chunk::Cut(Box::new(filling));
        Ok(())
    }

    fn piece(&mut self, piece: Bytes) {
        match &mut self.chunk {
            Chunk::Whole => self.out.push_back(piece),
            Chunk::Cut(filling) => filling.take(&piece),
        }
    }

    fn end(&mut self) -> Result<(), FillError> {
        if let Chunk::Cut(filling) = std::mem::replace(&mut self.chunk, Chunk::Whole) {
            let Filling { head, check, held, .. } = *filling;
            check.finish(&head)?;
            let HeldGroup { group, have, data } = held;
            let mut out = Vec::new();
            let (len, crc) = (data.len() as u64, crc32(&data));
            ChunkWriter::new(&mut out).payload_head(&group.path, group.offset, len, crc)?;
            self.filled += have.bytes(&group) as u64;
            self.out.push_back(out.into());
            self.out.push_back(data.into());
        }
        Ok(())
    }
}

fn offset(head: &ChunkHead) -> u64 {
    match head.kind {
        xb_reader::ChunkKind::Sparse { offset, .. } => offset,
        _ => 0,
    }
}

impl Filling {
    /// Puts payload where the joiner holds no block. The map has shown that there is so much room.
    fn take(&mut self, mut piece: &[u8]) {
        self.check.update(piece);
        let HeldGroup { group, have, data } = &mut self.held;
        for (number, block) in group.blocks().enumerate().skip(self.block) {
            if have.has(number) {
                continue;
            }
            self.block = number;
            let start = block.start + self.at;
            let room = data.get_mut(start..block.end).unwrap_or_default();
            let (now, later) = piece.split_at(room.len().min(piece.len()));
            if let Some(room) = room.get_mut(..now.len()) {
                room.copy_from_slice(now);
            }
            piece = later;
            if start + now.len() < block.end {
                self.at += now.len();
                return;
            }
            (self.block, self.at) = (number + 1, 0);
        }
    }
}
