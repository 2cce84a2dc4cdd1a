//! Reads what a server sends to a replica.

use crate::error::Error;
use crate::event::{Entry, Event};
use crate::event_type::EventType;
use crate::format::{ChecksumKind, FormatDescription};
use crate::header::{EventHeader, HEADER_LEN};
use crate::pending::Pending;
use crate::position::LogPosition;

/// A reader of the events that a server sends to a replica, or of a log from a position on.
///
/// A server sends the events of its logs byte for byte, one in a packet. It adds events that it makes up: a
/// rotation that names the log and the offset of what follows, a format description and a list of GTIDs
/// when it begins within a log, and heartbeats. [`SentReader::next`] keeps the two apart: the bytes of
/// the log are appended to a buffer, in pieces as they arrive, so that memory does not grow with an event.
///
/// Of what belongs to the log it checks what [`Reader`](crate::Reader) does: that each event begins where
/// the one before it ends, and each checksum.
#[derive(Debug)]
pub struct SentReader {
    position: Option<LogPosition>,
    format: Option<FormatDescription>,
    checksums: ChecksumKind,
    /// Bytes of the last format description.
    description: Vec<u8>,
    pending: Pending,
    state: State,
}

#[derive(Debug)]
enum State {
    Header,
    Body { is_of_log: bool },
    Failed(Error),
}

/// A whole event that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SentEvent {
    /// Of the log. Its bytes are in the buffer.
    Log(Entry),
    /// Made up by the server.
    Artificial(Entry),
}

impl SentEvent {
    /// Returns the event.
    #[must_use]
    pub fn entry(&self) -> &Entry {
        match self {
            Self::Log(entry) | Self::Artificial(entry) => entry,
        }
    }
}

impl SentReader {
    /// Returns a reader of a connection that the replica has told to expect these checksums
    /// (`@master_binlog_checksum`): they hold for events before the first format description.
    #[must_use]
    pub fn new(checksums: ChecksumKind) -> Self {
        Self {
            position: None,
            format: None,
            checksums,
            description: Vec::new(),
            pending: Pending::new(),
            state: State::Header,
        }
    }

    /// Returns a reader of the bytes of a log from a position on, where an event begins.
    #[must_use]
    pub fn at(position: LogPosition, format: FormatDescription) -> Self {
        let checksums = format.checksums;
        Self { position: Some(position), format: Some(format), ..Self::new(checksums) }
    }

    /// Returns a reader of the bytes of a log from a position on, by the bytes of the log's format description.
    ///
    /// # Errors
    /// If they are no format description.
    pub fn described(position: LogPosition, description: &[u8]) -> Result<Self, Error> {
        let (head, mut body) = description.split_first_chunk().ok_or(Error::Format)?;
        let mut pending = Pending::new();
        pending.start(0, head, None)?;
        let is_whole = pending.take(&mut body) && body.is_empty();
        let end = description.len() as u64;
        match pending.end(end, None)?.event {
            Event::Format(format) if is_whole => {
                let description = description.to_vec();
                Ok(Self { description, ..Self::at(position, format) })
            }
            _ => Err(Error::Format),
        }
    }

    /// Position of the next event of a log: behind the last whole one. `None` before the server has named a
    /// log.
    #[must_use]
    pub fn position(&self) -> Option<&LogPosition> {
        self.position.as_ref()
    }

    /// Description of the log that is being sent.
    #[must_use]
    pub fn format(&self) -> Option<&FormatDescription> {
        self.format.as_ref()
    }

    /// Bytes of the last format description that was sent, of the log or made up; none before that.
    #[must_use]
    pub fn description(&self) -> &[u8] {
        &self.description
    }

    /// Reads up to the end of the next event, and appends the bytes of the log to `log`. `None` if `input` has
    /// no more. An event is returned when its last byte has arrived and its checksum is right; its bytes are
    /// appended before that.
    ///
    /// # Errors
    /// If the events are damaged, or do not follow each other. The same error is returned from then on.
    pub fn next(
        &mut self,
        input: &mut &[u8],
        log: &mut Vec<u8>,
    ) -> Result<Option<SentEvent>, Error> {
        let result = self.step(input, log);
        if let Err(error) = &result {
            self.state = State::Failed(error.clone());
        }
        result
    }

    /// Checks that an event is whole where a packet ends.
    ///
    /// # Errors
    /// If the packet ends within an event.
    pub fn end_packet(&self) -> Result<(), Error> {
        match &self.state {
            State::Failed(error) => Err(error.clone()),
            State::Header if self.pending.is_empty() => Ok(()),
            _ => {
                let (log, at) = match &self.position {
                    Some(position) => (position.log().to_owned(), position.offset()),
                    None => (String::new(), 0),
                };
                Err(Error::Packet { log, at })
            }
        }
    }

    fn step(&mut self, input: &mut &[u8], log: &mut Vec<u8>) -> Result<Option<SentEvent>, Error> {
        loop {
            match self.state {
                State::Failed(ref error) => return Err(error.clone()),
                State::Header => {
                    let Some(bytes) = self.pending.take_header(input) else { return Ok(None) };
                    let is_of_log = self.begin(&bytes)?;
                    if self.pending.header.event_type == EventType::FORMAT_DESCRIPTION {
                        self.description = bytes.to_vec();
                    }
                    if is_of_log {
                        log.extend_from_slice(&bytes);
                    }
                    self.state = State::Body { is_of_log };
                }
                State::Body { is_of_log } => {
                    let before = *input;
                    let is_whole = self.pending.take(input);
                    let taken = before.get(..before.len() - input.len()).unwrap_or_default();
                    if is_of_log {
                        log.extend_from_slice(taken);
                    }
                    // It has at most a KiB.
                    if self.pending.header.event_type == EventType::FORMAT_DESCRIPTION {
                        self.description.extend_from_slice(taken);
                    }
                    if !is_whole {
                        return Ok(None);
                    }
                    self.state = State::Header;
                    return self.end(is_of_log).map(Some);
                }
            }
        }
    }

    /// Begins an event by its header; returns whether it is of the log.
    fn begin(&mut self, bytes: &[u8; HEADER_LEN]) -> Result<bool, Error> {
        let header = EventHeader::parse(bytes);
        let event_type = header.event_type;
        let is_made_up = match event_type {
            EventType::HEARTBEAT | EventType::HEARTBEAT_V2 => true,
            // Of a log that is sent from its middle.
            EventType::FORMAT_DESCRIPTION => header.end == 0,
            _ => header.flags.is_artificial(),
        };
        let is_rotation = is_made_up && event_type == EventType::ROTATE;
        let begin = match &self.position {
            Some(position) => position.offset(),
            None if is_rotation => 0,
            None => return Err(Error::NoLog { event_type }),
        };
        // Before the first format description, the server does what the replica has asked for.
        let checksums = match &self.format {
            Some(format) => Some(format.checksums),
            None => is_rotation.then_some(self.checksums),
        };
        self.pending.start(begin, bytes, checksums)?;
        if !is_made_up {
            self.pending.check_end(self.format.as_ref())?;
        }
        Ok(!is_made_up)
    }

    fn end(&mut self, is_of_log: bool) -> Result<SentEvent, Error> {
        let Pending { begin, header, .. } = self.pending;
        let end = match is_of_log {
            true => begin.saturating_add(u64::from(header.length)),
            false => begin,
        };
        let entry = self.pending.end(end, self.format.as_ref())?;
        match &entry.event {
            Event::Format(format) => self.format = Some(format.clone()),
            // The server names the log of a real rotation again before it sends it.
            Event::Rotate(rotate) if !is_of_log => {
                let position = LogPosition::new(&rotate.file, rotate.offset);
                let event_type = EventType::ROTATE;
                self.position = Some(position.ok_or(Error::NoLog { event_type })?);
                return Ok(SentEvent::Artificial(entry));
            }
            _ => {}
        }
        match (&mut self.position, is_of_log) {
            (Some(position), true) => {
                *position = position.at(end);
                Ok(SentEvent::Log(entry))
            }
            _ => Ok(SentEvent::Artificial(entry)),
        }
    }
}
