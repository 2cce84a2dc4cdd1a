//! The archive of a server's binary logs: receive, list, verify.

pub(crate) mod coverage;
pub(crate) mod notice;
pub(crate) mod open;
pub(crate) mod overview;
pub(crate) mod prune;
pub(crate) mod read;
pub(crate) mod receive;
mod segmenter;
mod session;
mod start;
mod state;
pub(crate) mod tail;
pub(crate) mod verify;
mod writer;
