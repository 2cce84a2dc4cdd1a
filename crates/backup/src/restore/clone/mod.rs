//! A clone of MySQL: its files are restored as those of any backup, and then put together.
//!
//! ```text
//! info    what the clone says about itself, read before anything else: refused by it, or not
//! state   beside the journal: what is fetched is not compared any more, because it is changed in place
//! place   put together; a server can start on it once the redo log has its place, and not before
//! start   with --prepare: a private server recovers, says where it is, and stops
//! encryption   of tablespaces, whose change the clone has interrupted: finished by that server, and read by another one
//! ```

mod encryption;
pub(crate) mod info;
pub(crate) mod place;
pub(crate) mod report;
pub(crate) mod start;
pub(crate) mod state;
