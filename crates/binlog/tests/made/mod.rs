//! Logs of events that are put together by hand.
#![allow(dead_code, reason = "not every test uses all of it")]

use xb_binlog::{Entry, Error, Event, EventType, LogEnd, Transaction};
use xb_testkit::vectors;

use crate::listing::{read, transactions};

/// A log without checksums, which begins with the description of a real one.
pub(crate) struct Log(pub(crate) Vec<u8>);

impl Log {
    pub(crate) fn mariadb() -> Self {
        Self(vectors::read("binlog/mariadb.000003-no-checksum")[..256].to_vec())
    }

    pub(crate) fn mysql() -> Self {
        Self(vectors::read("binlog/mysql.000003-no-checksum")[..127].to_vec())
    }

    pub(crate) fn event(self, kind: EventType, body: &[u8]) -> Self {
        self.flagged(kind, 0, body)
    }

    pub(crate) fn flagged(mut self, kind: EventType, flags: u16, body: &[u8]) -> Self {
        let length = u32::try_from(19 + body.len()).unwrap();
        let end = u32::try_from(self.0.len()).unwrap() + length;
        self.0.extend([0; 4]);
        self.0.push(kind.0);
        self.0.extend([1, length, end].map(u32::to_le_bytes).concat());
        self.0.extend(flags.to_le_bytes());
        self.0.extend(body);
        self
    }

    /// A transaction of MariaDB begins.
    pub(crate) fn gtid(self, sequence: u64, flags: u8) -> Self {
        let mut body = sequence.to_le_bytes().to_vec();
        body.extend([0, 0, 0, 0, flags, 0, 0, 0, 0, 0, 0]);
        self.event(EventType::MARIADB_GTID, &body)
    }

    /// A transaction of MySQL begins, which states a length.
    pub(crate) fn mysql_gtid(self, number: u64, length: u8) -> Self {
        let mut body = vec![0; 17];
        body.extend(number.to_le_bytes());
        body.push(2);
        body.extend([0; 16 + 7]);
        body.push(length);
        self.event(EventType::GTID, &body)
    }

    pub(crate) fn query(self, text: &str) -> Self {
        let mut body = vec![0; 14];
        body.extend(text.as_bytes());
        self.event(EventType::QUERY, &body)
    }

    pub(crate) fn xid(self) -> Self {
        self.event(EventType::XID, &[0; 8])
    }

    pub(crate) fn read(&self) -> (Vec<Entry>, Result<LogEnd, Error>) {
        read(&self.0, usize::MAX)
    }

    pub(crate) fn last(&self) -> Event {
        let (entries, end) = self.read();
        assert!(end.is_ok(), "{end:?}");
        entries.into_iter().next_back().unwrap().event
    }

    pub(crate) fn transactions(&self) -> Result<(Vec<Transaction>, bool), Error> {
        let (entries, end) = self.read();
        assert!(end.is_ok(), "{end:?}");
        transactions(&entries)
    }
}
