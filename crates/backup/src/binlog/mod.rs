//! The archive of a server's binary logs: receive, push, list, show, verify.

pub(crate) mod choose_archive;
pub(crate) mod copy;
pub(crate) mod coverage;
mod elsewhere;
mod log_files;
pub(crate) mod notice;
pub(crate) mod open;
pub(crate) mod overview;
pub(crate) mod pieces;
pub(crate) mod prune;
pub(crate) mod push;
pub(crate) mod read;
pub(crate) mod receive;
pub(crate) mod role;
mod search;
mod segmenter;
mod semi_sync;
mod session;
pub(crate) mod show;
mod sources;
mod start;
mod state;
pub(crate) mod tail;
pub(crate) mod verify;
mod waiting;
mod writer;
