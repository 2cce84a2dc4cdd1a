//! A command, and everything that a server answers to it, as a state machine.
//!
//! ```text
//! First ── OK ───────────────────────────────────────────► First, or Complete
//!   │                                                        ▲
//!   └─ count ──► Columns ── all there ──► Rows ── end ───────┘
//!                       (and EOF, before CLIENT_DEPRECATE_EOF)
//! ```

use crate::capabilities as can;
use crate::error::{Error, ServerError};
use crate::fields::Fields;
use crate::packet::MAX_PACKET;
use crate::response::{Column, Completion, EOF, ERR, LOCAL_FILE, OK, Row};

/// Number of columns that a result may have: as many as servers allow.
const MAX_COLUMNS: u64 = 4096;
/// Bytes that the descriptions of all columns of a result may have: so many columns, each with its name, that of its table
/// and that of its schema twice, of 64 characters of 4 bytes each, take 6 MiB. An alias may be four times as long.
const MAX_COLUMN_BYTES: usize = 16 << 20;
/// An OK packet that ends rows is shorter than this; a row with that first byte has a value of at
/// least as many bytes.
const LONG_VALUE: usize = 0xff_ffff;
/// An EOF packet has fewer bytes than this.
const EOF_LIMIT: usize = 9;

/// A command. Its answer begins with packet 1 of the server; [`Reply`] reads that of
/// queries and pings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command<'a> {
    /// Ends the connection; the server does not answer.
    Quit,
    /// Runs statements of SQL, in UTF-8 unless they say otherwise.
    Query(&'a [u8]),
    /// Asks whether the server is there.
    Ping,
    /// Any other command by its number, such as 0x12 for a dump of the binary log. Its caller knows
    /// the form of the answer.
    Other(u8, &'a [u8]),
}

impl Command<'_> {
    /// The payload of the packet that sends the command.
    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        let (number, body) = match *self {
            Self::Quit => (0x01, &[][..]),
            Self::Query(sql) => (0x03, sql),
            Self::Ping => (0x0e, &[][..]),
            Self::Other(number, body) => (number, body),
        };
        [&[number], body].concat()
    }
}

/// Meaning of one packet of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A result with rows begins.
    Columns(Vec<Column>),
    /// A row of it.
    Row(Row),
    /// A result is complete: the rows, or a statement that has none.
    Complete(Completion),
}

#[derive(Debug)]
enum State {
    First,
    /// Columns that have arrived, the number of all, and the bytes that their descriptions may still have.
    Columns(Vec<Column>, usize, usize),
    /// The number of columns.
    Rows(usize),
    Complete,
    /// A packet was refused: what follows has no meaning, and the reply never completes.
    Failed,
}

/// The reply to one command: results, one after the other.
#[derive(Debug)]
pub struct Reply {
    state: State,
    capabilities: u64,
}

impl Reply {
    /// Begins a reply on a connection with these [`capabilities`](crate::Login::capabilities).
    #[must_use]
    pub fn new(capabilities: u64) -> Self {
        Self { state: State::First, capabilities }
    }

    /// Returns whether the last packet was the last of the reply.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        matches!(self.state, State::Complete)
    }

    /// Most bytes that the next packet may have: only that of a row can be long.
    pub(crate) fn max_packet(&self) -> usize {
        match self.state {
            State::Rows(_) => MAX_PACKET,
            State::Columns(_, _, left) => left,
            State::First | State::Complete | State::Failed => MAX_COLUMN_BYTES,
        }
    }

    /// Takes the next packet of the reply. Some packets mean nothing by themselves.
    ///
    /// # Errors
    /// [`Error::Server`] completes the reply. After any other error the connection cannot be used.
    pub fn receive(&mut self, packet: Vec<u8>) -> Result<Option<Event>, Error> {
        if packet.first() == Some(&ERR) && !self.is_complete() {
            let error = ServerError::parse(&packet);
            self.state = if error.is_ok() { State::Complete } else { State::Failed };
            return Err(error?.into());
        }
        match std::mem::replace(&mut self.state, State::Failed) {
            State::First => self.first(&packet),
            State::Columns(columns, all, left) => {
                let left = left.saturating_sub(packet.len());
                self.column(&packet, columns, all, left)
            }
            State::Rows(columns) => self.row(packet, columns).map(Some),
            State::Complete | State::Failed => Err(Error::Malformed { packet: "after the reply" }),
        }
    }

    fn first(&mut self, packet: &[u8]) -> Result<Option<Event>, Error> {
        match packet.first() {
            Some(&OK) => {
                let completion = Completion::ok(packet, self.capabilities)?;
                return Ok(Some(self.complete(completion)));
            }
            Some(&LOCAL_FILE) => return Err(Error::LocalFile),
            _ => {}
        }
        let mut fields = Fields::new("number of columns", packet);
        let count = fields.integer()?;
        // Only results of prepared statements leave the descriptions out.
        if self.capabilities & can::MARIADB_CACHE_METADATA != 0 && fields.u8()? != 1 {
            return fields.malformed();
        }
        fields.end()?;
        match usize::try_from(count) {
            Ok(all) if (1..=MAX_COLUMNS).contains(&count) => {
                self.state = State::Columns(Vec::new(), all, MAX_COLUMN_BYTES);
                Ok(None)
            }
            _ => fields.malformed(),
        }
    }

    fn column(
        &mut self,
        packet: &[u8],
        mut columns: Vec<Column>,
        all: usize,
        left: usize,
    ) -> Result<Option<Event>, Error> {
        if columns.len() < all {
            columns.push(Column::parse(packet, self.capabilities)?);
            if columns.len() < all || !self.deprecates_eof() {
                self.state = State::Columns(columns, all, left);
                return Ok(None);
            }
        } else {
            Completion::eof(packet)?;
        }
        self.state = State::Rows(all);
        Ok(Some(Event::Columns(columns)))
    }

    fn row(&mut self, packet: Vec<u8>, columns: usize) -> Result<Event, Error> {
        let limit = if self.deprecates_eof() { LONG_VALUE } else { EOF_LIMIT };
        if packet.first() == Some(&EOF) && packet.len() < limit {
            let completion = if self.deprecates_eof() {
                Completion::ok(&packet, self.capabilities)?
            } else {
                Completion::eof(&packet)?
            };
            return Ok(self.complete(completion));
        }
        let row = Row::parse(packet, columns)?;
        self.state = State::Rows(columns);
        Ok(Event::Row(row))
    }

    fn complete(&mut self, completion: Completion) -> Event {
        self.state = if completion.more_results() { State::First } else { State::Complete };
        Event::Complete(completion)
    }

    fn deprecates_eof(&self) -> bool {
        self.capabilities & can::DEPRECATE_EOF != 0
    }
}
