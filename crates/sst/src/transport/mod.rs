//! One ordered byte stream from a donor to a joiner, over several connections that may break and
//! are taken up again.
//!
//! Knows nothing of Galera or of the stream's content: an offer and an answer, bytes, a receipt.
//! The wire format is in `docs/wire.md`.
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

mod address;
mod announce;
mod banner;
mod cancel;
mod counters;
mod donor;
mod error;
mod event;
mod inbound;
mod joiner;
mod limits;
mod link;
mod message;
mod monitor;
mod open;
mod pool;
mod proof;
mod rate;
mod receiving;
mod secret;
mod security;
mod sending;
mod sum;
mod text;
mod tls;
mod verify;
mod wake;
mod x509;

pub use address::{DEFAULT_PORT, HostPort};
pub use announce::{Announcement, AnnouncementError, Protection};
pub use cancel::Cancel;
pub use counters::{Counters, Snapshot};
pub use donor::{Donor, Outgoing, connect};
pub use error::{BindError, SecurityError, TransferError};
pub use event::{Event, Observer};
pub use joiner::{Incoming, Joiner, Listener, Offered, Receipt, Refusal};
pub use limits::{Limits, MAX_OFFER, MAX_REASON};
pub use secret::{Fingerprint, Secret};
pub use security::{Certificates, Security, TlsMode};

/// The parsers of what a peer sends, for property tests and fuzzing. No promise is made about them.
#[doc(hidden)]
pub mod parsers {
    pub use super::banner::{Banner, BannerError, parse as parse_banner};
    pub use super::inbound::{Inbound, InboundError, Item, Place};
    pub use super::message::{
        Ack, DataHead, Hello, Message, ProtocolError, Stop, StopCode, Welcome,
    };
    pub use super::pool::Pool;

    /// Whether bytes have the form of a certificate.
    pub fn is_certificate(der: &[u8]) -> bool {
        let certificate = rustls::pki_types::CertificateDer::from(der);
        let fields = super::x509::Fields::read(&certificate);
        fields.is_some_and(|fields| {
            let _ = fields.common_name();
            true
        })
    }
}
