//! The recipient's side of a clone: a MySQL server (the donor) sends all its InnoDB files to a connection that
//! asks for them.
//!
//! [`Recipient`] does no I/O. Messages of the donor go in, and it says what each one means, and what to send.
//! It takes one connection for the data and a second one, the auxiliary one, for acknowledgements:
//!
//! ```text
//! INIT ──► what the donor is ──► EXECUTE ──► files ──► changed pages ──► redo log ──► complete ──► EXIT
//!                                              └─ acknowledged ┴── on the ───┴── auxiliary connection
//! ```
//!
//! Nothing in the protocol counts for the recipient, and a server may start on a clone that lacks a page. So
//! every block, chunk, page and byte is counted against what the donor announced, and a clone is complete only
//! after the last stage, the donor's completion, and its consent to leave. A message that is not known, or that
//! comes at another time than a donor sends it, ends the clone.
//!
//! The format is in `docs/spec/clone.md`. A clone between two stock servers is recorded in `fixtures/mysql`.

mod answer;
mod command;
mod descriptor;
mod error;
mod fields;
mod file;
mod limits;
mod order;
mod recipient;
mod redo;
mod stages;

pub use command::Ddl;
pub use descriptor::Stage;
pub use error::CloneError;
pub use file::{CloneFile, FileName, TableKey};
pub use limits::{MAX_FILES, MAX_REDO_FILES};
pub use recipient::{CloneEvent, Donor, Recipient};
pub use redo::RedoFile;
pub use stages::{Block, Totals};
