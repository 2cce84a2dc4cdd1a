//! The client side of the protocol of MySQL and MariaDB.
//!
//! The codec does no I/O. Bytes go into [`Packets`], packets come out, and two state machines turn
//! them into meaning: [`Login`] from the server's [`Greeting`] to its consent, and [`Reply`] for the
//! whole answer to one [`Command`]. For a [`Replica`], [`DumpReply`] reads the binary log that a server
//! sends; [`clone::Recipient`] receives a clone of a server. [`Client`] is a small blocking user of both, over a Unix socket or over
//! TCP with TLS. [`ClientOptions`] says where and as whom, from the options of the stock clients.
//!
//! ```text
//! bytes ──► Packets ──► Greeting ──► Login ──► Reply ──► columns, rows, completion
//!                          │            │         ▲
//!                          ▼            ▼         │
//! bytes ◄── Packets ◄── TLS request, answers,  Command
//! ```
//!
//! Nothing here trusts the server: a length is checked before it is used, memory grows only with
//! bytes that have arrived, up to a limit, and anything that the protocol does not allow is an error.
//!
//! The facts about the format come from MySQL's Source Code Documentation, chapter "Client/Server
//! Protocol", and from MariaDB's documentation, "Client/Server Protocol". Connections of real servers are
//! recorded in `fixtures/mysql`.

mod auth;
pub mod capabilities;
mod client;
mod client_options;
pub mod clone;
mod connection;
mod dump;
mod error;
mod fields;
mod handshake;
mod link;
mod login;
mod packet;
mod reply;
mod response;
mod results;
mod stream;
mod tls;
mod tls_words;

pub use auth::{Account, Channel};
pub use client::{Client, CloneLink, ConnectionCloser, Dump, Target, Timeouts, Waker, fingerprint};
pub use client_options::{Access, ClientOptions, GROUPS};
pub use dump::{DumpItem, DumpReply, Replica, Start};
pub use error::{Error, ServerError};
pub use handshake::Greeting;
pub use login::{Login, Step};
pub use packet::{MAX_PACKET, Packets, Part};
pub use reply::{Command, Event, Reply};
pub use response::{Column, Completion, Row};
pub use results::{Results, Rows};
pub use tls::{ClientCertificate, Fingerprint, Trust};
