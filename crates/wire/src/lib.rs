//! One ordered byte stream from a donor to a joiner, over several connections that may break and
//! are opened again.
//!
//! This crate does not know Galera or the stream's content: it carries an offer and an answer, bytes,
//! and a receipt. The wire format is in `docs/wire.md`.
//!
//! - `announce` is the text by which a joiner tells where it listens and how it proves itself;
//!   `security` holds certificates, their check and the proofs; `handshake` opens a connection.
//! - `protocol` turns messages into bytes and back, `link` is one connection.
//! - `ledger` counts which block is where, without I/O; `donor` and `joiner` drive the connections.
//!
//! ```text
//! joiner                                        donor
//! Listener::bind ── announcement ─────────────► Announcement::parse
//! Listener::accept ◄──────────────── offer ──── connect
//! Offered::accept ─── answer ─────────────────► Outgoing
//! Incoming::next_block ◄── blocks, N links ──── Outgoing::send
//! Incoming::confirm ── receipt ───────────────► Outgoing::finish
//! ```
//!
//! Every thread is joined before a call that ends a transfer returns; [`Cancel`] ends all of them
//! promptly.

mod announce;
mod cancel;
mod counters;
mod donor;
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

pub use announce::address::{DEFAULT_PORT, HostPort};
pub use announce::secret::{Fingerprint, Secret};
pub use announce::{Announcement, AnnouncementError, Protection};
pub use cancel::Cancel;
pub use counters::{Counters, Snapshot};
pub use donor::{Donor, Outgoing, connect};
pub use error::{BindError, SecurityError, TransferError};
pub use event::{Event, Observer};
pub use joiner::{Incoming, Joiner, Listener, Offered, Receipt, Refusal};
pub use limits::{Limits, MAX_OFFER, MAX_REASON};
pub use security::{Certificates, Security, TlsMode};

/// The parsers of what a peer sends, for property tests and fuzzing. No promise is made about them.
#[doc(hidden)]
pub mod parsers {
    pub use crate::protocol::banner::{Banner, BannerError, parse as parse_banner};
    pub use crate::protocol::buffer_pool::Pool;
    pub use crate::protocol::error::ProtocolError;
    pub use crate::protocol::head::DataHead;
    pub use crate::protocol::message::{Ack, Hello, Message, Stop, StopCode, Welcome};
    pub use crate::protocol::message_reader::{Disposition, Inbound, InboundError, Item};

    /// Whether bytes have the form of a certificate.
    pub fn is_certificate(der: &[u8]) -> bool {
        let certificate = rustls::pki_types::CertificateDer::from(der);
        let fields = crate::security::x509::Fields::read(&certificate);
        fields.is_some_and(|fields| {
            let _ = fields.common_name();
            true
        })
    }
}
