//! A change of a password that the applier takes for an error, read from a relay log.

use xb_binlog::{AnyGtid, Event, EventHeader, MAGIC, Reader};

/// Bytes of a statement that is certainly not cut.
const WHOLE: usize = 1000;

/// A `SET PASSWORD` that only a client can run.
pub(crate) struct PasswordChange {
    pub(crate) gtid: AnyGtid,
    pub(crate) time: u32,
    pub(crate) statement: String,
}

impl PasswordChange {
    /// Reads the transaction with which `events` begins, of a relay log that begins with `head`. `None` if it changes no password.
    pub(crate) fn parse(head: &[u8], events: &[u8]) -> Option<Self> {
        let length = head.get(MAGIC.len()..)?.first_chunk().map(EventHeader::parse)?.length;
        let format = head.get(MAGIC.len()..)?.get(..usize::try_from(length).ok()?)?;
        // Events have their places in the log of the origin.
        let first = events.first_chunk().map(EventHeader::parse)?;
        let begin = first.end.wrapping_sub(first.length).into();
        let (mut reader, mut input) = (Reader::resume(format, begin).ok()?, events);
        let Event::MariaDbBegin(begin) = reader.next(&mut input).ok()??.event else { return None };
        let entry = reader.next(&mut input).ok()??;
        let Event::Query(query) = entry.event else { return None };
        let statement = String::from_utf8(query.text).ok()?;
        let is_password = statement.starts_with("SET PASSWORD FOR ") && statement.len() < WHOLE;
        let change = Self { gtid: begin.gtid.into(), time: entry.header.seconds, statement };
        is_password.then_some(change)
    }
}
