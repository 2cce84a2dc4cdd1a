//! The events that begin a transaction.

use crate::fields::Fields;
use crate::mariadb_gtid::Gtid;
use crate::mysql_gtid::{GtidSource, MySqlGtid, Tag, Uuid};
use crate::xa::Xid;

/// Beginning of a transaction of MariaDB.
///
/// After number, domain and flags: the commit ID, if the transaction is of a group; the XID, if it is
/// an XA transaction; then a byte of further flags, each of which may have a field. The event is
/// filled up with zeros. ("GTID_EVENT", documentation of MariaDB Server; the further flags as seen in
/// `fixtures/binlog/mariadb.000001`, where `SHOW BINLOG EVENTS` names them)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MariaDbBegin {
    /// GTID of the transaction.
    pub gtid: Gtid,
    /// Flags.
    pub flags: MariaDbFlags,
    /// Transactions with the same ID were committed in one group.
    pub commit_id: Option<u64>,
    /// The XA transaction that is prepared or completed.
    pub xid: Option<Xid>,
    /// Part of an `ALTER TABLE` that is logged in two phases.
    pub alter: Option<Alter>,
}

/// Flags of a transaction of MariaDB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MariaDbFlags(pub u8);

impl MariaDbFlags {
    /// The transaction is one statement, without an event that ends it.
    #[must_use]
    pub(crate) fn is_standalone(self) -> bool {
        self.0 & 1 != 0
    }

    /// The transaction changes the definition of something.
    #[must_use]
    pub fn is_ddl(self) -> bool {
        self.0 & 32 != 0
    }

    /// An XA transaction that is prepared.
    #[must_use]
    fn is_xa_prepared(self) -> bool {
        self.0 & 64 != 0
    }

    /// An XA transaction that is committed or rolled back.
    #[must_use]
    fn is_xa_completed(self) -> bool {
        self.0 & 128 != 0
    }

    fn has_commit_id(self) -> bool {
        self.0 & 2 != 0
    }
}

/// Part of an `ALTER TABLE` that is logged when it begins and when it ends
/// (`binlog_alter_two_phase`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alter {
    /// The statement begins.
    Start,
    /// The statement that began with this sequence number has ended.
    Commit(u64),
    /// The statement that began with this sequence number has failed.
    Rollback(u64),
}

impl MariaDbBegin {
    pub(crate) fn decode(body: &[u8], server: u32) -> Option<Self> {
        const MULTI_ENGINE: u8 = 1;
        const START_ALTER: u8 = 2;
        const COMMIT_ALTER: u8 = 4;
        const ROLLBACK_ALTER: u8 = 8;
        let mut fields = Fields::new(body);
        let sequence = fields.u64()?;
        let domain = fields.u32()?;
        let flags = MariaDbFlags(fields.u8()?);
        let commit_id = match flags.has_commit_id() {
            true => Some(fields.u64()?),
            false => None,
        };
        let xid = match flags.is_xa_prepared() || flags.is_xa_completed() {
            true => {
                let format = fields.u32()?;
                let (gtrid, bqual) = (fields.u8()?, fields.u8()?);
                Some(Xid::decode(format, u32::from(gtrid), u32::from(bqual), &mut fields)?)
            }
            false => None,
        };
        let more = fields.u8().unwrap_or_default();
        if more & MULTI_ENGINE != 0 {
            fields.u8()?;
        }
        let alter = if more & START_ALTER != 0 {
            Some(Alter::Start)
        } else if more & COMMIT_ALTER != 0 {
            Some(Alter::Commit(fields.u64()?))
        } else if more & ROLLBACK_ALTER != 0 {
            Some(Alter::Rollback(fields.u64()?))
        } else {
            None
        };
        let gtid = Gtid { domain, server, sequence };
        Some(Self { gtid, flags, commit_id, xid, alter })
    }
}

/// Beginning of a transaction of MySQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MySqlBegin {
    /// GTID of the transaction; `None` if it is anonymous.
    pub gtid: Option<MySqlGtid>,
    /// Time of the commit on this server, in microseconds since 1970. MySQL 8.0.1 and later.
    pub committed: Option<u64>,
    /// Time of the commit on the server where the transaction began, in microseconds since 1970.
    pub first_committed: Option<u64>,
    /// Bytes of the transaction with this event. MySQL 8.0.2 and later.
    pub length: Option<u64>,
}

impl MySqlBegin {
    /// Decodes the body of an event of type 33, or 34 without a GTID.
    ///
    /// One byte of flags, UUID, number, then what later versions have added: two logical timestamps
    /// behind a byte that is 2, the times of the commit in seven bytes each (the highest bit of the
    /// first announces the second), and the length. (`mysql::binlog::event::Gtid_event`, MySQL Source
    /// Code Documentation)
    pub(crate) fn decode(body: &[u8], is_anonymous: bool) -> Option<Self> {
        const ANOTHER_TIME: u64 = 1 << 55;
        let mut fields = Fields::new(body);
        fields.u8()?;
        let uuid = Uuid(fields.array()?);
        let number = fields.u64()?;
        let mut begin = Self { gtid: None, committed: None, first_committed: None, length: None };
        if !is_anonymous {
            begin.gtid = Some(gtid(uuid, None, number)?);
        }
        if fields.rest().first() == Some(&2) {
            fields.bytes(1 + 16)?;
            if let Some(time) = fields.uint(7) {
                let is_first = time & ANOTHER_TIME == 0;
                begin.committed = Some(time & !ANOTHER_TIME);
                begin.first_committed = if is_first { Some(time) } else { Some(fields.uint(7)?) };
                begin.length = fields.lenenc();
            }
        }
        Some(begin)
    }

    /// Decodes the body of an event of type 42.
    ///
    /// A message of MySQL's serialization library: version, length, the last field that a reader
    /// must know; then fields, each behind its number. ("MySQL Serialization Library", MySQL Source
    /// Code Documentation; the numbers as seen in `fixtures/binlog/mysql.000001`, and described by
    /// D. van Eeden, "Decoding MySQL's GTID_TAGGED_LOG_EVENT")
    pub(crate) fn decode_tagged(body: &[u8]) -> Option<Self> {
        /// The last field that is known here.
        const LAST: u64 = 11;
        let mut fields = Fields::new(body);
        let version = fields.varint()?;
        let length = usize::try_from(fields.varint()?).ok()?;
        let required = fields.varint()?;
        if version != 1 || length != body.len() || required > LAST {
            return None;
        }
        let (mut uuid, mut tag, mut number) = (None, None, None);
        let mut begin = Self { gtid: None, committed: None, first_committed: None, length: None };
        while let Some(field) = fields.varint() {
            match field {
                1 => {
                    let mut bytes = [0; 16];
                    for byte in &mut bytes {
                        *byte = u8::try_from(fields.varint()?).ok()?;
                    }
                    uuid = Some(Uuid(bytes));
                }
                2 => number = Some(fields.natural()?),
                3 => tag = Some(std::str::from_utf8(fields.string()?).ok()?),
                6 => begin.committed = Some(fields.varint()?),
                7 => begin.first_committed = Some(fields.varint()?),
                8 => begin.length = Some(fields.varint()?),
                0 | 4 | 5 | 9..=LAST => drop(fields.varint()?),
                // A field of a later version, which this reader may ignore.
                _ => break,
            }
        }
        begin.first_committed = begin.first_committed.or(begin.committed);
        let tag = tag.filter(|tag| !tag.is_empty()).map(str::parse::<Tag>).transpose().ok()?;
        begin.gtid = Some(gtid(uuid?, tag, number?)?);
        Some(begin)
    }
}

fn gtid(uuid: Uuid, tag: Option<Tag>, number: u64) -> Option<MySqlGtid> {
    let is_valid = (1..i64::MAX as u64).contains(&number);
    is_valid.then_some(MySqlGtid { source: GtidSource { uuid, tag }, number })
}
