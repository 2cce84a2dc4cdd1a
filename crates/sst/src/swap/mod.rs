//! Exchanging the data of a server that does not run, by renames alone, so that a crash at any
//! moment leaves something that the next start can finish, and that no server takes for data.
//!
//! The new data lies whole, prepared and durable in `FOLDER/.xb/new/`, the old in FOLDER. A journal
//! in the data directory's `.xb` says which entries go; then every old one is moved to
//! `FOLDER/.xb/old/`, and every new one in. Where an entry stands says how far it has come, so the
//! journal need not be written again. `mysql/` goes first and comes last: without it no server starts.
//! But one that tries makes new, empty files of its storage engines before it finds out, and units
//! start one (`--wsrep_recover`) before they ask for a transfer: what such a server has made is put
//! aside into `FOLDER/.xb/old/.stray/`.

mod entry_state;
mod error;
mod exchange;
mod folders;
mod journal;
mod journal_file;
mod plan;
#[cfg(test)]
mod tests;

pub use error::SwapError;
pub use exchange::{finish, roll_back};
pub(crate) use folders::make_dir;
pub use folders::{NEW, OLD, OURS, make_folders, make_old, remove_tree};
pub use journal::{Entry, Journal, JournalError};
pub use journal_file::{begin, interrupted, journal_path, kept_journal_path, last, tidy};
pub(crate) use journal_file::{forget, remember, remembered};
pub use plan::plan;
