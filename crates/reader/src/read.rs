//! A blocking reader that checks the whole stream.

use std::io::{self, Read};

use crate::chunk::ChunkHead;
use crate::{
    Change, DecodeError, Decoder, Dialect, Event, FileTable, Limits, OrderError, PayloadCheck,
    Unfinished,
};

/// Size of one read from the input, in bytes.
const BUFFER_LEN: usize = 256 << 10;

/// Reading a stream failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The input could not be read.
    #[error("cannot read at stream offset {position}: {source}")]
    Io {
        /// Bytes read before the error.
        position: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// The input is not a well-formed stream, or a checksum does not match.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A chunk contradicts the chunks before it.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// The input ended too early.
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
}

/// Result of [`ChunkReader::next`].
#[derive(Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A chunk begins, with its effect on the files.
    Chunk(ChunkHead, Change),
    /// The next piece of its payload.
    Data(&'a [u8]),
    /// The chunk is complete and its checksum matches. Until then its data is unproven.
    ChunkEnd,
}

/// Reads a stream from any [`Read`]: finds the chunks, and checks their checksums, their order and
/// the end of every file.
///
/// The reader has its own buffer.
///
/// ```
/// use xb_reader::{ChunkReader, ChunkWriter, Dialect, Item, Limits};
///
/// let mut writer = ChunkWriter::new(Vec::new());
/// writer.payload("shop/orders.ibd", 0, b"some pages")?;
/// writer.end("shop/orders.ibd")?;
/// let stream = writer.finish()?;
///
/// let mut reader = ChunkReader::new(&stream[..], Dialect::Auto, Limits::default());
/// let mut content = Vec::new();
/// while let Some(item) = reader.next()? {
///     if let Item::Data(piece) = item {
///         content.extend_from_slice(piece);
///     }
/// }
/// assert_eq!(content, b"some pages");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ChunkReader<R> {
    input: R,
    decoder: Decoder,
    files: FileTable,
    current: Option<(ChunkHead, PayloadCheck)>,
    buffer: Vec<u8>,
    /// Start of the bytes in the buffer that are not decoded yet.
    start: usize,
    filled: usize,
    over: bool,
}

impl<R: Read> ChunkReader<R> {
    /// A reader at the beginning of a stream.
    pub fn new(input: R, dialect: Dialect, limits: Limits) -> Self {
        Self {
            input,
            decoder: Decoder::new(dialect, limits),
            files: FileTable::new(),
            current: None,
            buffer: vec![0; BUFFER_LEN],
            start: 0,
            filled: 0,
            over: false,
        }
    }

    /// Returns the next item; `None` at the end of a complete stream.
    ///
    /// # Errors
    ///
    /// Any [`ReadError`]. After an error the reader cannot be used further.
    #[allow(clippy::should_implement_trait)] // lends from its buffer, which an iterator cannot do
    pub fn next(&mut self) -> Result<Option<Item<'_>>, ReadError> {
        loop {
            let event = if self.over {
                let Some(event) = self.decoder.finish()? else {
                    self.files.finish()?;
                    return Ok(None);
                };
                event
            } else {
                if self.start == self.filled && !self.refill()? {
                    continue;
                }
                let mut input = &self.buffer[self.start..self.filled];
                let event = self.decoder.next(&mut input)?;
                let end = self.filled - input.len();
                // The piece is borrowed again below. A borrow that is returned from one branch only
                // would lock the buffer in all branches.
                let piece = matches!(event, Some(Event::Data(_))).then_some(self.start..end);
                self.start = end;
                match (event, piece) {
                    (None, _) => continue,
                    (Some(Event::Data(piece)), Some(range)) => {
                        if let Some((_, check)) = &mut self.current {
                            check.update(piece);
                        }
                        return Ok(Some(Item::Data(&self.buffer[range])));
                    }
                    (Some(Event::Head(head)), _) => Event::Head(head),
                    (Some(_), _) => Event::ChunkEnd,
                }
            };
            return match event {
                Event::Head(head) => {
                    let change = self.files.apply(&head)?;
                    self.current = Some((head.clone(), PayloadCheck::new(&head)));
                    Ok(Some(Item::Chunk(head, change)))
                }
                Event::Data(piece) => Ok(Some(Item::Data(piece))),
                Event::ChunkEnd => {
                    if let Some((head, check)) = self.current.take() {
                        check.finish(&head)?;
                    }
                    Ok(Some(Item::ChunkEnd))
                }
            };
        }
    }

    /// The files, as far as the stream was read.
    pub fn files(&self) -> &FileTable {
        &self.files
    }

    /// Bytes of the stream decoded so far.
    pub fn position(&self) -> u64 {
        self.decoder.position()
    }

    /// Fills the buffer. Returns false at the end of the input.
    fn refill(&mut self) -> Result<bool, ReadError> {
        loop {
            match self.input.read(&mut self.buffer) {
                Ok(len) => {
                    (self.start, self.filled) = (0, len);
                    self.over = len == 0;
                    return Ok(len > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(ReadError::Io { position: self.decoder.position(), source });
                }
            }
        }
    }
}
