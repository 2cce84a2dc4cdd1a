//! Binary logs of MySQL and MariaDB.
//!
//! No I/O: the bytes of a log go in, in order and in pieces of any size, and its events come out. Of an
//! event, only the parts that an archive, a replay or a check of the history needs are decoded: where
//! transactions begin and end, their GTIDs, times and kinds. Rows are passed over, in any size.
//!
//! ```text
//! files ──► Reader ──────► Entry (offsets, header, Event) ──► History ──► Step (Transaction, Barrier)
//! packets ► SentReader ──►                                    GTIDs, what is open, prepared, being altered
//! files ──► RelayWriter ──► relay logs, up to a ReplayStop
//! bytes ──► ContentDigest ► Content (what a transaction does) ──► Stretch, Overlap (another server's logs)
//! text  ──► Gtid, GtidPosition, GtidList (MariaDB) · MySqlGtid, GtidSet (MySQL)
//!           LogPosition, GtidState, NotedPosition, LogDigest
//! ```
//!
//! Nothing here trusts a log: every length is checked before it is used, and memory grows only with
//! bytes that have arrived, up to a limit. Supported are logs of MySQL 5.6 and later and of MariaDB
//! 10.0 and later. Encrypted logs are recognised, and not read.
//!
//! The facts about the format come from the documentation of MariaDB Server ("Replication Protocol"),
//! MySQL Source Code Documentation and MySQL Reference Manual, each named where it is used, and from
//! logs of real servers in `fixtures/binlog`.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

mod administration;
mod any_gtid;
mod artificial;
mod barrier;
mod change;
mod change_format;
mod content;
mod content_payload;
mod error;
mod event;
mod event_type;
mod fields;
mod format;
mod gtid_error;
mod gtid_event;
mod header;
mod history;
mod inflate;
mod intervals;
mod left_out;
mod log_digest;
mod mariadb_gtid;
mod mysql_gtid;
mod order;
mod partial_event;
mod payload;
mod pending;
mod position;
mod query;
mod reader;
mod relay;
mod relay_error;
mod sent;
mod statement_doubt;
mod statement_tables;
mod status;
mod stop;
mod stretch;
mod summary;
mod system_zone;
mod temporary;
mod transaction_digest;
mod transactions;
mod words;
mod xa;

pub use any_gtid::{AnyGtid, GtidSequence};
pub use artificial::{artificial_description, artificial_rotation, clear_in_use};
pub use barrier::Barrier;
pub use change::Change;
pub use change_format::ChangeFormat;
pub use content::{Content, ContentDigest};
pub use error::Error;
pub use event::{Entry, Event, Incident, Rotate};
pub use event_type::EventType;
pub use format::{ChecksumKind, Fork, FormatDescription};
pub use gtid_error::GtidError;
pub use gtid_event::{Alter, MariaDbBegin, MariaDbFlags, MySqlBegin};
pub use header::{EventHeader, Flags, HEADER_LEN};
pub use history::{History, Repeats, Step};
pub use log_digest::LogDigest;
pub use mariadb_gtid::{Gtid, GtidList, GtidPosition};
pub use mysql_gtid::{GtidSet, GtidSource, MySqlGtid, Tag, Uuid};
pub use payload::Payload;
pub use position::{GtidState, LogPosition, NotedPosition};
pub use query::{Query, Verb};
pub use reader::{LogEnd, MAGIC, Reader};
pub use relay::{RelayEnd, RelayPlan, RelayWriter};
pub use relay_error::RelayError;
pub use sent::{SentEvent, SentReader};
pub use statement_doubt::StatementDoubt;
pub use stop::ReplayStop;
pub use stretch::{Comparison, DomainStretch, Overlap, Stretch, StretchPlace};
pub use summary::TransactionSummary;
pub use system_zone::SystemZone;
pub use transactions::{Begin, Open, Outcome, Transaction, Transactions};
pub use xa::{XaPrepare, Xid};
