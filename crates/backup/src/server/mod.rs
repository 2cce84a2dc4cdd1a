//! The servers that are asked: the running one that a producer reads, for a checkpoint before the
//! backup and evidence of its history, and a private one on restored files.

pub(crate) mod address;
pub(crate) mod checkpoint;
mod imports;
pub(crate) mod login;
pub(crate) mod private;
pub(crate) mod proof;
pub(crate) mod session;
pub(crate) mod watch;
