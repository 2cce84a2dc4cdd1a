//! Reads a log from its first byte on, in pieces of any size.

use crc_fast::{CrcAlgorithm, Digest};

use crate::error::Error;
use crate::event::{self, Entry, Event, Rotate};
use crate::event_type::EventType;
use crate::format::{ChecksumKind, Fork, FormatDescription, MAX_FORMAT};
use crate::header::{EventHeader, Flags, HEADER_LEN};

/// First bytes of every log.
pub const MAGIC: [u8; 4] = [0xfe, b'b', b'i', b'n'];
/// First bytes of a log that MySQL encrypted. ("Encrypting Binary Log Files and Relay Log Files", MySQL
/// Reference Manual)
const ENCRYPTED_MAGIC: [u8; 4] = [0xfd, b'b', b'i', b'n'];
/// Lengths of a header and of a checksum, as an event counts them.
const HEADER: u32 = 19;
const SUM: u32 = 4;
/// Where the lower byte of the flags is in a header.
const FLAGS: usize = 17;

/// A reader of one log.
///
/// It checks the magic, that each event begins where the one before it ends, and each checksum. Of
/// large events only the beginning is kept, if anything: memory is a few KiB, and up to 4 MiB while a
/// list of GTIDs at the beginning of the log arrives.
///
/// ```
/// use xb_binlog::{Error, LogEnd, Reader};
///
/// fn read(pieces: &[&[u8]]) -> Result<LogEnd, Error> {
///     let mut reader = Reader::new();
///     for mut piece in pieces.iter().copied() {
///         while let Some(entry) = reader.next(&mut piece)? {
///             println!("{} {:?}", entry.begin, entry.event);
///         }
///     }
///     reader.finish()
/// }
/// assert!(matches!(read(&[b"\xfebi", b"n"]), Err(Error::NoEvents)));
/// assert!(matches!(read(&[b"\xfebi"]), Err(Error::Cut { at: 0, end: 3 })));
/// ```
#[derive(Debug)]
pub struct Reader {
    /// Offset of the next byte.
    offset: u64,
    format: Option<FormatDescription>,
    is_in_use: bool,
    state: State,
    end: Option<LogEnd>,
}

/// How a log ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogEnd {
    /// Another log follows.
    Rotated(Rotate),
    /// The server was shut down.
    Stopped,
    /// After a whole event, with the mark that the server has not closed the log: it still writes it, or
    /// has crashed.
    InUse,
    /// After a whole event, without that mark: the server recovered the log after a crash.
    Recovered,
    /// With encrypted events, which were not read.
    Encrypted,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "an allocation for each event would cost more")]
enum State {
    Magic(Partial<4>),
    Header { begin: u64, bytes: Partial<HEADER_LEN> },
    Body(Pending),
    Opaque,
    Failed(Error),
}

/// A part of fixed length that arrives in pieces.
#[derive(Debug)]
struct Partial<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Partial<N> {
    fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// Takes what is missing; returns the part when it is whole.
    fn take(&mut self, input: &mut &[u8]) -> Option<[u8; N]> {
        let free = self.bytes.get_mut(self.len..)?;
        let (taken, rest) = input.split_at(free.len().min(input.len()));
        free.get_mut(..taken.len())?.copy_from_slice(taken);
        self.len += taken.len();
        *input = rest;
        (self.len == N).then_some(self.bytes)
    }
}

/// An event whose header has arrived.
#[derive(Debug)]
struct Pending {
    begin: u64,
    header: EventHeader,
    /// Bytes of the body that have not arrived, without checksum.
    left: u32,
    /// Beginning of the body, as far as it is needed.
    kept: Vec<u8>,
    digest: Digest,
    sum: Option<Partial<4>>,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// Returns a reader at the beginning of a log.
    #[must_use]
    pub fn new() -> Self {
        let state = State::Magic(Partial::new());
        Self { offset: 0, format: None, is_in_use: false, state, end: None }
    }

    /// Returns a reader in the middle of a log, before the event at `offset`, or at its beginning if that
    /// is 4. `format` is the log's format description, with header and checksum.
    ///
    /// # Errors
    /// If that is none, or the offset is before the first event.
    pub fn resume(mut format: &[u8], offset: u64) -> Result<Self, Error> {
        let mut reader = Self::new();
        reader.next(&mut &MAGIC[..])?;
        let entry = reader.next(&mut format)?;
        let is_alone = entry.is_some_and(|entry| matches!(entry.event, Event::Format(_)));
        if !is_alone || !format.is_empty() || offset < MAGIC.len() as u64 {
            return Err(Error::Format);
        }
        reader.offset = offset;
        reader.state = next_header(offset);
        Ok(reader)
    }

    /// Offset of the next byte.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Offset of the event that has arrived in part.
    #[must_use]
    pub fn open(&self) -> Option<u64> {
        match &self.state {
            State::Header { begin, bytes } => (bytes.len > 0).then_some(*begin),
            State::Body(Pending { begin, .. }) => Some(*begin),
            State::Magic(_) | State::Opaque | State::Failed(_) => None,
        }
    }

    /// Reads up to the end of the next event. `None` if `input` has no more; an event is returned when its
    /// last byte has arrived and its checksum is right.
    ///
    /// # Errors
    /// If the log is damaged, encrypted by MySQL, or no log. The same error is returned from then on.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Entry>, Error> {
        let before = input.len();
        let result = self.step(input);
        self.offset = self.offset.saturating_add((before - input.len()) as u64);
        if let Err(error) = &result {
            self.state = State::Failed(error.clone());
        }
        result
    }

    /// Description of the log, when its first event has been read.
    #[must_use]
    pub fn format(&self) -> Option<&FormatDescription> {
        self.format.as_ref()
    }

    /// Returns how the log ends.
    ///
    /// # Errors
    /// If it ends within an event or has none, or the error that [`Reader::next`] returned.
    pub fn finish(self) -> Result<LogEnd, Error> {
        match self.state {
            State::Failed(error) => Err(error),
            State::Magic(_) => Err(Error::Cut { at: 0, end: self.offset }),
            State::Header { begin, bytes } if bytes.len > 0 => {
                Err(Error::Cut { at: begin, end: self.offset })
            }
            State::Body(Pending { begin, .. }) => Err(Error::Cut { at: begin, end: self.offset }),
            State::Opaque => Ok(LogEnd::Encrypted),
            State::Header { .. } if self.format.is_none() => Err(Error::NoEvents),
            State::Header { .. } => Ok(self.end.unwrap_or(match self.is_in_use {
                true => LogEnd::InUse,
                false => LogEnd::Recovered,
            })),
        }
    }

    fn step(&mut self, input: &mut &[u8]) -> Result<Option<Entry>, Error> {
        let all = input.len();
        loop {
            match &mut self.state {
                State::Failed(error) => return Err(error.clone()),
                State::Opaque => {
                    *input = &[];
                    return Ok(None);
                }
                State::Magic(magic) => match magic.take(input) {
                    None => return Ok(None),
                    Some(MAGIC) => self.state = next_header(MAGIC.len() as u64),
                    Some(ENCRYPTED_MAGIC) => return Err(Error::Encrypted),
                    Some(found) => return Err(Error::Magic { found }),
                },
                State::Header { begin, bytes } => {
                    if self.end.is_some() && !input.is_empty() {
                        return Err(Error::AfterEnd { at: *begin });
                    }
                    let Some(bytes) = bytes.take(input) else { return Ok(None) };
                    let begin = *begin;
                    self.state = State::Body(self.begin_event(begin, &bytes)?);
                }
                State::Body(pending) => {
                    if !pending.take(input) {
                        return Ok(None);
                    }
                    let end = self.offset.saturating_add((all - input.len()) as u64);
                    let State::Body(pending) = std::mem::replace(&mut self.state, next_header(end))
                    else {
                        return Ok(None);
                    };
                    return self.end_event(pending, end).map(Some);
                }
            }
        }
    }

    fn begin_event(&self, begin: u64, bytes: &[u8; HEADER_LEN]) -> Result<Pending, Error> {
        let header = EventHeader::parse(bytes);
        let is_format = header.event_type == EventType::FORMAT_DESCRIPTION;
        // The format description has a checksum even if the events have none.
        let has_sum = match &self.format {
            _ if is_format => true,
            Some(format) => format.checksums == ChecksumKind::Crc32,
            None => return Err(Error::NoFormat { event_type: header.event_type }),
        };
        let least = HEADER + if has_sum { SUM } else { 0 };
        let length = header.length.checked_sub(least);
        let length = length.ok_or(Error::Length { at: begin, length: header.length, least })?;
        if is_format && header.length > MAX_FORMAT {
            return Err(Error::Format);
        }
        event::check_length(header.event_type, begin, length)?;
        // The header has the lower half of the offset only.
        let low = u32::try_from(begin & u64::from(u32::MAX)).unwrap_or_default();
        let expected = low.wrapping_add(header.length);
        // MariaDB 11.8 states no end within a transaction; the event that ends it has one. (Seen in
        // `fixtures/binlog/mariadb-11.8.000001`.)
        let fork = self.format.as_ref().map(|format| format.fork);
        let may_lack = fork == Some(Fork::MariaDb) && !header.event_type.has_end();
        if header.end != expected && !(may_lack && header.end == 0) {
            return Err(Error::Chain { at: begin, expected, found: header.end });
        }
        let mut digest = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
        let mut counted = *bytes;
        if let Some(flags) = counted.get_mut(FLAGS).filter(|_| is_format) {
            *flags &= !Flags::IN_USE;
        }
        digest.update(&counted);
        let sum = has_sum.then(Partial::new);
        Ok(Pending { begin, header, left: length, kept: Vec::new(), digest, sum })
    }

    fn end_event(&mut self, pending: Pending, end: u64) -> Result<Entry, Error> {
        let Pending { begin, header, kept, digest, sum, .. } = pending;
        let checksum = sum.map(|sum| u32::from_le_bytes(sum.bytes));
        let expected = u32::try_from(digest.finalize()).unwrap_or_default();
        if let Some(found) = checksum
            && found != expected
        {
            return Err(Error::Checksum { at: begin, expected, found });
        }
        // Of the first event, the description itself shows the fork.
        let fork = self.format.as_ref().map_or(Fork::MySql, |format| format.fork);
        let decoded = event::decode(&header, begin, &kept, fork);
        let event = decoded.map_err(|error| match header.event_type {
            EventType::FORMAT_DESCRIPTION => Error::Format,
            _ => error,
        })?;
        match &event {
            Event::Format(format) => {
                self.is_in_use = header.flags.is_in_use();
                self.format = Some(format.clone());
            }
            Event::Stop => self.end = Some(LogEnd::Stopped),
            Event::Rotate(rotate) if !header.flags.is_artificial() => {
                self.end = Some(LogEnd::Rotated(rotate.clone()));
            }
            Event::StartEncryption => self.state = State::Opaque,
            _ => {}
        }
        Ok(Entry { begin, end, header, checksum, event })
    }
}

fn next_header(begin: u64) -> State {
    State::Header { begin, bytes: Partial::new() }
}

impl Pending {
    /// Takes what is missing; returns whether the event is whole.
    fn take(&mut self, input: &mut &[u8]) -> bool {
        while self.left > 0 && !input.is_empty() {
            let needed = event::needed(self.header.event_type, &self.kept);
            // What is needed may change with the next byte that is kept, so at most that much is taken.
            let most = match needed.saturating_sub(self.kept.len()) {
                0 => self.left as usize,
                missing => missing.min(self.left as usize),
            };
            let (taken, rest) = input.split_at(most.min(input.len()));
            if self.kept.len() < needed {
                self.kept.extend_from_slice(taken);
            }
            if self.sum.is_some() {
                self.digest.update(taken);
            }
            self.left -= u32::try_from(taken.len()).unwrap_or(self.left);
            *input = rest;
        }
        let has_body = self.left == 0;
        match &mut self.sum {
            Some(sum) => has_body && sum.take(input).is_some(),
            None => has_body,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header at `begin`.
    fn header(kind: EventType, begin: u64, length: u32) -> Vec<u8> {
        let end = u32::try_from((begin + u64::from(length)) & u64::from(u32::MAX)).unwrap();
        let mut bytes = vec![0; 4];
        bytes.push(kind.0);
        bytes.extend([1, length, end].map(u32::to_le_bytes).concat());
        bytes.extend([0, 0]);
        bytes
    }

    /// Bytes that an unfinished event holds.
    fn held(reader: &Reader) -> usize {
        match &reader.state {
            State::Body(pending) => pending.kept.capacity(),
            _ => 0,
        }
    }

    #[test]
    fn a_log_of_any_size_is_read_in_little_memory() {
        let fixture = xb_testkit::vectors::read("binlog/mariadb.000003-no-checksum");
        let mut reader = Reader::new();
        let mut input = &fixture[..256];
        let first = reader.next(&mut input).unwrap().unwrap();
        let zeros = vec![0; 1 << 20];
        let (mut begin, mut most) = (first.end, 0);
        // A statement, rows and an unknown event, together more than 4 GiB.
        let length = 1_900_000_000;
        for kind in [EventType::QUERY, EventType(30), EventType(200)] {
            let head = header(kind, begin, length);
            assert_eq!(reader.next(&mut &head[..]), Ok(None));
            let mut left = length as usize - HEADER_LEN;
            let entry = loop {
                let mut piece = &zeros[..left.min(zeros.len())];
                left -= piece.len();
                let entry = reader.next(&mut piece).unwrap();
                most = most.max(held(&reader));
                if let Some(entry) = entry {
                    break entry;
                }
            };
            assert_eq!((entry.begin, entry.end, left), (begin, begin + u64::from(length), 0));
            begin = entry.end;
        }
        assert!(begin > 1 << 32);
        assert!(most <= 4096, "{most} bytes");
        let stop = header(EventType::STOP, begin, 19);
        assert_eq!(reader.next(&mut &stop[..]).unwrap().unwrap().event, Event::Stop);
        assert_eq!(reader.finish(), Ok(LogEnd::Stopped));
    }
}
