//! Compares restored data, row by row, with a server that is held at the same GTIDs.
//!
//! ```text
//! plan ──► server: checks, applier stopped at the planned position ──► digests ──► applier put back
//!      ──► restore, replay, private server ─────────────────────────► digests ──► differences
//! ```
//!
//! The server is read first, so that its applier is held for as long as that takes, and not for a restore.

mod applier;
mod contents;
mod differences;
mod driver;
mod request;
mod server;

pub(crate) use self::contents::Contents;
pub(crate) use self::differences::differences;
pub(crate) use self::driver::{HeldServer, read_other};
pub use self::request::CompareOptions;
