//! The archive of a server's binary logs: receive, push, list, show, verify.

pub(crate) mod archive;
pub(crate) mod overlap;
pub(crate) mod receive;
pub(crate) mod source;
