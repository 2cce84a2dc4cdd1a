//! Events, as far as an archive, a replay or a check of a server's history needs them.

use crate::error::Error;
use crate::event_type::EventType;
use crate::fields::Fields;
use crate::format::{Fork, FormatDescription};
use crate::gtid_event::{MariaDbBegin, MySqlBegin};
use crate::header::EventHeader;
use crate::mariadb_gtid::{Gtid, GtidList};
use crate::mysql_gtid::GtidSet;
use crate::query::Query;
use crate::xa::XaPrepare;

/// Length limit of the lists of GTIDs at the beginning of a log, in bytes.
const MAX_LIST: usize = 4 << 20;
/// Length limit of other events whose content is read, in bytes.
const MAX_SMALL: usize = 2048;

/// Bytes of a user variable that are read: the length of its name, and the name.
const MAX_NAME: usize = 4 + 3 * 64;

/// An event of a log, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Offset of its first byte.
    pub begin: u64,
    /// Offset behind its last byte.
    pub end: u64,
    /// Header.
    pub header: EventHeader,
    /// Checksum, if it has one.
    pub checksum: Option<u32>,
    /// Content.
    pub event: Event,
}

/// Content of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The first event.
    Format(FormatDescription),
    /// MariaDB: last transactions of earlier logs.
    GtidList(GtidList),
    /// MySQL: all transactions of earlier logs.
    PreviousGtids(GtidSet),
    /// MariaDB: a transaction begins.
    MariaDbBegin(MariaDbBegin),
    /// MySQL: a transaction begins.
    MySqlBegin(MySqlBegin),
    /// A statement.
    Query(Query),
    /// A `LOAD DATA`, whose rows are in the events before it.
    Load(Query),
    /// A commit.
    Xid(u64),
    /// An XA transaction is prepared, or committed in one phase.
    XaPrepare(XaPrepare),
    /// MySQL: a whole transaction, compressed. Its parts are not read.
    TransactionPayload,
    /// Something is missing in the log, such as a transaction that could not be written.
    Incident(Incident),
    /// The server was shut down. The last event.
    Stop,
    /// Another log follows. The last event, unless the server made it up.
    Rotate(Rotate),
    /// MariaDB: everything after this event is encrypted.
    StartEncryption,
    /// An idle server is alive.
    Heartbeat,
    /// Any other event that does not change rows.
    Control,
    /// Name of a user variable that the next statement reads.
    UserVariable(Vec<u8>),
    /// Part of a transaction's content, such as rows.
    Content,
    /// An event of an unknown type.
    Unknown,
}

/// Something is missing in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// Number of the kind; 1 stands for lost events.
    pub number: u16,
    /// The server's message.
    pub message: String,
}

/// Another log follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotate {
    /// Name of the next log.
    pub file: String,
    /// Offset in the next log.
    pub offset: u64,
}

/// Bytes of a body that [`decode`] needs, as far as `so_far` shows. 0: nothing of it is read.
pub(crate) fn needed(event_type: EventType, so_far: &[u8]) -> usize {
    match event_type {
        EventType::QUERY | EventType::QUERY_COMPRESSED => Query::needed(so_far),
        EventType::EXECUTE_LOAD_QUERY => Query::needed(so_far) + Query::LOAD,
        EventType::PREVIOUS_GTIDS | EventType::GTID_LIST => MAX_LIST,
        EventType::FORMAT_DESCRIPTION
        | EventType::ROTATE
        | EventType::XID
        | EventType::INCIDENT
        | EventType::GTID
        | EventType::ANONYMOUS_GTID
        | EventType::GTID_TAGGED
        | EventType::XA_PREPARE
        | EventType::MARIADB_GTID
        | EventType::START_ENCRYPTION => MAX_SMALL,
        EventType::USER_VAR => MAX_NAME,
        _ => 0,
    }
}

/// Checks the length of a body that has to be held in memory as a whole.
pub(crate) fn check_length(event_type: EventType, at: u64, length: u32) -> Result<(), Error> {
    let limit = match event_type {
        // Only their beginning is held.
        EventType::QUERY
        | EventType::QUERY_COMPRESSED
        | EventType::EXECUTE_LOAD_QUERY
        | EventType::USER_VAR => return Ok(()),
        _ => needed(event_type, &[]),
    };
    match limit > 0 && length as usize > limit {
        true => Err(Error::TooLong { at, event_type, limit }),
        false => Ok(()),
    }
}

/// Decodes an event from its body, or from as much of its beginning as is [`needed`].
pub(crate) fn decode(
    header: &EventHeader,
    begin: u64,
    body: &[u8],
    fork: Fork,
) -> Result<Event, Error> {
    let event_type = header.event_type;
    content(header, body, fork).ok_or(Error::Malformed { at: begin, event_type })
}

fn content(header: &EventHeader, body: &[u8], fork: Fork) -> Option<Event> {
    let mut fields = Fields::new(body);
    let event = match header.event_type {
        EventType::FORMAT_DESCRIPTION => Event::Format(FormatDescription::decode(body)?),
        EventType::GTID_LIST => Event::GtidList(gtid_list(fields)?),
        EventType::PREVIOUS_GTIDS => Event::PreviousGtids(GtidSet::decode(body)?),
        EventType::MARIADB_GTID => {
            Event::MariaDbBegin(MariaDbBegin::decode(body, header.server_id)?)
        }
        EventType::GTID => Event::MySqlBegin(MySqlBegin::decode(body, false)?),
        EventType::ANONYMOUS_GTID => Event::MySqlBegin(MySqlBegin::decode(body, true)?),
        EventType::GTID_TAGGED => Event::MySqlBegin(MySqlBegin::decode_tagged(body)?),
        EventType::QUERY => Event::Query(Query::decode(body, false)?),
        EventType::QUERY_COMPRESSED => Event::Query(Query::decode(body, true)?),
        EventType::EXECUTE_LOAD_QUERY => Event::Load(Query::decode_load(body)?),
        EventType::XID => Event::Xid(fields.u64()?),
        EventType::XA_PREPARE => Event::XaPrepare(XaPrepare::decode(body)?),
        EventType::TRANSACTION_PAYLOAD => Event::TransactionPayload,
        EventType::INCIDENT => Event::Incident(incident(fields)?),
        EventType::STOP => Event::Stop,
        EventType::ROTATE => {
            let offset = fields.u64()?;
            Event::Rotate(Rotate { file: text(fields.rest())?, offset })
        }
        EventType::START_ENCRYPTION => Event::StartEncryption,
        EventType::HEARTBEAT | EventType::HEARTBEAT_V2 => Event::Heartbeat,
        EventType::BINLOG_CHECKPOINT => Event::Control,
        EventType::USER_VAR => Event::UserVariable(variable(fields)),
        // Ignorable, Transaction_context and View_change.
        EventType(28 | 36 | 37) => Event::Control,
        known if known.name().is_some() => Event::Content,
        _ => Event::Unknown,
    };
    // The numbers of one fork mean nothing to the other.
    let is_of = match event {
        Event::GtidList(_) | Event::MariaDbBegin(_) | Event::StartEncryption => {
            fork == Fork::MariaDb
        }
        Event::PreviousGtids(_) | Event::MySqlBegin(_) | Event::TransactionPayload => {
            fork == Fork::MySql
        }
        _ => true,
    };
    is_of.then_some(event)
}

/// Number of entries, then domain, server and number of each. ("GTID_LIST_EVENT", documentation of
/// MariaDB Server) An empty list is followed by two zeros, as seen in
/// `fixtures/binlog/mariadb.000001`.
fn gtid_list(mut fields: Fields<'_>) -> Option<GtidList> {
    let number = fields.u32()?;
    let mut list = Vec::new();
    for _ in 0..number {
        let (domain, server) = (fields.u32()?, fields.u32()?);
        list.push(Gtid { domain, server, sequence: fields.u64()? });
    }
    let is_whole = fields.rest().is_empty() || (number == 0 && fields.rest() == [0, 0]);
    is_whole.then(|| GtidList::new(list))
}

/// Kind, then a message of up to 255 bytes behind its length.
/// (`mysql::binlog::event::Incident_event`, MySQL Source Code Documentation)
fn incident(mut fields: Fields<'_>) -> Option<Incident> {
    let number = fields.u16()?;
    let message = match fields.u8() {
        Some(len) => fields.bytes(usize::from(len))?,
        None => &[],
    };
    Some(Incident { number, message: String::from_utf8_lossy(message).into_owned() })
}

/// Length of the name, then the name. A name of which a replay learns nothing is no reason to refuse a log.
fn variable(mut fields: Fields<'_>) -> Vec<u8> {
    let length = fields.u32().and_then(|length| usize::try_from(length).ok());
    length.and_then(|length| fields.bytes(length)).unwrap_or_default().to_vec()
}

/// The name of a log, which is not empty.
fn text(bytes: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(bytes).ok()?;
    (!name.is_empty()).then(|| name.to_owned())
}
