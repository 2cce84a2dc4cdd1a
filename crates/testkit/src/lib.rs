//! Helpers shared by the tests of this workspace; never part of a shipped program.
//!
//! - [`stream`] writes and scans xbstreams with code of its own, so that the reader crate is not
//!   tested with itself, and [`data`] creates repeatable contents for them.
//! - [`clone`] makes up a clone of MySQL, and [`vectors`] finds the golden files.
//! - [`command`] runs a built program and records its output, time and memory.
//! - [`mariadb`], [`mysql`], [`galera`] and [`s3`] start *real* servers on this machine; only what they say
//!   in a cluster is played by [`scripted`], and a recorded clone by [`donor`]. [`store`] handles a
//!   bucket and a folder alike, [`files`] compares results, and [`fault`] puts a proxy with
//!   scripted failures in front of a server; [`flood`] plays strangers at a joiner's port, and
//!   [`short_disk`] is a disk that fails, [`small_disk`] one that runs full. [`daemon`] ensures that no server and no scratch
//!   folder outlives the test process, [`ports`] finds ports for them, and [`until`] waits for what they do.
//!
//! [`search`] goes through all interleavings of a model.
//!
//! A helper that fails panics with the reason: in a test, that is the right way to fail. A missing
//! server program is a failure, too, never a reason to skip; `scripts/test` installs these
//! programs. A test that needs a right or a file system that this machine may lack calls [`skipped`].
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

mod contents;
mod http;
mod process;
mod search;
mod servers;
mod skip;
mod stores;

pub use contents::{clone, data, files, stream, vectors};
pub use http::{fault, reply};
pub use process::{browser, command, daemon, flood, ports, short_disk, small_disk, tools, until};
pub use search::search;
pub use servers::{cut, donor, galera, mariadb, mysql, scripted};
pub use skip::skipped;
pub use stores::{azure, s3, sink, store};
