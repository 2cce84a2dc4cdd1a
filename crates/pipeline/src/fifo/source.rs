//! One FIFO that is read: its bytes, cut at the ends of its chunks.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::PathBuf;

use xb_reader::{ChunkHead, Decoder, Dialect, Event, FileTable, Limits, MAGIC};

use super::error::FifoError;
use crate::scan::end_rule::last_file_rank;

/// Size of the buffer of a FIFO: far more than a chunk head. Payload is read past it. The buffers of
/// the most FIFOs take 4 MiB, which is not leased.
const BUFFER: usize = 16 << 10;

/// Next item of a FIFO, at the beginning of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    /// A chunk. The rank tells files that must come last: 0 for all others.
    Chunk { rank: u8, is_news: bool },
    /// Nothing yet.
    Nothing,
    /// The stream has ended, and all its files are complete.
    End,
}

/// A FIFO that is open for reading without blocking.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    file: File,
    /// Bytes that were read and not yet given out.
    buffer: Vec<u8>,
    /// Number of bytes of the buffer that the decoder has taken.
    decoded: usize,
    /// Stream offset of the first byte in the buffer.
    given: u64,
    decoder: Decoder,
    files: FileTable,
    stage: Stage,
    ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The control byte has not been skipped yet.
    Control,
    /// Between two chunks, or in a head that is not complete.
    Head,
    /// In a chunk that ends at this stream offset; its file has this rank.
    Chunk { end: u64, rank: u8 },
}

impl Source {
    pub(super) fn new(path: PathBuf, file: File, dialect: Dialect) -> Self {
        Self {
            path,
            file,
            buffer: Vec::with_capacity(BUFFER),
            decoded: 0,
            given: 0,
            decoder: Decoder::new(dialect, Limits::default()),
            files: FileTable::new(),
            stage: Stage::Control,
            ended: false,
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Returns whether the writer has sent anything.
    pub(super) fn has_begun(&self) -> bool {
        !self.buffer.is_empty()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Reads the first bytes. Returns whether the writer has sent any.
    pub(super) fn begin(&mut self) -> Result<bool, FifoError> {
        if !self.has_begun() {
            // An end of input means only that no writer has opened the FIFO yet.
            self.fill()?;
        }
        Ok(self.has_begun())
    }

    /// Looks for the next chunk. Must not be called inside a chunk that was begun.
    pub(super) fn look(&mut self) -> Result<Offer, FifoError> {
        if let Stage::Chunk { rank, .. } = self.stage {
            return Ok(Offer::Chunk { rank, is_news: false });
        }
        loop {
            self.decode()?;
            if let Stage::Chunk { rank, .. } = self.stage {
                return Ok(Offer::Chunk { rank, is_news: true });
            }
            if self.buffer.len() == BUFFER {
                // A long sparse map, which no file that must come last has.
                return Ok(Offer::Chunk { rank: 0, is_news: false });
            }
            match self.fill()? {
                Some(0) => return self.end(),
                Some(_) => {}
                None => return Ok(Offer::Nothing),
            }
        }
    }

    /// Moves bytes of the current chunk to `out`. Returns their number, or `None` if there are none
    /// yet, and whether the chunk is complete.
    pub(super) fn give(&mut self, out: &mut [u8]) -> Result<(Option<usize>, bool), FifoError> {
        loop {
            self.decode()?;
            let end = match self.stage {
                Stage::Chunk { end, .. } => end,
                // All of it belongs to the head of this chunk.
                _ if self.buffer.len() == BUFFER => self.given + BUFFER as u64,
                _ => self.given,
            };
            let whole = matches!(self.stage, Stage::Chunk { .. });
            let left = usize::try_from(end - self.given).unwrap_or(usize::MAX);
            if left == 0 && whole {
                self.chunk_done()?;
                return Ok((Some(0), true));
            }
            if left > 0 && !self.buffer.is_empty() {
                let len = left.min(self.buffer.len()).min(out.len());
                out[..len].copy_from_slice(&self.buffer[..len]);
                self.consume(len);
                return Ok((Some(len), whole && self.at(end)?));
            }
            if left > 0 {
                let room = left.min(out.len());
                let Some(len) = self.read(room, |file, room| file.read(&mut out[..room]))? else {
                    return Ok((None, false));
                };
                let mut payload = &out[..len];
                // Payload only: a head is always read through the buffer.
                while self.next(&mut payload)?.is_some() {}
                self.given += len as u64;
                if len == 0 {
                    return Err(self.cut());
                }
                return Ok((Some(len), self.at(end)?));
            }
            match self.fill()? {
                Some(0) => return Err(self.cut()),
                Some(_) => {}
                None => return Ok((None, false)),
            }
        }
    }

    /// Ends the chunk if the offset `end` has been reached.
    fn at(&mut self, end: u64) -> Result<bool, FifoError> {
        if self.given < end {
            return Ok(false);
        }
        self.chunk_done().map(|()| true)
    }

    fn chunk_done(&mut self) -> Result<(), FifoError> {
        // The decoder reports the end of the chunk, which needs no bytes.
        self.next(&mut &[][..])?;
        self.stage = Stage::Head;
        Ok(())
    }

    fn consume(&mut self, len: usize) {
        self.buffer.drain(..len);
        self.decoded = self.decoded.saturating_sub(len);
        self.given += len as u64;
    }

    /// Passes buffered bytes to the decoder, up to the end of the current chunk.
    fn decode(&mut self) -> Result<(), FifoError> {
        if self.stage == Stage::Control {
            if !self.skip_control() {
                return Ok(());
            }
            self.stage = Stage::Head;
        }
        let buffer = std::mem::take(&mut self.buffer);
        let mut input = &buffer[self.decoded..];
        let outcome = loop {
            // Nothing is decoded beyond the current chunk, so that the next head stays whole.
            if let Stage::Chunk { end, .. } = self.stage {
                let reach = usize::try_from(end.saturating_sub(self.decoder.position()));
                input = &input[..reach.unwrap_or(usize::MAX).min(input.len())];
                if input.is_empty() {
                    break Ok(());
                }
            }
            match self.next(&mut input) {
                Ok(Some(())) => {}
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.buffer = buffer;
        // The decoder may have taken the magic of the next chunk, to see what a seek is.
        self.decoded = usize::try_from(self.decoder.position() - self.given).unwrap_or(usize::MAX);
        outcome
    }

    /// Processes the decoder's next event, if there is one.
    fn next(&mut self, input: &mut &[u8]) -> Result<Option<()>, FifoError> {
        let event = self.decoder.next(input).map_err(|source| self.damaged(source))?;
        match event {
            None => Ok(None),
            Some(Event::Head(head)) => self.head(&head).map(Some),
            Some(_) => Ok(Some(())),
        }
    }

    fn head(&mut self, head: &ChunkHead) -> Result<(), FifoError> {
        let path = self.path.clone();
        self.files.apply(head).map_err(|source| FifoError::Order { path, source })?;
        let rank = last_file_rank(head.path.as_bytes());
        self.stage = Stage::Chunk { end: head.end(), rank };
        Ok(())
    }

    /// Skips the control byte. A writer that sends none is accepted. Returns whether it is known
    /// where the stream begins.
    fn skip_control(&mut self) -> bool {
        let sent = self.buffer.len().min(MAGIC.len());
        match self.buffer.first() {
            None => false,
            _ if self.buffer[..sent] == MAGIC[..sent] => sent == MAGIC.len(),
            Some(_) => {
                self.buffer.drain(..1);
                true
            }
        }
    }

    /// Checks the end of the stream.
    fn end(&mut self) -> Result<Offer, FifoError> {
        if self.stage == Stage::Control {
            // The control byte alone, or too few bytes to tell.
            self.buffer.drain(..self.buffer.len().min(1));
            self.stage = Stage::Head;
            self.decode()?;
        }
        loop {
            match self.decoder.finish() {
                Ok(Some(Event::Head(head))) => {
                    // A seek at the very end: its bytes are still in the buffer.
                    self.head(&head)?;
                    return Ok(Offer::Chunk { rank: 0, is_news: false });
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(source) => return Err(self.damaged(source)),
            }
        }
        let is_empty = self.given == 0;
        match std::mem::take(&mut self.files).finish() {
            // A thread that had no file to send.
            Err(_) if is_empty => {}
            Ok(()) => {}
            Err(source) => {
                return Err(FifoError::Unfinished { path: self.path.clone(), source });
            }
        }
        self.ended = true;
        Ok(Offer::End)
    }

    /// The error of a stream that ends inside a chunk.
    fn cut(&mut self) -> FifoError {
        match self.decoder.finish() {
            Err(source) => self.damaged(source),
            Ok(_) => {
                let source = io::Error::from(ErrorKind::UnexpectedEof);
                FifoError::System { path: self.path.clone(), source }
            }
        }
    }

    fn damaged(&self, source: xb_reader::DecodeError) -> FifoError {
        FifoError::Decode { path: self.path.clone(), source }
    }

    /// Reads into the buffer. `None`: there is nothing to read yet.
    fn fill(&mut self) -> Result<Option<usize>, FifoError> {
        let begun = self.buffer.len();
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(BUFFER, 0);
        let read = self.read(BUFFER - begun, |file, _| file.read(&mut buffer[begun..]));
        buffer.truncate(begun + read.as_ref().ok().copied().flatten().unwrap_or(0));
        self.buffer = buffer;
        read
    }

    fn read(
        &self,
        room: usize,
        mut read: impl FnMut(&mut &File, usize) -> io::Result<usize>,
    ) -> Result<Option<usize>, FifoError> {
        loop {
            match read(&mut &self.file, room) {
                Ok(len) => return Ok(Some(len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(FifoError::System { path: self.path.clone(), source }),
            }
        }
    }
}
