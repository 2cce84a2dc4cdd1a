//! Reads a log from its first byte on, in pieces of any size.

use crate::error::Error;
use crate::event::{Entry, Event, Rotate};
use crate::format::FormatDescription;
use crate::pending::{Partial, Pending};

/// First bytes of every log.
pub const MAGIC: [u8; 4] = [0xfe, b'b', b'i', b'n'];
/// First bytes of a log that MySQL encrypted. ("Encrypting Binary Log Files and Relay Log Files", MySQL
/// Reference Manual)
const ENCRYPTED_MAGIC: [u8; 4] = [0xfd, b'b', b'i', b'n'];

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
    /// Offset of the event that is arriving, or of the next one.
    begin: u64,
    pending: Pending,
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
enum State {
    Magic(Partial<4>),
    Header,
    Body,
    Opaque,
    Failed(Error),
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
        Self {
            offset: 0,
            format: None,
            is_in_use: false,
            begin: MAGIC.len() as u64,
            pending: Pending::new(),
            state: State::Magic(Partial::new()),
            end: None,
        }
    }

    /// Returns a reader in the middle of a log, before the event at `offset`, or at its beginning if that
    /// is 4. `format` is the log's format description, with header and checksum, or the one that a server makes up when
    /// it sends a log from its middle, which states no end.
    ///
    /// # Errors
    /// If that is none, or the offset is before the first event.
    pub fn resume(format: &[u8], offset: u64) -> Result<Self, Error> {
        let begin = MAGIC.len() as u64;
        let (head, mut body) = format.split_first_chunk().ok_or(Error::Format)?;
        let mut reader = Self::new();
        reader.pending.start(begin, head, None)?;
        if reader.pending.header.end != 0 {
            reader.pending.check_end(None)?;
        }
        let is_alone = reader.pending.take(&mut body) && body.is_empty();
        if !is_alone || offset < begin {
            return Err(Error::Format);
        }
        let entry = reader.end_event(begin + format.len() as u64)?;
        if !matches!(entry.event, Event::Format(_)) {
            return Err(Error::Format);
        }
        (reader.offset, reader.begin, reader.state) = (offset, offset, State::Header);
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
            State::Header | State::Body => (!self.pending.is_empty()).then_some(self.begin),
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
            State::Opaque => Ok(LogEnd::Encrypted),
            _ if !self.pending.is_empty() => Err(Error::Cut { at: self.begin, end: self.offset }),
            _ if self.format.is_none() => Err(Error::NoEvents),
            State::Header | State::Body => Ok(self.end.unwrap_or(match self.is_in_use {
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
                    Some(MAGIC) => self.state = State::Header,
                    Some(ENCRYPTED_MAGIC) => return Err(Error::Encrypted),
                    Some(found) => return Err(Error::Magic { found }),
                },
                State::Header => {
                    if self.end.is_some() && !input.is_empty() {
                        return Err(Error::AfterEnd { at: self.begin });
                    }
                    let Some(bytes) = self.pending.take_header(input) else { return Ok(None) };
                    let checksums = self.format.as_ref().map(|format| format.checksums);
                    self.pending.start(self.begin, &bytes, checksums)?;
                    self.pending.check_end(self.format.as_ref())?;
                    self.state = State::Body;
                }
                State::Body => {
                    if !self.pending.take(input) {
                        return Ok(None);
                    }
                    let end = self.offset.saturating_add((all - input.len()) as u64);
                    (self.begin, self.state) = (end, State::Header);
                    return self.end_event(end).map(Some);
                }
            }
        }
    }

    fn end_event(&mut self, end: u64) -> Result<Entry, Error> {
        let entry = self.pending.end(end, self.format.as_ref())?;
        match &entry.event {
            Event::Format(format) => {
                self.is_in_use = entry.header.flags.is_in_use();
                self.format = Some(format.clone());
            }
            Event::Stop => self.end = Some(LogEnd::Stopped),
            Event::Rotate(rotate) if !entry.header.flags.is_artificial() => {
                self.end = Some(LogEnd::Rotated(rotate.clone()));
            }
            // A server that sends its log decrypts it, and marks the event so.
            Event::StartEncryption if !entry.header.flags.is_ignorable() => {
                self.state = State::Opaque;
            }
            _ => {}
        }
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_type::EventType;
    use crate::header::HEADER_LEN;

    /// A receiver that connected again stores the description that the server made up for it.
    #[test]
    fn a_log_is_continued_with_a_description_that_was_made_up() {
        for fork in ["mariadb", "mysql"] {
            let log = xb_testkit::vectors::read(&format!("binlog/{fork}.000001.gz"));
            let length = u32::from_le_bytes(log[13..17].try_into().unwrap()) as usize;
            let description = &log[4..4 + length];
            let artificial = crate::artificial::artificial_description(description, false).unwrap();
            assert_eq!(artificial[13..17], [0; 4]);
            for description in [description, &artificial] {
                let offset = 4 + length;
                let mut reader = Reader::resume(description, offset as u64).unwrap();
                let mut input = &log[offset..];
                let mut count = 0;
                while reader.next(&mut input).unwrap().is_some() {
                    count += 1;
                }
                assert!(count > 20 && reader.offset() == log.len() as u64);
                let mut damaged = description.to_vec();
                damaged[30] ^= 1;
                assert!(Reader::resume(&damaged, 4).is_err());
                assert!(Reader::resume(&description[..length - 1], 4).is_err());
                assert!(Reader::resume(description, 3).is_err());
            }
        }
    }

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
        reader.pending.held()
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
