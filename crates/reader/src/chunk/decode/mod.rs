//! The push decoder: turns bytes into chunks. It does no I/O and keeps no payload.

mod bytes;
mod options;
#[cfg(test)]
mod tests;

use std::mem;

use crc_fast::{CrcAlgorithm, Digest};

use crate::chunk::{
    ChunkHead, ChunkKind, FIXED_LEN, FLAG_IGNORABLE, MAGIC, MAP_ENTRY_LEN, MAX_FILE_OFFSET,
    MapEntry, PAYLOAD_FIELDS, RENAME_FIELDS, SEEK_FIELDS, SPARSE_FIELDS, checksum, kind,
};
use crate::{DecodeError, Printable, RelPath};
use bytes::{first_line, quotable, u32_at, u64_at};
pub use options::{Dialect, Limits};

/// If text is found instead of a chunk, the error quotes at most this many bytes of it.
const QUOTE_LEN: usize = 80;

/// Maximum number of map entries allocated before they arrive.
const MAP_AHEAD: u32 = 4096;

/// Next item of the stream. Every chunk results in one `Head`, then any number of `Data` for
/// its payload, then `ChunkEnd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'a> {
    /// A chunk begins.
    Head(ChunkHead),
    /// The next piece of the chunk's payload, never empty, borrowed from the input.
    Data(&'a [u8]),
    /// The chunk is complete.
    ChunkEnd,
}

/// Finds the chunks in a stream that arrives in pieces of any size.
///
/// The decoder checks the layout, all limits, names, and that sparse maps add up. It does not check
/// the CRC of payloads (see [`PayloadCheck`](crate::PayloadCheck)) or the order of chunks (see
/// [`FileTable`](crate::FileTable)), so that callers can check CRCs in parallel and the order once.
///
/// ```
/// use xb_reader::{Decoder, Dialect, Event, Limits};
///
/// let stream = b"XBSTCK01\0E\x05\0\0\0empty";
/// let mut decoder = Decoder::new(Dialect::Auto, Limits::default());
/// let mut input = &stream[..];
/// let Some(Event::Head(head)) = decoder.next(&mut input)? else { panic!() };
/// assert_eq!(head.path.as_bytes(), b"empty");
/// assert_eq!(decoder.next(&mut input)?, Some(Event::ChunkEnd));
/// assert_eq!(decoder.next(&mut input)?, None);
/// assert_eq!(decoder.finish()?, None);
/// # Ok::<(), xb_reader::DecodeError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Decoder {
    dialect: Dialect,
    limits: Limits,
    stage: Stage,
    /// The bytes of the current head, or of the current map entry, that have arrived.
    buf: Vec<u8>,
    /// Offset in the stream of the current chunk's first byte.
    start: u64,
    /// Bytes taken from all inputs.
    taken: u64,
}

/// The decoder's progress in the current chunk.
#[derive(Debug, Clone)]
enum Stage {
    /// Magic, flags, type and path length.
    Fixed,
    /// There is no chunk here: collect enough bytes for the error.
    Text,
    /// The name.
    Path { flags: u8, type_byte: u8, len: usize },
    /// An `S` of either meaning: look at what follows.
    Probe(Named),
    /// Fields that follow the path, except a map or a second path.
    Fields(Named, Shape),
    /// The new name in a rename, `len` bytes.
    NewPath(Named, usize),
    /// The map of a sparse chunk.
    Map(Box<PartialMap>),
    /// The payload; when 0 bytes are left, the chunk's end is reported.
    Payload { path: RelPath, left: u64 },
    /// The stream is not well-formed.
    Failed(DecodeError),
}

/// The layout of the bytes after the path, as the chunk's type determines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Payload,
    Ignored(u8),
    Sparse,
    Seek,
    Rename,
    Remove,
    End,
}

impl Shape {
    /// Length of the fixed fields after the path, in bytes.
    fn fields_len(self) -> usize {
        match self {
            // An ignored chunk is assumed to have the layout of a payload chunk: the format has no
            // other way to state its length.
            Self::Payload | Self::Ignored(_) => PAYLOAD_FIELDS,
            Self::Sparse => SPARSE_FIELDS,
            Self::Seek => SEEK_FIELDS,
            Self::Rename => RENAME_FIELDS,
            Self::Remove | Self::End => 0,
        }
    }
}

/// The part of a head that all chunks share.
#[derive(Debug, Clone)]
struct Named {
    flags: u8,
    path: RelPath,
    /// Length of the head up to and including the path as stored, in bytes.
    len: usize,
}

/// A sparse chunk whose map is still arriving.
#[derive(Debug, Clone)]
struct PartialMap {
    named: Named,
    offset: u64,
    len: u64,
    crc: u32,
    entries: u32,
    map: Vec<MapEntry>,
    digest: Digest,
}

/// The result of a stage.
enum Next<'a> {
    /// An event to return.
    Give(Event<'a>, Stage),
    /// No event yet, but there may be enough input to continue.
    Go(Stage),
    /// The input is used up.
    Wait(Stage),
}

impl Decoder {
    /// A decoder at offset 0 of a stream.
    #[must_use]
    pub fn new(dialect: Dialect, limits: Limits) -> Self {
        Self {
            dialect,
            limits,
            stage: Stage::Fixed,
            buf: Vec::with_capacity(FIXED_LEN + RelPath::MAX_LEN + SPARSE_FIELDS),
            start: 0,
            taken: 0,
        }
    }

    /// Takes bytes from the front of `input` until the next event is known. `None` means that all
    /// of `input` was taken and more is needed.
    ///
    /// # Errors
    ///
    /// The stream is not well-formed. The decoder cannot be used further: every later call returns
    /// the same error.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, DecodeError> {
        loop {
            let stage = mem::replace(&mut self.stage, Stage::Fixed);
            match self.advance(stage, input) {
                Ok(Next::Give(event, stage)) => {
                    self.stage = stage;
                    return Ok(Some(event));
                }
                Ok(Next::Go(stage)) => self.stage = stage,
                Ok(Next::Wait(stage)) => {
                    self.stage = stage;
                    return Ok(None);
                }
                Err(error) => return Err(self.fail(error)),
            }
        }
    }

    /// Signals the end of the input. Call this until it returns `None`: a seek that was held back
    /// to see what follows it may still be returned.
    ///
    /// # Errors
    ///
    /// The input ended inside a chunk, or its last bytes are not a chunk.
    pub fn finish(&mut self) -> Result<Option<Event<'static>>, DecodeError> {
        let path = match mem::replace(&mut self.stage, Stage::Fixed) {
            Stage::Fixed if self.buf.is_empty() => return Ok(None),
            Stage::Payload { left: 0, .. } => {
                self.next_chunk();
                return Ok(Some(Event::ChunkEnd));
            }
            // Nothing follows the 8 bytes of a seek: it was the last chunk.
            Stage::Probe(named) if self.buf.len() == named.len + SEEK_FIELDS => {
                let head = self.parse_fields(named, Shape::Seek);
                return match head {
                    Ok(Next::Give(Event::Head(head), stage)) => {
                        self.stage = stage;
                        Ok(Some(Event::Head(head)))
                    }
                    Ok(_) => Ok(None),
                    Err(error) => Err(self.fail(error)),
                };
            }
            Stage::Text => {
                let error = self.not_a_chunk();
                return Err(self.fail(error));
            }
            Stage::Failed(error) => return Err(self.fail(error)),
            Stage::Fixed | Stage::Path { .. } => None,
            Stage::Probe(named) | Stage::Fields(named, _) | Stage::NewPath(named, _) => {
                Some(named.path)
            }
            Stage::Map(partial) => Some(partial.named.path),
            Stage::Payload { path, .. } => Some(path),
        };
        Err(self.fail(DecodeError::Truncated { position: self.start, end: self.taken, path }))
    }

    /// Number of bytes taken from all inputs so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.taken
    }

    fn advance<'a>(&mut self, stage: Stage, input: &mut &'a [u8]) -> Result<Next<'a>, DecodeError> {
        Ok(match stage {
            Stage::Fixed => {
                let whole = self.fill(input, FIXED_LEN);
                let seen = self.buf.len().min(MAGIC.len());
                if self.buf[..seen] != MAGIC[..seen] {
                    Next::Go(Stage::Text)
                } else if whole {
                    Next::Go(self.parse_fixed()?)
                } else {
                    Next::Wait(Stage::Fixed)
                }
            }
            Stage::Text => {
                let whole = self.fill(input, QUOTE_LEN);
                if whole || first_line(&self.buf).is_some() {
                    return Err(self.not_a_chunk());
                }
                Next::Wait(Stage::Text)
            }
            Stage::Path { flags, type_byte, len } => {
                if !self.fill(input, FIXED_LEN + len) {
                    return Ok(Next::Wait(stage));
                }
                let named =
                    Named { flags, path: self.parse_path(FIXED_LEN)?, len: FIXED_LEN + len };
                Next::Go(self.parse_type(named, type_byte))
            }
            Stage::Probe(named) => {
                let at = named.len + SEEK_FIELDS;
                if !self.fill(input, at + MAGIC.len()) {
                    return Ok(Next::Wait(Stage::Probe(named)));
                }
                let shape = if self.buf[at..] == MAGIC { Shape::Seek } else { Shape::Sparse };
                Next::Go(Stage::Fields(named, shape))
            }
            Stage::Fields(named, shape) => {
                if !self.fill(input, named.len + shape.fields_len()) {
                    return Ok(Next::Wait(Stage::Fields(named, shape)));
                }
                self.parse_fields(named, shape)?
            }
            Stage::NewPath(named, len) => {
                let at = named.len + RENAME_FIELDS;
                if !self.fill(input, at + len) {
                    return Ok(Next::Wait(Stage::NewPath(named, len)));
                }
                let to = self.parse_path(at)?;
                self.give_head(named, at + len, ChunkKind::Rename { to })
            }
            Stage::Map(mut partial) => {
                if !self.take_entries(&mut partial, input) {
                    return Ok(Next::Wait(Stage::Map(partial)));
                }
                self.parse_map(*partial)?
            }
            Stage::Payload { left: 0, .. } => {
                self.next_chunk();
                Next::Give(Event::ChunkEnd, Stage::Fixed)
            }
            Stage::Payload { .. } if input.is_empty() => Next::Wait(stage),
            Stage::Payload { path, left } => {
                let len = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                let (data, rest) = input.split_at(len);
                *input = rest;
                self.taken += len as u64;
                Next::Give(Event::Data(data), Stage::Payload { path, left: left - len as u64 })
            }
            Stage::Failed(error) => return Err(error),
        })
    }

    /// Collects the head up to `len` bytes. Returns false if the input was used up before that.
    fn fill(&mut self, input: &mut &[u8], len: usize) -> bool {
        let missing = len.saturating_sub(self.buf.len());
        let (head, rest) = input.split_at(missing.min(input.len()));
        self.buf.extend_from_slice(head);
        *input = rest;
        self.taken += head.len() as u64;
        head.len() == missing
    }

    fn parse_fixed(&self) -> Result<Stage, DecodeError> {
        let (flags, type_byte) = (self.buf[8], self.buf[9]);
        let known = [kind::PAYLOAD, kind::END, kind::SPARSE_OR_SEEK, kind::RENAME, kind::REMOVE];
        if !known.contains(&type_byte) && flags & FLAG_IGNORABLE == 0 {
            return Err(DecodeError::UnknownType { position: self.start, type_byte });
        }
        let len = self.path_len(u32_at(&self.buf, 10))?;
        Ok(Stage::Path { flags, type_byte, len })
    }

    /// Checks a stated length of a path before any of it is read.
    fn path_len(&self, len: u32) -> Result<usize, DecodeError> {
        match usize::try_from(len) {
            Ok(len) if len <= RelPath::MAX_LEN => Ok(len),
            _ => Err(DecodeError::PathLength { position: self.start, len, max: RelPath::MAX_LEN }),
        }
    }

    /// Parses the path that fills the buffer from `at` on.
    fn parse_path(&self, at: usize) -> Result<RelPath, DecodeError> {
        RelPath::new(&self.buf[at..])
            .map_err(|source| DecodeError::Path { position: self.start, source })
    }

    fn parse_type(&self, named: Named, type_byte: u8) -> Stage {
        let shape = match (type_byte, self.dialect) {
            (kind::PAYLOAD, _) => Shape::Payload,
            (kind::END, _) => Shape::End,
            (kind::RENAME, _) => Shape::Rename,
            (kind::REMOVE, _) => Shape::Remove,
            (kind::SPARSE_OR_SEEK, Dialect::Auto) => return Stage::Probe(named),
            (kind::SPARSE_OR_SEEK, Dialect::Percona) => Shape::Sparse,
            (kind::SPARSE_OR_SEEK, Dialect::MariaDb) => Shape::Seek,
            _ => Shape::Ignored(type_byte),
        };
        Stage::Fields(named, shape)
    }

    fn parse_fields(&mut self, named: Named, shape: Shape) -> Result<Next<'static>, DecodeError> {
        let fields = &self.buf[named.len..];
        let kind = match shape {
            Shape::End => ChunkKind::End,
            Shape::Remove => ChunkKind::Remove,
            Shape::Rename => {
                let len = self.path_len(u32_at(fields, 0))?;
                return Ok(Next::Go(Stage::NewPath(named, len)));
            }
            Shape::Seek => {
                let offset = u64_at(fields, 0);
                self.check_reach(&named.path, offset, 0)?;
                ChunkKind::Seek { offset }
            }
            Shape::Payload => {
                let len = self.payload_len(&named.path, u64_at(fields, 0))?;
                let offset = u64_at(fields, 8);
                self.check_reach(&named.path, offset, len)?;
                ChunkKind::Payload { offset, len, crc: u32_at(fields, 16) }
            }
            Shape::Ignored(type_byte) => {
                let len = self.payload_len(&named.path, u64_at(fields, 0))?;
                ChunkKind::Ignored { type_byte, len }
            }
            Shape::Sparse => {
                let entries = u32_at(fields, 0);
                let max = self.limits.max_map_entries;
                if entries == 0 || entries > max {
                    let (position, path) = (self.start, named.path);
                    return Err(DecodeError::MapEntries { position, path, entries, max });
                }
                let partial = PartialMap {
                    len: self.payload_len(&named.path, u64_at(fields, 4))?,
                    offset: u64_at(fields, 12),
                    crc: u32_at(fields, 20),
                    entries,
                    map: Vec::with_capacity(entries.min(MAP_AHEAD) as usize),
                    digest: Digest::new(CrcAlgorithm::Crc32IsoHdlc),
                    named,
                };
                // From here on the buffer holds at most one entry.
                self.buf.clear();
                return Ok(Next::Go(Stage::Map(Box::new(partial))));
            }
        };
        let head_len = named.len + shape.fields_len();
        Ok(self.give_head(named, head_len, kind))
    }

    /// Takes map entries as long as complete ones are available. Returns true once all have
    /// arrived.
    fn take_entries(&mut self, partial: &mut PartialMap, input: &mut &[u8]) -> bool {
        while partial.map.len() < partial.entries as usize {
            if !self.fill(input, MAP_ENTRY_LEN) {
                return false;
            }
            let skip = u32_at(&self.buf, 0);
            let len = u32_at(&self.buf, 4);
            partial.digest.update(&self.buf);
            partial.map.push(MapEntry { skip, len });
            self.buf.clear();
        }
        true
    }

    fn parse_map(&mut self, partial: PartialMap) -> Result<Next<'static>, DecodeError> {
        let PartialMap { named, offset, len, crc, map, digest, .. } = partial;
        // At most 2^32 entries of less than 2^32 each: the totals cannot overflow.
        let sum: u64 = map.iter().map(|entry| u64::from(entry.len)).sum();
        let holes: u64 = map.iter().map(|entry| u64::from(entry.skip)).sum();
        let position = self.start;
        if map.iter().rev().skip(1).any(|entry| entry.len == 0) {
            return Err(DecodeError::MapEmptyEntry { position, path: named.path });
        }
        if sum != len {
            return Err(DecodeError::MapSum {
                position,
                path: named.path,
                expected: len,
                got: sum,
            });
        }
        self.check_reach(&named.path, offset, len.saturating_add(holes))?;
        let head_len = named.len + SPARSE_FIELDS + map.len() * MAP_ENTRY_LEN;
        let map_crc = checksum::value(&digest);
        let kind = ChunkKind::Sparse { offset, len, crc, map: map.into(), map_crc };
        Ok(self.give_head(named, head_len, kind))
    }

    fn payload_len(&self, path: &RelPath, len: u64) -> Result<u64, DecodeError> {
        let max = self.limits.max_payload;
        if len > max {
            let (position, path) = (self.start, path.clone());
            return Err(DecodeError::PayloadLength { position, path, len, max });
        }
        Ok(len)
    }

    /// Checks that `span` bytes from `offset` on are within the largest possible file.
    fn check_reach(&self, path: &RelPath, offset: u64, span: u64) -> Result<(), DecodeError> {
        match offset.checked_add(span) {
            Some(end) if end <= MAX_FILE_OFFSET => Ok(()),
            _ => {
                let (position, path) = (self.start, path.clone());
                Err(DecodeError::OffsetTooLarge { position, path, offset })
            }
        }
    }

    fn give_head(&mut self, named: Named, head_len: usize, kind: ChunkKind) -> Next<'static> {
        let Named { flags, path, .. } = named;
        // After a seek the buffer may already hold the next chunk's magic, which must stay there.
        // After a sparse chunk the buffer is empty.
        self.buf.drain(..head_len.min(self.buf.len()));
        let head_len = head_len as u64;
        let head = ChunkHead { position: self.start, head_len, flags, path, kind };
        let stage = Stage::Payload { path: head.path.clone(), left: head.payload_len() };
        Next::Give(Event::Head(head), stage)
    }

    /// Ends the chunk. The next one begins here, minus the bytes that are already held back.
    fn next_chunk(&mut self) {
        self.start = self.taken - self.buf.len() as u64;
    }

    fn not_a_chunk(&self) -> DecodeError {
        DecodeError::Magic { position: self.start, found: Printable::new(quotable(&self.buf)) }
    }

    fn fail(&mut self, error: DecodeError) -> DecodeError {
        self.stage = Stage::Failed(error.clone());
        error
    }

    /// Number of payload bytes of the current chunk that have not been taken yet.
    #[must_use]
    pub fn payload_left(&self) -> u64 {
        match &self.stage {
            Stage::Payload { left, .. } => *left,
            _ => 0,
        }
    }

    /// Skips up to `len` bytes of the current chunk's payload, as if they had been taken from an
    /// input. Returns the number of bytes skipped. For callers that can read the payload without
    /// the decoder, such as from a file.
    ///
    /// ```
    /// use xb_reader::{ChunkWriter, Decoder, Dialect, Event, Limits};
    ///
    /// let mut stream = ChunkWriter::new(Vec::new());
    /// stream.payload("f", 0, b"0123456789")?;
    /// let stream = stream.finish()?;
    /// let mut decoder = Decoder::new(Dialect::Auto, Limits::default());
    /// let mut head = &stream[..stream.len() - 10];
    /// assert!(matches!(decoder.next(&mut head)?, Some(Event::Head(_))));
    /// assert_eq!((decoder.payload_left(), decoder.skip_payload(99)), (10, 10));
    /// assert_eq!(decoder.next(&mut &[][..])?, Some(Event::ChunkEnd));
    /// assert_eq!(decoder.position(), stream.len() as u64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn skip_payload(&mut self, len: u64) -> u64 {
        let Stage::Payload { left, .. } = &mut self.stage else { return 0 };
        let skipped = len.min(*left);
        *left -= skipped;
        self.taken += skipped;
        skipped
    }
}
