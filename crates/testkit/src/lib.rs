//! Helpers shared by the tests of this workspace; never part of a shipped program.
//!
//! - [`stream`] writes and scans xbstreams with code of its own, so that the reader crate is not
//!   tested with itself, and [`data`] creates repeatable contents for them.
//! - [`vectors`] finds the golden files.
//! - [`command`] runs a built program and records its output, time and memory.
//! - [`mariadb`], [`mysql`], [`galera`] and [`s3`] start *real* servers on this machine. [`store`] handles a
//!   bucket and a folder alike, [`files`] compares results, and [`fault`] puts a proxy with
//!   scripted failures in front of a server. [`daemon`] ensures that no server and no scratch
//!   folder outlives the test process.
//!
//! A helper that fails panics with the reason: in a test, that is the right way to fail. A missing
//! server program is a failure, too, never a reason to skip; `scripts/test` installs these
//! programs.
//!
//! ```
//! use xb_testkit::stream::{StreamWriter, scan};
//!
//! let mut out = StreamWriter::new(Vec::new());
//! out.payload("db/t.ibd", 0, b"sixteen kilobyte").end("db/t.ibd");
//! let bytes = out.finish();
//! assert_eq!(scan(&bytes).len(), 2);
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test support: a panic with its cause is how a test fails"
)]

pub mod azure;
pub mod command;
pub mod daemon;
pub mod data;
pub mod fault;
pub mod files;
pub mod galera;
mod http;
pub mod mariadb;
pub mod mysql;
pub mod reply;
pub mod s3;
pub mod sink;
pub mod store;
pub mod stream;
pub mod tools;
pub mod vectors;
