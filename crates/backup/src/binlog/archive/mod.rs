//! The archive in the store: what it has, from where to where it restores, and what may be removed of it.

pub(crate) mod choose_archive;
pub(crate) mod copy;
pub(crate) mod coverage;
pub(crate) mod lent_streams;
pub(crate) mod open;
pub(crate) mod overview;
mod own_log;
pub(crate) mod pieces;
pub(crate) mod prune;
pub(crate) mod read;
pub(crate) mod same_log;
pub(crate) mod show;
pub(crate) mod state;
pub(crate) mod stream_report;
pub(crate) mod tail;
pub(crate) mod verify;
