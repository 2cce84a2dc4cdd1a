//! Looks into the compressed payload of a transaction of MySQL that is left out.

use crate::change::Change;
use crate::event_type::EventType;
use crate::header::{EventHeader, HEADER_LEN};
use crate::payload::Payload;

/// A transaction that is left out, as it arrives.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    /// The header of the present event, as far as it has arrived.
    header: Vec<u8>,
    payload: Option<Payload>,
    /// It defines something, or cannot be read.
    pub(crate) may_be_ddl: bool,
}

impl LeftOut {
    /// Takes the next bytes of its events, of which none ends within them but at their end.
    pub(crate) fn take(&mut self, bytes: &[u8], is_end: bool) {
        let missing = HEADER_LEN.saturating_sub(self.header.len()).min(bytes.len());
        let (header, body) = bytes.split_at(missing);
        self.header.extend_from_slice(header);
        let header = self.header.first_chunk().map(EventHeader::parse);
        if header.is_some_and(|header| header.event_type == EventType::TRANSACTION_PAYLOAD) {
            let may_be_ddl = &mut self.may_be_ddl;
            let read = self.payload.get_or_insert_default().push(body, |change| {
                // `CREATE TABLE ... SELECT` is a group with rows.
                *may_be_ddl |= matches!(change, Change::Statement { schema: Some(_), text, .. } if text.starts_with(b"CREATE "));
            });
            self.may_be_ddl |= read.is_none();
        }
        if is_end {
            self.header.clear();
            self.payload = None;
        }
    }
}
