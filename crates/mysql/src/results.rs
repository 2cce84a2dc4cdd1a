//! The results of a command: read one by one, or together within a limit of memory.

use crate::connection::Connection;
use crate::error::Error;
use crate::reply::{Event, Reply};
use crate::response::{Column, Completion, Row, VALUE_BYTES};

/// Most memory for the answer to a question about one thing, in bytes: a variable, a status, the rights of an account, the
/// definition of a table. The longest honest ones, such as a set of GTIDs with many gaps or rights on 100,000 tables, take
/// some 20 MB.
pub(crate) const MAX_ANSWER: usize = 64 << 20;
/// Most memory for a list of everything that a server has, in bytes: a million tables, of which each row has four names,
/// take 200 to 600 MB.
pub(crate) const MAX_LIST: usize = 1 << 30;
/// What a packet takes in memory beside its bytes and its values: a [`Row`] in a list, and what the allocator adds.
const PACKET_BYTES: usize = 96;

const QUERY: &str = "running a statement";

/// The results of one command.
#[derive(Debug)]
pub struct Results<'a> {
    connection: &'a mut Connection,
    reply: Reply,
    /// Whether an error left the rest unknown.
    failed: bool,
}

/// One result of a statement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rows {
    /// The columns; none for a statement without rows.
    pub columns: Vec<Column>,
    /// All rows.
    pub rows: Vec<Row>,
    /// The server's completion.
    pub completion: Completion,
}

impl<'a> Results<'a> {
    /// The results of a command that was sent.
    pub(crate) fn new(connection: &'a mut Connection, capabilities: u64) -> Self {
        Self { connection, reply: Reply::new(capabilities), failed: false }
    }

    /// Waits for the next event; `None` after the last result is complete. Memory holds one row, which the server may make as
    /// long as a packet can be.
    ///
    /// # Errors
    /// [`Error::Server`] ends the results, and the connection can be used further. After any other
    /// error it cannot: a result that ends before the server says so is never complete.
    #[expect(clippy::should_implement_trait, reason = "a lending iterator over fallible events")]
    pub fn next(&mut self) -> Result<Option<Event>, Error> {
        self.next_within(&mut Memory { left: usize::MAX, limit: usize::MAX })
    }

    fn next_within(&mut self, memory: &mut Memory) -> Result<Option<Event>, Error> {
        if self.failed {
            return Err(Error::Unusable);
        }
        let event = self.receive(memory);
        self.failed = !matches!(event, Ok(_) | Err(Error::Server(_)));
        self.connection.is_ready = self.reply.is_complete() && !self.failed;
        event
    }

    fn receive(&mut self, memory: &mut Memory) -> Result<Option<Event>, Error> {
        while !self.reply.is_complete() {
            let most = self.reply.max_packet();
            self.connection.link.packets.set_limit(most.min(memory.left));
            let packet = self.connection.link.receive(QUERY).map_err(|error| match error {
                // Refused by its header: it is not held.
                Error::TooLong { limit } if limit < most => memory.spent(),
                error => error,
            })?;
            memory.take(packet.len().saturating_add(PACKET_BYTES))?;
            let event = self.reply.receive(packet)?;
            if let Some(Event::Row(row)) = &event {
                memory.take(row.len().saturating_mul(VALUE_BYTES))?;
            }
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// Reads all results into memory: of a question about one thing.
    ///
    /// # Errors
    /// Any error of [`Results::next`]; results before the error are dropped. [`Error::LongAnswer`] if they take more memory
    /// than any such question needs.
    pub fn collect(self) -> Result<Vec<Rows>, Error> {
        self.collect_within(MAX_ANSWER)
    }

    /// Like [`collect`](Self::collect), with another limit of memory, in bytes.
    pub(crate) fn collect_within(mut self, limit: usize) -> Result<Vec<Rows>, Error> {
        let mut memory = Memory { left: limit, limit };
        let (mut all, mut current) = (Vec::new(), Rows::default());
        while let Some(event) = self.next_within(&mut memory)? {
            match event {
                Event::Columns(columns) => current.columns = columns,
                Event::Row(row) => current.rows.push(row),
                Event::Complete(completion) => {
                    current.completion = completion;
                    // Of these, there may be many without a row.
                    memory.take(size_of::<Rows>())?;
                    all.push(std::mem::take(&mut current));
                }
            }
        }
        Ok(all)
    }

    /// Reads all results, and keeps the first `count` rows; drops the others as they come.
    pub(crate) fn first(mut self, count: usize) -> Result<Vec<Row>, Error> {
        // A row that an account asked for may have any length.
        let mut memory = Memory { left: MAX_LIST, limit: MAX_LIST };
        let mut rows = Vec::new();
        while rows.len() < count {
            match self.next_within(&mut memory)? {
                Some(Event::Row(row)) => rows.push(row),
                Some(_) => {}
                None => return Ok(rows),
            }
        }
        while self.next()?.is_some() {}
        Ok(rows)
    }
}

/// What the results of a command may still take.
struct Memory {
    left: usize,
    limit: usize,
}

impl Memory {
    fn take(&mut self, bytes: usize) -> Result<(), Error> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| self.spent())?;
        Ok(())
    }

    fn spent(&self) -> Error {
        Error::LongAnswer { limit: self.limit }
    }
}
