//! One ordered byte stream from a donor to a joiner, over several connections that are reopened
//! when they break.
//!
//! This crate does not depend on Galera or the stream's content: it carries an offer and an answer,
//! bytes, and a receipt. The wire format is in `docs/spec/wire.md`.
//!
//! - `announce` is the text with a joiner's address and how it is authenticated; `security` holds
//!   certificates, their verification and the proofs; `handshake` opens a connection.
//! - `protocol` encodes and decodes messages, `link` is one connection.
//! - `ledger` tracks the state of every block, without I/O; `donor` and `joiner` drive the
//!   connections.
//!
//! ```text
//! joiner                                        donor
//! Listener::bind ── announcement ─────────────► Announcement::parse
//! Listener::accept ◄──────────────── offer ──── connect
//! Offered::accept ─── answer ─────────────────► Outgoing
//! Incoming::next_block ◄── blocks, N links ──── Outgoing::send
//! Answers::next_question ◄── beside them ─────── Questions::ask
//! Incoming::confirm ── receipt ───────────────► Outgoing::finish
//! ```
//!
//! Every thread is joined before a call that ends a transfer returns; the token of
//! [`Donor`] or [`Joiner`] ends all of them promptly.

mod announce;
mod counters;
mod donor;
mod endpoint;
mod error;
mod event;
mod handshake;
mod hex;
mod joiner;
mod ledger;
mod limits;
mod link;
mod monitor;
mod printable;
mod protocol;
mod security;
mod transfer_end;

pub use announce::address::HostPort;
pub use announce::secret::{Fingerprint, Secret};
pub use announce::{Announcement, AnnouncementError, Protection};
pub use counters::{Counters, Snapshot};
pub use donor::{Donor, Outgoing, Questions, QuestionsWaker, ReplyWait, connect, decline};
pub use error::{BindError, SecurityError, TransferError};
pub use event::{Event, Observer};
pub use joiner::{Answers, Incoming, Joiner, Listener, Offered, Receipt, Refusal};
pub use limits::{Limits, MAX_OFFER, MAX_QUESTION, MAX_REPLY};
pub use security::{Certificates, Security, TlsMode};

/// Parsers of data from a peer, for property tests and fuzzing. Not a stable interface.
#[doc(hidden)]
pub mod parsers {
    pub use crate::protocol::banner::{Banner, BannerError, parse as parse_banner};
    pub use crate::protocol::buffer_pool::Pool;
    pub use crate::protocol::error::ProtocolError;
    pub use crate::protocol::head::DataHead;
    pub use crate::protocol::message::{Ack, Hello, Message, StopCode, StopMessage, Welcome};
    pub use crate::protocol::message_reader::{Disposition, Inbound, InboundError, Item};
}
